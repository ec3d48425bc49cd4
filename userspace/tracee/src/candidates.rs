//! Finds libraries that a program is likely to map, before it does.
//!
//! A uprobe on an inode covers every later mapping of it from the first instruction on. So the
//! library files that the dynamic linker could choose are probed before the program starts. A wrong
//! guess costs nothing while nobody maps the file. Libraries that are found in other ways (`dlopen`
//! by path, wheels in a virtual environment) must be noticed when they are mapped.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use gputrace_files::target::{Place, Root};

use crate::{
    elf::{ElfError, ElfInfo},
    ld_cache,
    library::LibraryFile,
};

/// The conditions under which a program is started.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Root of its file system: `/`, or `/proc/PID/root` of a container.
    pub root: &'a Path,
    /// Its file, inside `root`; needed for its run path.
    pub executable: Option<&'a Path>,
    /// `LD_LIBRARY_PATH` in its environment.
    pub library_path: Option<&'a OsStr>,
    /// Its current directory, inside `root`; needed for relative paths.
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
    /// ROCm's own directories, `/opt/rocm*/lib*`: programs load libraries from there by path.
    RocmDirectory,
}

/// A file with the name of a library. It has been located but not opened.
#[derive(Debug)]
pub struct Candidate {
    /// The first way in which it was found.
    pub origin: Origin,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    place: Place,
}

impl Candidate {
    /// Path inside the root that was searched.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Opens and reads the file, if it is a library.
    ///
    /// # Errors
    ///
    /// As [`LibraryFile::from_file`].
    pub fn into_library(self) -> Result<LibraryFile, ElfError> {
        LibraryFile::from_file(self.place.open()?)
    }
}

/// Default search directories of the dynamic linkers of common distributions.
const DEFAULT_DIRECTORIES: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Maximum size of a linker cache that is read, bytes. Caches of real systems are far smaller.
const MAX_CACHE: u64 = 64 << 20;
/// Maximum number of directories searched. A hostile environment can name very many.
const MAX_DIRECTORIES: usize = 1024;
/// Maximum number of directory entries examined, over all directories. `/usr/lib64` of a large
/// installation has ten thousand.
const MAX_NAMES: usize = 1 << 18;
/// Maximum number of library names looked up.
const MAX_LOOKUPS: usize = 4096;
/// Maximum number of candidates returned. Each takes a descriptor; ten releases of ROCm have some
/// 250.
const MAX_CANDIDATES: usize = 512;

/// Finds the ROCm libraries that a program could map, each file once.
///
/// Directories and files that cannot be read are skipped: they cannot be probed, and the program
/// may never use them. Directories that the program can influence are searched within limits; the
/// others are searched even if those limits were reached.
#[must_use]
pub fn find(search: &Search<'_>) -> Vec<Candidate> {
    let Ok(root) = Root::at(search.root) else {
        return Vec::new();
    };
    let mut of_program = Found::new(&root, MAX_CANDIDATES / 2);
    for directory in run_path(&root, search) {
        of_program.directory(&directory, Origin::RunPath);
    }
    for directory in split_path(search.library_path.unwrap_or_default(), search.current_dir) {
        of_program.directory(&directory, Origin::LibraryPath);
    }
    let mut found = Found {
        files: of_program.files,
        candidates: of_program.candidates,
        ..Found::new(&root, MAX_CANDIDATES)
    };
    for entry in linker_cache(&root) {
        if is_rocm(&entry.name) {
            found.file(
                Path::new(OsStr::from_bytes(&entry.path)),
                Origin::LinkerCache,
            );
        }
    }
    for directory in DEFAULT_DIRECTORIES {
        found.directory(Path::new(directory), Origin::DefaultDirectory);
    }
    for directory in rocm_directories(&root) {
        found.directory(&directory, Origin::RocmDirectory);
    }
    found.candidates
}

fn is_rocm(file_name: &[u8]) -> bool {
    std::str::from_utf8(file_name)
        .is_ok_and(|name| !gputrace_catalog::library_domains(name).is_empty())
}

/// The candidates so far, and the remaining limits.
struct Found<'a> {
    root: &'a Root,
    files: HashSet<(u64, u64)>,
    candidates: Vec<Candidate>,
    /// Maximum number of candidates.
    most: usize,
    directories: usize,
    names: usize,
    lookups: usize,
}

impl<'a> Found<'a> {
    fn new(root: &'a Root, most: usize) -> Self {
        Self {
            root,
            files: HashSet::new(),
            candidates: Vec::new(),
            most,
            directories: MAX_DIRECTORIES,
            names: MAX_NAMES,
            lookups: MAX_LOOKUPS,
        }
    }

    fn directory(&mut self, directory: &Path, origin: Origin) {
        if self.names == 0 || !take(&mut self.directories) {
            return;
        }
        let names = self.root.list(directory, self.names).unwrap_or_default();
        self.names = self.names.saturating_sub(names.len());
        for name in names {
            if is_rocm(name.as_bytes()) {
                self.file(&directory.join(name), origin);
            }
        }
    }

    fn file(&mut self, path: &Path, origin: Origin) {
        if self.candidates.len() >= self.most || !take(&mut self.lookups) {
            return;
        }
        let Ok(place) = self.root.locate(path) else {
            return;
        };
        let Ok(state) = place.state() else { return };
        let (device, inode) = (state.device, state.inode);
        if place.is_regular() && self.files.insert((device, inode)) {
            self.candidates.push(Candidate {
                origin,
                device,
                inode,
                place,
            });
        }
    }
}

