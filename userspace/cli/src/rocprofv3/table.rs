//! All options of rocprofv3, grouped as in its `--help` (rocprofv3.py of ROCm 7), and what happens
//! to each in gputrace.
//!
//! Whether an option works is not written down here: it works if gputrace's command line has it.
//! The table says what happens to the others, and what a user of rocprofv3 should know about those
//! that work.

use super::{
    Entry,
    Otherwise::{Instead, NoEffect, Works},
    Values::{self, Bool, Many, One},
};

/// For options about counters inside the GPU.
const COUNTERS: &str = "counters inside the GPU can be programmed only by the process that uses it; `--kernel-trace` gives the \
                        times of every kernel, and `--counters` what the driver counts, with \
                        NAME_counter_collection.csv for what was read while each kernel ran";
/// For options about samples of the GPU's program counter.
const SAMPLING: &str = "the GPU's program counter can be sampled only from inside the process; `--kernel-trace` gives the times \
                        of every kernel";
/// For options about instruction traces.
const THREAD_TRACE: &str = "instructions can be traced only from inside the process; `--kernel-trace` gives the times of every \
                            kernel";
/// For options about code inside the process.
const INSIDE: &str = "gputrace loads nothing into a program, so there is nothing to set";
/// For options about Perfetto's own recorder.
const NO_BUFFER: &str =
    "traces are made from the capture, without a buffer that could be too small";
/// For domains that this version does not record.
const NOT_YET: &str = "this version does not record it; `gputrace list` shows what can be traced";
/// For events of the driver, which one option records together.
const EVENTS: &str = "The same as `--kfd-events`, which records all of them.";

const fn entry(
    long: &'static str,
    values: Values,
    otherwise: super::Otherwise,
    remark: &'static str,
) -> Entry {
    Entry {
        long,
        short: None,
        also: &[],
        values,
        otherwise,
        remark,
    }
}

const fn short(short: char, entry: Entry) -> Entry {
    Entry {
        short: Some(short),
        ..entry
    }
}

const fn also(also: &'static [&'static str], entry: Entry) -> Entry {
    Entry { also, ..entry }
}

