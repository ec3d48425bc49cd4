//! The dynamic linker that a program runs under, and the places where it reports new libraries.
//!
//! Each time the dynamic linker has changed its list of libraries, at start and in `dlopen`, it
//! calls an empty function that exists for debuggers, [`HOOK`]. A probe there, or after those calls
//! ([`crate::linker_sites`]), sees every library before its first function is called. Both glibc
//! and musl export this function.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use gputrace_files::{
    own,
    target::{OpenError, RegularFile},
};
use rustix::fs::Access;

use crate::{
    elf::{ElfError, ElfInfo},
    library::{LibraryFile, SymbolError},
    linker_sites::{self, LinkerSite},
    process::{self, ProcessError},
};

/// The function that the dynamic linker calls for debuggers.
pub const HOOK: &str = "_dl_debug_state";

/// The dynamic linker of nearly every x86-64 program; a program started by a statically linked one
/// will most likely use it.
pub const DEFAULT: &str = "/lib64/ld-linux-x86-64.so.2";

/// Why the dynamic linker of a program was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterpError {
    /// The program does not exist.
    #[error("{}: command not found; check its name, or give its path", program.display())]
    NotFound {
        /// Program as it was asked for.
        program: PathBuf,
    },
    /// The file exists, but may not be executed.
    #[error(
        "{} cannot be executed; check its permissions (chmod +x) and whether its file system allows programs",
        path.display()
    )]
    NotExecutable {
        /// Path of the file.
        path: PathBuf,
    },
    /// Too many nested scripts: their `#!` lines name other scripts.
    #[error(
        "{} is a script whose interpreter is a script, more than {MAX_SCRIPTS} deep; check their #! lines",
        program.display()
    )]
    TooManyScripts {
        /// The script that was started.
        program: PathBuf,
    },
    /// The program or dynamic linker cannot be parsed.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The dynamic linker has no suitable place for the probe.
    #[error(transparent)]
    Hook(#[from] SymbolError),
    /// The process cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A command that is about to be started.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The program: a path if it contains a slash, else a name to look up.
    pub program: &'a OsStr,
    /// `PATH` in its environment.
    pub search_path: Option<&'a OsStr>,
    /// Its current directory.
    pub current_dir: &'a Path,
}

/// The files involved in starting a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The file that the command names.
    pub program: PathBuf,
    /// The binary that the kernel will run: `program`, or the interpreter of its `#!` line.
    pub binary: PathBuf,
    /// The dynamic linker that the binary asks for; `None` if it is statically linked.
    pub interpreter: Option<PathBuf>,
}

/// A dynamic linker, and the places where it reports new libraries.
#[derive(Debug)]
pub struct Linker {
    /// Its file.
    pub library: LibraryFile,
    /// Places for the probes.
    pub sites: Vec<LinkerSite>,
}

/// glibc's default if `PATH` is not set (`confstr(_CS_PATH)`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// The kernel follows this many `#!` lines (`exec_binprm`).
const MAX_SCRIPTS: usize = 5;
/// The kernel looks for the `#!` line in this many bytes (`BINPRM_BUF_SIZE`).
const SCRIPT_HEADER: u64 = 256;

