//! Options of a flight recorder.

use std::{ffi::OsString, num::NonZeroU32, str::FromStr, time::Duration};

use clap::{ArgGroup, Args};
use gputrace_session::{FlightLimits, FlightRequest, Parts, Rule};
use regex::Regex;

use super::values::{bytes, duration};

/// Options that have no use where no files are made but captures, and the recording has no end.
const OTHERS: [&str; 12] = [
    "max_events",
    "collection_period",
    "output_format",
    "output_config",
    "stats",
    "csv_arguments",
    "wall_clock",
    "minimum_output_data",
    "perfetto_compress",
    "perfetto_gpu_events",
    "selected_regions",
    "summary",
];

/// How rules are written.
const RULES: &str = "call=TIME, call=REGEX:TIME, error, error=NAME, kernel=TIME, \
                     kernel=REGEX:TIME, stuck=TIME, reset, fault, eviction, killed";

/// Options of a flight recorder.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Flight recorder",
    group = ArgGroup::new("dumps").args(["flight", "keep"])
)]
pub(crate) struct FlightArgs {
    /// Keep only the last part of the recording, and write it to NAME_dump-N.gtcap when something
    /// happens (--dump-on, SIGUSR2, `gputrace dump-flight`). KEEP is a time, a size or both, e.g.
    /// 60s, 512MiB or 5m,1GiB [default: 60s,256MiB].
    #[arg(long, value_name = "KEEP", num_args = 0..=1, default_missing_value = "60s",
          conflicts_with_all = OTHERS, conflicts_with = "max_size", conflicts_with = "max_duration")]
    flight: Option<Keep>,

    /// Make a dump when this happens; repeat for several: call=TIME (a call takes longer, or is
    /// still open), call=REGEX:TIME, error (a call returns an error), error=NAME, kernel=TIME,
    /// kernel=REGEX:TIME, stuck=TIME (a queue does not move), reset, fault, eviction (of the
    /// driver; with --kfd-events), killed (the launched program, by a signal).
    #[arg(long, value_name = "RULE", requires = "flight")]
    dump_on: Vec<FlightRule>,

    /// A dump also has what happens in this time after its cause.
    #[arg(long, value_name = "TIME", requires = "flight", value_parser = duration,
          default_value = "1s")]
    dump_after: Duration,

    /// Make at most this many dumps because of --dump-on.
    #[arg(long, value_name = "N", requires = "flight", default_value_t = 10)]
    dump_limit: u32,

    /// Run a command of the shell when a dump was written, or a file of --keep. It runs as the user
    /// behind sudo, and finds the file's path in GPUTRACE_DUMP.
    #[arg(long, value_name = "COMMAND", requires = "dumps")]
    on_dump: Option<OsString>,

    /// Begin another capture, NAME_part-N.gtcap, when one has its --max-size or its --max-duration,
    /// and keep this many: the latest ones.
    #[arg(long, value_name = "N", conflicts_with_all = OTHERS, conflicts_with = "flight")]
    keep: Option<NonZeroU32>,

    /// Minimum time from one dump because of --dump-on to the next.
    #[arg(long, value_name = "TIME", requires = "flight", value_parser = duration,
          default_value = "30s")]
    dump_pause: Duration,
}

impl FlightArgs {
    /// Whether the recording goes on in another file when one is full.
    pub(crate) fn goes_on(&self) -> bool {
        self.keep.is_some()
    }

