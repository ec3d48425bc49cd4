//! Real processes with (stand-in) ROCm libraries: found, opened, and told apart from similar ones.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod common;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use common::{FAKE_HIP, LOADER, Running, compile, skip};
use gputrace_tracee::{
    candidates::{self, Origin, Search},
    interp::{self, Linker},
    process::{self, ProcessError},
};

/// A directory with a loader program and a fake HIP runtime.
struct Stage {
    directory: tempfile::TempDir,
    loader: PathBuf,
    library: PathBuf,
}

impl Stage {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let loader = compile(
            directory.path(),
            "loader",
            LOADER,
            &["-Wl,-rpath,$ORIGIN/deps:/x"],
        )?;
        let library = fake_hip(directory.path(), "libamdhip64.so.6.4.1", "0xaa")?;
        Some(Self {
            directory,
            loader,
            library,
        })
    }

    fn run(&self, library: &Path) -> Running {
        Running::start(Command::new(&self.loader).arg(library))
    }
}

fn fake_hip(directory: &Path, name: &str, build_id: &str) -> Option<PathBuf> {
    let build_id = format!("-Wl,--build-id={build_id}");
    compile(directory, name, FAKE_HIP, &["-shared", "-fPIC", &build_id])
}

/// Whether this process may use `/proc/PID/map_files`.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

#[test]
fn a_mapped_library_is_found_and_opened() {
    let Some(stage) = Stage::new() else { return };
    // Spaces and newlines are legal in paths.
    let odd = stage.directory.path().join("a b\nc (deleted)");
    fs::create_dir(&odd).unwrap();
    let library = odd.join("libamdhip64.so.6");
    fs::copy(&stage.library, &library).unwrap();

    let running = stage.run(&library);
    let found = process::rocm_libraries(running.pid()).unwrap();
    let [mapped] = &found.libraries[..] else {
        panic!("{found:?}")
    };
    assert_eq!((&mapped.path, mapped.deleted), (&library, false));
    let opened = process::open_mapped(running.pid(), mapped).unwrap();
    assert_eq!(opened.inode(), fs::metadata(&library).unwrap().ino());
    assert_eq!(opened.elf().build_id.as_deref(), Some("aa"));
    assert_eq!(
        opened.plan(&gputrace_catalog::classify).unwrap().probes[0].name,
        "hipMalloc"
    );

    let survey = process::survey().unwrap();
    assert!(survey.processes.contains(&found));

    let described = process::describe(running.pid()).unwrap();
    assert_eq!(
        (described.name.as_str(), described.parent),
        ("loader", std::process::id())
    );
    assert_eq!(described.executable, stage.loader.to_string_lossy());
    assert_eq!(
        described.command.last().unwrap(),
        &library.to_string_lossy()
    );

    let linker = Linker::of_process(running.pid()).unwrap().unwrap();
    let default = fs::metadata(interp::DEFAULT).unwrap();
    assert_eq!(linker.library.inode(), default.ino());
}

#[test]
fn a_replaced_or_deleted_library_is_still_the_mapped_one() {
    if !root() {
        return;
    }
    let Some(stage) = Stage::new() else { return };
    let running = stage.run(&stage.library);
    let inode = fs::metadata(&stage.library).unwrap().ino();
    let other = fake_hip(stage.directory.path(), "new", "0xbb").unwrap();
    for replace in [true, false] {
        if replace {
            fs::rename(&other, &stage.library).unwrap();
        } else {
            fs::remove_file(&stage.library).unwrap();
        }
        let found = process::rocm_libraries(running.pid()).unwrap();
        assert!(found.libraries[0].deleted);
        assert_eq!(found.libraries[0].path, stage.library);
        let opened = process::open_mapped(running.pid(), &found.libraries[0]).unwrap();
        assert_eq!(
            (opened.inode(), opened.elf().build_id.as_deref()),
            (inode, Some("aa"))
        );
        assert_eq!(fs::metadata(opened.attach_path()).unwrap().ino(), inode);
    }
}

