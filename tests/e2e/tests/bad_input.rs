//! Wrong input of many kinds: each has a message that names the cause and an exit status of its
//! own; captured data is never lost.
#![expect(clippy::expect_used, reason = "tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_capture::format::FORMAT_VERSION;
use gputrace_e2e::{
    Bench, Running, Trace,
    bench::skipped,
    compare::compare_if,
    csvout,
    process::{PATIENCE, eventually},
};

/// A temporary file system, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: PathBuf, options: &str) -> Self {
        fs::create_dir(&at).expect("a mount point");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&at)
            .status();
        assert!(status.expect("mount").success());
        Self(at)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The test is over in any case; what stays mounted is gone after a reboot.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Exit statuses, as `gputrace --help` lists them.
mod status {
    pub(crate) const USAGE: i32 = 2;
    pub(crate) const NO_SUCH_PROCESS: i32 = 3;
    pub(crate) const NO_ROCM: i32 = 4;
    pub(crate) const UNTRACEABLE: i32 = 5;
    pub(crate) const PERMISSION: i32 = 6;
    pub(crate) const OUTPUT: i32 = 8;
    pub(crate) const CAPTURE: i32 = 9;
    pub(crate) const NEWER_CAPTURE: i32 = 10;
    pub(crate) const INCOMPLETE: i32 = 15;
    pub(crate) const LIBRARY: i32 = 11;
}

/// Runs gputrace with these arguments, which must fail with this exit status. Returns its message.
fn fails(bench: &Bench, arguments: &[&str], expected: i32) -> String {
    let mut gputrace = Running::start("gputrace", bench.gputrace_bare().args(arguments));
    let (status, said) = gputrace.fail();
    assert_eq!(status, expected, "{arguments:?}: {said}");
    said
}

/// Asserts that a message contains all of `parts`, ignoring case.
fn assert_says(said: &str, parts: &[&str]) {
    let lower = said.to_lowercase();
    for part in parts {
        assert!(
            lower.contains(&part.to_lowercase()),
            "{part:?} is not in:\n{said}"
        );
    }
}

/// A capture of a small program.
fn capture(bench: &Bench) -> (PathBuf, Trace) {
    let outputs = bench.launch(&["-f", "csv"], &["synthetic/synthetic", "shapes", "2000"]);
    (outputs.capture(), outputs.trace())
}

/// A 32-bit x86 program that waits forever.
fn program_of_another_architecture() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    // pause(), in a loop
    let code: [u8; 9] = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    let size = 52 + 32 + code.len() as u32;
    let mut elf = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2u16, 3].iter().flat_map(|half| half.to_le_bytes()));
    elf.extend(
        [1, BASE + 84, 52, 0, 0]
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes()),
    );
    elf.extend(
        [52u16, 32, 1, 0, 0, 0]
            .iter()
            .flat_map(|half| half.to_le_bytes()),
    );
    elf.extend(
        [1, 0, BASE, BASE, size, size, 5, 0x1000]
            .iter()
            .flat_map(|word: &u32| word.to_le_bytes()),
    );
    elf.extend(code);
    elf
}

#[test]
fn processes_that_cannot_be_traced() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // Beyond the largest possible process id.
    let said = fails(&bench, &["-p", "4194305"], status::NO_SUCH_PROCESS);
    assert_says(&said, &["4194305", "no"]);

    let plain = bench.start(&["no_rocm"]);
    let pid = plain.pid().to_string();
    let said = fails(&bench, &["-p", &pid], status::NO_ROCM);
    assert_says(&said, &[&pid, "--wait"]);

    let plain_static = bench.start(&["static_program"]);
    let pid = plain_static.pid().to_string();
    let said = fails(&bench, &["-p", &pid], status::NO_ROCM);
    assert_says(&said, &[&pid]);

    let fixed = bench.start(&["static_rocm"]);
    let pid = fixed.pid().to_string();
    let said = fails(&bench, &["-p", &pid], status::UNTRACEABLE);
    assert_says(&said, &[&pid, "static"]);
    assert!(plain.is_running(), "the program was disturbed");
}

#[test]
fn process_of_another_architecture() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let path = bench.path().join("i386");
    fs::write(&path, program_of_another_architecture()).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permission to execute");
    if let Err(error) = Command::new(&path)
        .spawn()
        .map(|mut child| child.kill().and_then(|()| child.wait()))
    {
        skipped(&format!("this kernel runs no 32-bit programs: {error}"));
        return;
    }
    let program = Running::start("i386", &mut Command::new(&path));
    let pid = program.pid().to_string();
    eventually("the program is executed", PATIENCE, || {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|executable| executable == path)
    });
    let said = fails(&bench, &["-p", &pid], status::UNTRACEABLE);
    assert_says(&said, &[&pid, "32-bit"]);
}

