//! Measures the cost of a traced call.

use std::thread;

use anyhow::{Result, anyhow};
use gputrace_abi::{cookie::Cookie, domain::Domain};
use gputrace_loader::attach::{Point, Scope, TracedFunction};
use gputrace_tracee::library::LibraryFile;

use crate::{
    Options,
    library::{EMULATED, Library, STEPPED, Site},
    machine::{Cpus, Pinned, cpu_time},
    programs::{Empty, Measured, Statistics, measured},
    recording::Recording,
    report::{Table, least, median},
};

/// What is attached to the function while it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Nothing,
    Empty,
    /// gputrace's probes in an untraced process, which has mapped the library of a traced one.
    Neighbour,
    Gputrace,
}

const VARIANTS: [Variant; 4] = [
    Variant::Nothing,
    Variant::Empty,
    Variant::Neighbour,
    Variant::Gputrace,
];

/// A function, and how often to call it.
struct Case {
    name: &'static str,
    begins: &'static str,
    point: Point,
    site: Site,
    calls: u64,
}

/// The state shared by all variants.
struct Setup {
    library: Library,
    empty: Empty,
    recording: Recording,
    /// Number of calls made so far with gputrace's probes attached.
    traced: u64,
}

/// Prints the cost of a call without probes, with programs that do nothing, and with gputrace.
///
/// # Errors
///
/// When something cannot be set up, or the accounts are not exact.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let cpus = Cpus::choose()?;
    let library = Library::build()?;
    let capture = library.directory().join("calls.gtcap");
    let recording = Recording::start(&capture, cpus.collector)?;
    let mut setup = Setup {
        empty: Empty::load(&options.programs)?,
        recording,
        library,
        traced: 0,
    };
    let _pinned = Pinned::to(cpus.caller)?;

    let rounds = if options.quick { 5 } else { 41 };
    let mut costs = Table::new(
        "Cost of a call",
        &[
            "function begins with",
            "no probe",
            "empty pair",
            "neighbour",
            "gputrace",
            "ratio",
            "best empty",
            "best gputrace",
            "best ratio",
        ],
    );
    let mut programs = Table::new(
        "Time in the programs",
        &[
            "program",
            "function begins with",
            "ns/run",
            "instructions verified",
        ],
    );
    for case in cases(&setup.library)? {
        let [nothing, empty, neighbour, gputrace] = setup.rounds(&case, rounds)?;
        let ratios: Vec<f64> = gputrace
            .iter()
            .zip(&empty)
            .map(|(gputrace, empty)| gputrace / empty)
            .collect();
        costs.row(&[
            &case.begins,
            &format!("{:.1}", median(&nothing)),
            &format!("{:.0}", median(&empty)),
            &format!("{:.0}", median(&neighbour)),
            &format!("{:.0}", median(&gputrace)),
            &format!("{:.2}", median(&ratios)),
            &format!("{:.0}", least(&empty)),
            &format!("{:.0}", least(&gputrace)),
            &format!("{:.2}", least(&gputrace) / least(&empty)),
        ]);
        for program in setup.statistics(&case)? {
            let time = program.nanoseconds as f64 / program.runs as f64;
            programs.row(&[
                &program.name,
                &case.begins,
                &format!("{time:.0}"),
                &program.verified,
            ]);
        }
    }
    costs.note(format!(
        "ns of the caller's CPU time per call; medians of {rounds} rounds in which the variants take turns. A pair is \
         one program at entry and one at return, by uprobe_multi. `neighbour`: gputrace's pair, in a process that is not \
         traced. `ratio` is the median over rounds of gputrace / empty \
         pair; aim: at most 1.35 on a function that begins with `push`."
    ));
    costs.print()?;
    programs.note(
        "As the kernel measures them, in a run of their own: measuring costs some ns itself.",
    );
    programs.print()?;
    let Setup {
        recording, traced, ..
    } = setup;
    recording.finish(Some(traced))?;
    Ok(())
}

fn cases(library: &Library) -> Result<[Case; 2]> {
    let file = LibraryFile::open(&library.path())?;
    let case = |id: u32, name, begins, calls| -> Result<Case> {
        let offset = file.plan_symbol(name)?.file_offset;
        let cookie = Cookie::new(id, Domain::HipRuntime.id(), 0).0;
        let site = Site::load(&library.path(), name)?;
        Ok(Case {
            name,
            begins,
            point: Point { offset, cookie },
            site,
            calls,
        })
    };
    Ok([
        case(0, EMULATED, "`push`: emulated", 100_000)?,
        case(1, STEPPED, "`endbr64; sub`: single-stepped", 5_000)?,
    ])
}

/// Runs `work` on a new thread, on this thread's CPU.
fn on_a_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_| anyhow!("the measuring thread panicked"))
}

impl Setup {
    /// Time per call of each variant in each round, ns.
    fn rounds(&mut self, case: &Case, rounds: usize) -> Result<[Vec<f64>; 4]> {
        let mut results = [const { Vec::new() }; 4];
        for round in 0..rounds {
            for turn in 0..VARIANTS.len() {
                // Each round begins with another variant.
                let index = (round + turn) % VARIANTS.len();
                let (Some(variant), Some(result)) = (VARIANTS.get(index), results.get_mut(index))
                else {
                    continue;
                };
                result.push(self.time(case, *variant)?);
            }
        }
        Ok(results)
    }

    /// Time per call, ns.
    fn time(&mut self, case: &Case, variant: Variant) -> Result<f64> {
        let path = self.library.path();
        // Both are dropped after the calls, which removes the probes.
        let _empty = match variant {
            Variant::Empty => self.empty.attach(&path, case.point)?,
            _ => Vec::new(),
        };
        let _gputrace = match variant {
            Variant::Neighbour | Variant::Gputrace => {
                let function = TracedFunction::by_return(case.point);
                let calls = &self.recording.calls;
                let probes = calls.attach(&path, Scope::EveryProcess, &[function])?;
                anyhow::ensure!(
                    probes.failures.is_empty(),
                    "{} cannot be probed: {:?}",
                    case.name,
                    probes.failures
                );
                Some(probes)
            }
            _ => None,
        };
        let calls = if variant == Variant::Nothing {
            1_000_000
        } else {
            case.calls
        };
        let warm_up = case.calls / 10;
        if variant == Variant::Gputrace {
            self.recording.calls.add_target(std::process::id(), 0)?;
            self.traced += warm_up + calls;
        }
        // A thread that was traced once stays traced until it ends, so this uses a new one.
        let time = on_a_new_thread(|| {
            case.site.call(warm_up);
            let begin = cpu_time();
            case.site.call(calls);
            cpu_time() - begin
        })?;
        self.recording.calls.remove_target(std::process::id())?;
        Ok(time.as_nanos() as f64 / calls as f64)
    }

    /// The kernel's statistics for the programs that ran on this function.
    fn statistics(&mut self, case: &Case) -> Result<Vec<Measured>> {
        let statistics = Statistics::enable()?;
        let before = measured();
        for variant in [Variant::Empty, Variant::Gputrace] {
            self.time(case, variant)?;
        }
        let after = measured();
        drop(statistics);
        let since = |now: Measured| {
            let before = before.iter().find(|before| before.name == now.name)?;
            let (runs, nanoseconds) =
                (now.runs - before.runs, now.nanoseconds - before.nanoseconds);
            (runs >= case.calls).then_some(Measured {
                runs,
                nanoseconds,
                ..now
            })
        };
        Ok(after.into_iter().filter_map(since).collect())
    }
}
