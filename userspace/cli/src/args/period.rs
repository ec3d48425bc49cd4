//! Collection periods in rocprofv3's syntax.

use std::{str::FromStr, time::Duration};

use clap::ValueEnum;
use gputrace_session::Period;

/// `DELAY:TIME:REPEAT`; the unit of the first two is given by another option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Triple {
    delay: f64,
    time: f64,
    repeat: u64,
}

impl FromStr for Triple {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "expected DELAY:TIME:REPEAT, e.g. 1:0.5:3".to_owned();
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or_else(form);
        let (delay, time, repeat) = (part()?, part()?, part()?);
        if parts.next().is_some() {
            return Err(form());
        }
        let number = |text: &str| match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
            _ => Err(format!("'{text}' is not a time")),
        };
        let triple = Self {
            delay: number(delay)?,
            time: number(time)?,
            repeat: repeat
                .parse()
                .map_err(|_| format!("'{repeat}' is not a number of times"))?,
        };
        if triple.time > 0.0 {
            Ok(triple)
        } else {
            Err("the time to record must be more than 0".to_owned())
        }
    }
}

impl Triple {
    /// The period with its unit. A time that is too long becomes the longest possible one, and one
    /// that is too short becomes a nanosecond.
    pub(crate) fn period(self, unit: PeriodUnit) -> Period {
        let unit = match unit {
            PeriodUnit::Hour => 3600.0,
            PeriodUnit::Min => 60.0,
            PeriodUnit::Sec => 1.0,
            PeriodUnit::Msec => 1e-3,
            PeriodUnit::Usec => 1e-6,
            PeriodUnit::Nsec => 1e-9,
        };
        // A century, so that sums cannot overflow a clock.
        let longest = Duration::from_secs(100 * 366 * 86400);
        let time = |number: f64| {
            let time = Duration::try_from_secs_f64(number * unit);
            time.map_or(longest, |time| time.min(longest))
        };
        Period {
            delay: time(self.delay),
            length: time(self.time).max(Duration::from_nanos(1)),
            repeat: self.repeat,
        }
    }
}

/// Units of time, as rocprofv3 names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeriodUnit {
    /// Hours.
    Hour,
    /// Minutes.
    Min,
    /// Seconds.
    Sec,
    /// Milliseconds.
    Msec,
    /// Microseconds.
    Usec,
    /// Nanoseconds.
    Nsec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triples_have_units() {
        let period = |text: &str, unit| text.parse::<Triple>().unwrap().period(unit);
        let expected = Period {
            delay: Duration::from_millis(1500),
            length: Duration::from_millis(250),
            repeat: 3,
        };
        assert_eq!(period("1.5:0.25:3", PeriodUnit::Sec), expected);
        assert_eq!(period("1500:250:3", PeriodUnit::Msec), expected);
        assert_eq!(
            period("0:1e-9:0", PeriodUnit::Nsec).length,
            Duration::from_nanos(1)
        );
        assert!(period("1e300:1:1", PeriodUnit::Hour).delay > Duration::from_secs(3_000_000_000));
        for wrong in [
            "", "1", "1:2", "1:2:3:4", "a:1:1", "1:0:1", "-1:1:1", "1:inf:1", "1:1:1.5", "1:NaN:1",
        ] {
            assert!(wrong.parse::<Triple>().is_err(), "{wrong}");
        }
    }
}
