//! Names of the kernels of a program that ends while the recorder has not read its code objects.

mod support;

use std::process::Command;

use gputrace_e2e::{Running, Trace};

use support::{gputrace, program, record, recording, release};

#[test]
fn a_process_ends_only_when_its_code_objects_have_been_read() {
    let Some(release) = release("6.4.3") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    record(&program(&release, "unread", &[]), place, "", &["-r"]);
    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();
    let name = trace.gpu.kernels.iter().map(|kernel| &*kernel.kernel.name);
    assert!(
        name.clone().any(|name| name == "_Z6unreadPi"),
        "{:?}; notices: {:?}",
        name.collect::<Vec<_>>(),
        trace.notices
    );
}

#[test]
fn code_objects_of_a_killed_process_are_said_to_be_unread() {
    let Some(release) = release("6.4.3") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let program = program(&release, "unread", &["killed"]);
    let mut recorder = recording(Command::new(gputrace()), &program, place, "", &["-r"]);
    let status = Running::start("gputrace", &mut recorder).wait();
    assert_eq!(status.code(), Some(128 + 9), "its program was killed");
    let trace = Trace::read(&place.join("out/run.gtcap"));
    trace.assert_lossless();
    assert!(trace.gpu.dispatches.len() == 1 && trace.gpu.kernels.is_empty());
    let told = "were not read, so their kernels have no names";
    let mut notices = trace.notices.iter();
    assert!(
        notices.any(|notice| notice.text.contains(told)),
        "{:?}",
        trace.notices
    );
}
