//! Notices when a target maps libraries: probes its dynamic linker, and probes files in advance.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use gputrace_files::kernel;
use gputrace_loader::{
    attach::{Point, Scope},
    calls::Calls,
    probes::{Hook, Probes},
};
use gputrace_tracee::{
    candidates::{self, Search},
    interp::{self, Command, InterpError, Linker, Resolved},
    library::LibraryFile,
};

use super::{
    files::{Files, OfFile, Users},
    limiter,
};
use crate::request::{Request, Targets};

/// The dynamic linkers being watched.
#[derive(Debug)]
pub(crate) struct Linkers {
    calls: Arc<Calls>,
    watched: Files<Watched>,
}

/// A dynamic linker.
#[derive(Debug)]
struct Watched {
    file: LibraryFile,
    /// The processes for which it is watched, and the probes; `None` if it cannot be probed.
    probes: Vec<(Scope, Option<Probes>)>,
    users: Users,
}

impl OfFile for Watched {
    fn file(&self) -> &LibraryFile {
        &self.file
    }

    fn users(&mut self) -> &mut Users {
        &mut self.users
    }
}

impl Watched {
    fn into_probes(self) -> impl Iterator<Item = Probes> {
        self.probes.into_iter().filter_map(|(_, probes)| probes)
    }
}

impl Linkers {
    pub(crate) fn new(calls: Arc<Calls>) -> Self {
        Self {
            calls,
            watched: Files::default(),
        }
    }

    /// Watches the linkers that the targets run under. If one cannot be watched, new libraries are
    /// only found later: the recorder then looks for them periodically.
    pub(crate) fn watch(&mut self, request: &Request) {
        match &request.targets {
            // The linkers of other programs, which this one and its descendants execute, are looked
            // at when that happens.
            Targets::Launch { command, .. } => {
                self.add(
                    Linker::open(Path::new(interp::DEFAULT)).map(Some),
                    Scope::EveryProcess,
                    None,
                );
                if let Ok(resolved) = resolve(command) {
                    // A dynamic linker can be run as a command, too. Other programs without an
                    // interpreter have no place for the probe.
                    let path = resolved.interpreter.unwrap_or(resolved.binary);
                    self.add(Linker::open(&path).map(Some), Scope::EveryProcess, None);
                }
            }
            Targets::Attach { pids, .. } => {
                for pid in pids {
                    self.watch_process(*pid, request.scope(*pid));
                }
            }
            // The kernel reports what processes map; if it does not, see `Linkers::watch_node`.
            Targets::Node => {}
        }
    }

    /// Watches the system's default dynamic linker, for every process.
    pub(crate) fn watch_node(&mut self) {
        let linker = Linker::open(Path::new(interp::DEFAULT)).map(Some);
        self.add(linker, Scope::EveryProcess, None);
    }

    /// Watches the linker of the program that a process has just executed. Returns true if it was
    /// not watched before.
    pub(crate) fn watch_process(&mut self, pid: u32, scope: Scope) -> bool {
        self.add(Linker::of_process(pid), scope, Some(pid))
    }

    /// Records that `parent` created `child`, which runs under the same linker.
    pub(crate) fn forked(&mut self, parent: u32, child: u32) {
        for watched in self.watched.values_mut() {
            watched.users.forked(parent, child);
        }
    }

    /// Stops watching linkers whose users have all ended. Call it periodically: a linker without
    /// users is released at the second call.
    pub(crate) fn release(&mut self) {
        for watched in self.watched.values_mut() {
            watched.users.look();
        }
        let unused = self.watched.take_unused().into_iter();
        let unused = unused.inspect(|watched| {
            let path = watched.file.path().display();
            tracing::debug!(
                "no process uses the dynamic linker {path} any more: it is no longer watched"
            );
        });
        limiter::withdraw(unused.flat_map(Watched::into_probes).collect());
    }

