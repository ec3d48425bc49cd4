//! Chooses the functions of a library file, and writes them into the capture.

use gputrace_abi::{
    cookie::{Around, MAX_BEHIND},
    domain::Domain,
    values::{MAX_PLANS, ReadPlan},
};
use gputrace_capture::meta::{Function, Library};
use gputrace_catalog::structs;
use gputrace_collect::{CollectorHandle, Command};
use gputrace_loader::attach::TracedFunction;
use gputrace_tracee::{
    elf::ElfError,
    library::{LibraryFile, LibraryPlan, PlannedProbe},
    process::ProcessError,
};

use super::{Instrumented, Instruments, LIMITED_FUNCTIONS};
use crate::{
    SessionError,
    probing::{
        chosen::{cookie, describe, hooks, observed, plan, read_plan, traced, untraced},
        extra::Role,
        files::Users,
        report::LeftOut,
    },
    said::notice,
};

impl Instruments {
    /// Chooses the functions of a library, assigns their ids, and writes both into the capture
    /// before the first record.
    pub(super) fn register(
        &mut self,
        file: LibraryFile,
        role: Role,
        collector: &CollectorHandle,
    ) -> Result<Instrumented, SessionError> {
        let (plan, remarks) = self.choose(&file, role)?;
        let left_out = LeftOut::of(&plan);
        let first = self.next_function;
        let hip = file.elf().soname.as_deref().and_then(structs::hip_major);
        let functions: Vec<Function> = (first..)
            .zip(&plan.probes)
            .map(|(id, probe)| describe(id, probe, hip))
            .collect();
        let is_limited = self.extra.is_limited();
        let mut traced = self.traced(&functions, &plan, is_limited);
        let observed = match observed(&file, &plan, &self.domains) {
            // A program need not export any symbols.
            Err(ElfError::NoDynamicSymbols { .. }) if role.any() => Vec::new(),
            observed => observed.map_err(ProcessError::from)?,
        };
        let hooks = if gputrace_catalog::is_gpu_traced(&self.domains) {
            hooks(&file)
        } else {
            Vec::new()
        };
        self.set_read_plans(&functions, collector);
        self.set_around(&functions, &plan, collector);
        self.tell_of_limit(&functions, collector);
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
        for text in untraced(&file, &plan, &self.domains)
            .into_iter()
            .chain(remarks)
        {
            collector.send(Command::Meta(Box::new(notice(text))));
        }
        let own = self.limiter.take(&mut traced);
        let elf = file.elf();
        let chosen = role.library.then(|| {
            format!(
                "soname {}, build id {}",
                elf.soname.as_deref().unwrap_or("none"),
                elf.build_id.as_deref().unwrap_or("none")
            )
        });
        Ok(Instrumented {
            file,
            chosen,
            traced,
            own,
            observed,
            hooks,
            scopes: Vec::new(),
            complete_since: 0,
            probes: Vec::new(),
            left_out,
            announced: false,
            users: Users::new(!self.releases),
        })
    }

    /// Tells the programs which values behind pointers to read of each function.
    fn set_read_plans(&mut self, functions: &[Function], collector: &CollectorHandle) {
        for function in functions {
            let plan = read_plan(function);
            if plan != ReadPlan::default() && self.calls.set_plan(function.id, &plan).is_err() {
                // Calls of this function are recorded nevertheless, without values behind pointers.
                let text = format!(
                    "values behind pointers are read for the first {MAX_PLANS} functions only"
                );
                self.tell_once(text, collector);
                break;
            }
        }
    }

    /// Tells the programs where the code of the library is, seen from functions behind its tables.
    fn set_around(
        &mut self,
        functions: &[Function],
        plan: &LibraryPlan,
        collector: &CollectorHandle,
    ) {
        for (function, probe) in functions.iter().zip(&plan.probes) {
            let Some(behind) = &probe.behind else {
                continue;
            };
            let Some(code) = &behind.code else {
                continue;
            };
            let around = Around {
                before: behind.probed.saturating_sub(code.start),
                size: code.end.saturating_sub(code.start),
            };
            if self.calls.set_around(function.id, &around).is_err() {
                // Calls of this function are recorded nevertheless.
                let text = format!(
                    "ROCm's own calls of its functions are left out for the first {MAX_BEHIND} \
                     functions only"
                );
                self.tell_once(text, collector);
                break;
            }
        }
    }

    /// Says so if the rate of calls is not limited of all of the functions.
    fn tell_of_limit(&mut self, functions: &[Function], collector: &CollectorHandle) {
        if self.extra.is_limited()
            && functions
                .last()
                .is_some_and(|last| last.id >= LIMITED_FUNCTIONS)
        {
            let text =
                format!("--max-call-rate applies to the first {LIMITED_FUNCTIONS} functions only");
            self.tell_once(text, collector);
        }
    }

    /// Determines where the functions of a library are probed.
    fn traced(
        &mut self,
        functions: &[Function],
        plan: &LibraryPlan,
        is_limited: bool,
    ) -> Vec<TracedFunction> {
        let probes = functions.iter().zip(&plan.probes);
        probes
            .map(|(function, probe)| {
                let mut cookie = cookie(function, &self.domains);
                let behind = probe.behind.as_ref();
                if behind.is_some_and(|behind| behind.code.is_some()) {
                    cookie = cookie.behind_table();
                }
                let stacks = self.stacks.as_ref();
                if stacks.is_some_and(|stacks| stacks.includes(&function.name)) {
                    cookie = cookie.with_stack();
                }
                if is_limited && matches!(probe.domain, Domain::Library | Domain::Function) {
                    cookie = cookie.limited();
                    self.limiter.limit(function);
                } else if self.is_guarded(&function.name) {
                    cookie = cookie.limited();
                    self.limiter.guard(function);
                }
                traced(probe, cookie)
            })
            .collect()
    }

    /// Whether a function loses its probes for a while if tracing costs too much.
    fn is_guarded(&self, name: &str) -> bool {
        self.overhead_limit.is_some() && gputrace_catalog::is_getter(name)
    }

    /// Chooses functions of a file: ROCm's of the requested domains, and others. Also returns
    /// remarks.
    fn choose(
        &mut self,
        file: &LibraryFile,
        role: Role,
    ) -> Result<(LibraryPlan, Vec<String>), SessionError> {
        let rocm = plan(file, &self.domains, &self.functions);
        // Functions that are probed for memory only are not among the requested ones.
        let is_requested = |probe: &PlannedProbe| probe.domain != Domain::MemoryAllocation;
        self.rocm.has_functions |= rocm
            .as_ref()
            .is_ok_and(|plan| plan.probes.iter().any(is_requested));
        if !role.any() {
            return Ok((rocm.map_err(ProcessError::from)?, Vec::new()));
        }
        let (mut chosen, remarks) = match self.extra.plan(file, role, &self.functions) {
            Ok(chosen) => chosen,
            Err(
                error @ (SessionError::NoFunction { .. } | SessionError::TooManyFunctions { .. }),
            ) => {
                let rocm = rocm.unwrap_or_default();
                // For a ROCm library, the user may have meant the functions of its domains.
                if role.library
                    && !rocm.probes.is_empty()
                    && matches!(error, SessionError::NoFunction { .. })
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
        // A program need not export any symbols.
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
}
