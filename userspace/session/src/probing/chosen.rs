//! Chooses the functions of a library that are traced, and describes them to the eBPF programs and
//! in the capture.

use std::collections::BTreeMap;

use gputrace_abi::{cookie::Cookie, domain::Domain, gpu::role, values::ReadPlan};
use gputrace_capture::meta::{EndProbe, Function, ProbeCost, ValueKind};
use gputrace_catalog::Signature;
use gputrace_loader::{
    attach::{End, Point, TracedFunction},
    probes::Hook,
};
use gputrace_tracee::{
    elf::ElfError,
    functions::{ExitKind, probe_exits},
    library::{EndSite, ExitSite, LibraryFile, LibraryPlan, PlannedProbe, Site},
    plan::CostClass,
};

use super::report::shown_name;
use crate::request::FunctionFilter;

/// Chooses functions of a library by domain and filter.
///
/// # Errors
///
/// As [`LibraryFile::plan`].
pub fn plan(
    file: &LibraryFile,
    domains: &[Domain],
    functions: &FunctionFilter,
) -> Result<LibraryPlan, ElfError> {
    let mut plan = file.plan(&|name: &str| {
        let name = gputrace_catalog::plain_name(name);
        // The functions that allocate memory are also needed if only memory is recorded, and those
        // that say where memory is, for the directions of copies. They are then recorded in the
        // domain of memory, so that their calls are neither shown nor counted among the requested
        // ones.
        let of_memory = || {
            domains.contains(&Domain::MemoryAllocation)
                && (gputrace_catalog::memory::allocation(name).is_some()
                    || gputrace_catalog::hip_memory::hip_allocation(name).is_some())
                || domains.contains(&Domain::MemoryCopy)
                    && gputrace_catalog::placement::placement(name).is_some()
        };
        let domain = gputrace_catalog::classify(name)?;
        if domains.contains(&domain) && functions.wants(name) {
            Some(domain)
        } else {
            of_memory().then_some(Domain::MemoryAllocation)
        }
    })?;
    // Inside other functions of ROCm, only its own code runs.
    probe_exits(file, &mut plan, &|probe| {
        gputrace_catalog::runs_callbacks(&probe.name)
    });
    let is_dear = |probe: &PlannedProbe| {
        probe.site.cost == CostClass::SingleStepped && probe.end == EndSite::Return
    };
    // Other libraries have no tables that are known, and some have large code.
    if plan
        .probes
        .iter()
        .any(|probe| is_dear(probe) && has_tables(probe.domain))
    {
        file.tables().move_behind(file, &mut plan);
    }
    Ok(plan)
}

/// Whether functions of a domain may be behind a table: HSA's, and HIP's from ROCm 6.2 on.
fn has_tables(domain: Domain) -> bool {
    let with_tables = [
        Domain::HipRuntime,
        Domain::HipCompiler,
        Domain::HsaCore,
        Domain::HsaAmdExt,
        Domain::HsaImageExt,
        Domain::HsaFinalizeExt,
        Domain::MemoryAllocation,
    ];
    with_tables.contains(&domain)
}

/// Cookie of a traced function: what the eBPF programs need to know about it.
pub(crate) fn cookie(function: &Function, domains: &[Domain]) -> Cookie {
    let signature = gputrace_catalog::signature(&function.name);
    let stack = signature.map_or(0, Signature::stack_words);
    let cookie = Cookie::new(function.id, function.domain, stack)
        .with_role(gputrace_catalog::gpu_role(&function.name, domains))
        .with_plan(&read_plan(function));
    match signature.and_then(gputrace_catalog::stream_word) {
        Some(word) => cookie.with_stream(word),
        None => cookie,
    }
}

/// Functions of a library that are watched without being traced. Only HSA's library has any.
pub(crate) fn hooks(file: &LibraryFile) -> Vec<(Hook, u64)> {
    [
        (Hook::CodeObjects, gputrace_catalog::CODE_OBJECTS_LOADED),
        (
            Hook::CodeObjectsEnd,
            gputrace_catalog::CODE_OBJECTS_UNLOADED,
        ),
        (Hook::CodeObjectsEnd, gputrace_catalog::RUNTIME_ENDS),
        (Hook::RuntimeEnd, gputrace_catalog::RUNTIME_ENDS),
    ]
    .into_iter()
    .filter_map(|(hook, function)| Some((hook, file.plan_symbol(function).ok()?.file_offset)))
    .collect()
}

/// Which values behind pointers are read at a function's calls.
pub(crate) fn read_plan(function: &Function) -> ReadPlan {
    let parameters = function.parameters.as_deref().unwrap_or_default();
    gputrace_catalog::signature(&function.name).map_or_else(ReadPlan::default, |signature| {
        gputrace_catalog::read_plan(signature, parameters)
    })
}

/// Functions of a library that report the GPU's work and are not among those `traced`.
///
/// What is called for each kernel is probed behind the table of the library if that is cheaper. It
/// then also sees what the library itself calls, which changes nothing: each store into a doorbell
/// announces packets, and each store into a signal prepares it, whoever stores.
pub(crate) fn observed(
    file: &LibraryFile,
    traced: &LibraryPlan,
    domains: &[Domain],
) -> Result<Vec<Point>, ElfError> {
    let role = |name: &str| gputrace_catalog::gpu_role(gputrace_catalog::plain_name(name), domains);
    let plan = file.plan(&|name: &str| {
        let is_traced = traced
            .probes
            .iter()
            .any(|probe| probe.name == name || probe.aliases.iter().any(|alias| alias == name));
        (!is_traced && role(name) != role::NONE).then_some(Domain::HsaCore)
    })?;
    let traced: Vec<u64> = traced.probes.iter().map(|probe| probe.address).collect();
    let mut points = BTreeMap::new();
    for probe in &plan.probes {
        let role = role(&probe.name);
        let behind = cheaper(file, probe, role, &traced);
        let offset = behind.unwrap_or(probe.site).file_offset;
        points
            .entry(offset)
            // A store that may ring a doorbell may also prepare a signal.
            .and_modify(|known| {
                if role == role::DOORBELL {
                    *known = role;
                }
            })
            .or_insert(role);
    }
    let point = |(offset, role)| Point {
        offset,
        cookie: Cookie::new(0, Domain::HsaCore.id(), 0).with_role(role).0,
    };
    Ok(points.into_iter().map(point).collect())
}

