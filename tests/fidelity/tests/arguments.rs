//! Flags and structures in the arguments of calls, on real runtimes that do what is requested. They
//! must be shown as logged by the program that passed or received them.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use gputrace_e2e::Trace;
use gputrace_harness::said::{self, Said};

use support::{program, record, release};

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let options = ["--hip-trace", "-f", "csv"];
    record(&program(&release, "arguments", &[]), place, "", &options);

    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();
    let said = said::read(&place.join("said")).expect("what the program says");
    for said in &said {
        let Said::Argument {
            function,
            name: parameter,
            value,
        } = said
        else {
            panic!("ROCm {name}: {said:?}");
        };
        let wanted = format!("{parameter}={value}");
        let of_function = trace.calls_of(function);
        let shown: Vec<_> = of_function.map(|call| trace.arguments(call)).collect();
        assert!(
            shown.iter().flatten().any(|argument| *argument == wanted),
            "ROCm {name}: {function}: no {wanted} in {shown:?}"
        );
    }
    assert!(said.len() > 20, "only {} arguments", said.len());
}

gputrace_releases::on_each_release!(on);