/// The options by group.
pub(super) const GROUPS: &[(&str, &[Entry])] = &[
    (
        "General",
        &[
            short('h', entry("help", Bool, Works, "")),
            short('v', entry("version", Bool, Works, "")),
        ],
    ),
    (
        "I/O options",
        &[
            short(
                'i',
                entry(
                    "input",
                    One,
                    Works,
                    "Text files (`pmc:` lines) are about counters only.",
                ),
            ),
            short(
                'o',
                entry(
                    "output-file",
                    One,
                    Works,
                    "One recording holds all processes, so `%pid%` is that of the first.",
                ),
            ),
            short('d', entry("output-directory", One, Works, "")),
            short(
                'f',
                entry(
                    "output-format",
                    Many,
                    Works,
                    "The default is pftrace; rocprofv3's is rocpd.",
                ),
            ),
            entry("output-config", Bool, Works, ""),
            entry("log-level", One, Works, ""),
            short('E', entry("extra-counters", One, Instead(COUNTERS), "")),
        ],
    ),
    (
        "Aggregate tracing options",
        &[
            short('r', entry("runtime-trace", Bool, Works, "")),
            short('s', entry("sys-trace", Bool, Works, "")),
        ],
    ),
    (
        "Basic tracing options",
        &[
            entry("hip-trace", Bool, Works, ""),
            entry("marker-trace", Bool, Works, ""),
            entry("kernel-trace", Bool, Works, ""),
            entry(
                "hip-graph-trace",
                Bool,
                Works,
                "With -f rocpd: the view `graph_launches`, and `graph_exec_id` and `graph_node_id` \
                 of kernels and copies. Other formats have the calls of hipGraphLaunch, and the \
                 work of each by its correlation id.",
            ),
            entry(
                "hip-event-trace",
                Bool,
                Instead(
                    "this version does not record when the GPU was at the barriers for events; calls of hipEventRecord and \
                     hipStreamWaitEvent are among those of `--hip-runtime-trace`",
                ),
                "",
            ),
            entry("memory-copy-trace", Bool, Works, ""),
            entry("memory-allocation-trace", Bool, Works, ""),
            entry(
                "kfd-trace",
                Bool,
                Works,
                "Here these are requests to the driver; what the driver reports is `--kfd-events`.",
            ),
            entry(
                "scratch-memory-trace",
                Bool,
                Works,
                "Read from the queues' descriptors 1,000 to 10,000 times a second: memory that \
                 comes and goes between two looks is missing.",
            ),
            entry(
                "hsa-trace",
                Bool,
                Works,
                "Polling functions only with `--hsa-include`.",
            ),
            entry("rccl-trace", Bool, Works, ""),
            entry(
                "ompt-trace",
                Many,
                Instead(
                    "OpenMP reports only to a tool inside the process; the HIP and HSA calls that \
                     OpenMP makes are traced by `--hsa-trace`",
                ),
                "",
            ),
            entry(
                "kokkos-trace",
                Bool,
                Works,
                "Kokkos reports only to a tool library inside the process, and gputrace loads \
                 none: start the program with any tool library (KOKKOS_TOOLS_LIBS), even one that \
                 ignores the reports.",
            ),
            entry("rocdecode-trace", Bool, Works, ""),
            entry("rocjpeg-trace", Bool, Works, ""),
            entry(
                "rocshmem-trace",
                Bool,
                Works,
                "Every exported function, not only those on streams. For a program with rocSHMEM \
                 linked in: `--functions '^rocshmem_'`.",
            ),
            entry("hipfile-trace", Bool, Works, ""),
        ],
    ),
    (
        "Granular tracing options",
        &[
            entry("hip-runtime-trace", Bool, Works, ""),
            entry("hip-compiler-trace", Bool, Works, ""),
            entry("hsa-core-trace", Bool, Works, ""),
            entry("hsa-amd-trace", Bool, Works, ""),
            entry("hsa-image-trace", Bool, Works, ""),
            also(
                &["hsa-finalize-trace"],
                entry("hsa-finalizer-trace", Bool, Works, ""),
            ),
            entry("kfd-page-migration-trace", Bool, Works, EVENTS),
            entry("kfd-page-mapping-trace", Bool, Works, EVENTS),
            entry("kfd-queue-trace", Bool, Works, EVENTS),
            entry("kfd-dropped-events-trace", Bool, Works, EVENTS),
        ],
    ),
    (
        "Counter collection options",
        &[
            entry("pmc", Many, Instead(COUNTERS), ""),
            entry(
                "pmc-groups",
                Many,
                Instead(COUNTERS),
                "Only in input files.",
            ),
            entry(
                "pmc-group-interval",
                One,
                Instead(COUNTERS),
                "Only in input files.",
            ),
            entry("replay-mode", One, Instead(COUNTERS), ""),
            entry("kernel-replay-beta-enabled", Bool, Instead(COUNTERS), ""),
        ],
    ),
    (
        "Streaming performance monitor (SPM) options",
        &[
            entry("spm-beta-enabled", Bool, Instead(COUNTERS), ""),
            entry("spm", Many, Instead(COUNTERS), ""),
            entry("spm-sample-interval", One, Instead(COUNTERS), ""),
            entry("spm-sample-interval-unit", One, Instead(COUNTERS), ""),
        ],
    ),
    (
        "PC sampling options",
        &[
            entry("pc-sampling-beta-enabled", Bool, Instead(SAMPLING), ""),
            entry("pc-sampling-unit", One, Instead(SAMPLING), ""),
            entry("pc-sampling-method", One, Instead(SAMPLING), ""),
            entry("pc-sampling-interval", One, Instead(SAMPLING), ""),
        ],
    ),
    (
        "Post-processing tracing options",
        &[
            entry("stats", Bool, Works, ""),
            short('S', entry("summary", Bool, Works, "")),
            short('D', entry("summary-per-domain", Bool, Works, "")),
            entry("summary-groups", Many, Works, ""),
        ],
    ),
    (
        "Summary options",
        &[
            entry("summary-output-file", One, Works, ""),
            short('u', entry("summary-units", One, Works, "")),
        ],
    ),
    (
        "Kernel naming options",
        &[
            short('M', entry("mangled-kernels", Bool, Works, "")),
            short('T', entry("truncate-kernels", Bool, Works, "")),
            entry(
                "kernel-rename",
                Bool,
                Works,
                "In JSON and rocpd, the range is next to the kernel; the capture has both names.",
            ),
        ],
    ),
    (
        "Filtering options",
        &[
            entry(
                "profile-mpi-ranks",
                One,
                Instead(
                    "start gputrace only for the ranks to be traced, or let `-o run.%rank%` name the recording of each",
                ),
                "",
            ),
            entry(
                "mpi-world-rank-variable",
                One,
                Instead("`%env{NAME}%` in `-o` and `-d` takes the rank from any variable"),
                "",
            ),
            entry(
                "mpi-world-size-variable",
                One,
                Instead(
                    "`%env{NAME}%` in `-o` and `-d` takes the number of ranks from any variable",
                ),
                "",
            ),
            entry(
                "kernel-include-regex",
                One,
                Works,
                "Applies to all outputs; the capture has all kernels.",
            ),
            entry(
                "kernel-exclude-regex",
                One,
                Works,
                "Applies to all outputs; the capture has all kernels.",
            ),
            entry("kernel-iteration-range", Many, Works, ""),
            short(
                'P',
                entry(
                    "collection-period",
                    Many,
                    Works,
                    "Also with `-p` and for the whole node.",
                ),
            ),
            entry("collection-period-unit", One, Works, ""),
            entry(
                "selected-regions",
                Bool,
                Works,
                "Also between hipProfilerStart and hipProfilerStop, roctracer_start and roctracer_stop.",
            ),
            entry("selected-regions-ref-count", Bool, Instead(NOT_YET), ""),
        ],
    ),
    (
        "Perfetto-specific options",
        &[
            entry("perfetto-backend", One, NoEffect(NO_BUFFER), ""),
            entry("perfetto-buffer-size", One, NoEffect(NO_BUFFER), ""),
            entry("perfetto-buffer-fill-policy", One, NoEffect(NO_BUFFER), ""),
            entry("perfetto-shmem-size-hint", One, NoEffect(NO_BUFFER), ""),
        ],
    ),
    (
        "Display options",
        &[
            short(
                'L',
                entry(
                    "list-avail",
                    Bool,
                    Instead(
                        "`gputrace list` shows which functions can be traced, `gputrace topology` the GPUs, `gputrace doctor` what can be \
                         recorded here",
                    ),
                    "",
                ),
            ),
            entry("group-by-queue", Bool, Works, "Is the default here."),
        ],
    ),
    (
        "Advanced options",
        &[
            entry(
                "preload",
                Many,
                Instead(
                    "gputrace preloads nothing and leaves the program's environment alone: set LD_PRELOAD for it, `gputrace -- env \
                     LD_PRELOAD=... ./app`",
                ),
                "",
            ),
            entry(
                "rocm-root",
                One,
                NoEffect("libraries are found where processes have them mapped"),
                "",
            ),
            entry("sdk-soversion", One, NoEffect(INSIDE), ""),
            entry("sdk-version", One, NoEffect(INSIDE), ""),
            entry("readlink", Bool, NoEffect(INSIDE), ""),
            entry("realpath", Bool, NoEffect(INSIDE), ""),
            entry(
                "benchmark-mode",
                One,
                Instead("docs/benchmarks.md has what tracing costs, and how to measure it"),
                "",
            ),
            short('A', entry("agent-index", One, Works, "")),
            entry("suppress-marker-preload", Bool, NoEffect(INSIDE), ""),
            entry(
                "echo",
                Bool,
                Instead("`--log-level config` shows the effective options"),
                "",
            ),
            entry("disable-signal-handlers", Bool, NoEffect(INSIDE), ""),
            entry(
                "process-sync",
                Bool,
                NoEffect("gputrace writes one recording of all processes, by itself"),
                "",
            ),
            entry("minimum-output-data", One, Works, "The capture is kept."),
            short(
                'p',
                also(&["attach"], entry("pid", One, Works, "Several at once.")),
            ),
            entry("attach-duration-msec", One, Works, ""),
            entry("attach-children", Bool, Works, ""),
            entry(
                "attach-sync-output",
                Bool,
                NoEffect("the outputs are complete when gputrace exits"),
                "",
            ),
        ],
    ),
    (
        "Advanced thread trace (ATT) options",
        &[
            also(
                &["att"],
                entry("advanced-thread-trace", Bool, Instead(THREAD_TRACE), ""),
            ),
            entry("att-no-intercept", Bool, Instead(THREAD_TRACE), ""),
            entry("att-library-path", Many, Instead(THREAD_TRACE), ""),
            entry("att-target-cu", One, Instead(THREAD_TRACE), ""),
            entry("att-simd-select", One, Instead(THREAD_TRACE), ""),
            entry("att-consecutive-kernels", One, Instead(THREAD_TRACE), ""),
            entry("att-buffer-size", One, Instead(THREAD_TRACE), ""),
            entry("att-resource-mode", One, Instead(THREAD_TRACE), ""),
            entry("att-shader-engine-mask", One, Instead(THREAD_TRACE), ""),
            entry("att-gpu-index", One, Instead(THREAD_TRACE), ""),
            entry("att-perfcounters", One, Instead(THREAD_TRACE), ""),
            entry("att-perfcounter-ctrl", One, Instead(THREAD_TRACE), ""),
            entry(
                "att-perfcounter-target-only",
                Bool,
                Instead(THREAD_TRACE),
                "",
            ),
            entry("att-activity", One, Instead(THREAD_TRACE), ""),
            entry("att-serialize-all", Bool, Instead(THREAD_TRACE), ""),
            entry("att-no-detail", Bool, Instead(THREAD_TRACE), ""),
        ],
    ),
];