/// Determines what starting a command would run, following `execvp` and the kernel.
///
/// # Errors
///
/// [`InterpError`]: mostly problems for which starting the command would fail, too.
pub fn resolve(command: &Command<'_>) -> Result<Resolved, InterpError> {
    let program = look_up(command)?;
    let mut binary = program.clone();
    for _ in 0..=MAX_SCRIPTS {
        let file = RegularFile::open(&binary).map_err(unopened)?;
        match ElfInfo::from_file(&file) {
            Ok(elf) => {
                let interpreter = elf.interpreter.map(|path| command.current_dir.join(path));
                return Ok(Resolved {
                    program,
                    binary,
                    interpreter,
                });
            }
            Err(ElfError::NotElf { .. }) => {
                // A file that is neither ELF nor a script with a `#!` line is run by the shell
                // (`execvp`).
                let interpreter = script_interpreter(&file).unwrap_or_else(|| "/bin/sh".into());
                binary = command.current_dir.join(interpreter);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(InterpError::TooManyScripts { program })
}

fn unopened(error: OpenError) -> InterpError {
    match error {
        OpenError::Open { path, source }
            if matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            InterpError::NotFound { program: path }
        }
        // A program may be executable but not readable.
        error => InterpError::Elf(error.into()),
    }
}

/// Looks up a program as `execvp` does.
fn look_up(command: &Command<'_>) -> Result<PathBuf, InterpError> {
    let program = Path::new(command.program);
    let not_found = || InterpError::NotFound {
        program: program.to_owned(),
    };
    if command.program.is_empty() {
        return Err(not_found());
    }
    let candidates: Vec<_> = if command.program.as_bytes().contains(&b'/') {
        vec![command.current_dir.join(program)]
    } else {
        let path = command.search_path.unwrap_or(OsStr::new(DEFAULT_PATH));
        let directories = path.as_bytes().split(|byte| *byte == b':');
        directories
            .map(|part| {
                command
                    .current_dir
                    .join(OsStr::from_bytes(part))
                    .join(program)
            })
            .collect()
    };
    let mut refused = None;
    for path in candidates {
        if own::is_file(&path) && rustix::fs::access(&path, Access::EXEC_OK).is_ok() {
            return Ok(path);
        }
        if own::exists(&path) {
            refused.get_or_insert(path);
        }
    }
    Err(refused.map_or_else(not_found, |path| InterpError::NotExecutable { path }))
}

/// The interpreter in a script's first line; `None` if there is none.
fn script_interpreter(file: &RegularFile) -> Option<PathBuf> {
    shebang(&file.read_start(SCRIPT_HEADER).ok()?).map(PathBuf::from)
}

/// The path in a `#!` line, which ends at white space.
fn shebang(start: &[u8]) -> Option<&OsStr> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | 0))
        .filter(|word| !word.is_empty());
    words.next().map(OsStr::from_bytes)
}

impl Linker {
    /// Opens a dynamic linker by its path.
    ///
    /// # Errors
    ///
    /// [`InterpError::Elf`] or [`InterpError::Hook`].
    pub fn open(path: &Path) -> Result<Self, InterpError> {
        Self::new(LibraryFile::open(path)?)
    }

    /// The dynamic linker of a running process; `None` if its program is statically linked.
    ///
    /// # Errors
    /// [`InterpError::Process`], [`InterpError::Elf`] or [`InterpError::Hook`].
    pub fn of_process(pid: u32) -> Result<Option<Self>, InterpError> {
        let auxv = gputrace_reader::file(pid, "auxv", MAX_AUXV)
            .map_err(|error| process::refused(pid, format!("/proc/{pid}/auxv"), error))?;
        let mappings = process::mappings(pid)?;
        let base = auxiliary(&auxv, AT_BASE).filter(|base| *base != 0);
        // Without a base address, the program is static, or a dynamic linker that was started as a
        // command.
        let Some(address) = base.or_else(|| auxiliary(&auxv, AT_ENTRY)) else {
            return Ok(None);
        };
        let Some(mapped) = process::file_at(&mappings, address) else {
            return Ok(None);
        };
        let library = process::open_mapped(pid, &mapped)?;
        if base.is_none() && library.elf().symbol(HOOK).is_none() {
            return Ok(None);
        }
        Self::new(library).map(Some)
    }

    fn new(library: LibraryFile) -> Result<Self, InterpError> {
        let hook = library.plan_symbol(HOOK)?;
        let address = library
            .elf()
            .symbol(HOOK)
            .map_or(0, |symbol| symbol.address);
        let mut sites = linker_sites::behind_changes(&library, address)?;
        if sites.is_empty() {
            sites.push(LinkerSite {
                file_offset: hook.file_offset,
                cookie: linker_sites::cookie_at(
                    library.elf(),
                    address + u64::from(hook.skipped),
                    true,
                ),
                cost: hook.cost,
            });
        }
        Ok(Self { library, sites })
    }
}

/// Maximum size of an auxiliary vector in bytes, larger than any kernel's.
const MAX_AUXV: u64 = 1 << 16;
/// Address at which the dynamic linker is loaded (`linux/auxvec.h`).
const AT_BASE: u64 = 7;
/// Address of the program's first instruction.
const AT_ENTRY: u64 = 9;

