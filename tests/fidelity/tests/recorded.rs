//! Recordings that are kept with the truth, compared as those that other tests make. What comes out
//! of them depends on no clock and no processor, so it is held to the last figure: every fault that
//! turns one of these into something else is seen here.
//!
//! `GPUTRACE_FIDELITY_KEEP` keeps what a run leaves behind. Of that, a recording has the capture,
//! the logs of the GPU in one file and what the program said, packed by zstd, and the cut. If a
//! change of the figures is meant, `UPDATE_EXPECT=1` writes the new ones.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "test code outside of #[test] functions"
)]

use std::{
    fs::{self, File},
    io::{self, BufReader, Read as _, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use gputrace_analysis::summary::SummaryExporter;
use gputrace_capture::CaptureReader;
use gputrace_export::Exporter as _;

use gputrace_e2e::Trace;
use gputrace_fidelity::{
    Evidence, Figures, Flaw, compare, cut::Cut, figures::Work, mixes::MIXES, scenario::WORKLOADS,
    truth::Truth,
};
use gputrace_timeline::{
    Timeline,
    gpu::{Direction, Quality},
};

/// Directories of `recordings`, and what the workload is called that ran. All are of HIP 6.4.3 or
/// the HSA below it, but for the last, which is of the stand-ins on a machine with 16 processors.
const KEPT: [(&str, &str); 6] = [
    // Attached to, with signals of some packets, the read index late and in steps.
    ("batches-attach", "HSA only, many packets a doorbell"),
    ("batches-launch", "HSA only, attached before a batch"),
    // With a clock that jumps.
    ("peers-launch", "two GPUs, copies between"),
    ("devices-launch", "two GPUs, a thread each"),
    ("graph-launch", "graph, captured and replayed"),
    // Attached to: no stamps, and nothing waits after most kernels.
    ("sparse-attach", "GPU use of 50 %, longer kernels"),
];

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("recordings")
        .join(name)
}

/// What a packed file of a recording holds; `None` if it has none.
fn unpacked(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).expect("zstd");
    let mut bytes = Vec::new();
    decoder.read_to_end(&mut bytes).expect("a whole file");
    Some(bytes)
}

/// A text that is kept by whoever has a clone.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `gputrace summary` prints for a capture.
fn summary(capture: &Path) -> String {
    let text = Text::default();
    let mut exporter = Box::new(SummaryExporter::to_stream(text.clone()));
    let file = BufReader::new(File::open(capture).expect("the capture"));
    let reader = CaptureReader::new(file).expect("a capture");
    for event in Timeline::new(reader).expect("a timeline") {
        exporter.event(&event.expect("an event")).expect("a row");
    }
    exporter.finish().expect("a summary");
    let bytes = text.0.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8(bytes.clone()).expect("text")
}

/// What a run left behind.
fn evidence(name: &str) -> Evidence {
    let (kept, here) = (place(name), tempfile::tempdir().expect("a directory"));
    let here = here.path();
    for file in ["run.gtcap", "truth.jsonl", "said"] {
        let bytes = unpacked(&kept.join(format!("{file}.zst")));
        fs::write(
            here.join(file),
            bytes.unwrap_or_else(|| panic!("{name}: {file}")),
        )
        .expect("a file");
    }
    let (_, title) = KEPT
        .iter()
        .find(|(kept, _)| *kept == name)
        .expect("its row");
    let workload = WORKLOADS.iter().chain(&MIXES);
    let workload = workload
        .into_iter()
        .find(|workload| workload.title == *title);
    let workload = workload.expect("the workload");
    let cut = fs::read_to_string(kept.join("cut")).ok();
    Evidence {
        truth: Truth::read(here, &here.join("said")).expect("the truth"),
        trace: Trace::read(&here.join("run.gtcap")),
        cut: cut.map(|text| Cut::parse(&text).expect("a cut")),
        one_thread: workload.one_thread,
        graph_nodes: workload.graph_nodes,
        says: true,
        // No calls are recorded for the programs whose means are compared.
        summary: MIXES
            .iter()
            .any(|mix| mix.title == *title)
            .then(|| summary(&here.join("run.gtcap"))),
    }
}

