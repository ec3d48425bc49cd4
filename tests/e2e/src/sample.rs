//! The library's samples in C.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles a sample of the library (`userspace/capi/examples/NAME.c`) into `place`.
///
/// # Panics
/// If it cannot be compiled, or the library is not built.
#[must_use]
pub fn compile(name: &str, place: &Path) -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let capi = checkout.join("userspace/capi");
    let test = env::current_exe().expect("this program's path");
    let mut directories = test.ancestors().skip(1).take(2);
    let libraries = directories.find(|directory| directory.join("libgputrace_c.so").exists());
    let libraries = libraries.expect("libgputrace_c.so is built with this test");
    let program = place.join(name);
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(capi.join(format!("examples/{name}.c")))
        .arg("-I")
        .arg(capi.join("include"))
        .arg("-L")
        .arg(libraries)
        .arg("-lgputrace_c")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .output()
        .expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    program
}
