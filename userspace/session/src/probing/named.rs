//! Decides which files are the libraries that the user named.
//!
//! A file's path proves nothing: whoever can mount files in a mount namespace can show any file of
//! the system under the name of a library, and probes belong to the file, in every process that
//! maps it. So a file is identified by its own contents: its soname, set by whoever built it, or
//! its build id. A path given by the user matches if it leads to the same file for gputrace, or if
//! the file's soname agrees with the path.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use gputrace_files::target::{FileState, Place, RegularFile};
use gputrace_tracee::{
    elf::ElfInfo,
    process::{self, MappedFile},
};

/// How long a file that is none of the libraries is not looked at again. A process may change its
/// list of libraries very often; after this time another file can have the same inode number.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum number of files remembered.
const MAX_FILES: usize = 1 << 14;
/// Maximum number of reported files that are not what their names say.
const MAX_TOLD: usize = 64;
/// Minimum length of a build id in hexadecimal digits. Those that lld makes with its fast method
/// have 16.
const MIN_BUILD_ID: usize = 16;

/// A library as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryName {
    given: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A path, with the file that gputrace finds there, if any.
    Path(Option<Twin>),
    /// A name, possibly without its version.
    Name(String),
    /// A build id in lower case.
    BuildId(String),
}

/// A file, identified in spite of overlays, which show one file under several devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Twin {
    state: FileState,
    build_id: Option<String>,
}

impl LibraryName {
    /// Parses what the user wrote: a path, a build id, or a name. A name such as `librocblas` or
    /// `librocblas.so` also stands for `librocblas.so.4`.
    #[must_use]
    pub fn new(given: PathBuf) -> Self {
        let kind = if given.components().count() > 1 || given.is_absolute() {
            Kind::Path(Twin::at(&given))
        } else {
            let name = given.to_string_lossy().into_owned();
            if is_build_id(&name) {
                Kind::BuildId(name.to_ascii_lowercase())
            } else {
                Kind::Name(name)
            }
        };
        Self { given, kind }
    }

    /// The text that the user wrote.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.given
    }

    /// The path, if the user gave one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        matches!(self.kind, Kind::Path(_)).then_some(&*self.given)
    }

    /// Decides whether a file is this library; `path` is the file's path in its process.
    fn judge(&self, path: &Path, file: &Identity) -> Verdict {
        let name = || {
            path.file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default()
        };
        let soname = file.soname.as_deref();
        let is_right = match &self.kind {
            Kind::BuildId(id) => return Verdict::of(file.build_id.as_ref() == Some(id)),
            Kind::Path(twin) if twin.as_ref().is_some_and(|twin| twin.is(file)) => true,
            // The file can have been rebuilt since the name was parsed.
            Kind::Path(_) if Twin::at(&self.given).is_some_and(|twin| twin.is(file)) => true,
            // The process sees the file at the given path. A library's file name may contain more
            // of its version than its soname.
            Kind::Path(_) if path == self.given => soname
                .is_some_and(|soname| is_version(name(), soname) || is_version(soname, name())),
            Kind::Path(_) => return Verdict::Other,
            Kind::Name(wanted) => {
                let is_called = is_version(name(), wanted);
                let says = |soname: &str| {
                    is_version(soname, wanted) || is_called && is_version(wanted, soname)
                };
                match soname {
                    Some(soname) if says(soname) => true,
                    _ if is_called => false,
                    _ => return Verdict::Other,
                }
            }
        };
        if is_right {
            Verdict::Right
        } else {
            Verdict::Misnamed
        }
    }
}