/// Decrements `left`, and returns whether it was not 0.
fn take(left: &mut usize) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

fn linker_cache(root: &Root) -> Vec<ld_cache::Entry> {
    let cache = root.open(Path::new("/etc/ld.so.cache"));
    // Whatever was read before an error is used like a truncated cache.
    let bytes = cache
        .ok()
        .and_then(|cache| cache.read_start(MAX_CACHE).ok());
    bytes.map_or_else(Vec::new, |bytes| ld_cache::parse(&bytes))
}

/// The directories in the executable's run path.
fn run_path(root: &Root, search: &Search<'_>) -> Vec<PathBuf> {
    let Some(executable) = search.executable else {
        return Vec::new();
    };
    let executable = search.current_dir.join(executable);
    let Ok(place) = root.locate(&executable) else {
        return Vec::new();
    };
    let Some(elf) = place
        .open()
        .ok()
        .and_then(|file| ElfInfo::from_file(&file).ok())
    else {
        return Vec::new();
    };
    // The kernel tells the dynamic linker the real directory, with symbolic links resolved.
    let real = place
        .link()
        .ok()
        .zip(root.link().ok())
        .and_then(|(link, root)| Some(Path::new("/").join(link.strip_prefix(root).ok()?)));
    let executable = real.unwrap_or(executable);
    let origin = executable.parent().unwrap_or(Path::new("/")).as_os_str();
    let path = elf.runpath.or(elf.rpath).unwrap_or_default();
    // The value of `$LIB` differs between distributions.
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
            if directories.len() < MAX_DIRECTORIES && !directories.contains(&directory) {
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
            let braced = || {
                tail.strip_prefix('{')?
                    .strip_prefix(name)?
                    .strip_prefix('}')
            };
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

/// Splits a search path as the dynamic linker does: at `:` or `;`, where an empty part means the
/// current directory.
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
    /// Maximum number of releases, and of library directories per release.
    const MOST: usize = 64;
    let starting = |directory: &Path, prefix: &[u8]| {
        let mut names = root.list(directory, MAX_LOOKUPS).unwrap_or_default();
        names.retain(|name| name.as_bytes().starts_with(prefix));
        names.reverse();
        names.truncate(MOST);
        names
    };
    let mut directories = Vec::new();
    for release in starting(Path::new("/opt"), b"rocm") {
        let release = Path::new("/opt").join(release);
        let libraries = starting(&release, b"lib");
        directories.extend(libraries.into_iter().rev().map(|name| release.join(name)));
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
            .map(|c| (c.path().display().to_string(), c.origin))
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
        // An absolute link means a path inside the root; one of them leads to a file only outside
        // of it.
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
                (
                    "/usr/lib64/libamdhip64.so.6".to_owned(),
                    Origin::DefaultDirectory
                ),
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

    /// Files that a hostile user could place in a directory that root searches on the user's
    /// behalf.
    #[test]
    fn what_is_no_library_is_not_opened() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("libamdhip64.so.1"), "no library").unwrap();
        // Opening it would block until somebody writes.
        mknodat(CWD, at("libamdhip64.so.2"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::create_dir(at("libamdhip64.so.3")).unwrap();
        for (name, target) in [
            ("libamdhip64.so.4", "/dev/kmsg"),
            ("libamdhip64.so.5", "/dev/ptmx"),
            ("libamdhip64.so.6", "libamdhip64.so.6"),
            ("libamdhip64.so.7", "/proc/self/mem"),
            ("libamdhip64.so.8", "/proc/self/exe"),
            ("libamdhip64.so.9", "/proc/self/fd/0"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        let huge = fs::File::create(at("libhsa-runtime64.so.1")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let search = |library_path: &OsStr| {
            let found = find(&Search {
                root: Path::new("/"),
                executable: None,
                library_path: Some(library_path),
                current_dir: Path::new("/"),
            });
            let of_test = |candidate: &Candidate| candidate.origin == Origin::LibraryPath;
            found.into_iter().filter(of_test).collect::<Vec<_>>()
        };
        let mut refused = Vec::new();
        for candidate in search(directory.path().as_os_str()) {
            let name = candidate
                .path()
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            refused.push((name, candidate.into_library().unwrap_err().to_string()));
        }
        let refused: Vec<_> = refused
            .iter()
            .map(|(name, why)| (name.as_str(), why.as_str()))
            .collect();
        let [(file, no_library), (memory, of_kernel), (sparse, too_large)] = refused[..] else {
            panic!("{refused:?}");
        };
        assert_eq!(
            [file, memory, sparse],
            [
                "libamdhip64.so.1",
                "libamdhip64.so.7",
                "libhsa-runtime64.so.1"
            ]
        );
        assert!(no_library.contains("is not an ELF file"), "{no_library}");
        assert!(of_kernel.contains("is not a regular file"), "{of_kernel}");
        assert!(too_large.contains("has 1099511627776 bytes"), "{too_large}");

        // Very many directories, and very many files that look like libraries.
        let many = format!("{}:", directory.path().display()).repeat(20_000);
        assert_eq!(search(OsStr::new(&many)).len(), 3);
        for number in 0..MAX_CANDIDATES {
            fs::write(at(&format!("librccl.so.{number}")), "").unwrap();
        }
        assert_eq!(
            search(directory.path().as_os_str()).len(),
            MAX_CANDIDATES / 2
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
