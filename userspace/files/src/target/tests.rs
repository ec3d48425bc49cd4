use std::{
    collections::HashSet,
    fs,
    os::unix::{
        fs::{MetadataExt as _, symlink},
        net::UnixListener,
    },
};

use proptest::prelude::*;
use rustix::fs::mknodat;

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "shorter where it is called")]
fn what(outcome: Result<RegularFile, OpenError>) -> &'static str {
    match outcome {
        Err(OpenError::NotRegular { what, .. }) => what,
        Err(OpenError::TooLarge { .. }) => "too large",
        Err(OpenError::Open { .. }) => "not there",
        Ok(_) => "open",
    }
}

#[test]
fn only_regular_files_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // Opening it would wait for a writer.
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
    fs::write(at("file"), "0123456789").unwrap();
    symlink("file", at("link")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let root = Root::at(directory.path()).unwrap();
    for (name, expected) in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("huge", "too large"),
        (".", "a directory"),
        ("loop", "not there"),
        ("nothing", "not there"),
        ("", "not there"),
        ("link", "open"),
    ] {
        assert_eq!(what(root.open(Path::new(name))), expected, "{name}");
        if !name.is_empty() {
            assert_eq!(what(RegularFile::open(&at(name))), expected, "{name}");
        }
    }
    for (path, expected) in [
        ("/dev/kmsg", "a device"),
        ("/dev/ptmx", "a device"),
        ("/dev/zero", "a device"),
        ("/proc/self/mem", "a file of the kernel"),
        ("/proc/self/status", "a file of the kernel"),
        ("/sys/kernel/notes", "a file of the kernel"),
    ] {
        if Path::new(path).exists() {
            assert_eq!(what(RegularFile::open(Path::new(path))), expected, "{path}");
            assert_eq!(
                what(Root::own().unwrap().open(Path::new(path))),
                expected,
                "{path}"
            );
        }
    }
    let file = root.open(Path::new("link")).unwrap();
    assert_eq!(file.read_start(4).unwrap(), b"0123");
    assert_eq!(file.read_start(40).unwrap(), b"0123456789");
    assert_eq!(file.state().unwrap().size, 10);
}

#[test]
fn a_root_is_not_left() {
    let outside = tempfile::tempdir().unwrap();
    let directory = outside.path().join("root");
    fs::create_dir_all(directory.join("sub")).unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    fs::write(directory.join("file"), "inside").unwrap();
    symlink("/file", directory.join("sub/absolute")).unwrap();
    symlink("../../file", directory.join("sub/above")).unwrap();
    symlink("../../secret", directory.join("sub/secret")).unwrap();
    symlink(outside.path().join("secret"), directory.join("sub/whole")).unwrap();
    symlink("/proc/self/exe", directory.join("sub/magic")).unwrap();
    let root = Root::at(&directory).unwrap();
    let read = |path: &str| Some(root.open(Path::new(path)).ok()?.read_start(100).unwrap());
    for path in ["/file", "file", "sub/absolute", "/sub/above", "../file"] {
        assert_eq!(read(path).as_deref(), Some(&b"inside"[..]), "{path}");
    }
    for path in ["sub/secret", "sub/whole", "sub/magic", "../secret"] {
        assert_eq!(read(path), None, "{path}");
    }
    // Links of /proc would mean gputrace's own files.
    let own = Root::own().unwrap();
    for path in [
        "/proc/self/exe",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/Cargo.toml",
    ] {
        assert_eq!(what(own.open(Path::new(path))), "not there", "{path}");
    }
}

#[test]
fn listings_are_sorted_and_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<OsString> = (0..50)
        .map(|number| format!("file{number:02}").into())
        .collect();
    for name in &names {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let root = Root::at(directory.path()).unwrap();
    assert_eq!(root.list(Path::new("/"), 1000).unwrap(), names);
    assert_eq!(root.list(Path::new("."), 7).unwrap().len(), 7);
    assert!(root.list(Path::new("file01"), 7).is_err());
    let kind = Root::own()
        .unwrap()
        .list(Path::new("/proc/self"), 7)
        .unwrap_err()
        .kind();
    assert_eq!(kind, io::ErrorKind::Unsupported);
}

