//! Functions by which programs inform profilers: they begin and end ranges, switch recording on and
//! off, and assign work to ids.

use crate::by_name;

/// Meaning of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// Marks a moment. The first argument is its text.
    Mark {
        /// Whether kernels launched afterwards can be named after it, as in rocprofv3
        /// (`--kernel-rename`).
        names_kernels: bool,
    },
    /// Begins a range of this thread. The first argument is its text.
    Push {
        /// Whether the function returns the number of ranges around the new one.
        level: bool,
    },
    /// Marks a moment that the function itself stands for; the value is its name.
    MarkAs(&'static str),
    /// Begins a copy, as a range of this thread. The first and the third argument word point to the
    /// names of its destination and its source.
    PushCopy,
    /// Ends the innermost range of this thread.
    Pop {
        /// Whether the function returns the number of ranges around the one that ends, or -1.
        level: bool,
    },
    /// Begins a range that may end in any thread. The first argument is its text; the function
    /// returns its id.
    Start,
    /// Ends the range whose id is the first argument.
    Stop,
    /// Gives a range a name, the first argument, and an id, which is stored through the second
    /// argument.
    NameSection,
    /// Begins the range whose id is the first argument; it may end in any thread.
    StartSection,
    /// Ends the range whose id is the first argument.
    StopSection,
    /// Requests that the program is recorded from now on.
    Resume,
    /// Requests that the program is not recorded from now on.
    Pause,
    /// Requests that the calling thread is recorded from now on.
    ResumeThread,
    /// Requests that the calling thread is not recorded from now on.
    PauseThread,
    /// Names the calling thread; the first argument is the name.
    NameThread,
    /// Assigns the following work of a thread to an id, until the id is removed.
    PushCorrelation {
        /// Index of the argument word with the id.
        id: u8,
        /// Index of the argument word with the thread, if there is one: 0 is the calling thread.
        thread: Option<u8>,
    },
    /// Removes the last id of a thread.
    PopCorrelation {
        /// As in [`Marker::PushCorrelation`].
        thread: Option<u8>,
    },
}

impl Marker {
    /// Whether it switches recording on or off.
    #[must_use]
    pub const fn is_switch(self) -> bool {
        matches!(self, Resume | Pause | ResumeThread | PauseThread)
    }
}

use Marker::{
    Mark, MarkAs, NameSection, NameThread, Pause, PauseThread, Pop, PopCorrelation, Push, PushCopy,
    PushCorrelation, Resume, ResumeThread, Start, StartSection, Stop, StopSection,
};

