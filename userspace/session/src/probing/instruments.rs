//! Attaches probes to libraries, and keeps track of which files have been probed for which
//! processes, under which function ids.

mod register;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Instant};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::ProbePrices;
use gputrace_collect::{CollectorHandle, clocks};
use gputrace_loader::{
    attach::{Failure, Point, Scope, TracedFunction},
    calls::Calls,
    probes::{Hook, Probes},
};
use gputrace_text::tables::count;
use gputrace_tracee::{
    library::LibraryFile,
    process::{self, MappedFile, ProcessError},
};

use super::{
    extra::{Executable, ExtraFunctions, Reach, Role},
    files::{Files, OfFile, Users},
    kokkos::KokkosTools,
    limiter::{self, Own, ProbeLimiter, Remarks},
    named::{Answer, LibraryName, NamedLibraries},
    report::{AttachReport, LeftOut},
    tools::Tools,
};
use crate::{
    SessionError,
    request::{FunctionFilter, Request, StacksOf, Targets},
    said::{Said, notice},
};

/// Only functions with ids up to this value can have a limited call rate.
pub(crate) const LIMITED_FUNCTIONS: u32 = 1 << 15;

/// Maximum number of library files that are probed or known not to be of interest.
const MOST_LIBRARIES: usize = 1024;

/// A library with probes.
///
/// The file stays open, so that it can be told from others ([`LibraryFile::is_same`]). Processes
/// can have any number of files that look like libraries, hence [`MOST_LIBRARIES`].
#[derive(Debug)]
struct Instrumented {
    file: LibraryFile,
    /// Soname and build id, if the user named this library.
    chosen: Option<String>,
    /// Functions whose calls are traced, except [`Instrumented::own`].
    traced: Vec<TracedFunction>,
    /// Functions whose probes can be removed one by one.
    own: Own,
    /// Functions that report the GPU's work and are not traced as calls.
    observed: Vec<Point>,
    /// Functions that are watched, and their offsets in the file.
    hooks: Vec<(Hook, u64)>,
    /// The processes for which there are probes.
    scopes: Vec<Scope>,
    /// When the last of the probes was attached, ns `CLOCK_BOOTTIME`; 0 if there are none.
    complete_since: u64,
    /// All probes except those of [`Instrumented::own`].
    probes: Vec<Probes>,
    left_out: LeftOut,
    /// Whether the user has been told about the library.
    announced: bool,
    users: Users,
}

impl OfFile for Instrumented {
    fn file(&self) -> &LibraryFile {
        &self.file
    }

    fn users(&mut self) -> &mut Users {
        &mut self.users
    }
}

impl Instrumented {
    /// Probes all that is of interest in the file for `scope`. Returns what could not be probed.
    fn attach(
        &mut self,
        scope: Scope,
        calls: &Calls,
        limiter: &mut ProbeLimiter,
    ) -> Result<Vec<Failure>, SessionError> {
        let path = self.file.attach_path();
        if !self.observed.is_empty() {
            self.probes
                .push(calls.observe(&path, scope, &self.observed)?);
        }
        self.scopes.push(scope);
        for (hook, offset) in &self.hooks {
            let point = Point {
                offset: *offset,
                cookie: 0,
            };
            self.probes
                .push(calls.watch(*hook, &path, scope, &[point])?);
        }
        let mut failures = limiter.attach(calls, &path, scope, &self.own)?;
        if !self.traced.is_empty() {
            let mut probes = calls.attach(&path, scope, &self.traced)?;
            failures.append(&mut probes.failures);
            self.probes.push(probes);
        }
        Ok(failures)
    }

    /// How many functions are traced.
    fn functions(&self) -> usize {
        self.traced.len() + self.own.len()
    }

    /// Whether all processes of `scope` have the probes, or none are needed.
    fn covers(&self, scope: Scope) -> bool {
        let covered = |other: &Scope| *other == scope || *other == Scope::EveryProcess;
        self.is_empty() || self.scopes.iter().any(covered)
    }

    /// Whether there is nothing to probe.
    fn is_empty(&self) -> bool {
        self.functions() == 0 && self.observed.is_empty()
    }
}

