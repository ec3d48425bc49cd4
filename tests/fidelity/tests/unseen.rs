//! Launches are compared with dispatches: of programs whose doorbells are all seen, nothing is
//! said, whatever they launch.

#![expect(clippy::expect_used, reason = "tests")]

mod support;

use gputrace_e2e::Trace;
use gputrace_timeline::WORK_NOT_SEEN;

use support::{program, record, release};

/// Programs that launch kernels, capture graphs and fill memory.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("graph", &["7", "5"]),
    ("operations", &["20"]),
    ("streams", &["20"]),
];

/// The graph that is launched is the captured one: without these handles, nothing is known of it.
fn assert_followed(trace: &Trace) {
    let first = |name| trace.calls_of(name).next().expect("a call");
    let (captured, made) = (first("hipStreamEndCapture"), first("hipGraphInstantiate"));
    assert_eq!(captured.stored(1), Some(made.args[1]));
    let launches: Vec<_> = trace.calls_of("hipGraphLaunch").collect();
    assert_eq!(launches.len(), 5);
    for launch in launches {
        assert_eq!(made.stored(0), Some(launch.args[0]));
    }
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    for (of, arguments) in PROGRAMS {
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path();
        record(&program(&release, of, arguments), place, "", &["-s"]);
        let trace = Trace::read(&place.join("out/run.gtcap"));
        let texts = trace.notices.iter().map(|notice| notice.text.as_str());
        let said: Vec<&str> = texts
            .filter(|text| text.starts_with(WORK_NOT_SEEN))
            .collect();
        assert_eq!(said, Vec::<&str>::new(), "ROCm {name}, {of}");
        if of == "graph" {
            assert_followed(&trace);
        }
    }
}

gputrace_releases::on_each_release!(on);