/// A value of the auxiliary vector of a 64-bit process: pairs of words.
fn auxiliary(auxv: &[u8], wanted: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.first_chunk().copied().map(u64::from_le_bytes);
    auxv.chunks_exact(16).find_map(|pair| {
        let (key, value) = pair.split_at_checked(8)?;
        (word(key)? == wanted).then(|| word(value))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn script(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn command<'a>(program: &'a str, path: &'a OsStr, dir: &'a Path) -> Command<'a> {
        Command {
            program: OsStr::new(program),
            search_path: Some(path),
            current_dir: dir,
        }
    }

    #[test]
    fn programs_scripts_and_failures() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::create_dir_all(one.join("sub")).unwrap();
        fs::create_dir_all(&two).unwrap();
        script(&one.join("tool"), "not executable", 0o644);
        script(&two.join("tool"), "#! /bin/sh -e\n", 0o755);
        script(&two.join("wrapper"), "#!./tool\n", 0o755);
        script(&two.join("plain"), "echo no first line\n", 0o755);
        script(&two.join("loop"), "#!./loop\n", 0o755);
        script(&two.join("stray"), "#!/nonexistent/python3\n", 0o755);
        let path = std::env::join_paths([&one, &two]).unwrap();
        let shell = resolve(&command("sh", OsStr::new("/bin"), dir.path())).unwrap();
        assert_eq!(shell.program, Path::new("/bin/sh"));
        assert!(shell.interpreter.is_some());

        for (name, current_dir) in [
            ("tool", dir.path()),
            ("./tool", &two),
            ("wrapper", &two),
            ("plain", &two),
        ] {
            let resolved = resolve(&command(name, &path, current_dir)).unwrap();
            assert_eq!(resolved.binary, Path::new("/bin/sh"), "{name}");
            assert_eq!(resolved.interpreter, shell.interpreter, "{name}");
        }
        let fails = |name: &str| resolve(&command(name, &path, &two)).unwrap_err();
        assert!(matches!(fails("absent"), InterpError::NotFound { .. }));
        assert!(matches!(fails(""), InterpError::NotFound { .. }));
        assert!(matches!(fails("sub"), InterpError::NotExecutable { .. }));
        assert!(matches!(
            fails("../one/tool"),
            InterpError::NotExecutable { .. }
        ));
        assert!(matches!(fails("loop"), InterpError::TooManyScripts { .. }));
        assert!(
            matches!(fails("stray"), InterpError::NotFound { program } if program.ends_with("python3"))
        );
    }

    #[test]
    fn first_lines() {
        let cases: [(&[u8], Option<&str>); 6] = [
            (b"#!/bin/sh\nrest", Some("/bin/sh")),
            (b"#!  /usr/bin/env\tpython3 -u\n", Some("/usr/bin/env")),
            (b"#!/bin/sh", Some("/bin/sh")),
            (b"#!\n/bin/sh", None),
            (b"# !/bin/sh", None),
            (b"", None),
        ];
        for (start, expected) in cases {
            assert_eq!(shebang(start), expected.map(OsStr::new));
        }
    }

    #[test]
    fn the_linker_of_this_process() {
        let program = std::env::current_exe().unwrap();
        let command = Command {
            program: program.as_os_str(),
            search_path: None,
            current_dir: Path::new("/"),
        };
        let resolved = resolve(&command).unwrap();
        let by_path = Linker::open(&resolved.interpreter.unwrap()).unwrap();
        let running = Linker::of_process(std::process::id()).unwrap().unwrap();
        assert_eq!(by_path.sites, running.sites);
        assert!(
            by_path
                .sites
                .iter()
                .all(|site| site.cookie.distance().is_some())
        );
        assert_eq!(by_path.library.inode(), running.library.inode());
        assert_eq!(
            by_path.library.elf().build_id,
            running.library.elf().build_id
        );
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = shebang(&[b"#!", &bytes[..]].concat());
            let _ = auxiliary(&bytes, AT_BASE);
        }
    }
}
