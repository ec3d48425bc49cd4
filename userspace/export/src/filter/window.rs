//! A time window of a recording, as users write it.

use std::str::FromStr;

use gputrace_timeline::extent::Extent;

/// A point in time of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// This many ns after the begin.
    After(u64),
    /// At this percentage of the recording.
    Percent(f64),
}

impl Moment {
    /// The time in a recording of this extent, ns `CLOCK_BOOTTIME`.
    #[must_use]
    pub fn within(self, extent: Extent) -> u64 {
        let after = match self {
            Self::After(ns) => ns,
            // Accurate enough: a hundred years are 2^62 ns, for which a float of 53 bits is off by
            // half a microsecond.
            Self::Percent(percent) => {
                (extent.end.saturating_sub(extent.begin) as f64 * percent / 100.0).round() as u64
            }
        };
        extent.begin.saturating_add(after)
    }
}

/// A time window; both ends are included.
///
/// Written `BEGIN:END`. Each is a number with a unit (`us`, `ms`, `s`, `m`, `h`; without one,
/// seconds) after the begin of the recording, or a percentage of it, or empty for the recording's
/// own begin or end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeWindow {
    /// Begin; `None` for that of the recording.
    pub begin: Option<Moment>,
    /// End; `None` for that of the recording.
    pub end: Option<Moment>,
}

impl TimeWindow {
    /// Its first and last ns of `CLOCK_BOOTTIME` in a recording of this extent.
    #[must_use]
    pub fn within(self, extent: Extent) -> (u64, u64) {
        (
            self.begin.map_or(0, |moment| moment.within(extent)),
            self.end.map_or(u64::MAX, |moment| moment.within(extent)),
        )
    }
}

/// Why a text is not a time window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It has no colon, or more than one.
    #[error("expected BEGIN:END, e.g. 1s:2.5s, 10%:20% or :500ms")]
    Form,
    /// One side cannot be parsed.
    #[error(
        "'{text}' is not a moment of the recording: write a number with a unit (ns, us, ms, s, m, h) or a percentage, e.g. 1.5s or 10%"
    )]
    Moment {
        /// That side.
        text: String,
    },
    /// It ends before it begins.
    #[error("the window ends before it begins")]
    Backwards,
}

impl FromStr for TimeWindow {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let (begin, end) = text.split_once(':').ok_or(WindowError::Form)?;
        if end.contains(':') || (begin.trim().is_empty() && end.trim().is_empty()) {
            return Err(WindowError::Form);
        }
        let window = Self {
            begin: moment(begin)?,
            end: moment(end)?,
        };
        let backwards = match (window.begin, window.end) {
            (Some(Moment::After(begin)), Some(Moment::After(end))) => begin > end,
            (Some(Moment::Percent(begin)), Some(Moment::Percent(end))) => begin > end,
            // This depends on the recording's length.
            _ => false,
        };
        if backwards {
            return Err(WindowError::Backwards);
        }
        Ok(window)
    }
}

fn moment(text: &str) -> Result<Option<Moment>, WindowError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || WindowError::Moment {
        text: text.to_owned(),
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let scale = match unit.trim() {
        "%" if number <= 100.0 => return Ok(Some(Moment::Percent(number))),
        "ns" => 1.0,
        "us" | "\u{b5}s" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(wrong()),
    };
    // The cast saturates, far beyond the length of any recording.
    Ok(Some(Moment::After((number * scale).round() as u64)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<TimeWindow, WindowError> {
        text.parse()
    }

    #[test]
    fn moments_have_units_or_are_shares() {
        let extent = Extent {
            begin: 1_000,
            end: 2_000_001_000,
        };
        for (text, expected) in [
            ("1s:1.5s", (1_000_001_000, 1_500_001_000)),
            ("10ms:", (10_001_000, u64::MAX)),
            (":250", (0, 250_000_001_000)),
            ("25%:50%", (500_001_000, 1_000_001_000)),
            ("0%:100%", (1_000, 2_000_001_000)),
            ("7ns:1m", (1_007, 60_000_001_000)),
            ("0:1%", (1_000, 20_001_000)),
        ] {
            assert_eq!(parse(text).unwrap().within(extent), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for text in ["", ":", "1s", "1:2:3"] {
            assert_eq!(parse(text), Err(WindowError::Form), "{text}");
        }
        assert_eq!(parse("2s:1s"), Err(WindowError::Backwards));
        assert_eq!(parse("50%:10%"), Err(WindowError::Backwards));
        for text in ["-1s:2s", "1 parsec:", "120%:", "1.2.3:", "\u{e9}:1"] {
            assert!(
                matches!(parse(text), Err(WindowError::Moment { .. })),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_window_or_an_error(text in ".{0,20}", begin: u64, end: u64) {
            if let Ok(window) = parse(&text) {
                let (from, _) = window.within(Extent { begin, end });
                prop_assert!(from == 0 || from >= begin);
            }
        }
    }
}
