//! Getting probes onto libraries: which files have been probed for whom, and under which function ids.

use std::{collections::HashMap, sync::Arc};

use gputrace_abi::{cookie::Cookie, domain::Domain, gpu::role};
use gputrace_capture::meta::{Function, Library, Notice, ProbeCost, ValueKind};
use gputrace_catalog::Signature;
use gputrace_collect::{CollectorHandle, Command, clocks};
use gputrace_probe::{
    attach::{Point, Scope},
    calls::Calls,
    probes::{Hook, Probes},
};
use gputrace_target::{
    library::{LibraryFile, LibraryPlan, PlannedProbe},
    plan::CostClass,
    process::{self, MappedFile},
};

use crate::{SessionError, request::FunctionFilter};

/// Which file, as far as uprobes are concerned: the kernel keys them by inode. Overlay mounts show one
/// inode under several devices; the build id tells such twins apart from different files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    inode: u64,
    /// Device, for files that carry no build id.
    build: Result<String, u64>,
}

/// A library with probes.
#[derive(Debug)]
struct Instrumented {
    file: LibraryFile,
    points: Vec<Point>,
    /// Functions that tell of the GPU's work and are not traced as calls.
    observed: Vec<Point>,
    /// Functions that are watched, and where they are in the file.
    hooks: Vec<(Hook, u64)>,
    /// One entry for each scope that has probes.
    probes: Vec<(Scope, Probes)>,
    /// What the user has been told.
    announced: bool,
}

/// All libraries of the recording and their probes.
#[derive(Debug)]
pub(crate) struct Instruments {
    calls: Arc<Calls>,
    domains: Vec<Domain>,
    functions: FunctionFilter,
    libraries: HashMap<Identity, Instrumented>,
    next_library: u32,
    next_function: u32,
    /// Functions with a probe.
    pub(crate) probed: usize,
    /// Things to tell the user.
    pub(crate) remarks: Vec<String>,
}

impl Instruments {
    pub(crate) fn new(calls: Arc<Calls>, domains: Vec<Domain>, functions: FunctionFilter) -> Self {
        Self {
            calls,
            domains,
            functions,
            libraries: HashMap::new(),
            next_library: 0,
            next_function: 0,
            probed: 0,
            remarks: Vec::new(),
        }
    }

