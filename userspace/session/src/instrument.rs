//! Getting probes onto libraries: which files have been probed for whom, and under which function ids.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use gputrace_abi::{domain::Domain, values::ReadPlan};
use gputrace_capture::meta::{Function, Library, Notice};
use gputrace_catalog::structs;
use gputrace_collect::{CollectorHandle, Command, clocks};
use gputrace_files::target::FileState;
use gputrace_probe::{
    attach::{Point, Scope},
    calls::Calls,
    probes::{Hook, Probes},
};
use gputrace_target::{
    elf::ElfError,
    functions::ExitKind,
    library::{LibraryFile, LibraryPlan},
    process::{self, MappedFile, ProcessError},
};

use crate::{
    SessionError,
    chosen::{cookie, describe, hooks, observed, plan, read_plan, untraced},
    hot::{Hot, Own},
    kokkos::KokkosTools,
    named::{Answer, LibraryName, NamedLibraries},
    news::{LeftOut, News},
    others::{Executable, Others, Reach, Role},
    request::{FunctionFilter, Request},
    tools::Tools,
};

/// Which file, as far as uprobes are concerned: the kernel keys them by inode. Overlay mounts show one
/// inode under several devices; the build id tells such twins apart from different files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    inode: u64,
    /// Device, for files that carry no build id.
    build: Result<String, u64>,
}

/// A library with probes.
///
/// The file itself is not kept open: processes can have any number of files that look like libraries. Whoever adds a probe
/// has it open.
#[derive(Debug)]
struct Instrumented {
    path: String,
    /// Its soname and build id, if it is one of the libraries that the user named.
    chosen: Option<String>,
    points: Vec<Point>,
    /// Functions whose end is seen at instructions that leave them, and those instructions.
    entries: Vec<Point>,
    exits: Vec<Point>,
    /// Functions whose probes can be taken away one by one.
    own: Own,
    /// Functions that tell of the GPU's work and are not traced as calls.
    observed: Vec<Point>,
    /// Functions that are watched, and where they are in the file.
    hooks: Vec<(Hook, u64)>,
    /// For whom there are probes.
    scopes: Vec<Scope>,
    /// All but those of [`Instrumented::own`].
    probes: Vec<Probes>,
    left_out: LeftOut,
    /// What the user has been told.
    announced: bool,
}

impl Instrumented {
    /// How many functions are traced.
    fn functions(&self) -> usize {
        self.points.len() + self.entries.len() + self.own.len()
    }

    /// Whether nothing of it is of interest.
    fn is_empty(&self) -> bool {
        self.functions() == 0 && self.observed.is_empty()
    }

    /// Whether there are probes for these processes.
    fn covers(&self, scope: Scope) -> bool {
        self.scopes
            .iter()
            .any(|other| *other == scope || *other == Scope::EveryProcess)
    }
}

/// All libraries of the recording and their probes.
#[derive(Debug)]
pub(crate) struct Instruments {
    calls: Arc<Calls>,
    domains: Vec<Domain>,
    functions: FunctionFilter,
    others: Others,
    tools: Tools,
    kokkos: KokkosTools,
    named: NamedLibraries,
    libraries: HashMap<Identity, Instrumented>,
    /// Files that need not be read again while they stay as they are.
    read: HashMap<FileState, Identity>,
    /// Functions that are limited in how often they may be called.
    hot: Hot,
    /// Whether a file had functions of the others that were asked for.
    matched: bool,
    /// Why other files had none.
    unmatched: Vec<SessionError>,
    /// Libraries, as the user named them, that a process had mapped.
    found: BTreeSet<PathBuf>,
    next_library: u32,
    next_function: u32,
    /// Functions with a probe.
    pub(crate) probed: usize,
    /// Things to tell the user.
    pub(crate) remarks: Vec<String>,
    /// Those of them that are to be told now.
    untold: Vec<String>,
}