    /// Watches a linker. One that has no `user` is watched to the end.
    fn add(
        &mut self,
        linker: Result<Option<Linker>, InterpError>,
        scope: Scope,
        user: Option<u32>,
    ) -> bool {
        let linker = match linker {
            Ok(Some(linker)) => linker,
            // A statically linked program maps no libraries.
            Ok(None) => return false,
            Err(error) => {
                tracing::debug!("dynamic linker not watched: {error}");
                return false;
            }
        };
        let points: Vec<Point> = linker
            .sites
            .iter()
            .map(|site| Point {
                offset: site.file_offset,
                cookie: site.cookie.0,
            })
            .collect();
        let id = self.watched.find(&linker.library).unwrap_or_else(|| {
            self.watched.insert(Watched {
                file: linker.library,
                probes: Vec::new(),
                users: Users::new(user.is_none()),
            })
        });
        let Some(watched) = self.watched.get_mut(id) else {
            return false;
        };
        match user {
            Some(user) => watched.users.add(user),
            None => watched.users.keep(),
        }
        let covered = |(other, _): &(Scope, _)| *other == scope || *other == Scope::EveryProcess;
        if watched.probes.iter().any(covered) {
            return false;
        }
        let file = &watched.file;
        let probes = self
            .calls
            .watch(Hook::LinkerChange, &file.attach_path(), scope, &points)
            .inspect_err(|error| {
                tracing::debug!(
                    "dynamic linker {} not watched: {error}",
                    file.path().display()
                );
            });
        // A linker that cannot be probed is not tried again.
        watched.probes.push((scope, probes.ok()));
        true
    }

    /// Whether any linker is watched.
    pub(crate) fn any(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Returns the probes of all watched linkers, to be removed.
    pub(crate) fn into_probes(self) -> impl Iterator<Item = Probes> {
        self.watched.into_values().flat_map(Watched::into_probes)
    }

    /// Library files that the process (or, without one, any process of this system) is likely to
    /// map later. If they are probed in advance, they are traced from their first call on.
    pub(crate) fn candidates(&self, pid: Option<u32>) -> impl Iterator<Item = LibraryFile> + use<> {
        let (root, executable, library_path, current_dir) = match pid {
            Some(pid) => (
                PathBuf::from(format!("/proc/{pid}/root")),
                kernel::read_link(format!("/proc/{pid}/exe")).ok(),
                environment_of(pid, "LD_LIBRARY_PATH"),
                kernel::read_link(format!("/proc/{pid}/cwd"))
                    .unwrap_or_else(|_| PathBuf::from("/")),
            ),
            None => (PathBuf::from("/"), None, None, PathBuf::from("/")),
        };
        likely(&Search {
            root: &root,
            executable: executable.as_deref(),
            library_path: library_path.as_deref(),
            current_dir: &current_dir,
        })
    }

    /// Like [`Linkers::candidates`], for a program that is about to be started here.
    pub(crate) fn candidates_of(
        &self,
        command: &[OsString],
    ) -> impl Iterator<Item = LibraryFile> + use<> {
        let binary = resolve(command).ok().map(|resolved| resolved.binary);
        let current_dir = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        likely(&Search {
            root: Path::new("/"),
            executable: binary.as_deref(),
            library_path: env::var_os("LD_LIBRARY_PATH").as_deref(),
            current_dir: &current_dir,
        })
    }
}

/// Library files that a program is likely to map.
fn likely(search: &Search<'_>) -> impl Iterator<Item = LibraryFile> + use<> {
    // Opened one at a time: their contents can take much memory.
    let found = candidates::find(search).into_iter();
    found.filter_map(|candidate| candidate.into_library().ok())
}

/// Resolves the program that starting `command` here and now would run.
///
/// # Errors
///
/// [`InterpError`] with the reason why it cannot be started.
pub(crate) fn resolve(command: &[OsString]) -> Result<Resolved, InterpError> {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    interp::resolve(&Command {
        program,
        search_path: env::var_os("PATH").as_deref(),
        // The current directory matters only to relative paths, which lead nowhere if it is
        // unreadable.
        current_dir: &env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
    })
}

/// Maximum size of an environment that is read, bytes.
const MAX_ENVIRONMENT: u64 = 8 << 20;

/// A variable of a process's environment, as it was when the process started.
fn environment_of(pid: u32, name: &str) -> Option<OsString> {
    let environment = gputrace_reader::file(pid, "environ", MAX_ENVIRONMENT).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let (key, value) = entry.split_at(entry.iter().position(|byte| *byte == b'=')?);
        (OsStr::new(name).as_encoded_bytes() == key)
            .then(|| OsString::from_vec(value.get(1..).unwrap_or_default().to_vec()))
    })
}
