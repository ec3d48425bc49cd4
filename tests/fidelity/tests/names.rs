//! Names of the kernels of a program that ends while the recorder has not read its code objects.

mod support;

use gputrace_e2e::Trace;

use support::{program, record, release};

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
