//! Libraries that a program is likely to map, before it does.
//!
//! A uprobe on an inode covers every later mapping of it from the first instruction on. So the library files
//! that the dynamic linker could choose are probed before the program starts, and a guess too many costs
//! nothing while nobody maps the file. Libraries that are found in other ways (`dlopen` by path, wheels in a
//! virtual environment) must be noticed when they are mapped.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{
    elf::{self, ElfError},
    ld_cache,
    library::LibraryFile,
};

/// What a program would be started with.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Where its file system begins: `/`, or `/proc/PID/root` of a container.
    pub root: &'a Path,
    /// Its file, inside `root`; for its run path.
    pub executable: Option<&'a Path>,
    /// `LD_LIBRARY_PATH` of its environment.
    pub library_path: Option<&'a OsStr>,
    /// Its current directory, inside `root`; for relative paths.
    pub current_dir: &'a Path,
}

/// How a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// `DT_RPATH` or `DT_RUNPATH` of the executable.
    RunPath,
    /// `LD_LIBRARY_PATH`.
    LibraryPath,
    /// `/etc/ld.so.cache`.
    LinkerCache,
    /// The dynamic linker's default directories.
    DefaultDirectory,
    /// ROCm's own directories, `/opt/rocm*/lib*`: from there come libraries that programs load by
    /// path.
    RocmDirectory,
}

/// An existing library file.
#[derive(Debug)]
pub struct Candidate {
    /// Its path, inside the root that was searched.
    pub path: PathBuf,
    /// How it was found first.
    pub origin: Origin,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    file: File,
}

impl Candidate {
    /// Reads the file, which is already open.
    ///
    /// # Errors
    /// As [`LibraryFile::from_file`].
    pub fn into_library(self) -> Result<LibraryFile, ElfError> {
        LibraryFile::from_file(self.file, &self.path)
    }
}

/// Where the dynamic linkers of the common distributions look by default.
const DEFAULT_DIRECTORIES: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// No cache of a real system comes near this many bytes.
const MAX_CACHE: u64 = 64 << 20;

/// Finds the ROCm libraries that a program could map, each file once.
///
/// Directories and files that cannot be read are passed over: they cannot be probed, and the program
/// may never use them.
#[must_use]
pub fn find(search: &Search<'_>) -> Vec<Candidate> {
    let Ok(root) = Root::open(search.root) else {
        return Vec::new();
    };
    let mut found = Found {
        root,
        files: HashSet::new(),
        candidates: Vec::new(),
    };
    for directory in run_path(&found.root, search) {
        found.directory(&directory, Origin::RunPath);
    }
    for directory in split_path(search.library_path.unwrap_or_default(), search.current_dir) {
        found.directory(&directory, Origin::LibraryPath);
    }
    for entry in found.root.linker_cache() {
        if is_rocm(&entry.name) {
            found.file(Path::new(OsStr::from_bytes(&entry.path)), Origin::LinkerCache);
        }
    }
    for directory in DEFAULT_DIRECTORIES {
        found.directory(Path::new(directory), Origin::DefaultDirectory);
    }
    for directory in rocm_directories(&found.root) {
        found.directory(&directory, Origin::RocmDirectory);
    }
    found.candidates
}

fn is_rocm(file_name: &[u8]) -> bool {
    std::str::from_utf8(file_name).is_ok_and(|name| !gputrace_catalog::library_domains(name).is_empty())
}

/// Candidates so far.
struct Found {
    root: Root,
    files: HashSet<(u64, u64)>,
    candidates: Vec<Candidate>,
}

impl Found {
    fn directory(&mut self, directory: &Path, origin: Origin) {
        for name in self.root.list(directory) {
            if is_rocm(name.as_bytes()) {
                self.file(&directory.join(name), origin);
            }
        }
    }

    fn file(&mut self, path: &Path, origin: Origin) {
        let Ok(file) = self.root.file(path) else { return };
        let Ok(metadata) = file.metadata() else { return };
        let (device, inode) = (metadata.dev(), metadata.ino());
        if metadata.is_file() && self.files.insert((device, inode)) {
            self.candidates.push(Candidate {
                path: path.to_owned(),
                origin,
                device,
                inode,
                file,
            });
        }
    }
}

