//! Runs a test of this program again, in a separate process on the software GPU.
#![allow(
    unreachable_pub,
    reason = "a module of test programs, which have no other face"
)]
#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]

use std::process::Command;

/// Runs the ignored test `name` with the mock loaded and this configuration, and returns its
/// standard output.
pub fn on_softgpu(name: &str, toml: &str) -> String {
    let this = std::env::current_exe().unwrap();
    // Cargo builds a test's dependencies into the same directory.
    let library = this.parent().unwrap().join("libgputrace_mockkfd.so");
    assert!(library.exists(), "{} is not built", library.display());
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("softgpu.toml");
    std::fs::write(&config, toml).unwrap();
    let output = Command::new(&this)
        .args(["--ignored", "--exact", "--nocapture", name])
        .env("LD_PRELOAD", library)
        .env("SOFTGPU_CONFIG", config)
        // With one thread, the first line of output would follow the test's name.
        .env("RUST_TEST_THREADS", "2")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The rest of each line that begins with `key` and a space.
pub fn said<'a>(output: &'a str, key: &str) -> Vec<&'a str> {
    let rest = |line: &'a str| line.strip_prefix(key)?.strip_prefix(' ');
    output.lines().filter_map(rest).collect()
}