#[test]
fn waiting_for_a_process_that_ends() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut plain = bench.start(&["no_rocm"]);
    let pid = plain.pid().to_string();
    let mut gputrace = Running::start(
        "gputrace",
        bench.gputrace_bare().args(["--wait", "-p", &pid]),
    );
    gputrace.wait_for_stderr("recording");
    plain.close_stdin();
    plain.finish();
    // No call was recorded; that is no success, but it is explained.
    gputrace.wait();
    let reason = format!("no ROCm library was loaded while process {pid} was recorded");
    assert_says(&gputrace.stderr(), &["no call was recorded", &reason]);
}

#[test]
fn without_privileges() {
    const NOBODY: u32 = 65534;
    let Some(bench) = Bench::privileged() else {
        return;
    };
    fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o777))
        .expect("an open directory");
    let target = bench.start(&["hip_calls", "loop", "10"]);
    for arguments in [
        &["-p", &target.pid().to_string()][..],
        &["--", "true"],
        &["--all"],
    ] {
        let mut command = bench.gputrace_bare();
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        let (status, said) = Running::start("gputrace as nobody", &mut command).fail();
        assert_eq!(status, status::PERMISSION, "{arguments:?}: {said}");
        assert_says(&said, &["sudo"]);
    }
}

#[test]
fn libraries_that_are_not_what_they_seem() {
    let bench = Bench::new();
    let library = bench.copy_synthetic();
    let list = |path: &Path| {
        let mut command = bench.gputrace_bare();
        command.args(["list", "--probes", "--library"]).arg(path);
        Running::start("gputrace list", &mut command)
    };
    let mut whole = list(&library);
    whole.finish();
    for function in [
        "hipSyntheticPush",
        "hipSyntheticEndbr",
        "hipSyntheticStepped",
    ] {
        assert_says(&whole.stdout(), &[function]);
    }

    // Without .symtab and without section headers; .dynsym is still found.
    let bytes = fs::read(&library).expect("the library");
    let stripped = bench.path().join("stripped.so");
    let mut strip = Command::new("strip");
    assert!(
        strip
            .arg("-o")
            .arg(&stripped)
            .arg(&library)
            .status()
            .expect("strip")
            .success()
    );
    let mut listed = list(&stripped);
    listed.finish();
    assert_says(&listed.stdout(), &["hipSyntheticPush"]);

    let mut damaged: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    damaged.insert("half.so", bytes[..bytes.len() / 2].to_vec());
    damaged.insert("header.so", bytes[..64].to_vec());
    damaged.insert("empty.so", Vec::new());
    damaged.insert("text.so", b"GROUP ( libamdhip64.so.6 )\n".to_vec());
    damaged.insert(
        "noise.so",
        bytes
            .iter()
            .enumerate()
            .map(|(at, byte)| if at > 63 { byte ^ 0x5a } else { *byte })
            .collect(),
    );
    for (name, content) in damaged {
        let path = bench.path().join(name);
        fs::write(&path, content).expect("a damaged library");
        let (status, said) = list(&path).fail();
        assert_eq!(status, status::LIBRARY, "{said}");
        assert_says(&said, &[name]);
    }
    let (_, said) = list(&bench.path().join("missing.so")).fail();
    assert_says(&said, &["missing.so", "no such file"]);
}

#[test]
fn a_traced_library_that_is_damaged_on_disk() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let library = bench.copy_synthetic();
    // Everything that the dynamic linker needs is there, but the section headers, which it does not
    // read, are cut off.
    let bytes = fs::read(&library).expect("the library");
    let sections = u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")) as usize;
    fs::write(&library, &bytes[..sections]).expect("a cut library");
    let mut command = bench.gputrace(&bench.outputs(0));
    command
        .arg("--")
        .arg(bench.program("synthetic/synthetic"))
        .args(["shapes", "10"]);
    let mut gputrace = Running::start("gputrace", &mut command);
    let status = gputrace.wait();
    assert_ne!(status.code(), Some(101), "{}", gputrace.describe());
    // Either gputrace copes with it or it reports why not; the program runs in any case.
    assert_eq!(
        bench.log().len(),
        70,
        "the program did not run: {}",
        gputrace.describe()
    );
    if status.success() {
        compare_if(&bench.log(), &bench.outputs(0).trace(), |_| true).assert_exact();
    } else {
        assert_says(&gputrace.stderr(), &["libamdhip64.so.99"]);
    }
}

