//! Noticing that a target maps libraries: probes on its dynamic linker, and files probed in advance.

use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use gputrace_files::kernel;
use gputrace_probe::{
    attach::Scope,
    calls::Calls,
    probes::{Hook, Probes},
};
use gputrace_target::{
    candidates::{self, Search},
    interp::{self, Command, InterpError, Linker, Resolved},
    library::LibraryFile,
    process,
};

use crate::request::{Request, Targets};

/// The dynamic linkers being watched.
#[derive(Debug)]
pub(crate) struct Linkers {
    calls: Arc<Calls>,
    /// Scope, and device and inode of the file.
    watched: HashSet<(u32, u64, u64)>,
    probes: Vec<Probes>,
}

impl Linkers {
    pub(crate) fn new(calls: Arc<Calls>) -> Self {
        Self {
            calls,
            watched: HashSet::new(),
            probes: Vec::new(),
        }
    }

    /// Watches the linkers under which the targets run. One that cannot be watched is only a loss of
    /// promptness: the recorder then looks for new libraries now and then.
    pub(crate) fn watch(&mut self, request: &Request) {
        match &request.targets {
            // Each program that it and its descendants execute is looked at when it is executed.
            Targets::Launch { .. } => {}
            Targets::Attach { pids, .. } => {
                for pid in pids {
                    self.add(Linker::of_process(*pid), request.scope(*pid));
                }
            }
            Targets::Node => {
                self.add(
                    Linker::open(Path::new(interp::DEFAULT)).map(Some),
                    Scope::EveryProcess,
                );
                for found in process::survey().unwrap_or_default().processes {
                    self.add(Linker::of_process(found.pid), Scope::EveryProcess);
                }
            }
        }
    }

    /// Watches the linker of the program that a process has just executed.
    pub(crate) fn watch_process(&mut self, pid: u32, scope: Scope) {
        self.add(Linker::of_process(pid), scope);
    }

    fn add(&mut self, linker: Result<Option<Linker>, InterpError>, scope: Scope) {
        let linker = match linker {
            Ok(Some(linker)) => linker,
            // A statically linked program maps no libraries.
            Ok(None) => return,
            Err(error) => return tracing::debug!("dynamic linker not watched: {error}"),
        };
        let owner = match scope {
            Scope::Process(pid) => pid,
            Scope::EveryProcess => 0,
        };
        let file = &linker.library;
        if !self.watched.insert((owner, file.device(), file.inode())) {
            return;
        }
        let offset = linker.hook.file_offset;
        match self
            .calls
            .watch(Hook::LinkerChange, &file.attach_path(), scope, offset)
        {
            Ok(probes) => self.probes.push(probes),
            Err(error) => tracing::debug!("dynamic linker {} not watched: {error}", file.path().display()),
        }
    }

    /// Whether any linker is watched.
    pub(crate) fn any(&self) -> bool {
        !self.probes.is_empty()
    }

    /// The probes behind the watches, to be removed.
    pub(crate) fn into_probes(self) -> impl Iterator<Item = Probes> {
        self.probes.into_iter()
    }

    /// Library files that the process (or, without one, any process of this system) is likely to map
    /// later. Probed in advance, they are traced from their first call on.
    pub(crate) fn candidates(&self, pid: Option<u32>) -> impl Iterator<Item = LibraryFile> + use<> {
        let (root, executable, library_path, current_dir) = match pid {
            Some(pid) => (
                PathBuf::from(format!("/proc/{pid}/root")),
                kernel::read_link(format!("/proc/{pid}/exe")).ok(),
                environment_of(pid, "LD_LIBRARY_PATH"),
                kernel::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| PathBuf::from("/")),
            ),
            None => (PathBuf::from("/"), None, None, PathBuf::from("/")),
        };
        candidates::find(&Search {
            root: &root,
            executable: executable.as_deref(),
            library_path: library_path.as_deref(),
            current_dir: &current_dir,
        })
        .into_iter()
        // One after the other: what is in them can take much memory.
        .filter_map(|candidate| candidate.into_library().ok())
    }
}

/// What starting `command` here and now would run.
///
/// # Errors
///
/// [`InterpError`] with the reason why it cannot be started.
pub(crate) fn resolve(command: &[OsString]) -> Result<Resolved, InterpError> {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    interp::resolve(&Command {
        program,
        search_path: env::var_os("PATH").as_deref(),
        // An unreadable current directory matters only to relative paths, which then lead nowhere.
        current_dir: &env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
    })
}

/// A variable of a process's environment as it was when the process started.
fn environment_of(pid: u32, name: &str) -> Option<OsString> {
    /// More is not read. The system allows 6 MiB at the start of a program, but a process may say that it is anything.
    const MOST: u64 = 6 << 20;
    let environment = kernel::read_some(format!("/proc/{pid}/environ"), MOST).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let (key, value) = entry.split_at(entry.iter().position(|byte| *byte == b'=')?);
        (OsStr::new(name).as_encoded_bytes() == key)
            .then(|| OsString::from_vec(value.get(1..).unwrap_or_default().to_vec()))
    })
}