/// Result of probing a process's libraries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// Whether the process has libraries of interest.
    pub(crate) any: bool,
    /// Whether some of them got their probes just now.
    pub(crate) probed: bool,
    /// When the last of them had its probes, ns `CLOCK_BOOTTIME`; 0 if none has any.
    pub(crate) complete_since: u64,
}

/// What ROCm libraries the targets had.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rocm {
    /// Whether a target had one mapped.
    pub(crate) is_mapped: bool,
    /// Whether one had functions that are traced as calls, also if no target had mapped it.
    pub(crate) has_functions: bool,
}

/// All libraries of the recording and their probes.
#[derive(Debug)]
pub(crate) struct Instruments {
    calls: Arc<Calls>,
    domains: Vec<Domain>,
    stacks: Option<StacksOf>,
    functions: FunctionFilter,
    extra: ExtraFunctions,
    overhead_limit: Option<u32>,
    tools: Tools,
    kokkos: KokkosTools,
    named: NamedLibraries,
    libraries: Files<Instrumented>,
    /// Whether libraries without users are released. Only recordings of the whole node do this.
    releases: bool,
    /// Functions whose call rate or probe time is limited.
    limiter: ProbeLimiter,
    /// What ROCm libraries the targets had.
    pub(crate) rocm: Rocm,
    /// Whether any file had a requested function other than ROCm's.
    matched: bool,
    /// Why other files had none.
    unmatched: Vec<SessionError>,
    /// Libraries named by the user that a process had mapped; as the user wrote them.
    found: BTreeSet<PathBuf>,
    next_library: u32,
    next_function: u32,
    /// Remarks that have been put into the recording.
    said: Said,
    /// Lines that the user is still to be told.
    untold: Vec<String>,
}

impl Instruments {
    pub(crate) fn new(calls: Arc<Calls>, request: &Request, prices: ProbePrices) -> Self {
        let limiter = ProbeLimiter::new(!calls.is_multi(), prices);
        Self {
            calls,
            domains: request.domains.clone(),
            stacks: request.stacks.clone(),
            functions: request.functions.clone(),
            extra: request.extra.clone(),
            overhead_limit: request.overhead_limit,
            tools: Tools::default(),
            kokkos: KokkosTools::default(),
            named: NamedLibraries::new(request.extra.libraries.clone()),
            limiter,
            rocm: Rocm::default(),
            matched: false,
            unmatched: Vec::new(),
            found: BTreeSet::new(),
            libraries: Files::default(),
            // All other recordings end with their processes.
            releases: matches!(request.targets, Targets::Node),
            next_library: 0,
            next_function: 0,
            said: Said::default(),
            untold: Vec::new(),
        }
    }