/// All numbers, one a line.
fn text(figures: &Figures) -> String {
    let work = |name: &str, work: &Work| {
        let spread = |what: &str, values: &[u64]| {
            let at = |share| gputrace_fidelity::figures::quantile(values, share).unwrap_or(0);
            format!(
                "{name} {what} ns: {} values, median {}, 99 % {}, most {}\n",
                values.len(),
                at(0.5),
                at(0.99),
                at(1.0)
            )
        };
        [
            format!(
                "{name}: {} required, {} found, {} early, {} excepted\n",
                work.required, work.found, work.early, work.excepted
            ),
            format!(
                "{name} by quality: {:?}, {} stamped, {} of these exact\n",
                work.quality, work.stamped, work.stamped_found
            ),
            spread("begins off", &work.begin_errors),
            spread("ends off", &work.end_errors),
            spread("widths", &work.widths),
        ]
        .concat()
    };
    let means = figures.means.iter().map(|means| {
        let classes = means.classes.iter().map(|class| {
            let told = match class.told {
                Some((mean, error)) => format!("{mean:.0} +-{error:.0} ns"),
                None => "nothing".to_owned(),
            };
            format!(
                "class: {} dispatches of {:.0} ns, told {told}, drawn {:.3}\n",
                class.count,
                class.truth,
                class.drawn as f64 / (class.count as f64 * class.truth)
            )
        });
        let used = means.used.map(|used| {
            let (least, most) = used.range;
            let shown = used
                .shown
                .map_or_else(|| "-".to_owned(), |shown| format!("{shown:.2}"));
            format!(
                "GPU use: {:.2} %, shown {shown} ({least:.2}-{most:.2})\n",
                used.truth
            )
        });
        classes.chain(used).collect::<String>()
    });
    format!(
        "{}{}{}parents: {}, {} before, {} unwitnessed\nlost: {}\n",
        work("dispatches", &figures.dispatches),
        work("copies", &figures.copies),
        means.collect::<String>(),
        figures.parents,
        figures.parents_before,
        figures.parents_unwitnessed,
        figures.lost
    )
}

#[test]
fn recordings_are_as_true_as_they_were_to_the_last_figure() {
    for (name, _) in KEPT {
        let figures = compare(&evidence(name));
        assert!(figures.flaws.is_empty(), "{name}: {:#?}", figures.flaws);
        let (text, expected) = (text(&figures), place(name).join("expected"));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&expected, &text).expect("the figures");
        }
        assert_eq!(
            text,
            fs::read_to_string(&expected).expect("the figures"),
            "{name}"
        );
    }
}

/// How often a flaw is found in a recording that has been changed.
fn found(name: &str, flaw: Flaw, change: impl FnOnce(&mut Trace)) -> u64 {
    let mut evidence = evidence(name);
    change(&mut evidence.trace);
    compare(&evidence).count(flaw)
}

#[test]
fn what_is_recorded_twice_or_not_at_all_is_found() {
    for (name, _) in KEPT {
        let twice = found(name, Flaw::Twice, |trace| {
            let last = trace.gpu.dispatches.last().expect("a dispatch").clone();
            trace.gpu.dispatches.push(last);
        });
        let missing = found(name, Flaw::Missing, |trace| {
            trace.gpu.dispatches.pop();
        });
        assert_eq!((twice, missing), (1, 1), "{name}");
    }
}

#[test]
fn violated_windows_are_found() {
    for (name, _) in KEPT {
        // All of the longest window but its last nanosecond is taken away: what really happened
        // lies before.
        let violated = found(name, Flaw::Window, |trace| {
            let dispatches = trace.gpu.dispatches.iter_mut();
            let bounded = dispatches.filter(|one| one.time.quality != Quality::Exact);
            let widest = bounded
                .filter_map(|one| {
                    Some((
                        one.time.end_window.latest? - one.time.begin_window.earliest,
                        one,
                    ))
                })
                .max_by_key(|(width, _)| *width);
            if let Some((_, one)) = widest {
                one.time.begin_window.earliest = one.time.end_window.latest.unwrap_or(0);
            } else {
                let one = trace.gpu.dispatches.first_mut().expect("a dispatch");
                one.time.begin_window.earliest += 1_000_000_000;
            }
        });
        assert_eq!(violated, 1, "{name}");
    }
}

#[test]
fn directions_that_are_wrong_are_found() {
    for name in ["devices-launch", "peers-launch"] {
        let wrong = found(name, Flaw::Route, |trace| {
            for one in &mut trace.gpu.copies {
                if one.direction == Direction::DeviceToHost {
                    one.direction = Direction::HostToDevice;
                }
            }
        });
        assert!(wrong > 0, "{name}");
    }
}

#[test]
fn calls_that_belong_to_others_are_found() {
    // No calls were recorded of the last.
    for (name, _) in KEPT.iter().filter(|(name, _)| *name != "sparse-attach") {
        let wrong = found(name, Flaw::Parent, |trace| {
            for one in &mut trace.gpu.dispatches {
                one.origin.outermost ^= 1 << 40;
                one.origin.innermost ^= 1 << 40;
            }
        });
        assert!(wrong > 0, "{name}");
    }
}