impl Instruments {
    pub(crate) fn new(calls: Arc<Calls>, request: &Request) -> Self {
        Self {
            calls,
            domains: request.domains.clone(),
            functions: request.functions.clone(),
            others: request.others.clone(),
            tools: Tools::default(),
            kokkos: KokkosTools::default(),
            named: NamedLibraries::new(request.others.libraries.clone()),
            read: HashMap::new(),
            hot: Hot::default(),
            matched: false,
            unmatched: Vec::new(),
            found: BTreeSet::new(),
            libraries: HashMap::new(),
            next_library: 0,
            next_function: 0,
            probed: 0,
            remarks: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// Probes the libraries that a process has mapped and that are of interest, for `scope`. Those already probed cost
    /// nothing. Returns those of which nobody has been told yet.
    ///
    /// # Errors
    ///
    /// [`SessionError::Process`] with the reason why the process has none, or why one cannot be opened.
    pub(crate) fn process(
        &mut self,
        pid: u32,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<Vec<News>, SessionError> {
        let mut news = Vec::new();
        let mut wanted = Vec::new();
        let mapped = process::code_files(pid)?;
        for text in self.tools.news(pid, &mapped) {
            remark(&mut self.remarks, text, collector);
        }
        if !self.others.is_empty() {
            let executable = Executable::of(pid);
            for mapped in mapped {
                let reach = self.others.reach(&executable, &mapped);
                let role = Role {
                    library: self.is_named(pid, &mapped, collector),
                    program: reach.is_some(),
                };
                if role.any() || self.others.kokkos && self.kokkos.is_one(pid, &mapped) {
                    let scope = match reach {
                        Some(Reach::Process) if !role.library => Scope::Process(pid),
                        _ => scope,
                    };
                    wanted.push((mapped, role, scope));
                }
            }
        }
        match process::rocm_libraries(pid) {
            Ok(found) => {
                for mapped in found.libraries {
                    if self.wants(&mapped) && !wanted.iter().any(|(other, ..)| *other == mapped) {
                        wanted.push((mapped, Role::default(), scope));
                    }
                }
            }
            Err(ProcessError::NoRocmLibraries { .. } | ProcessError::StaticRuntime { .. })
                if !wanted.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
        for (mapped, role, scope) in &wanted {
            let place = process::locate_mapped(pid, mapped)?;
            if place.state().is_ok_and(|state| self.is_done(&state, *scope)) {
                continue;
            }
            let file = process::open_located(pid, &place)?;
            let Some(library) = self.file(&file, *role, *scope, collector)? else {
                continue;
            };
            if !std::mem::replace(&mut library.announced, true) {
                news.push(News {
                    path: library.path.clone(),
                    chosen: library.chosen.take(),
                    functions: library.functions(),
                    left_out: std::mem::take(&mut library.left_out),
                });
            }
        }
        Ok(news)
    }

    /// Libraries asked for that a process has not mapped.
    ///
    /// # Errors
    ///
    /// [`SessionError::NoLibrary`] for the first of them.
    pub(crate) fn check_libraries(&mut self, pid: u32) -> Result<(), SessionError> {
        if self.others.libraries.is_empty() {
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
        let misnamed = found.misnamed.into_iter().find(|(other, _)| *other == index);
        Err(match misnamed {
            Some((_, reason)) => SessionError::Misnamed { pid, reason },
            None => SessionError::NoLibrary {
                pid,
                library: library.given().to_owned(),
            },
        })
    }

    /// Whether a mapped file is one of the libraries that the user named. That one only goes by such a name is told.
    fn is_named(&mut self, pid: u32, mapped: &MappedFile, collector: &CollectorHandle) -> bool {
        let answer = self.named.ask(pid, mapped);
        for (_, reason) in answer.misnamed {
            if self.named.is_news(&reason) {
                let text = format!("process {pid}: {reason}");
                self.untold.push(text.clone());
                remark(&mut self.remarks, text, collector);
            }
        }
        let names = self.named.names();
        let found = answer.right.iter().filter_map(|index| names.get(*index));
        self.found.extend(found.map(|name| name.given().to_owned()));
        !answer.right.is_empty()
    }

    /// What the user is to be told now.
    pub(crate) fn take_untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }

    /// Whether nothing is left to do for a file that has been read already.
    fn is_done(&self, state: &FileState, scope: Scope) -> bool {
        let library = self.read.get(state).and_then(|file| self.libraries.get(file));
        library.is_some_and(|library| library.is_empty() || library.announced && library.covers(scope))
    }

    /// Why none of the others that were asked for has been found: an error if nothing at all was.
    pub(crate) fn take_unmatched(&mut self) -> Vec<SessionError> {
        let unmatched = std::mem::take(&mut self.unmatched);
        if self.matched { Vec::new() } else { unmatched }
    }

    /// At the end: what was asked for and is in none of the programs that were traced.
    pub(crate) fn never_found(&self) -> Vec<String> {
        let libraries = self.others.libraries.iter().map(LibraryName::given);
        let mut told: Vec<String> = libraries
            .filter(|library| !self.found.contains(*library))
            .map(|library| {
                format!(
                    "no program that was traced had a library {} mapped; `cat /proc/PID/maps` lists what a process has, and \
                     `ldd` what a program begins with",
                    library.display()
                )
            })
            .collect();
        if self.others.kokkos && !self.kokkos.any() {
            told.push(
                "--kokkos-trace: no program that was traced had a tool library of Kokkos, which is whom Kokkos tells what \
                 it does. Let KOKKOS_TOOLS_LIBS (before Kokkos 4: KOKKOS_PROFILE_LIBRARY) name one, any will do"
                    .to_owned(),
            );
        }
        told
    }

    /// Takes the probes off functions that are called too often; to be called once a second.
    ///
    /// # Errors
    ///
    /// [`SessionError::Probe`].
    pub(crate) fn cool(&mut self) -> Result<Vec<String>, SessionError> {
        let most = self.others.max_probe_time.filter(|_| self.hot.any());
        let Some(most) = most else {
            return Ok(Vec::new());
        };
        let heat = self.calls.heat(self.next_function)?;
        Ok(self.hot.cool(&heat, most, Instant::now()))
    }

    /// Says of which functions calls were lost because there were too many.
    ///
    /// # Errors
    ///
    /// [`SessionError::Probe`].
    pub(crate) fn too_often(&self) -> Result<Vec<String>, SessionError> {
        let rate = self.others.max_call_rate.unwrap_or_default();
        Ok(self.hot.told(&self.calls.heat(self.next_function)?, rate))
    }

    /// Whether any domain of the recording can be in this file.
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

    /// Probes a file that may be mapped later, if that has not been done.
    pub(crate) fn candidate(
        &mut self,
        file: &LibraryFile,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<(), SessionError> {
        self.file(file, Role::default(), scope, collector).map(drop)
    }

    /// Probes libraries that were asked for by path and that targets may map later.
    pub(crate) fn libraries_in_advance(&mut self, scope: Scope, collector: &CollectorHandle) {
        let role = Role {
            library: true,
            program: false,
        };
        let names = self.others.libraries.clone();
        for path in names.iter().filter_map(LibraryName::path) {
            let outcome = LibraryFile::open(path)
                .map_err(SessionError::from)
                .and_then(|file| self.file(&file, role, scope, collector).map(drop));
            if let Err(error) = outcome {
                // It matters only if a target maps it, and then it is told again.
                tracing::debug!("{error}");
            }
        }
    }

    /// Probes one library file for `scope`, if that has not been done.
    fn file(
        &mut self,
        file: &LibraryFile,
        role: Role,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<Option<&mut Instrumented>, SessionError> {
        /// So many files are remembered.
        const MAX_READ: usize = 1 << 12;
        let identity = Identity {
            inode: file.inode(),
            build: file.elf().build_id.clone().ok_or_else(|| file.device()),
        };
        if !self.libraries.contains_key(&identity) {
            let instrumented = self.register(file, role, collector)?;
            self.libraries.insert(identity.clone(), instrumented);
        }
        if self.read.len() >= MAX_READ {
            self.read.clear();
        }
        self.read.insert(file.state(), identity.clone());
        let Some(library) = self.libraries.get_mut(&identity) else {
            return Ok(None);
        };
        let functions = library.functions();
        if library.is_empty() {
            return Ok(None);
        }
        if library.covers(scope) {
            return Ok(Some(library));
        }
        let path = file.attach_path();
        if !library.observed.is_empty() {
            let probes = self.calls.observe(&path, scope, &library.observed)?;
            library.probes.push(probes);
        }
        library.scopes.push(scope);
        for (hook, offset) in &library.hooks {
            let probes = self.calls.watch(*hook, &path, scope, *offset)?;
            library.probes.push(probes);
        }
        let mut failures = self.hot.attach(&self.calls, &path, scope, &library.own)?;
        if !library.entries.is_empty() {
            let mut probes = self
                .calls
                .attach_with_exits(&path, scope, &library.entries, &library.exits)?;
            failures.append(&mut probes.failures);
            library.probes.push(probes);
        }
        if !library.points.is_empty() {
            let mut probes = self.calls.attach(&path, scope, &library.points)?;
            failures.append(&mut probes.failures);
            library.probes.push(probes);
        }
        if let Some(first) = failures.first() {
            if failures.len() >= functions && library.observed.is_empty() {
                // Nothing at all is probed: that is no detail of the recording any more.
                let failure = failures.into_iter().next();
                return Err(failure.map_or(SessionError::NoTarget, |failure| failure.error.into()));
            }
            let text = format!(
                "{} of {functions} functions of {} could not be probed, the first because: {}",
                failures.len(),
                library.path,
                first.error
            );
            remark(&mut self.remarks, text, collector);
        }
        self.probed += functions.saturating_sub(failures.len());
        Ok(Some(library))
    }

    /// Chooses the functions of a library, gives them ids, and writes both into the capture, so that
    /// they stand before the first record.
    fn register(
        &mut self,
        file: &LibraryFile,
        role: Role,
        collector: &CollectorHandle,
    ) -> Result<Instrumented, SessionError> {
        let (plan, remarks) = self.choose(file, role)?;
        let left_out = LeftOut::of(&plan);
        let first = self.next_function;
        let hip = file.elf().soname.as_deref().and_then(structs::hip_major);
        let functions: Vec<Function> = (first..)
            .zip(&plan.probes)
            .map(|(id, probe)| describe(id, probe, hip))
            .collect();
        let (mut points, mut entries, mut exits) = (Vec::new(), Vec::new(), Vec::new());
        let is_limited = self.others.is_limited();
        for (function, probe) in functions.iter().zip(&plan.probes) {
            let mut cookie = cookie(function, &self.domains);
            if is_limited && matches!(probe.domain, Domain::Library | Domain::Function) {
                cookie = cookie.limited();
                self.hot.limit(function);
            }
            let point = Point {
                offset: function.probe_offset,
                cookie: cookie.0,
            };
            if probe.exits.is_empty() {
                points.push(point);
                continue;
            }
            entries.push(point);
            exits.extend(probe.exits.iter().map(|exit| {
                Point {
                    offset: exit.file_offset,
                    cookie: match exit.kind {
                        ExitKind::Return => cookie,
                        ExitKind::TailCall => cookie.at_tail_call(),
                    }
                    .0,
                }
            }));
        }
        let observed = match observed(file, &plan, &self.domains) {
            // A program need not export anything.
            Err(ElfError::NoDynamicSymbols { .. }) if role.any() => Vec::new(),
            observed => observed.map_err(ProcessError::from)?,
        };
        let hooks = if gputrace_catalog::is_gpu_traced(&self.domains) {
            hooks(file)
        } else {
            Vec::new()
        };
        for function in &functions {
            let plan = read_plan(function);
            if plan != ReadPlan::default() {
                self.calls.set_plan(function.id, &plan)?;
            }
        }
        self.next_function = functions.last().map_or(first, |last| last.id + 1);
        let library = Library {
            id: self.next_library,
            path: file.path().to_string_lossy().into_owned(),
            build_id: file.elf().build_id.clone().unwrap_or_default(),
            device: file.device(),
            inode: file.inode(),
            functions,
        };
        self.next_library += 1;
        tracing::info!(
            path = library.path,
            functions = library.functions.len(),
            "library to be probed"
        );
        collector.append(library.into());
        for text in untraced(file, &plan, &self.domains).into_iter().chain(remarks) {
            let notice = Notice {
                time: clocks::now(),
                text,
            };
            collector.send(Command::Meta(Box::new(notice.into())));
        }
        let own = self.hot.take(&mut points, &mut entries, &mut exits);
        let elf = file.elf();
        let chosen = role.library.then(|| {
            format!(
                "soname {}, build id {}",
                elf.soname.as_deref().unwrap_or("none"),
                elf.build_id.as_deref().unwrap_or("none")
            )
        });
        Ok(Instrumented {
            path: file.path().display().to_string(),
            chosen,
            points,
            entries,
            exits,
            own,
            observed,
            hooks,
            scopes: Vec::new(),
            probes: Vec::new(),
            left_out,
            announced: false,
        })
    }

    /// Chooses functions of a file: ROCm's of the domains asked for, and others. With remarks.
    fn choose(&mut self, file: &LibraryFile, role: Role) -> Result<(LibraryPlan, Vec<String>), SessionError> {
        let rocm = plan(file, &self.domains, &self.functions);
        if !role.any() {
            return Ok((rocm.map_err(ProcessError::from)?, Vec::new()));
        }
        let (mut chosen, remarks) = match self.others.plan(file, role, &self.functions) {
            Ok(chosen) => chosen,
            Err(error @ (SessionError::NoFunction { .. } | SessionError::TooManyFunctions { .. })) => {
                let rocm = rocm.unwrap_or_default();
                // Of ROCm's libraries the functions of their domains may be what was meant.
                if role.library && !rocm.probes.is_empty() && matches!(error, SessionError::NoFunction { .. })
                {
                    self.matched = true;
                } else {
                    self.unmatched.push(error);
                }
                return Ok((rocm, Vec::new()));
            }
            Err(error) => return Err(error),
        };
        self.matched |= !chosen.probes.is_empty();
        self.remarks.extend(remarks.iter().cloned());
        // A program need not export anything.
        if let Ok(rocm) = rocm {
            let is_new = |address| chosen.probes.iter().all(|probe| probe.address != address);
            let more: Vec<_> = rocm
                .probes
                .into_iter()
                .filter(|probe| is_new(probe.address))
                .collect();
            chosen.probes.extend(more);
            chosen.refused.extend(rocm.refused);
            chosen.indirect.extend(rocm.indirect);
        }
        Ok((chosen, remarks))
    }

    /// All probes, to be removed.
    pub(crate) fn into_probes(self) -> impl Iterator<Item = Probes> {
        let libraries = self.libraries.into_values();
        libraries
            .flat_map(|library| library.probes)
            .chain(self.hot.into_probes())
    }
}

/// Puts a remark into the recording, and keeps it for the user.
fn remark(remarks: &mut Vec<String>, text: String, collector: &CollectorHandle) {
    let time = clocks::now();
    collector.append(
        Notice {
            time,
            text: text.clone(),
        }
        .into(),
    );
    remarks.push(text);
}
