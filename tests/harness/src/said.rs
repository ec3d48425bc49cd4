//! The report of a program in `tests/workloads/gpu`: one JSON object per line, written by
//! `said.hpp` in that directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gputrace_softgpu::truth::Dispatch;
use serde::Deserialize;
use thiserror::Error;

/// A kernel launch as both sides know it. Ordered, so that lists can be compared regardless of
/// order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Launch {
    /// Name in the code object.
    pub kernel: String,
    /// GPU, counted from 0.
    pub device: u32,
    /// Size of the grid in work-items.
    pub grid: [u32; 3],
    /// Size of a workgroup in work-items.
    pub workgroup: [u16; 3],
}

/// One line of a program's report. Unknown lines are an error and never skipped: a test must
/// understand everything that a program reports.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Said {
    /// A kernel was launched.
    Kernel(Launch),
    /// A copy was submitted; reported by `hsa_ticks`, it has ended.
    Copy {
        /// Not reported by `hsa_ticks`, whose copies all go to the GPU.
        #[serde(default)]
        direction: Direction,
        /// Size in bytes.
        bytes: u64,
        /// Only reported by `hsa_ticks`.
        #[serde(flatten)]
        ticks: Option<Ticks>,
    },
    /// A barrier packet has ended.
    Barrier {
        /// Its begin and end.
        #[serde(flatten)]
        ticks: Ticks,
    },
    /// The time between two events.
    ElapsedMs {
        /// Milliseconds.
        value: f64,
    },
    /// How many GPUs there are.
    Devices {
        /// Number of GPUs.
        value: f64,
    },
    /// Whether the GPUs can access each other's memory.
    PeerAccess {
        /// 1 if they can.
        value: f64,
    },
    /// Whether the runtime exports `hipLaunchHostFunc`.
    HostFunctions {
        /// 1 if it does.
        value: f64,
    },
    /// How the child of a fork ended.
    ChildStatus {
        /// Its status from `wait(2)`.
        value: f64,
    },
    /// The number of matrix products that were requested.
    Products {
        /// The number.
        value: f64,
    },
    /// An operation was done several times within a period.
    Phase {
        /// The operation.
        name: String,
        /// How many times.
        count: u32,
        /// Begin of the period; `CLOCK_BOOTTIME`, ns.
        begin_ns: u64,
        /// End of the period; `CLOCK_BOOTTIME`, ns.
        end_ns: u64,
        /// When the resulting GPU work had ended; `CLOCK_BOOTTIME`, ns.
        settled_ns: u64,
    },
    /// An argument or result of a call.
    Argument {
        /// The function.
        function: String,
        /// Name of the parameter, or of a member of the structure that it points to.
        name: String,
        /// Its value in the form that gputrace must show.
        value: String,
    },
    /// Memory without an address was allocated.
    Handle {
        /// `hsa_amd_vmem_alloc_handle_t::handle`.
        handle: u64,
        /// Size in bytes.
        bytes: u64,
    },
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Host to device.
    #[default]
    H2d,
    /// Device to host.
    D2h,
    /// Within a device.
    D2d,
    /// Within the host.
    H2h,
    /// From one device to another.
    Peer,
}

/// What `hsa_ticks` found in a signal, and HSA's conversion of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Ticks {
    /// The signal's handle.
    pub signal: u64,
    /// GPU ticks.
    pub begin_ticks: u64,
    /// GPU ticks.
    pub end_ticks: u64,
    /// `begin_ticks` as converted by HSA, ns of `CLOCK_BOOTTIME`.
    pub begin_ns: u64,
    /// `end_ticks` as converted by HSA, ns of `CLOCK_BOOTTIME`.
    pub end_ns: u64,
}

/// Why a report cannot be read.
#[derive(Debug, Error)]
pub enum SaidError {
    /// The file cannot be read.
    #[error("what the program says, {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is not of a kind that programs are known to write.
    #[error("what the program says, {text:?}: {source}")]
    Line {
        /// The line.
        text: String,
        /// The parser's error.
        source: serde_json::Error,
    },
}

/// Reads a program's report. A missing file counts as empty, because the program had nothing to
/// report. An incomplete line at the end is ignored, because the program was killed while writing
/// it.
///
/// # Errors
///
/// When the file exists but cannot be read, or a line is not of a kind that programs are known to
/// write.
pub fn read(path: &Path) -> Result<Vec<Said>, SaidError> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(SaidError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

fn parse(text: &str) -> Result<Vec<Said>, SaidError> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |text: &str| {
        serde_json::from_str(text).map_err(|source| SaidError::Line {
            text: text.to_owned(),
            source,
        })
    };
    whole.lines().map(line).collect()
}

/// Whether a kernel is the program's own, judging by its name in the code object: names of HIP's
/// kernels begin with two underscores, and ROCr's have no names, because ROCr does not list their
/// code.
#[must_use]
pub fn is_own(kernel: &str) -> bool {
    !kernel.is_empty() && !kernel.starts_with("__")
}

/// A dispatch in the terms of a program's report.
#[must_use]
pub fn launch_of(dispatch: &Dispatch) -> Launch {
    Launch {
        kernel: dispatch.kernel.to_string(),
        device: dispatch.place.agent,
        grid: dispatch.grid,
        workgroup: dispatch.workgroup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: &str = r#"{"said":"copy","direction":"d2h","bytes":7}"#;

    #[test]
    fn a_log_may_end_within_a_line() {
        let copy = [Said::Copy {
            direction: Direction::D2h,
            bytes: 7,
            ticks: None,
        }];
        for cut in ["", "{", COPY] {
            let text = format!("{COPY}\n{cut}");
            assert_eq!(parse(&text).unwrap(), copy, "{cut}");
            assert_eq!(parse(cut).unwrap(), [], "{cut}");
        }
        assert!(parse(&format!("{{\n{COPY}\n")).is_err(), "not at its end");
    }

    #[test]
    fn a_log_that_is_not_there_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(&directory.path().join("said")).unwrap(), []);
        let unreadable = read(directory.path());
        assert!(
            matches!(unreadable, Err(SaidError::File { .. })),
            "{unreadable:?}"
        );
    }

    #[test]
    fn an_unknown_word_is_an_error() {
        let unknown = parse("{\"said\":\"nonsense\",\"value\":1}\n");
        let Err(SaidError::Line { text, .. }) = unknown else {
            panic!("{unknown:?}")
        };
        assert!(text.contains("nonsense"));
    }

    #[test]
    fn signals_have_ticks_and_copies_to_the_gpu_no_direction() {
        let signal = r#""signal":1,"begin_ticks":2,"end_ticks":3,"begin_ns":4,"end_ns":5"#;
        let ticks = Ticks {
            signal: 1,
            begin_ticks: 2,
            end_ticks: 3,
            begin_ns: 4,
            end_ns: 5,
        };
        let text = format!(
            "{{\"said\":\"barrier\",{signal},\"bytes\":0}}\n{{\"said\":\"copy\",{signal},\"bytes\":6}}\n"
        );
        let copy = Said::Copy {
            direction: Direction::H2d,
            bytes: 6,
            ticks: Some(ticks),
        };
        assert_eq!(parse(&text).unwrap(), [Said::Barrier { ticks }, copy]);
    }

    #[test]
    fn kernels_of_the_runtimes_are_not_the_programs() {
        assert!(is_own("vadd") && is_own("_Z4vaddPf"));
        assert!(!is_own("") && !is_own("__amd_rocclr_copyBuffer"));
    }
}