    /// The flight recorder, or the recording in several files, that they ask for. `bytes` and `time`
    /// limit a file.
    pub(crate) fn request(
        &self,
        bytes: Option<u64>,
        time: Option<Duration>,
    ) -> Option<FlightRequest> {
        if let Some(keep) = self.keep {
            return Some(FlightRequest {
                on_dump: self.on_dump.clone(),
                ..FlightRequest::in_parts(Parts { bytes, time, keep })
            });
        }
        Some(FlightRequest {
            limits: self.flight?.0,
            rules: self.dump_on.iter().map(|rule| rule.0.clone()).collect(),
            after: self.dump_after,
            dumps: self.dump_limit,
            pause: self.dump_pause,
            on_dump: self.on_dump.clone(),
            parts: None,
        })
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keep(FlightLimits);

/// The smallest size, bytes: some blocks of a capture.
pub(crate) const LEAST: u64 = 1 << 20;

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut time, mut size) = (None, None);
        for part in text.split(',') {
            let form =
                || format!("'{part}' is neither a time with a unit (60s, 5m) nor a size (256MiB)");
            if part.ends_with(|last: char| last.is_ascii_digit()) {
                return Err(form());
            }
            let twice = match (duration(part), bytes(part)) {
                (Ok(found), _) => time.replace(found).is_some(),
                (_, Ok(found)) => size.replace(found).is_some(),
                _ => return Err(form()),
            };
            if twice {
                return Err("expected at most one time and one size".to_owned());
            }
        }
        if size.is_some_and(|size| size < LEAST) {
            return Err("the size must be at least 1MiB".to_owned());
        }
        Ok(Self(FlightLimits {
            time,
            bytes: size.unwrap_or(FlightLimits::BYTES),
        }))
    }
}

/// A rule as users write it.
#[derive(Clone, Debug)]
struct FlightRule(Rule);

impl FromStr for FlightRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (what, value) = match text.split_once('=') {
            Some((what, value)) => (what, Some(value)),
            None => (text, None),
        };
        Ok(Self(match (what, value) {
            ("call", Some(value)) => {
                let (name, longer) = named(value)?;
                Rule::Call { name, longer }
            }
            ("kernel", Some(value)) => {
                let (name, longer) = named(value)?;
                Rule::Kernel { name, longer }
            }
            ("stuck", Some(value)) => Rule::Stuck {
                longer: duration(value)?,
            },
            ("error", name) if name != Some("") => Rule::Error {
                name: name.map(str::to_owned),
            },
            ("reset", None) => Rule::Reset,
            ("fault", None) => Rule::Fault,
            ("eviction", None) => Rule::Eviction,
            ("killed", None) => Rule::Killed,
            _ => return Err(format!("expected one of {RULES}")),
        }))
    }
}

/// `TIME` or `REGEX:TIME`. Names of C++ have colons, so the last one counts.
fn named(text: &str) -> Result<(Option<Regex>, Duration), String> {
    let (name, time) = match text.rsplit_once(':') {
        Some((name, time)) => (Some(name), time),
        None => (None, text),
    };
    let name = name.map(Regex::new).transpose();
    Ok((name.map_err(|error| error.to_string())?, duration(time)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_a_time_a_size_or_both() {
        let keep = |text: &str| text.parse::<Keep>().map(|keep| (keep.0.time, keep.0.bytes));
        let minute = Some(Duration::from_secs(60));
        assert_eq!(keep("60s"), Ok((minute, FlightLimits::BYTES)));
        assert_eq!(keep("1m"), Ok((minute, FlightLimits::BYTES)));
        assert_eq!(keep("256M"), Ok((None, 256 << 20)));
        assert_eq!(keep("1GiB,60s"), Ok((minute, 1 << 30)));
        for wrong in [
            "",
            "60",
            "60s,",
            "60s,5m",
            "1G,2G",
            "0s",
            "fast",
            "60s,1G,1G",
            "60s,512KiB",
        ] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_are_shown_as_they_are_written() {
        for text in [
            "call=100ms",
            "call=^hipMem:1.5s",
            "kernel=ns::gemm.*:2ms",
            "error",
            "error=hipErrorOutOfMemory",
            "stuck=10s",
            "reset",
            "fault",
            "eviction",
            "killed",
        ] {
            assert_eq!(text.parse::<FlightRule>().unwrap().0.to_string(), text);
        }
        for wrong in [
            "",
            "call",
            "call=",
            "call=x",
            "call=(:1s",
            "stuck",
            "error=",
            "reset=1",
            "hang",
        ] {
            assert!(wrong.parse::<FlightRule>().is_err(), "{wrong}");
        }
    }
}