/// Functions, sorted by name for binary search.
const MARKERS: &[(&str, Marker)] = &[
    ("hipProfilerStart", Resume),
    ("hipProfilerStop", Pause),
    ("kokkosp_begin_deep_copy", PushCopy),
    ("kokkosp_begin_fence", Push { level: false }),
    ("kokkosp_begin_parallel_for", Push { level: false }),
    ("kokkosp_begin_parallel_reduce", Push { level: false }),
    ("kokkosp_begin_parallel_scan", Push { level: false }),
    ("kokkosp_create_profile_section", NameSection),
    ("kokkosp_end_deep_copy", Pop { level: false }),
    ("kokkosp_end_fence", Pop { level: false }),
    ("kokkosp_end_parallel_for", Pop { level: false }),
    ("kokkosp_end_parallel_reduce", Pop { level: false }),
    ("kokkosp_end_parallel_scan", Pop { level: false }),
    (
        "kokkosp_finalize_library",
        MarkAs("Kokkos::Finalization Complete"),
    ),
    (
        "kokkosp_init_library",
        MarkAs("Kokkos::Initialization Complete"),
    ),
    ("kokkosp_pop_profile_region", Pop { level: false }),
    (
        "kokkosp_profile_event",
        Mark {
            names_kernels: false,
        },
    ),
    ("kokkosp_push_profile_region", Push { level: false }),
    ("kokkosp_start_profile_section", StartSection),
    ("kokkosp_stop_profile_section", StopSection),
    (
        "omnitrace_user_annotated_progress",
        Mark {
            names_kernels: false,
        },
    ),
    ("omnitrace_user_pop_annotated_region", Pop { level: false }),
    ("omnitrace_user_pop_region", Pop { level: false }),
    (
        "omnitrace_user_progress",
        Mark {
            names_kernels: false,
        },
    ),
    (
        "omnitrace_user_push_annotated_region",
        Push { level: false },
    ),
    ("omnitrace_user_push_region", Push { level: false }),
    ("omnitrace_user_start_thread_trace", ResumeThread),
    ("omnitrace_user_start_trace", Resume),
    ("omnitrace_user_stop_thread_trace", PauseThread),
    ("omnitrace_user_stop_trace", Pause),
    (
        "rocprofiler_pop_external_correlation_id",
        PopCorrelation { thread: Some(1) },
    ),
    (
        "rocprofiler_push_external_correlation_id",
        PushCorrelation {
            id: 2,
            thread: Some(1),
        },
    ),
    (
        "rocprofsys_user_annotated_progress",
        Mark {
            names_kernels: false,
        },
    ),
    ("rocprofsys_user_pop_annotated_region", Pop { level: false }),
    ("rocprofsys_user_pop_region", Pop { level: false }),
    (
        "rocprofsys_user_progress",
        Mark {
            names_kernels: false,
        },
    ),
    (
        "rocprofsys_user_push_annotated_region",
        Push { level: false },
    ),
    ("rocprofsys_user_push_region", Push { level: false }),
    ("rocprofsys_user_start_thread_trace", ResumeThread),
    ("rocprofsys_user_start_trace", Resume),
    ("rocprofsys_user_stop_thread_trace", PauseThread),
    ("rocprofsys_user_stop_trace", Pause),
    (
        "roctracer_activity_pop_external_correlation_id",
        PopCorrelation { thread: None },
    ),
    (
        "roctracer_activity_push_external_correlation_id",
        PushCorrelation {
            id: 0,
            thread: None,
        },
    ),
    ("roctracer_start", Resume),
    ("roctracer_stop", Pause),
    (
        "roctxMarkA",
        Mark {
            names_kernels: true,
        },
    ),
    ("roctxNameOsThread", NameThread),
    ("roctxProfilerPause", Pause),
    ("roctxProfilerResume", Resume),
    ("roctxRangePop", Pop { level: true }),
    ("roctxRangePushA", Push { level: true }),
    ("roctxRangeStartA", Start),
    ("roctxRangeStop", Stop),
];

/// Meaning of a call of this function for profilers; `None` if it has none.
///
/// ```
/// use gputrace_catalog::markers::{Marker, marker};
/// assert_eq!(marker("roctxMarkA"), Some(Marker::Mark { names_kernels: true }));
/// assert_eq!(marker("hipMalloc"), None);
/// ```
#[must_use]
pub fn marker(name: &str) -> Option<Marker> {
    by_name(MARKERS, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{classify, signature};

    #[test]
    fn markers_are_found_and_known() {
        assert!(MARKERS.is_sorted_by_key(|(name, _)| name));
        for (name, expected) in MARKERS {
            assert_eq!(marker(name), Some(*expected));
            let signature =
                signature(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            assert!(classify(name).is_some(), "{name}");
            let words = signature.arguments.len();
            match expected {
                Mark { .. } | Push { .. } | Start | NameSection | NameThread => {
                    assert_eq!(signature.arguments[0].c_type.spelling, "const char *");
                }
                PushCopy => {
                    let parameters = signature.parameters();
                    let names = parameters.iter().filter(|one| one.c_type == "const char *");
                    let words: Vec<_> = names.map(|name| crate::word(name.at)).collect();
                    assert_eq!(words, [Some(0), Some(2)]);
                }
                Stop | StartSection | StopSection => assert_eq!(words, 1),
                PushCorrelation { id, thread } => {
                    assert!(usize::from((*id).max(thread.unwrap_or(0))) < words);
                }
                PopCorrelation { thread } => assert!(usize::from(thread.unwrap_or(0)) < words),
                ResumeThread | PauseThread => assert_eq!(words, 0),
                _ => {}
            }
        }
    }
}
