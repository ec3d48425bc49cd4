//! Why a recording has no call, where gputrace knows it.

use gputrace_abi::domain::Domain;

use super::Recorder;
use crate::{SessionError, request::Targets};

/// What is known at the end of a recording without calls.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    targets: &'a Targets,
    /// Whether there were to be collection periods, and none has begun.
    no_period: bool,
    /// Whether a target had a ROCm library mapped.
    has_library: bool,
    /// Whether `--include` or `--exclude` left no function of the libraries.
    all_left_out: bool,
}

impl Recorder<'_> {
    /// Says why no call was recorded, if that is so and the reason is known. To be called once the
    /// eBPF programs have stopped.
    pub(super) fn tell_nothing(&mut self) -> Result<(), SessionError> {
        let domains = &self.request.domains;
        // Requests to the driver need no library.
        let is_api = |domain: &&Domain| domain.is_api() && **domain != Domain::KfdIoctl;
        let apis = || domains.iter().filter(is_api);
        // Other functions have reasons of their own.
        if apis().next().is_none() || !self.request.extra.is_empty() {
            return Ok(());
        }
        let seen = |domain: &Domain, seen: &[u64]| seen.get(usize::from(domain.id())).copied();
        let counters = self.calls.counters()?;
        let mut seen = counters
            .iter()
            .flat_map(|cpu| apis().filter_map(|domain| seen(domain, &cpu.seen)));
        if seen.any(|calls| calls > 0) {
            return Ok(());
        }
        let functions = &self.request.functions;
        let is_filtered = functions.include.is_some() || functions.exclude.is_some();
        let known = Known {
            targets: &self.request.targets,
            no_period: !self.request.periods.is_empty() && !self.course.has_begun(),
            has_library: self.instruments.rocm.is_mapped,
            all_left_out: is_filtered && !self.instruments.rocm.has_functions,
        };
        if let Some(text) = why(known) {
            self.told.nothing_matched = true;
            self.remark(text);
        }
        Ok(())
    }
}

fn why(known: Known<'_>) -> Option<String> {
    if known.no_period {
        return Some(
            "the recording ended before its first collection period (-P) began".to_owned(),
        );
    }
    if known.has_library {
        return known.all_left_out.then(|| {
            "--include and --exclude leave no function of the traced domains; the names are \
             shown by `gputrace list --probes`"
                .to_owned()
        });
    }
    Some(match known.targets {
        Targets::Launch { .. } => "gputrace saw no process of the program load a ROCm library; a \
                                   runtime that is linked statically cannot be traced"
            .to_owned(),
        Targets::Attach { pids, .. } => {
            let list: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!(
                "no ROCm library was loaded while process {} was recorded",
                list.join(", ")
            )
        }
        Targets::Node => "no process of this node had a ROCm library".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_told() {
        let launch = Targets::Launch {
            command: vec!["app".into()],
            hold: true,
        };
        let attach = Targets::Attach {
            pids: vec![7],
            wait: true,
        };
        let known = Known {
            targets: &launch,
            no_period: false,
            has_library: true,
            all_left_out: false,
        };
        // The program had the libraries and made no call: nothing else is known.
        assert_eq!(why(known), None);
        for (known, part) in [
            (
                Known {
                    no_period: true,
                    has_library: false,
                    ..known
                },
                "first collection period (-P)",
            ),
            (
                Known {
                    all_left_out: true,
                    ..known
                },
                "--include and --exclude",
            ),
            (
                Known {
                    has_library: false,
                    all_left_out: true,
                    ..known
                },
                "no process of the program",
            ),
            (
                Known {
                    targets: &attach,
                    has_library: false,
                    ..known
                },
                "while process 7 was recorded",
            ),
        ] {
            let said = why(known).unwrap_or_default();
            assert!(said.contains(part), "{said}");
        }
    }
}