/// A directory that stands for `/`: symbolic links inside it, absolute ones too, do not lead out of it.
struct Root {
    directory: File,
    /// It is `/` itself, so paths mean what they say and no system call is needed that sandboxes refuse.
    is_own: bool,
}

impl Root {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Self {
            directory,
            is_own: path == Path::new("/"),
        })
    }

    fn open_inside(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if self.is_own {
            return Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?));
        }
        Ok(File::from(rustix::fs::openat2(
            &self.directory,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )?))
    }

    fn file(&self, path: &Path) -> io::Result<File> {
        self.open_inside(path, OFlags::empty())
    }

    /// Names in a directory, sorted, so that the result does not depend on the file system.
    fn list(&self, directory: &Path) -> Vec<OsString> {
        let Ok(directory) = self.open_inside(directory, OFlags::DIRECTORY) else {
            return Vec::new();
        };
        let Ok(entries) = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn linker_cache(&self) -> Vec<ld_cache::Entry> {
        let Ok(file) = self.file(Path::new("/etc/ld.so.cache")) else {
            return Vec::new();
        };
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        // What was read before an error is as good as a cache that is cut off.
        let _ = file.take(MAX_CACHE).read_to_end(&mut bytes);
        ld_cache::parse(&bytes)
    }
}

/// The directories of the executable's run path.
fn run_path(root: &Root, search: &Search<'_>) -> Vec<PathBuf> {
    let Some(executable) = search.executable else {
        return Vec::new();
    };
    let executable = search.current_dir.join(executable);
    let Ok(file) = root.file(&executable) else {
        return Vec::new();
    };
    let Ok(elf) = elf::ElfInfo::from_file(&file, &executable) else {
        return Vec::new();
    };
    // The kernel tells the dynamic linker the directory behind symbolic links.
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let real_root = std::fs::read_link(format!("/proc/self/fd/{}", root.directory.as_raw_fd()));
    let real = link
        .ok()
        .zip(real_root.ok())
        .and_then(|(link, root)| Some(Path::new("/").join(link.strip_prefix(root).ok()?)));
    let executable = real.unwrap_or(executable);
    let origin = executable.parent().unwrap_or(Path::new("/")).as_os_str();
    let path = elf.runpath.or(elf.rpath).unwrap_or_default();
    // What `$LIB` stands for differs between distributions.
    let mut directories = Vec::new();
    for lib in ["lib/x86_64-linux-gnu", "lib64", "lib"] {
        let expanded = expand(
            &path,
            &[
                ("ORIGIN", origin),
                ("LIB", OsStr::new(lib)),
                ("PLATFORM", OsStr::new("x86_64")),
            ],
        );
        for directory in split_path(&expanded, search.current_dir) {
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
    }
    directories
}

/// Replaces `$NAME` and `${NAME}`.
fn expand(path: &str, values: &[(&str, &OsStr)]) -> OsString {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(dollar) = rest.find('$') {
        let (before, after) = rest.split_at(dollar);
        out.extend_from_slice(before.as_bytes());
        let replaced = values.iter().find_map(|(name, value)| {
            let tail = after.strip_prefix('$')?;
            let braced = || tail.strip_prefix('{')?.strip_prefix(name)?.strip_prefix('}');
            let plain = || {
                let tail = tail.strip_prefix(name)?;
                (!tail.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')).then_some(tail)
            };
            Some((braced().or_else(plain)?, value))
        });
        if let Some((tail, value)) = replaced {
            out.extend_from_slice(value.as_bytes());
            rest = tail;
        } else {
            out.push(b'$');
            rest = after.strip_prefix('$').unwrap_or_default();
        }
    }
    out.extend_from_slice(rest.as_bytes());
    OsString::from_vec(out)
}

/// The directories of a search path as the dynamic linker reads it: separated by `:` or `;`, an empty one
/// is the current directory.
fn split_path(path: &OsStr, current_dir: &Path) -> Vec<PathBuf> {
    if path.is_empty() {
        return Vec::new();
    }
    let parts = path.as_bytes().split(|byte| matches!(byte, b':' | b';'));
    parts
        .map(|part| current_dir.join(OsStr::from_bytes(part)))
        .collect()
}

/// `/opt/rocm*/lib*`, newest release first.
fn rocm_directories(root: &Root) -> Vec<PathBuf> {
    let starts_with = |prefix: &'static [u8]| move |name: &OsString| name.as_bytes().starts_with(prefix);
    let mut directories = Vec::new();
    for release in root
        .list(Path::new("/opt"))
        .into_iter()
        .filter(starts_with(b"rocm"))
        .rev()
    {
        let release = Path::new("/opt").join(release);
        let libraries = root.list(&release).into_iter().filter(starts_with(b"lib"));
        directories.extend(libraries.map(|name| release.join(name)));
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn paths(candidates: &[Candidate]) -> Vec<(String, Origin)> {
        candidates
            .iter()
            .map(|c| (c.path.display().to_string(), c.origin))
            .collect()
    }

    #[test]
    fn each_file_once_and_never_outside_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for directory in [
            "opt/rocm-6.2.0/lib",
            "opt/rocm-6.4.0/lib",
            "opt/rocm-6.4.0/lib64",
            "usr/lib64",
            "app/libs",
        ] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("opt/rocm-6.2.0/lib/libamdhip64.so.6.2.60200"), "old").unwrap();
        fs::write(at("opt/rocm-6.4.0/lib/libamdhip64.so.6.4.60400"), "new").unwrap();
        fs::write(at("opt/rocm-6.4.0/lib/libhsa-runtime64.so.1.15.0"), "hsa").unwrap();
        fs::write(at("opt/rocm-6.4.0/lib/librocblas.so.4"), "other").unwrap();
        fs::write(at("app/libs/libamdhip64-0a1b2c.so.6"), "wheel").unwrap();
        // An absolute link means a path inside the root; one of them leads to a file only outside of it.
        symlink("/opt/rocm-6.4.0", at("opt/rocm")).unwrap();
        symlink(
            "/opt/rocm/lib/libamdhip64.so.6.4.60400",
            at("usr/lib64/libamdhip64.so.6"),
        )
        .unwrap();
        symlink("/proc/self/exe", at("usr/lib64/libhsa-runtime64.so.1")).unwrap();
        symlink("libamdhip64.so.7", at("usr/lib64/libamdhip64.so.7")).unwrap();

        let search = Search {
            root: root.path(),
            executable: None,
            library_path: Some(OsStr::new("/nowhere:libs;/app/libs")),
            current_dir: Path::new("/app"),
        };
        assert_eq!(
            paths(&find(&search)),
            [
                (
                    "/app/libs/libamdhip64-0a1b2c.so.6".to_owned(),
                    Origin::LibraryPath
                ),
                ("/usr/lib64/libamdhip64.so.6".to_owned(), Origin::DefaultDirectory),
                (
                    "/opt/rocm-6.4.0/lib/libhsa-runtime64.so.1.15.0".to_owned(),
                    Origin::RocmDirectory
                ),
                (
                    "/opt/rocm-6.2.0/lib/libamdhip64.so.6.2.60200".to_owned(),
                    Origin::RocmDirectory
                ),
            ]
        );
    }

    #[test]
    fn variables_in_run_paths() {
        let values = [("ORIGIN", OsStr::new("/app")), ("LIB", OsStr::new("lib64"))];
        let cases = [
            ("$ORIGIN/../lib:${ORIGIN}", "/app/../lib:/app"),
            ("/x/$LIB", "/x/lib64"),
            ("$ORIGINAL/$", "$ORIGINAL/$"),
            ("${ORIGIN", "${ORIGIN"),
            ("$$ORIGIN", "$/app"),
            ("", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(expand(path, &values), expected, "{path}");
        }
    }

    #[test]
    fn a_root_that_does_not_exist_has_nothing() {
        let search = Search {
            root: Path::new("/nonexistent"),
            executable: None,
            library_path: None,
            current_dir: Path::new("/"),
        };
        assert!(find(&search).is_empty());
    }
}
