//! hipFile and rocSHMEM, using stand-ins with the real names and interfaces.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use gputrace_abi::domain::Domain;
use gputrace_e2e::Bench;

#[test]
fn hipfile_and_rocshmem_are_traced_by_their_names() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--rocshmem-trace", "--hipfile-trace", "-f", "csv"],
        &["storage/storage"],
    );
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    let calls = trace.returned();
    let (file, shmem) = (Domain::HipFile.id(), Domain::RocShmem.id());
    let names: Vec<_> = calls
        .iter()
        .map(|(name, domain, _)| (*name, *domain))
        .collect();
    assert_eq!(
        names,
        [
            ("hipFileDriverOpen", file),
            ("hipFileHandleRegister", file),
            ("hipFileHandleRegister", file),
            ("hipFileBufRegister", file),
            ("hipFileRead", file),
            ("hipFileRead", file),
            ("hipFileHandleDeregister", file),
            ("rocshmem_malloc", shmem),
            ("rocshmem_my_pe", shmem),
            ("rocshmem_putmem_on_stream", shmem),
            ("rocshmem_putmem_signal_on_stream", shmem),
            ("rocshmem_quiet_on_stream", shmem),
        ]
    );
    let results: Vec<u64> = calls.iter().map(|(.., result)| *result).collect();
    assert_eq!(results[1] as u32, 5022);
    assert_eq!(results[3], 1 << 32 | 5011, "both halves are kept");
    assert_eq!((results[4], results[5] as i64), (32, -1));

    let arguments = |place: usize| trace.arguments(&trace.calls[place]).join(" ");
    let has = |place: usize, expected: &[&str]| {
        let all = arguments(place);
        for one in expected {
            assert!(all.contains(one), "{one} is not in {all}");
        }
    };
    has(2, &["type=hipFileHandleTypeOpaqueFD", "handle.fd=123"]);
    has(4, &["size=32", "file_offset=1", "buffer_offset=8"]);
    has(9, &["nelems=64", "pe=0", "stream=0x5000"]);
    // The last arguments are on the stack.
    has(10, &["signal=7", "sig_op=9", "pe=0", "stream=0x5000"]);

    let csv = std::fs::read_to_string(outputs.file("_hipfile_api_trace.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 7, "{csv}");
    assert!(csv.contains("HIPFILE_API"), "{csv}");
}
