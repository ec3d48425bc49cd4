//! Files to which a hostile program leads gputrace: a file that is no library is never opened, and
//! no file is probed just because of its name.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure is what a test is for"
)]

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read as _,
    mem::MaybeUninit,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_e2e::{Bench, Running, bench::skipped};
use rustix::{
    fs::{CWD, FileType, Mode, chown, inotify, makedev, mknodat},
    io::Errno,
    process::{Gid, Signal, Uid},
};

/// `nobody`, who has no privileges and owns nothing.
const NOBODY: u32 = 65534;

/// Observes with inotify which files are opened. Locating a file (`O_PATH`) does not count.
struct Observer {
    descriptor: rustix::fd::OwnedFd,
    watched: Vec<(i32, PathBuf)>,
}

impl Observer {
    fn new() -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Self {
            descriptor: inotify::init(flags).unwrap(),
            watched: Vec::new(),
        }
    }

    fn watch(&mut self, path: &Path) {
        let watch = inotify::add_watch(&self.descriptor, path, inotify::WatchFlags::OPEN).unwrap();
        self.watched.push((watch, path.to_owned()));
    }

    /// The files that were opened since the last call.
    fn opened(&self) -> Vec<&Path> {
        let mut buffer = [const { MaybeUninit::uninit() }; 1 << 14];
        let mut events = inotify::Reader::new(&self.descriptor, &mut buffer);
        let mut opened = Vec::new();
        loop {
            match events.next() {
                Ok(event) => {
                    let found = self.watched.iter().find(|(watch, _)| *watch == event.wd());
                    opened.extend(found.map(|(_, path)| &**path));
                }
                Err(Errno::AGAIN) => break,
                Err(error) => panic!("{error}"),
            }
        }
        opened.sort();
        opened.dedup();
        opened
    }
}

/// The C library of this machine, as an example of a library.
fn libc() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let mut libraries = path.filter(|path| path.contains("/libc.so."));
    PathBuf::from(libraries.next().unwrap())
}

/// A program that runs as nobody and does nothing.
fn nobody(environment: &[(&str, &OsStr)]) -> Running {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "echo ready; read line"])
        .envs(environment.iter().copied())
        .uid(NOBODY)
        .gid(NOBODY);
    let running = Running::start("a hostile program", &mut command);
    running.wait_for_stdout("ready");
    running
}