    /// Probes the ROCm libraries that a process has mapped, for `scope`. Those already probed cost
    /// nothing. Returns those of which nobody has been told yet: path and number of functions.
    ///
    /// # Errors
    ///
    /// [`SessionError::Process`] with the reason why the process has none, or why one cannot be opened.
    pub(crate) fn process(
        &mut self,
        pid: u32,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<Vec<(String, usize)>, SessionError> {
        let mut news = Vec::new();
        for mapped in &process::rocm_libraries(pid)?.libraries {
            if !self.wants(mapped) {
                continue;
            }
            let file = process::open_mapped(pid, mapped)?;
            let Some(library) = self.file(file, scope, collector)? else {
                continue;
            };
            if !std::mem::replace(&mut library.announced, true) {
                news.push((library.file.path().display().to_string(), library.points.len()));
            }
        }
        Ok(news)
    }

    /// Whether any domain of the recording can be in this file.
    fn wants(&self, mapped: &MappedFile) -> bool {
        let name = mapped
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let domains = gputrace_catalog::library_domains(name);
        domains.iter().any(|domain| self.domains.contains(domain))
            || domains.contains(&Domain::HsaCore) && gputrace_catalog::is_gpu_traced(&self.domains)
    }

    /// Probes a file that may be mapped later, if that has not been done.
    pub(crate) fn candidate(
        &mut self,
        file: LibraryFile,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<(), SessionError> {
        self.file(file, scope, collector).map(drop)
    }

    /// Probes one library file for `scope`, if that has not been done.
    fn file(
        &mut self,
        file: LibraryFile,
        scope: Scope,
        collector: &CollectorHandle,
    ) -> Result<Option<&mut Instrumented>, SessionError> {
        let identity = Identity {
            inode: file.inode(),
            build: file.elf().build_id.clone().ok_or_else(|| file.device()),
        };
        if !self.libraries.contains_key(&identity) {
            let instrumented = self.register(file, collector)?;
            self.libraries.insert(identity.clone(), instrumented);
        }
        let Some(library) = self.libraries.get_mut(&identity) else {
            return Ok(None);
        };
        if library.points.is_empty() && library.observed.is_empty() {
            return Ok(None);
        }
        let covered = |(other, _): &(Scope, Probes)| *other == scope || *other == Scope::EveryProcess;
        if library.probes.iter().any(covered) {
            return Ok(Some(library));
        }
        let path = library.file.attach_path();
        if !library.observed.is_empty() {
            let probes = self.calls.observe(&path, scope, &library.observed)?;
            library.probes.push((scope, probes));
        }
        for (hook, offset) in &library.hooks {
            let probes = self.calls.watch(*hook, &path, scope, *offset)?;
            library.probes.push((scope, probes));
        }
        let probes = self.calls.attach(&path, scope, &library.points)?;
        if let Some(first) = probes.failures.first() {
            if probes.failures.len() >= library.points.len() && library.observed.is_empty() {
                // Nothing at all is probed: that is no detail of the recording any more.
                let failures = probes.failures.into_iter().next();
                return Err(failures.map_or(SessionError::NoTarget, |failure| failure.error.into()));
            }
            let text = format!(
                "{} of {} functions of {} could not be probed, the first because: {}",
                probes.failures.len(),
                library.points.len(),
                library.file.path().display(),
                first.error
            );
            collector.append(
                Notice {
                    time: clocks::now(),
                    text: text.clone(),
                }
                .into(),
            );
            self.remarks.push(text);
        }
        self.probed += library.points.len() - probes.failures.len();
        library.probes.push((scope, probes));
        Ok(Some(library))
    }

    /// Chooses the functions of a library, gives them ids, and writes both into the capture, so that
    /// they stand before the first record.
    fn register(
        &mut self,
        file: LibraryFile,
        collector: &CollectorHandle,
    ) -> Result<Instrumented, SessionError> {
        let plan = plan(&file, &self.domains, &self.functions).map_err(process::ProcessError::from)?;
        let first = self.next_function;
        let functions: Vec<Function> = (first..)
            .zip(&plan.probes)
            .map(|(id, probe)| describe(id, probe))
            .collect();
        let points = functions
            .iter()
            .map(|function| Point {
                offset: function.probe_offset,
                cookie: cookie(function, &self.domains).0,
            })
            .collect();
        let observed = observed(&file, &plan, &self.domains).map_err(process::ProcessError::from)?;
        let hooks = if gputrace_catalog::is_gpu_traced(&self.domains) {
            hooks(&file)
        } else {
            Vec::new()
        };
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
        for text in untraced(&file, &plan, &self.domains) {
            let notice = Notice {
                time: clocks::now(),
                text,
            };
            collector.send(Command::Meta(Box::new(notice.into())));
        }
        Ok(Instrumented {
            file,
            points,
            observed,
            hooks,
            probes: Vec::new(),
            announced: false,
        })
    }

    /// All probes, to be removed.
    pub(crate) fn into_probes(self) -> impl Iterator<Item = Probes> {
        let libraries = self.libraries.into_values();
        libraries
            .flat_map(|library| library.probes)
            .map(|(_, probes)| probes)
    }
}

/// Chooses functions of a library by domain and filter.
///
/// # Errors
///
/// As [`LibraryFile::plan`].
pub fn plan(
    file: &LibraryFile,
    domains: &[Domain],
    functions: &FunctionFilter,
) -> Result<LibraryPlan, gputrace_target::elf::ElfError> {
    file.plan(&|name: &str| {
        let name = gputrace_catalog::plain_name(name);
        gputrace_catalog::classify(name).filter(|domain| domains.contains(domain) && functions.wants(name))
    })
}

/// What the programs are to know of a traced function.
fn cookie(function: &Function, domains: &[Domain]) -> Cookie {
    let signature = gputrace_catalog::signature(&function.name);
    let stack = signature.map_or(0, Signature::stack_words);
    let cookie = Cookie::new(function.id, function.domain, stack)
        .with_role(gputrace_catalog::gpu_role(&function.name, domains));
    match signature.and_then(gputrace_catalog::stream_word) {
        Some(word) => cookie.with_stream(word),
        None => cookie,
    }
}

/// The functions of a library that are watched. Libraries other than HSA's have none of them.
fn hooks(file: &LibraryFile) -> Vec<(Hook, u64)> {
    [
        (Hook::CodeObjects, gputrace_catalog::CODE_OBJECTS_LOADED),
        (Hook::RuntimeEnd, gputrace_catalog::RUNTIME_ENDS),
    ]
    .into_iter()
    .filter_map(|(hook, function)| Some((hook, file.plan_symbol(function).ok()?.file_offset)))
    .collect()
}

/// Functions of a library that tell of the GPU's work and are not among those `traced`.
fn observed(
    file: &LibraryFile,
    traced: &LibraryPlan,
    domains: &[Domain],
) -> Result<Vec<Point>, gputrace_target::elf::ElfError> {
    let role = |name: &str| gputrace_catalog::gpu_role(gputrace_catalog::plain_name(name), domains);
    let plan = file.plan(&|name: &str| {
        let is_traced = traced
            .probes
            .iter()
            .any(|probe| probe.name == name || probe.aliases.iter().any(|alias| alias == name));
        (!is_traced && role(name) != role::NONE).then_some(Domain::HsaCore)
    })?;
    Ok(plan
        .probes
        .iter()
        .map(|probe| Point {
            offset: probe.site.file_offset,
            cookie: Cookie::new(0, Domain::HsaCore.id(), 0)
                .with_role(role(&probe.name))
                .0,
        })
        .collect())
}

/// Remarks on functions of a library that were wanted and are not traced.
fn untraced(file: &LibraryFile, plan: &LibraryPlan, domains: &[Domain]) -> Vec<String> {
    let mut remarks: Vec<String> = plan
        .refused
        .iter()
        .map(|refused| format!("{} cannot be probed: {}", refused.name, refused.reason))
        .collect();
    remarks.extend(plan.indirect.iter().map(|name| {
        format!("{name} is not traced: it is an indirect function, whose code is chosen in each process")
    }));
    let wanted = |name: &&String| {
        let name = name.split('@').next().unwrap_or_default();
        gputrace_catalog::classify(name).is_some_and(|domain| domains.contains(&domain))
    };
    remarks.extend(file.elf().superseded().iter().filter(wanted).map(|name| {
        format!("{name} is not traced: programs built against today's library use its default version")
    }));
    remarks
}

/// A function as the capture describes it.
fn describe(id: u32, probe: &PlannedProbe) -> Function {
    let signature = gputrace_catalog::signature(&probe.name);
    let plain = gputrace_catalog::plain_name(&probe.name);
    // The mangled name is kept: it is what the library really exports.
    let mangled = (plain != probe.name).then(|| probe.name.clone());
    Function {
        id,
        name: plain.to_owned(),
        aliases: mangled.into_iter().chain(probe.aliases.iter().cloned()).collect(),
        version: probe.version.clone().unwrap_or_default(),
        domain: probe.domain.id(),
        address: probe.address,
        probe_offset: probe.site.file_offset,
        probe_cost: match probe.site.cost {
            CostClass::Optimized => ProbeCost::Optimized,
            CostClass::Emulated => ProbeCost::Emulated,
            CostClass::SingleStepped => ProbeCost::SingleStepped,
        },
        parameters: signature.map(Signature::parameters),
        returns: signature.map_or(ValueKind::Word, Signature::return_kind),
    }
}