    /// Probes the libraries of interest that a process has mapped, for `scope`. Libraries that have
    /// been probed already cost nothing. Returns the libraries that nobody has been told about yet,
    /// and what was found overall.
    ///
    /// # Errors
    ///
    /// [`SessionError::Process`] with the reason why the process has no such libraries, or why one
    /// cannot be opened.
    pub(crate) fn process(
        &mut self,
        pid: u32,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<(Vec<AttachReport>, Found), SessionError> {
        let begin = clocks::now();
        let mut found = Found {
            any: true,
            ..Found::default()
        };
        let mut reports = Vec::new();
        let mut wanted = Vec::new();
        let mapped = process::code_files(pid)?;
        for text in self.tools.news(pid, &mapped) {
            remark(&mut self.said, text, collector);
        }
        if !self.extra.is_empty() {
            let executable = Executable::of(pid);
            for mapped in &mapped {
                let reach = self.extra.reach(&executable, mapped);
                let role = Role {
                    library: self.is_named(pid, mapped, collector),
                    program: reach.is_some(),
                };
                if role.any() || self.extra.kokkos && self.kokkos.is_one(pid, mapped) {
                    let scope = match reach {
                        Some(Reach::Process) if !role.library => Scope::Process(pid),
                        _ => scope,
                    };
                    wanted.push((mapped.clone(), role, scope));
                }
            }
        }
        let rocm: Vec<MappedFile> = mapped.into_iter().filter(is_rocm).collect();
        self.rocm.is_mapped |= !rocm.is_empty();
        if rocm.is_empty() && wanted.is_empty() {
            return Err(self.why_none(pid).into());
        }
        for mapped in rocm {
            if self.wants(&mapped) && !wanted.iter().any(|(other, ..)| *other == mapped) {
                wanted.push((mapped, Role::default(), scope));
            }
        }
        for (mapped, role, scope) in &wanted {
            if let Some(id) = self.libraries.seen(pid, mapped)
                && let Some(library) = self.libraries.get_mut(id)
                && library.covers(*scope)
                && (library.announced || library.is_empty())
            {
                library.users.add(pid);
                found.complete_since = found.complete_since.max(library.complete_since);
                continue;
            }
            let file = process::open_mapped(pid, mapped)?;
            let Some(library) = self.file(file, *role, *scope, collector, Some(pid))? else {
                continue;
            };
            found.complete_since = found.complete_since.max(library.complete_since);
            if !std::mem::replace(&mut library.announced, true) {
                reports.push(AttachReport {
                    path: library.file.path().display().to_string(),
                    chosen: library.chosen.take(),
                    functions: library.functions(),
                    left_out: std::mem::take(&mut library.left_out),
                });
            }
        }
        found.probed = found.complete_since > begin;
        Ok((reports, found))
    }

    /// Whether all libraries of interest that a process has mapped had their probes at `time`, ns
    /// `CLOCK_BOOTTIME`. False if that is not known, as of a process that has ended.
    pub(crate) fn had_probes(&self, pid: u32, time: u64) -> bool {
        let Ok(mapped) = process::code_files(pid) else {
            return false;
        };
        let had = |mapped: &MappedFile| {
            let library = self.libraries.seen(pid, mapped);
            library
                .and_then(|id| self.libraries.get(id))
                .is_some_and(|library| library.is_empty() || library.complete_since <= time)
        };
        let mut rocm = mapped
            .iter()
            .filter(|mapped| is_rocm(mapped) && self.wants(mapped));
        self.extra.is_empty() && rocm.all(had)
    }

    /// Why a process has no library of interest. Not determined for the many processes of a node.
    fn why_none(&self, pid: u32) -> ProcessError {
        let unknown = ProcessError::NoRocmLibraries {
            pid,
            name: String::new(),
            hint: String::new(),
        };
        if self.releases {
            return unknown;
        }
        process::rocm_libraries(pid).err().unwrap_or(unknown)
    }

    /// Checks that a process has mapped the libraries that the user named.
    ///
    /// # Errors
    ///
    /// [`SessionError::NoLibrary`] for the first library that is not mapped.
    pub(crate) fn check_libraries(&mut self, pid: u32) -> Result<(), SessionError> {
        if self.extra.libraries.is_empty() {
            return Ok(());
        }
        let mut found = Answer::default();
        for mapped in process::code_files(pid)? {
            let answer = self.named.ask(pid, &mapped);
            found.right.extend(answer.right);
            found.misnamed.extend(answer.misnamed);
        }
        let mut names = self.named.names().iter().enumerate();
        let missing = names.find(|(index, _)| !found.right.contains(index));
        let Some((index, library)) = missing else {
            return Ok(());
        };
        let misnamed = found
            .misnamed
            .into_iter()
            .find(|(other, _)| *other == index);
        Err(match misnamed {
            Some((_, reason)) => SessionError::Misnamed { pid, reason },
            None => SessionError::NoLibrary {
                pid,
                library: library.given().to_owned(),
            },
        })
    }

    /// Whether a mapped file is one of the libraries that the user named. A file that only has the
    /// name of such a library is reported.
    fn is_named(&mut self, pid: u32, mapped: &MappedFile, collector: &CollectorHandle) -> bool {
        let answer = self.named.ask(pid, mapped);
        for (_, reason) in answer.misnamed {
            if self.named.is_news(&reason) {
                let text = format!("process {pid}: {reason}");
                self.untold.push(text.clone());
                remark(&mut self.said, text, collector);
            }
        }
        let names = self.named.names();
        let found = answer.right.iter().filter_map(|index| names.get(*index));
        self.found.extend(found.map(|name| name.given().to_owned()));
        !answer.right.is_empty()
    }

    /// Takes the lines that the user is to be told now.
    pub(crate) fn take_untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }

    /// Takes the reasons why requested functions are not traced. A file without any requested
    /// function is reported only if no other file has one; a file with too many functions always
    /// is.
    pub(crate) fn take_unmatched(&mut self) -> Vec<SessionError> {
        let mut unmatched = std::mem::take(&mut self.unmatched);
        unmatched.retain(|error| {
            !self.matched || matches!(error, SessionError::TooManyFunctions { .. })
        });
        unmatched
    }

    /// At the end of the recording: the requests that none of the traced programs matched.
    pub(crate) fn never_found(&self) -> Vec<String> {
        let libraries = self.extra.libraries.iter().map(LibraryName::given);
        let mut told: Vec<String> = libraries
            .filter(|library| !self.found.contains(*library))
            .map(|library| {
                format!(
                    "no traced program had a library {} mapped; `cat /proc/PID/maps` lists what a \
                     process has mapped, and `ldd` what a program loads at its start",
                    library.display()
                )
            })
            .collect();
        if self.extra.kokkos && !self.kokkos.any() {
            told.push(
                "--kokkos-trace: no traced program had a Kokkos tool library, and Kokkos reports \
                 only to such a library. Set KOKKOS_TOOLS_LIBS (before Kokkos 4: \
                 KOKKOS_PROFILE_LIBRARY) to one; any will do"
                    .to_owned(),
            );
        }
        told
    }

    /// Removes the probes of functions that are called too often, and puts back those of guarded
    /// functions. Call it once a second.
    ///
    /// # Errors
    ///
    /// [`SessionError::Probe`].
    pub(crate) fn cool(&mut self) -> Result<Remarks, SessionError> {
        if !self.limiter.any() {
            return Ok(Remarks::default());
        }
        let rates = self.calls.call_rates(self.next_function)?;
        let now = Instant::now();
        let mut remarks = Remarks::default();
        let Some(passed) = self.limiter.begin_look(now) else {
            return Ok(remarks);
        };
        if let Some(most) = self.overhead_limit {
            let time = (now, passed);
            remarks = self.limiter.guard_costs(&self.calls, &rates, most, time);
        }
        if let Some(most) = self.extra.max_probe_time {
            remarks.told.extend(self.limiter.cool(&rates, most, passed));
        }
        Ok(remarks)
    }

    /// Lists the functions of which calls are missing: those that lost some because of the call
    /// rate limit, and those that had no probes for a while.
    ///
    /// # Errors
    ///
    /// [`SessionError::Probe`].
    pub(crate) fn too_often(&self) -> Result<Vec<String>, SessionError> {
        let rate = self.extra.max_call_rate.unwrap_or_default();
        let rates = self.calls.call_rates(self.next_function)?;
        let mut told = self.limiter.told(&rates, rate);
        told.extend(self.limiter.absences(Instant::now()));
        Ok(told)
    }

    /// Whether this file can have functions of a domain that is recorded.
    fn wants(&self, mapped: &MappedFile) -> bool {
        let name = mapped
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let domains = gputrace_catalog::library_domains(name);
        let of_memory = self.domains.contains(&Domain::MemoryAllocation);
        domains.iter().any(|domain| self.domains.contains(domain))
            || of_memory && domains.contains(&Domain::HipRuntime)
            || domains.contains(&Domain::HsaCore)
                && (gputrace_catalog::is_gpu_traced(&self.domains) || of_memory)
    }