#[test]
fn a_process_in_a_chroot() {
    if !root() {
        return;
    }
    let Some(stage) = Stage::new() else { return };
    // A root directory that contains only the program, its C library and its dynamic linker.
    let jail = stage.directory.path().join("jail");
    for (file, place) in [
        (stage.loader.as_path(), "loader"),
        (&stage.library, "opt/libamdhip64.so.6"),
        (Path::new(interp::DEFAULT), interp::DEFAULT),
        (
            Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
            "lib64/libc.so.6",
        ),
    ] {
        let place = jail.join(place.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        if fs::copy(file, place).is_err() {
            skip(&format!("{} does not exist", file.display()));
            return;
        }
    }
    let mut chroot = Command::new("chroot");
    chroot
        .arg(&jail)
        .args(["/loader", "/opt/libamdhip64.so.6"])
        .env("LD_LIBRARY_PATH", "/lib64");
    let running = Running::start(&mut chroot);

    let found = process::rocm_libraries(running.pid()).unwrap();
    // The kernel shows the path from outside, so it must not be looked up inside.
    let library = jail.join("opt/libamdhip64.so.6");
    assert_eq!(found.libraries[0].path, library);
    let opened = process::open_mapped(running.pid(), &found.libraries[0]).unwrap();
    assert_eq!(opened.inode(), fs::metadata(&library).unwrap().ino());
    let linker = Linker::of_process(running.pid()).unwrap().unwrap();
    assert_eq!(
        linker.library.inode(),
        fs::metadata(jail.join("lib64/ld-linux-x86-64.so.2"))
            .unwrap()
            .ino()
    );

    let root = PathBuf::from(format!("/proc/{}/root", running.pid()));
    let search = Search {
        root: &root,
        executable: Some(Path::new("/loader")),
        library_path: Some("/opt".as_ref()),
        current_dir: Path::new("/"),
    };
    let candidates = candidates::find(&search);
    assert_eq!(candidates.len(), 1);
    assert_eq!(candidates[0].path(), Path::new("/opt/libamdhip64.so.6"));
    assert_eq!(candidates[0].inode, opened.inode());
}

#[test]
fn candidates_of_a_program() {
    let Some(stage) = Stage::new() else { return };
    let directory = stage.directory.path();
    let deps = directory.join("deps");
    fs::create_dir(&deps).unwrap();
    fs::copy(&stage.library, deps.join("libamdhip64.so.6")).unwrap();
    // Started through a link elsewhere: `$ORIGIN` is the real directory of the program.
    fs::create_dir(directory.join("bin")).unwrap();
    let link = directory.join("bin/started");
    std::os::unix::fs::symlink("../loader", &link).unwrap();
    let search = Search {
        root: Path::new("/"),
        executable: Some(Path::new("bin/started")),
        library_path: Some(directory.as_os_str()),
        current_dir: directory,
    };
    let found = candidates::find(&search);
    let first: Vec<_> = found.iter().map(|c| (c.path(), c.origin)).take(2).collect();
    let real = directory
        .canonicalize()
        .unwrap()
        .join("deps/libamdhip64.so.6");
    assert_eq!(
        first,
        [
            (real.as_path(), Origin::RunPath),
            (stage.library.as_path(), Origin::LibraryPath)
        ]
    );
    let installed = Path::new("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5");
    if installed.exists() {
        let inode = fs::metadata(installed).unwrap().ino();
        assert!(
            found
                .iter()
                .any(|c| c.inode == inode && c.origin == Origin::LinkerCache)
        );
    }
    let library = found.into_iter().next().unwrap().into_library().unwrap();
    assert_eq!(library.elf().build_id.as_deref(), Some("aa"));
}

#[test]
fn processes_without_rocm_libraries_say_why() {
    let Some(stage) = Stage::new() else { return };
    let directory = stage.directory.path();
    let why = |running: &Running| process::rocm_libraries(running.pid()).unwrap_err();

    let plain = Running::start(&mut Command::new(&stage.loader));
    let error = why(&plain);
    assert!(
        matches!(&error, ProcessError::NoRocmLibraries { name, .. } if name == "loader"),
        "{error}"
    );
    assert!(error.to_string().contains("--wait"), "{error}");

    // The runtime is linked into the program: exported, or only in its full symbol table.
    let waits = "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); return getchar(); }\n";
    let with_hip = format!("{FAKE_HIP}{waits}");
    for (name, flags) in [
        ("exported", &["-rdynamic"][..]),
        ("inside", &[]),
        ("static", &["-static"]),
    ] {
        let program = compile(directory, name, &with_hip, flags).unwrap();
        let error = why(&Running::start(&mut Command::new(program)));
        assert!(
            matches!(&error, ProcessError::StaticRuntime { .. }),
            "{name}: {error}"
        );
    }
    let program = compile(directory, "bare", waits, &["-static", "-s"]).unwrap();
    let running = Running::start(&mut Command::new(program));
    let error = why(&running);
    assert!(
        error
            .to_string()
            .contains("statically linked and no ROCm function is among its symbols"),
        "{error}"
    );
    assert!(Linker::of_process(running.pid()).unwrap().is_none());
}

#[test]
fn processes_that_are_not_there() {
    let error = process::rocm_libraries(1 << 30).unwrap_err();
    assert!(
        matches!(error, ProcessError::NoSuchProcess { .. }),
        "{error}"
    );

    // Ended, but not waited for.
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    let child_pid = rustix::process::Pid::from_child(&child);
    let exited = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(child_pid), exited).unwrap();
    let error = process::rocm_libraries(pid).unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
    child.wait().unwrap();
    assert!(matches!(
        process::rocm_libraries(pid),
        Err(ProcessError::NoSuchProcess { .. })
    ));
}
