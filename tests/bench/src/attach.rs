//! Measures how long attaching and detaching probes takes.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Result, bail, ensure};
use gputrace_abi::cookie::Cookie;
use gputrace_loader::{
    attach::{Point, Scope, TracedFunction},
    calls::{BackendChoice, Calls},
    probes::Probes,
};
use gputrace_tracee::library::LibraryFile;

use crate::{
    Options, recording,
    report::{Table, median},
};

/// Where distributions and AMD's packages put libraries.
const DIRECTORIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/opt/rocm/lib",
    "/usr/lib",
];

/// Names of libraries, and possible suffixes of their files.
const LIBRARIES: [(&str, [&str; 4]); 2] = [
    ("libamdhip64.so", [".7", ".6", ".5", ""]),
    ("libhsa-runtime64.so", [".1", "", "", ""]),
];

/// A library and its probed functions.
struct Target {
    file: LibraryFile,
    functions: Vec<TracedFunction>,
}

/// Prints how long attaching and detaching takes with both back-ends.
///
/// # Errors
///
/// When no ROCm library is installed, or a probe is refused.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let mut table = Table::new(
        "Attaching and detaching",
        &[
            "library",
            "functions",
            "back-end",
            "attach, ms",
            "detach, ms",
            "longest attach",
            "longest detach",
        ],
    );
    let targets: Vec<Target> = LIBRARIES.iter().map(find).collect::<Result<_>>()?;
    let rounds = if options.quick { 3 } else { 15 };
    let mut measured = "";
    for backend in [BackendChoice::Auto, BackendChoice::Perf] {
        let calls = recording::load(backend)?;
        // Before Linux 6.6, there is only one.
        if calls.backend() == measured {
            break;
        }
        measured = calls.backend();
        let each = targets.iter().map(std::slice::from_ref);
        for group in each.chain([targets.as_slice()]) {
            let times: Vec<Times> = (0..rounds)
                .map(|_| once(&calls, group))
                .collect::<Result<_>>()?;
            let of = |time: fn(&Times) -> f64| times.iter().map(time).collect::<Vec<f64>>();
            let (attach, detach) = (of(|times| times.attach), of(|times| times.detach));
            let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
            table.row(&[
                &names(group),
                &functions(group),
                &calls.backend(),
                &format!("{:.1}", median(&attach)),
                &format!("{:.1}", median(&detach)),
                &format!("{:.1}", longest(&attach)),
                &format!("{:.1}", longest(&detach)),
            ]);
        }
    }
    table.note(format!(
        "Entry and return of each function, for every process; medians of {rounds} rounds. Aim by \
         uprobe_multi, both libraries: attach at most 100 ms, detach at most 150 ms; by perf \
         events, 2 s each."
    ));
    table.print()
}

fn names(targets: &[Target]) -> String {
    let names = targets
        .iter()
        .filter_map(|target| target.file.path().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" + ")
}

fn functions(targets: &[Target]) -> usize {
    targets.iter().map(|target| target.functions.len()).sum()
}

/// Opens a library and plans probes on all its HIP and HSA functions, including those that
/// have to be asked for.
fn find((name, endings): &(&str, [&str; 4])) -> Result<Target> {
    let mut paths = DIRECTORIES.iter().flat_map(|directory| {
        endings
            .iter()
            .map(move |ending| candidate(directory, name, ending))
    });
    let Some(path) = paths.find(|path| path.is_file()) else {
        bail!(
            "{name} is not installed; on Debian: apt-get install libamdhip64-5 libhsa-runtime64-1"
        );
    };
    let file = LibraryFile::open(&path)?;
    let plan = file.plan(&gputrace_catalog::classify)?;
    let functions = (0..)
        .zip(&plan.probes)
        .map(|(id, probe)| {
            TracedFunction::by_return(Point {
                offset: probe.site.file_offset,
                cookie: Cookie::new(id, probe.domain.id(), 0).0,
            })
        })
        .collect();
    Ok(Target { file, functions })
}

fn candidate(directory: &str, name: &str, ending: &str) -> PathBuf {
    Path::new(directory).join(format!("{name}{ending}"))
}

/// Times in milliseconds.
struct Times {
    attach: f64,
    detach: f64,
}

fn once(calls: &Calls, targets: &[Target]) -> Result<Times> {
    let begin = Instant::now();
    let mut probes = Vec::new();
    for target in targets {
        let attached = calls.attach(
            &target.file.attach_path(),
            Scope::EveryProcess,
            &target.functions,
        )?;
        ensure!(
            attached.failures.is_empty(),
            "probes were refused: {:?}",
            attached.failures
        );
        probes.push(attached);
    }
    let attach = begin.elapsed();
    let begin = Instant::now();
    Probes::remove(probes);
    calls.settle();
    let detach = begin.elapsed();
    Ok(Times {
        attach: attach.as_secs_f64() * 1e3,
        detach: detach.as_secs_f64() * 1e3,
    })
}