    /// Probes a file that may be mapped later, unless it has been probed already.
    pub(crate) fn candidate(
        &mut self,
        file: LibraryFile,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<(), SessionError> {
        self.file(file, Role::default(), scope, collector, None)
            .map(drop)
    }

    /// Probes libraries that the user named by path, before targets map them.
    pub(crate) fn libraries_in_advance(&mut self, scope: Scope, collector: &CollectorHandle) {
        let role = Role {
            library: true,
            program: false,
        };
        let names = self.extra.libraries.clone();
        for path in names.iter().filter_map(LibraryName::path) {
            let outcome = LibraryFile::open(path)
                .map_err(SessionError::from)
                .and_then(|file| self.file(file, role, scope, collector, None).map(drop));
            if let Err(error) = outcome {
                // This matters only if a target maps the library, and then it is reported again.
                tracing::debug!("{error}");
            }
        }
    }

    /// Removes the probes of libraries that no process uses any more. Call it when all processes
    /// have been looked at since [`Self::look_for_users`] found such libraries.
    pub(crate) fn release(&mut self) {
        let mut probes = Vec::new();
        for library in self.libraries.values_mut() {
            library.users.look();
        }
        for mut library in self.libraries.take_unused() {
            let path = library.file.path().display();
            tracing::info!("no process uses {path} any more: its probes are removed");
            probes.append(&mut library.probes);
            probes.append(&mut self.limiter.release(&library.own));
        }
        limiter::withdraw(probes);
    }

    /// Whether there are libraries whose known users have all ended.
    pub(crate) fn look_for_users(&mut self) -> bool {
        let mut any = false;
        for library in self.libraries.values_mut() {
            any |= library.users.look() && !library.is_empty();
        }
        any && self.releases
    }

    /// Probes one library file for `scope`, unless that has been done. A file without `user` is
    /// kept to the end.
    fn file(
        &mut self,
        file: LibraryFile,
        role: Role,
        scope: Scope,
        collector: &CollectorHandle,
        user: Option<u32>,
    ) -> Result<Option<&mut Instrumented>, SessionError> {
        let id = match self.libraries.find(&file) {
            Some(id) => id,
            None if self.libraries.len() >= MOST_LIBRARIES => {
                self.tell_once(
                    format!("only the first {MOST_LIBRARIES} library files are probed"),
                    collector,
                );
                return Ok(None);
            }
            None => {
                let instrumented = self.register(file, role, collector)?;
                self.libraries.insert(instrumented)
            }
        };
        let Some(library) = self.libraries.get_mut(id) else {
            return Ok(None);
        };
        match user {
            Some(pid) => library.users.add(pid),
            None => library.users.keep(),
        }
        if library.is_empty() {
            return Ok(None);
        }
        if library.covers(scope) {
            return Ok(Some(library));
        }
        let failures = library.attach(scope, &self.calls, &mut self.limiter)?;
        let functions = library.functions();
        if let Some(first) = failures.first() {
            if failures.len() >= functions && library.observed.is_empty() {
                // Nothing at all could be probed, so this is more than a detail of the recording.
                let failure = failures.into_iter().next();
                return Err(failure.map_or(SessionError::NoTarget, |failure| failure.error.into()));
            }
            let text = format!(
                "{} of {} of {} could not be probed, the first because: {}",
                failures.len(),
                count(functions as u64, "function"),
                library.file.path().display(),
                first.error
            );
            remark(&mut self.said, text, collector);
        }
        library.complete_since = clocks::now();
        Ok(Some(library))
    }

    /// Tells the user a line and puts it into the recording, once.
    fn tell_once(&mut self, text: String, collector: &CollectorHandle) {
        if self.said.is_new(&text) {
            self.untold.push(text.clone());
            collector.append(notice(text));
        }
    }

    /// Returns all probes, to be removed.
    pub(crate) fn into_probes(self) -> impl Iterator<Item = Probes> {
        let libraries = self.libraries.into_values();
        libraries
            .flat_map(|library| library.probes)
            .chain(self.limiter.into_probes())
    }
}

/// Whether a file is one of ROCm's libraries, judged by its name.
fn is_rocm(mapped: &MappedFile) -> bool {
    let name = mapped.path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| !gputrace_catalog::library_domains(name).is_empty())
}

/// Puts a remark into the recording, once.
fn remark(said: &mut Said, text: String, collector: &CollectorHandle) {
    if said.is_new(&text) {
        collector.append(notice(text));
    }
}