/// Where a function of HSA is probed behind its stub if it is not traced as a call; `None` if it is
/// not, or not there.
#[must_use]
pub fn observed_behind(file: &LibraryFile, probe: &PlannedProbe) -> Option<Site> {
    let name = gputrace_catalog::plain_name(&probe.name);
    cheaper(
        file,
        probe,
        gputrace_catalog::gpu_role(name, Domain::ALL),
        &[],
    )
}

/// The place behind a stub, if it is cheaper to probe. Not if a function that shares it is `traced`
/// at its stub: its calls would be reported twice.
fn cheaper(file: &LibraryFile, probe: &PlannedProbe, role: u8, traced: &[u64]) -> Option<Site> {
    let frequent = [role::DOORBELL, role::REARM, role::SIGNAL_DESTROY];
    if !frequent.contains(&role) || probe.site.cost != CostClass::SingleStepped {
        return None;
    }
    let tables = file.tables();
    let behind = tables.stubs().get(&probe.address)?;
    let mut sharing = tables.stubs().iter();
    if sharing.any(|(stub, other)| other.function == behind.function && traced.contains(stub)) {
        return None;
    }
    let site = tables.site(file, probe.address)?;
    (site.cost < probe.site.cost).then_some(site)
}

/// Remarks on functions of a library that were requested and cannot be traced.
pub(crate) fn untraced(file: &LibraryFile, plan: &LibraryPlan, domains: &[Domain]) -> Vec<String> {
    let mut remarks: Vec<String> = plan
        .refused
        .iter()
        .map(|refused| {
            let name = shown_name(refused.domain, &refused.name);
            format!("{name} cannot be probed: {}", refused.reason)
        })
        .collect();
    remarks.extend(plan.indirect.iter().map(|name| {
        format!(
            "{name} is not traced: it is an indirect function, whose code is chosen in each process"
        )
    }));
    let wanted = |name: &&String| {
        let name = name.split('@').next().unwrap_or_default();
        gputrace_catalog::classify(name).is_some_and(|domain| domains.contains(&domain))
    };
    remarks.extend(file.elf().superseded().iter().filter(wanted).map(|name| {
        format!(
            "{name} is not traced: programs built against today's library use its default version"
        )
    }));
    remarks
}

/// Description of a function for the capture; `hip` is the major release of HIP that the library
/// belongs to.
pub(crate) fn describe(id: u32, probe: &PlannedProbe, hip: Option<u16>) -> Function {
    let signature = gputrace_catalog::signature(&probe.name);
    let plain = shown_name(probe.domain, &probe.name);
    // Keeps the mangled name, which the library really exports.
    let mangled = (plain != probe.name).then(|| probe.name.clone());
    Function {
        id,
        name: plain.into_owned(),
        aliases: mangled
            .into_iter()
            .chain(probe.aliases.iter().cloned())
            .collect(),
        version: probe.version.clone().unwrap_or_default(),
        domain: probe.domain.id(),
        address: probe.address,
        probe_offset: probe.site.file_offset,
        probe_cost: match probe.site.cost {
            CostClass::Optimized => ProbeCost::Optimized,
            CostClass::Emulated => ProbeCost::Emulated,
            CostClass::SingleStepped => ProbeCost::SingleStepped,
        },
        parameters: signature.map(|signature| signature.parameters_in(hip)),
        end_probe: match probe.end {
            EndSite::Return => EndProbe::Return,
            EndSite::Exits(_) => EndProbe::Exits,
            EndSite::NotSeen(_) => EndProbe::NotSeen,
        },
        returns: if returns_itself(probe) {
            signature.map_or(ValueKind::Word, Signature::return_kind)
        } else {
            ValueKind::Void
        },
        source: probe.source.clone().unwrap_or_default(),
    }
}

/// Whether the return value is that of the function itself, and seen. After a jump to another
/// function, that one returns.
fn returns_itself(probe: &PlannedProbe) -> bool {
    match &probe.end {
        EndSite::Return => true,
        EndSite::Exits(exits) => exits.iter().all(|exit| exit.kind == ExitKind::Return),
        EndSite::NotSeen(_) => false,
    }
}

/// Where a function is probed, with its `cookie`.
pub(crate) fn traced(probe: &PlannedProbe, cookie: Cookie) -> TracedFunction {
    let exit = |exit: &ExitSite| Point {
        offset: exit.file_offset,
        cookie: match exit.kind {
            ExitKind::Return => cookie,
            ExitKind::TailCall => cookie.at_tail_call(),
        }
        .0,
    };
    TracedFunction {
        entry: Point {
            offset: probe.site.file_offset,
            cookie: cookie.0,
        },
        end: match &probe.end {
            EndSite::Return => End::Return,
            EndSite::Exits(exits) => End::Exits(exits.iter().map(exit).collect()),
            EndSite::NotSeen(_) => End::NotSeen,
        },
    }
}