/// Whether `name` equals `of` or extends it after a dot, as `librocblas.so.4` extends `librocblas`.
fn is_version(name: &str, of: &str) -> bool {
    let rest = name.strip_prefix(of);
    !of.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn is_build_id(text: &str) -> bool {
    text.len() >= MIN_BUILD_ID
        && text.len().is_multiple_of(2)
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Twin {
    fn at(path: &Path) -> Option<Self> {
        let place = Place::at(path).ok()?;
        let elf = place
            .open()
            .ok()
            .and_then(|file| ElfInfo::without_symbols(&file).ok());
        Some(Self {
            state: place.state().ok()?,
            build_id: elf.and_then(|elf| elf.build_id),
        })
    }

    fn is(&self, file: &Identity) -> bool {
        let same_build = self.build_id.is_some() && self.build_id == file.build_id;
        self.state.inode == file.state.inode
            && (self.state.device == file.state.device || same_build)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// The file has the library's name, but its soname says that it is another library.
    Misnamed,
    Other,
}

impl Verdict {
    fn of(is_right: bool) -> Self {
        if is_right { Self::Right } else { Self::Other }
    }
}

/// How a file identifies itself.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    state: FileState,
    soname: Option<String>,
    build_id: Option<String>,
}

impl Identity {
    fn of(file: &RegularFile) -> Option<Self> {
        let elf = ElfInfo::without_symbols(file).ok()?;
        Some(Self {
            state: file.state().ok()?,
            soname: elf.soname,
            build_id: elf.build_id,
        })
    }

    /// Why the file is not what its name says, as a clause, and how to trace it nevertheless.
    fn misnamed(&self, path: &Path, wanted: &LibraryName) -> String {
        let says = match &self.soname {
            Some(soname) => format!("its soname is {soname}"),
            None => "it has no soname".to_owned(),
        };
        let next = match &self.build_id {
            Some(id) => format!("`--library {id}` traces it nevertheless"),
            None => "to trace a file without a build id, give `--library` a path that gputrace \
                     can open, too"
                .to_owned(),
        };
        format!(
            "{} is named like {} but {says}, so it is not traced; {next}",
            path.display(),
            wanted.given.display()
        )
    }
}

/// Verdict on a file that processes have mapped.
#[derive(Debug)]
struct Known {
    state: FileState,
    at: Instant,
    /// Indices of the names that the file matches.
    right: Vec<usize>,
    /// Indices of the names that the file only pretends to have, and why.
    misnamed: Vec<(usize, String)>,
}

/// Finds the libraries that the user named among the files that processes have mapped.
#[derive(Debug, Default)]
pub(crate) struct NamedLibraries {
    names: Vec<LibraryName>,
    /// Files by device, inode and path as in `/proc/PID/maps`.
    known: HashMap<(u64, u64, PathBuf), Known>,
    told: HashSet<String>,
}

/// How a mapped file relates to the libraries that the user named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Indices of the names that the file matches.
    pub(crate) right: Vec<usize>,
    /// Indices of the names that the file only pretends to have, and why.
    pub(crate) misnamed: Vec<(usize, String)>,
}

impl NamedLibraries {
    pub(crate) fn new(names: Vec<LibraryName>) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    /// All names.
    pub(crate) fn names(&self) -> &[LibraryName] {
        &self.names
    }

    /// Judges a file that process `pid` has mapped. A file that cannot be inspected matches
    /// nothing.
    pub(crate) fn ask(&mut self, pid: u32, mapped: &MappedFile) -> Answer {
        if self.names.is_empty() {
            return Answer::default();
        }
        let key = (mapped.device, mapped.inode, mapped.path.clone());
        let mut known = self.known.get_mut(&key);
        if let Some(known) = &known
            && known.right.is_empty()
            && known.at.elapsed() < FRESH
        {
            return known.answer();
        }
        let Ok(place) = process::locate_mapped(pid, mapped) else {
            return Answer::default();
        };
        if let (Some(known), Ok(state)) = (&mut known, place.state())
            && known.state == state
        {
            known.at = Instant::now();
            return known.answer();
        }
        let Some(file) = place.open().ok().and_then(|file| Identity::of(&file)) else {
            return Answer::default();
        };
        let known = self.judge(&mapped.path, &file);
        let answer = known.answer();
        if self.known.len() >= MAX_FILES {
            self.known.clear();
        }
        self.known.insert(key, known);
        answer
    }

    fn judge(&self, path: &Path, file: &Identity) -> Known {
        let mut known = Known {
            state: file.state,
            at: Instant::now(),
            right: Vec::new(),
            misnamed: Vec::new(),
        };
        for (index, name) in self.names.iter().enumerate() {
            match name.judge(path, file) {
                Verdict::Right => known.right.push(index),
                Verdict::Misnamed => known.misnamed.push((index, file.misnamed(path, name))),
                Verdict::Other => {}
            }
        }
        known
    }

    /// Whether this text is to be reported: each text is reported once, and their number is
    /// limited.
    pub(crate) fn is_news(&mut self, text: &str) -> bool {
        self.told.len() < MAX_TOLD && self.told.insert(text.to_owned())
    }
}

impl Known {
    fn answer(&self) -> Answer {
        Answer {
            right: self.right.clone(),
            misnamed: self.misnamed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    fn of_this_process(start: &str) -> MappedFile {
        let files = process::code_files(std::process::id()).unwrap();
        let is_it = |file: &MappedFile| {
            let name = file.path.file_name();
            name.is_some_and(|name| name.to_string_lossy().starts_with(start))
        };
        files.into_iter().find(is_it).unwrap()
    }

    fn file(soname: Option<&str>, build_id: Option<&str>) -> Identity {
        Identity {
            state: FileState {
                device: 1,
                inode: 2,
                size: 3,
                modified: (0, 0),
                changed: (0, 0),
            },
            soname: soname.map(str::to_owned),
            build_id: build_id.map(str::to_owned),
        }
    }

    fn verdict(given: &str, path: &str, file: &Identity) -> Verdict {
        LibraryName::new(given.into()).judge(Path::new(path), file)
    }

    #[test]
    fn a_library_is_what_it_says() {
        use Verdict::{Misnamed, Other, Right};
        let blas = file(Some("librocblas.so.4"), None);
        for (given, path, expected) in [
            ("librocblas", "/x/librocblas.so.4", Right),
            ("librocblas.so", "/x/librocblas.so.4", Right),
            ("librocblas.so.4", "/x/librocblas.so.4", Right),
            ("librocblas.so.4.1.2", "/x/librocblas.so.4.1.2", Right),
            // Matches whatever the file is called.
            ("librocblas", "/x/renamed.so", Right),
            ("librocblas.so.4.1.2", "/x/renamed.so", Other),
            ("librocbla", "/x/librocblas.so.4", Other),
            ("librocblas.so.5", "/x/librocblas.so.4", Other),
            ("/x/librocblas.so.4", "/x/librocblas.so.4", Right),
            ("/x/librocblas.so.4.1", "/x/librocblas.so.4.1", Right),
            ("/x/librocblas.so", "/y/librocblas.so", Other),
        ] {
            assert_eq!(verdict(given, path, &blas), expected, "{given} {path}");
        }
        // A different file is shown under the name.
        let other = file(
            Some("libc.so.6"),
            Some("00112233445566778899aabbccddeeff00112233"),
        );
        let nothing = file(None, None);
        for file in [&other, &nothing] {
            for given in ["libfoo", "libfoo.so", "libfoo.so.1", "/x/libfoo.so.1"] {
                assert_eq!(verdict(given, "/x/libfoo.so.1", file), Misnamed, "{given}");
            }
        }
        let id = "00112233445566778899AABBCCDDEEFF00112233";
        assert_eq!(verdict(id, "/x/libfoo.so.1", &other), Right);
        assert_eq!(verdict(id, "/x/libfoo.so.1", &nothing), Other);
        assert_eq!(verdict(&id[2..], "/x/libfoo.so.1", &other), Other);

        let name = LibraryName::new("libfoo".into());
        let text = other.misnamed(Path::new("/x/libfoo.so.1"), &name);
        assert_eq!(
            text,
            "/x/libfoo.so.1 is named like libfoo but its soname is libc.so.6, so it is not traced; \
             `--library 00112233445566778899aabbccddeeff00112233` traces it nevertheless"
        );
        assert!(
            nothing
                .misnamed(Path::new("/x"), &name)
                .contains("it has no soname")
        );
    }

    #[test]
    fn libraries_of_this_process() {
        let (pid, libc) = (std::process::id(), of_this_process("libc.so"));
        let build_id = process::open_mapped(pid, &libc)
            .unwrap()
            .elf()
            .build_id
            .clone()
            .unwrap();
        let names = [
            libc.path.clone(),
            "libc.so.6".into(),
            "libc".into(),
            build_id.into(),
            "lib".into(),
            "libm.so.6".into(),
            "/nowhere/libc.so.6".into(),
            "/bin/sh".into(),
        ];
        let mut named = NamedLibraries::new(names.map(LibraryName::new).to_vec());
        for _ in 0..2 {
            let answer = named.ask(pid, &libc);
            assert_eq!(answer.right, [0, 1, 2, 3]);
            assert_eq!(answer.misnamed, []);
        }
    }

    /// Acts like somebody who may mount files.
    #[test]
    fn another_file_under_a_name_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libfoo.so.1");
        fs::copy(&of_this_process("libc.so").path, &path).unwrap();
        let place = Place::at(&path).unwrap();
        let identity = Identity::of(&place.open().unwrap()).unwrap();
        let named = |given: &Path| NamedLibraries::new(vec![LibraryName::new(given.to_owned())]);
        let mut by_name = named(Path::new("libfoo"));
        let known = by_name.judge(&path, &identity);
        let [(0, text)] = &known.misnamed[..] else {
            panic!("{known:?}");
        };
        assert!(
            known.right.is_empty() && text.contains("libc.so.6"),
            "{text}"
        );
        assert!(by_name.is_news(text) && !by_name.is_news(text));
        for number in 0..MAX_TOLD {
            by_name.is_news(&number.to_string());
        }
        assert!(!by_name.is_news("one too many"));
        // A path means the file itself, even after it has been rebuilt.
        let by_path = named(&path);
        assert_eq!(by_path.judge(&path, &identity).right, [0]);
        let inode = fs::metadata(&path).unwrap().ino();
        fs::copy(&path, directory.path().join("new")).unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        let anew = Identity::of(&Place::at(&path).unwrap().open().unwrap()).unwrap();
        assert_ne!(anew.state.inode, inode);
        assert_eq!(by_path.judge(&path, &anew).right, [0]);
    }
}