#[test]
fn a_mapped_file_is_the_mapped_one() {
    let place = Place::of_executable(std::process::id()).unwrap();
    let own = std::env::current_exe().unwrap();
    assert_eq!(place.link().unwrap(), own);
    assert_eq!(
        place.state().unwrap().inode,
        fs::metadata(&own).unwrap().ino()
    );
    let shown = place.shown_as(Path::new("/shown"));
    assert_eq!(shown.open().unwrap().path(), Path::new("/shown"));
    assert!(Place::of_mapping(std::process::id(), "1000-2000", &own).is_err());
}

/// Entries that a hostile user can create in a directory.
#[derive(Clone, Debug)]
enum Entry {
    File,
    Huge,
    Pipe,
    Directory,
    Link(String),
}

/// A path of names that may exist, up and down, absolute or not, with parts that may lead out of
/// the root.
fn any_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => "[abc]",
        3 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just("proc/self/exe".to_owned()),
        1 => Just("dev/zero".to_owned()),
        1 => Just("secret".to_owned()),
    ];
    (any::<bool>(), prop::collection::vec(part, 1..6)).prop_map(|(absolute, parts)| {
        format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
    })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        3 => Just(Entry::File),
        1 => Just(Entry::Huge),
        1 => Just(Entry::Pipe),
        3 => Just(Entry::Directory),
        6 => any_path().prop_map(Entry::Link),
    ]
}

/// Creates the entries that can be created, and returns device and inode of the regular files that
/// may be opened.
fn make(root: &Path, entries: &[(String, Entry)]) -> HashSet<(u64, u64)> {
    let mut files = HashSet::new();
    for (name, entry) in entries {
        let path = root.join(name);
        // Not through a link, which could lead anywhere. Entries whose directory does not exist, or
        // that exist already, are skipped.
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        if !parent.is_some_and(|parent| parent.starts_with(root)) {
            continue;
        }
        match entry {
            Entry::File | Entry::Huge => {
                let Ok(file) = File::create_new(&path) else {
                    continue;
                };
                if matches!(entry, Entry::Huge) {
                    file.set_len(MAX_FILE + 1).unwrap();
                } else {
                    let metadata = file.metadata().unwrap();
                    files.insert((metadata.dev(), metadata.ino()));
                }
            }
            Entry::Pipe => drop(mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0)),
            Entry::Directory => drop(fs::create_dir(&path)),
            Entry::Link(target) => drop(symlink(target, &path)),
        }
    }
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever a tree contains, only its own regular files are opened, and nothing blocks.
    #[test]
    fn only_own_regular_files_come_out_of_a_tree(
        entries in prop::collection::vec(("[abc](/[abc]){0,2}", any_entry()), 1..20),
        paths in prop::collection::vec(any_path(), 1..20),
    ) {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "outside").unwrap();
        let directory = outside.path().canonicalize().unwrap().join("root");
        fs::create_dir(&directory).unwrap();
        let files = make(&directory, &entries);
        let root = Root::at(&directory).unwrap();
        for path in entries.iter().map(|(name, _)| name).chain(&paths) {
            match root.open(Path::new(path)) {
                Ok(file) => {
                    let state = file.state().unwrap();
                    prop_assert!(files.contains(&(state.device, state.inode)), "{path}");
                }
                Err(OpenError::NotRegular { what, .. }) => {
                    prop_assert!(["a directory", "a pipe"].contains(&what), "{path}: {what}");
                }
                Err(_) => {}
            }
            let _ = root.list(Path::new(path), 5);
        }
        // A regular file is opened by its own path if no link precedes it.
        for (name, _) in &entries {
            let path = directory.join(name);
            if path.canonicalize().is_ok_and(|real| real == path)
                && path.metadata().is_ok_and(|one| one.is_file() && one.len() <= MAX_FILE)
            {
                prop_assert!(root.open(Path::new(name)).is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn any_bytes_as_a_path(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        use std::os::unix::ffi::OsStringExt as _;
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path()).unwrap();
        let path = PathBuf::from(OsString::from_vec(bytes));
        prop_assert!(root.open(&path).is_err());
    }
}
