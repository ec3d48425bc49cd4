//! Files appear complete or not at all, belong to the right user, and links are not followed.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};

use gputrace_export::output::Existing;
use gputrace_export::{FileOwner, OutputDir, OutputError};

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_file_has_its_name_only_when_it_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    let out = OutputDir::open(directory.path(), None).unwrap();
    let mut file = out.file("a.csv").unwrap();
    file.write_all(b"text").unwrap();
    file.flush().unwrap();
    assert!(!path.exists());
    let output = file.finish("words").unwrap();
    assert_eq!((output.path.as_path(), output.bytes), (path.as_path(), 4));
    assert_eq!(fs::read(&path).unwrap(), b"text");
    assert_eq!(entries(directory.path()), 1);
}

#[test]
fn an_unfinished_file_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    fs::write(directory.path().join("a.csv"), "older").unwrap();
    let mut file = out.file("a.csv").unwrap();
    file.write_all(b"text").unwrap();
    drop(file);
    assert_eq!(fs::read(directory.path().join("a.csv")).unwrap(), b"older");
    assert_eq!(entries(directory.path()), 1);
}

#[test]
fn a_planted_link_is_replaced_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    for name in ["a.csv", "a.gtcap"] {
        symlink(&victim, directory.path().join(name)).unwrap();
    }
    let mut file = out.file("a.csv").unwrap();
    file.write_all(b"text").unwrap();
    file.finish("words").unwrap();
    out.file_in_place("a.gtcap", Existing::Replace)
        .unwrap()
        .write_all(b"text")
        .unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    for name in ["a.csv", "a.gtcap"] {
        let path = directory.path().join(name);
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }
}

#[test]
fn a_file_in_place_is_there_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let mut file = out.file_in_place("a.gtcap", Existing::Replace).unwrap();
    assert_eq!(entries(directory.path()), 1);
    file.write_all(b"block").unwrap();
    assert_eq!(
        fs::read(directory.path().join("a.gtcap")).unwrap(),
        b"block"
    );
}

#[test]
fn missing_directories_are_made_for_their_owner() {
    let directory = tempfile::tempdir().unwrap();
    let me = fs::metadata(directory.path()).unwrap();
    // Only root can change the owner of files.
    let owner = if me.uid() == 0 {
        FileOwner {
            uid: 4321,
            gid: 8765,
        }
    } else {
        FileOwner {
            uid: me.uid(),
            gid: me.gid(),
        }
    };
    let path = directory.path().join("one/two");
    let out = OutputDir::open(&path, Some(owner)).unwrap();
    out.file("a.csv").unwrap().finish("nothing").unwrap();
    drop(out.file_in_place("b.gtcap", Existing::Replace).unwrap());
    for made in ["one", "one/two", "one/two/a.csv", "one/two/b.gtcap"] {
        let metadata = fs::metadata(directory.path().join(made)).unwrap();
        assert_eq!(
            (metadata.uid(), metadata.gid()),
            (owner.uid, owner.gid),
            "{made}"
        );
    }
    let metadata = fs::metadata(directory.path()).unwrap();
    assert_eq!(
        metadata.uid(),
        me.uid(),
        "what was there before keeps its owner"
    );
    // The second time, everything exists already.
    OutputDir::open(&path, Some(owner)).unwrap();
}

#[test]
fn files_are_their_owners_alone_whatever_the_umask_is() {
    let directory = tempfile::tempdir().unwrap();
    let mode = |path: &str| {
        let metadata = fs::metadata(directory.path().join(path)).unwrap();
        metadata.mode() & 0o7777
    };
    fs::write(directory.path().join("older"), "").unwrap();
    let older = mode("older");
    for umask in [0, 0o022] {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        let path = directory.path().join(format!("{umask}/made"));
        let out = OutputDir::open(&path, None).unwrap();
        out.file("a.csv").unwrap().finish("nothing").unwrap();
        drop(out.file_in_place("b.gtcap", Existing::Keep).unwrap());
        let staging = out.staging("c").unwrap();
        fs::create_dir(staging.path().join("c")).unwrap();
        fs::write(staging.path().join("c/d"), "").unwrap();
        staging.publish(&["c"], "nothing").unwrap();
        out.public()
            .file("page.1")
            .unwrap()
            .finish("nothing")
            .unwrap();
        for (name, expected) in [
            ("", 0o700),
            ("/a.csv", 0o600),
            ("/b.gtcap", 0o600),
            ("/c", 0o700),
            ("/c/d", 0o600),
            ("/page.1", 0o666 & !umask),
        ] {
            assert_eq!(
                mode(&format!("{umask}/made{name}")),
                expected,
                "{name} with umask {umask:o}"
            );
        }
    }
    assert_eq!(mode("older"), older);
}

#[test]
fn errors_name_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(
            matches!(out.file(name).unwrap_err(), OutputError::Name { .. }),
            "{name:?}"
        );
    }
    let error = OutputDir::open(&directory.path().join("file/sub"), None).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot open directory"),
        "{error}"
    );

    fs::create_dir(directory.path().join("taken.csv")).unwrap();
    let file = out.file("taken.csv").unwrap();
    let error = file.finish("words").unwrap_err();
    assert!(error.to_string().contains("taken.csv"), "{error}");
    let too_long = out
        .file(&"x".repeat(300))
        .unwrap()
        .finish("words")
        .unwrap_err();
    assert!(matches!(too_long, OutputError::Io { .. }), "{too_long}");
    assert_eq!(entries(directory.path()), 2);

    // Nobody may create files in /proc.
    let error = OutputDir::open("/proc/gputrace".as_ref(), None).unwrap_err();
    assert!(error.to_string().contains("/proc/gputrace"), "{error}");
}