#[test]
fn output_directories_that_cannot_be_written() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let read_only = Tmpfs::mount(bench.path().join("read-only"), "ro");
    let directory = read_only.0.to_str().expect("a readable name");
    let said = fails(&bench, &["-d", directory, "--", "true"], status::OUTPUT);
    assert_says(&said, &[directory, "-d"]);

    fs::write(bench.path().join("file"), "").expect("a file");
    let said = fails(&bench, &["-d", "file", "--", "true"], status::OUTPUT);
    assert_says(&said, &["file"]);
}

#[test]
fn output_directory_that_fills_up() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let full = Tmpfs::mount(bench.path().join("out0"), "size=1m");
    let outputs = bench.outputs(0);
    assert_eq!(outputs.directory(), full.0);
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let mut gputrace = bench.attach(&outputs, &["-f", "csv"], &[program.pid()]);
    // It stops by itself and reports why.
    let (status, said) = gputrace.fail();
    assert_eq!(status, status::OUTPUT, "{said}");
    assert_says(&said, &["space"]);
    assert!(
        !said.contains("Did the program call"),
        "calls were made: {said}"
    );
    assert!(program.is_running(), "the program was disturbed");
    program.close_stdin();
    program.finish();
    let trace = outputs.trace();
    let comparison = compare_if(&bench.log(), &trace, |_| false);
    comparison.assert_right();
    assert!(
        comparison.found > 1000,
        "only {} calls were kept",
        comparison.found
    );
    if let Some(ledger) = trace.ledger.filter(|ledger| ledger.complete) {
        assert_eq!(ledger.total().imbalance(), 0, "{ledger:?}");
    }
}

#[test]
fn captures_that_cannot_be_read() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (path, _) = capture(&bench);
    let bytes = fs::read(&path).expect("the capture");

    let mut newer = bytes.clone();
    newer[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let checksum = crc32c::crc32c(&newer[..20]);
    newer[20..24].copy_from_slice(&checksum.to_le_bytes());
    let other = b"Domain,Function,Process_Id\n".repeat(10);
    for (name, content, expected, parts) in [
        ("newer.gtcap", newer, status::NEWER_CAPTURE, "upgrade"),
        (
            "other.gtcap",
            other,
            status::CAPTURE,
            "not a gputrace capture",
        ),
        (
            "short.gtcap",
            bytes[..10].to_vec(),
            status::CAPTURE,
            "bytes",
        ),
    ] {
        fs::write(bench.path().join(name), content).expect("a damaged capture");
        let said = fails(&bench, &["export", name, "-f", "csv"], expected);
        assert_says(&said, &[name, parts]);
    }
    let said = fails(
        &bench,
        &["export", "missing.gtcap", "-f", "csv"],
        status::CAPTURE,
    );
    assert_says(&said, &["missing.gtcap", "no such file"]);
}

#[test]
fn truncated_captures_are_read_as_far_as_they_go() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (path, whole) = capture(&bench);
    let bytes = fs::read(&path).expect("the capture");
    for (number, length) in [bytes.len() - 1, bytes.len() / 2, bytes.len() / 10]
        .into_iter()
        .enumerate()
    {
        let cut = bench.path().join(format!("cut{number}.gtcap"));
        fs::write(&cut, &bytes[..length]).expect("a cut capture");
        let outputs = bench.outputs(number as u32 + 1);
        let mut command = bench.gputrace_bare();
        command
            .arg("export")
            .arg(&cut)
            .args(["-f", "csv,pftrace", "-o", "trace", "-d"])
            .arg(outputs.directory());
        let mut export = Running::start("gputrace export", &mut command);
        let status = export.wait();
        assert_eq!(
            status.code(),
            Some(status::INCOMPLETE),
            "{status}: {}",
            export.describe()
        );
        assert_says(&export.stderr(), &["ends inside a block"]);
        let trace = Trace::read(&cut);
        let known: BTreeSet<u64> = whole.calls.iter().map(|call| call.correlation).collect();
        assert!(
            trace
                .calls
                .iter()
                .all(|call| known.contains(&call.correlation))
        );
        csvout::assert_same(&outputs, &trace);
    }
}

#[test]
fn options_that_make_no_sense() {
    let bench = Bench::new();
    for arguments in [
        &["-p", "abc"][..],
        &["--duration", "soon", "-p", "1"],
        &["--include", "(", "--", "true"],
        &["-f", "xml", "--", "true"],
        &["--backend", "magic", "--", "true"],
        &["--ring-size", "-1", "--", "true"],
        &["--no-such-option"],
    ] {
        let said = fails(&bench, arguments, status::USAGE);
        assert!(!said.is_empty(), "{arguments:?} fails and says nothing");
    }
}