#[test]
fn what_a_search_path_leads_to_is_not_opened() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let (traps, evil) = (bench.path().join("traps"), bench.path().join("evil"));
    fs::create_dir(&traps).unwrap();
    fs::create_dir(&evil).unwrap();
    // Lets nobody access the test's directory.
    chown(
        bench.path(),
        Some(Uid::from_raw(NOBODY)),
        Some(Gid::from_raw(NOBODY)),
    )
    .unwrap();
    let trap = |name: &str| traps.join(name);

    // Device files of our own, which nobody else opens meanwhile: the devices of /dev/kmsg,
    // /dev/ptmx and /dev/null.
    for (name, major, minor) in [("kmsg", 1, 11), ("ptmx", 5, 2), ("null", 1, 3)] {
        let device = makedev(major, minor);
        mknodat(
            CWD,
            trap(name),
            FileType::CharacterDevice,
            Mode::RUSR | Mode::WUSR,
            device,
        )
        .unwrap();
    }
    if let Err(error) = File::open(trap("null")) {
        return skipped(&format!(
            "the directory of temporary files has no devices: {error}"
        ));
    }
    mknodat(
        CWD,
        trap("pipe"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    File::create(trap("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    fs::create_dir(trap("directory")).unwrap();
    let memory = PathBuf::from(format!("/proc/{}/mem", std::process::id()));
    fs::copy(libc(), trap("library")).unwrap();
    for (number, target) in [
        trap("kmsg"),
        trap("ptmx"),
        trap("null"),
        trap("pipe"),
        trap("huge"),
        trap("directory"),
        memory.clone(),
        "/dev/kmsg".into(),
        "/dev/ptmx".into(),
        "/proc/kmsg".into(),
        "/proc/self/mem".into(),
        "/proc/self/exe".into(),
        "/sys/kernel/tracing/trace_pipe".into(),
        evil.join("libamdhip64.so.13"),
        "libamdhip64.so.14".into(),
    ]
    .iter()
    .enumerate()
    {
        symlink(target, evil.join(format!("libamdhip64.so.{number}"))).unwrap();
    }
    symlink(trap("library"), evil.join("libhsa-runtime64.so.1")).unwrap();

    let mut observer = Observer::new();
    for name in [
        "kmsg",
        "ptmx",
        "null",
        "pipe",
        "huge",
        "directory",
        "library",
    ] {
        observer.watch(&trap(name));
    }
    observer.watch(&memory);
    // Shows that the observer notices opened files.
    drop(File::open(trap("null")).unwrap());
    drop(File::open(&memory).unwrap());
    assert_eq!(observer.opened(), [memory.as_path(), &trap("null")]);

    // The pipe, the device and the directory are also entries of the search path.
    let mut search_path = evil.clone().into_os_string();
    for name in ["pipe", "ptmx", "huge"] {
        search_path.push(":");
        search_path.push(trap(name));
    }
    let mut hostile = nobody(&[("LD_LIBRARY_PATH", &search_path)]);
    let outputs = bench.outputs(0);
    let mut gputrace = bench.attach(&outputs, &["--wait", "--sys-trace"], &[hostile.pid()]);
    gputrace.signal(Signal::INT);
    gputrace.finish();
    // gputrace searched the directory, and opened the library in it.
    assert_eq!(
        observer.opened(),
        [trap("library")],
        "{}",
        gputrace.describe()
    );
    hostile.close_stdin();
    hostile.wait();
}

/// The build id of a file, according to readelf.
fn build_id(path: &Path) -> String {
    let output = Command::new("readelf")
        .arg("-nW")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("Build ID: ").unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

/// Whether the kernel allows mounts in a user namespace.
fn may_mount() -> bool {
    let mut command = Command::new("unshare");
    command.args(["-Urm", "true"]).uid(NOBODY).gid(NOBODY);
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_library_is_not_traced_for_its_name_alone() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    if !may_mount() {
        return skipped("the kernel allows no user namespaces");
    }
    let evil = bench.path().join("evil");
    fs::create_dir(&evil).unwrap();
    for path in [bench.path(), &evil] {
        chown(
            path,
            Some(Uid::from_raw(NOBODY)),
            Some(Gid::from_raw(NOBODY)),
        )
        .unwrap();
    }
    let libc = libc();
    let victim = evil.join("libvictim.so.1");
    File::create(&victim).unwrap();
    // The C library, which every process has mapped, under another library's name.
    let script =
        "mount --bind \"$1\" \"$2\" && exec env LD_PRELOAD=\"$2\" sh -c 'echo ready; read line'";
    let mut command = Command::new("unshare");
    command
        .args(["-Urm", "sh", "-c", script, "sh"])
        .args([&libc, &victim])
        .uid(NOBODY)
        .gid(NOBODY);
    let mut hostile = Running::start("a hostile program", &mut command);
    hostile.wait_for_stdout("ready");
    let mut maps = String::new();
    let mut file = File::open(format!("/proc/{}/maps", hostile.pid())).unwrap();
    file.read_to_string(&mut maps).unwrap();
    assert!(maps.contains("libvictim.so.1"), "{maps}");

    let pid = hostile.pid().to_string();
    let id = build_id(&libc);
    let says = [
        "is named like".to_owned(),
        "its soname is libc.so.6".to_owned(),
        format!("--library {id}"),
    ];
    let run = |number: u32, options: &[&str]| {
        let mut command = bench.gputrace(&bench.outputs(number));
        command
            .args(options)
            .args(["--include", "^puts$", "--duration", "50ms"]);
        let mut gputrace = Running::start("gputrace", &mut command);
        let status = gputrace.wait().code();
        (status, gputrace.stderr())
    };
    let victim = victim.to_string_lossy();
    for (number, name) in (0..).zip(["libvictim", "libvictim.so", &victim]) {
        let (status, stderr) = run(number, &["-p", &pid, "--library", name]);
        assert_eq!(status, Some(11), "{stderr}");
        for part in &says {
            assert!(stderr.contains(part), "{part} is not in: {stderr}");
        }
    }
    let (status, stderr) = run(3, &["--all", "--library", "libvictim"]);
    assert_eq!(status, Some(0), "{stderr}");
    for part in &says {
        assert!(stderr.contains(part), "{part} is not in: {stderr}");
    }
    assert!(!stderr.contains("tracing 1 function "), "{stderr}");
    // A user who names the file itself gets it, and is told what it is.
    let (status, stderr) = run(4, &["-p", &pid, "--library", &id]);
    assert_eq!(status, Some(0), "{stderr}");
    let chosen = format!("(soname libc.so.6, build id {id})");
    assert!(
        stderr.contains("tracing 1 function ") && stderr.contains(&chosen),
        "{stderr}"
    );
    hostile.close_stdin();
    hostile.wait();
}
