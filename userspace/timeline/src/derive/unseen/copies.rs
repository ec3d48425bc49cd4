//! Copies that HIP makes in another way than by a copy engine.
//!
//! HIP makes small copies, and those within one GPU, with kernels of its own, and some with the
//! processor. Neither is among the recorded copies, so whoever compares these with the program's
//! calls finds fewer. Work belongs to the call that submitted it, so the calls tell which way each
//! copy went.
//!
//! Only calls certainly meant for a GPU count as made by the processor: not those from host to
//! host, nor those of which the arguments do not say it (`hipMemcpyDefault`).

use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};
use gputrace_abi::{domain::Domain, gpu::role};
use gputrace_capture::meta::Parameter;
use gputrace_catalog::{Signature, gpu_role, signature, word};
use gputrace_text::tables::plural;

use crate::{
    derive::{asked::KIND, limited::Limited},
    model::{
        event::{Call, CallEnd, Event, FunctionInfo},
        gpu::Origin,
    },
};

/// Beginnings of the names of functions that copy.
const NAMES: [&str; 2] = ["hipMemcpy", "hipDrvMemcpy"];

/// `hipMemcpyHostToHost`.
const HOST_TO_HOST: u32 = 0;

/// `hipMemcpyDefault`: the direction follows from the addresses.
const DEFAULT: u32 = 4;

/// Names of arguments that are 0 if there is nothing to copy.
const SIZES: [&str; 5] = ["sizeBytes", "ByteCount", "count", "width", "height"];

/// Follows the copies that programs ask for.
#[derive(Debug, Default)]
pub(super) struct Copies {
    functions: HashMap<u32, Asks>,
    /// Ids of HSA's functions that submit work.
    hsa: HashSet<u32>,
    /// Ids of HIP's own kernels.
    kernels: HashSet<u32>,
    processes: BTreeMap<u32, Process>,
}

/// What the arguments of a function say.
#[derive(Debug)]
struct Asks {
    /// Argument word with the kind.
    kind: Option<u8>,
    /// Whether a function without a kind is meant for a GPU.
    certain: bool,
    sizes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Process {
    /// Copies by engines.
    by_engine: u64,
    /// Copies whose first work is a kernel of HIP's.
    by_kernel: u64,
    /// Work that belongs to no recorded call of HIP, but perhaps to one of those that wait.
    stray: u64,
    /// Calls that waited and were forgotten.
    forgotten: u64,
    /// Calls of which no work has been seen, and whether each is certainly meant for a GPU.
    waiting: Limited<bool>,
    /// Calls that have not been seen, but work of theirs, and whether the first was a kernel.
    early: Limited<bool>,
    /// Calls of HSA that are inside no other: the program's own, or of a thread of HIP's that
    /// submits the work of others.
    alone: Limited<()>,
}

impl Copies {
    pub(super) fn function(&mut self, info: &FunctionInfo) {
        let name = info.function.name.as_str();
        let work = [Domain::KernelDispatch, Domain::MemoryCopy];
        if gpu_role(name, &work) != role::NONE {
            self.hsa.insert(info.function.id);
        }
        if info.domain != Some(Domain::HipRuntime)
            || !NAMES.iter().any(|prefix| name.starts_with(prefix))
        {
            return;
        }
        let parameters = signature(name).map(Signature::parameters);
        let parameters = parameters.unwrap_or_default();
        let of = |wanted: &dyn Fn(&Parameter) -> bool| {
            let wanted = parameters.iter().filter(|parameter| wanted(parameter));
            wanted.filter_map(|parameter| word(parameter.at)).collect()
        };
        let kinds: Vec<u8> = of(&|parameter| parameter.c_type == KIND);
        let sizes: Vec<u8> = of(&|parameter| SIZES.contains(&parameter.name.as_str()));
        let asks = Asks {
            kind: kinds.first().copied(),
            // Other functions take a structure that says it.
            certain: !sizes.is_empty(),
            sizes,
        };
        self.functions.insert(info.function.id, asks);
    }

    /// Learns from an event. `captures` says whether what a process launches may be captured into a
    /// graph.
    pub(super) fn seen(&mut self, event: &Event, captures: impl Fn(u32) -> bool) {
        match event {
            Event::Call(call) => self.call(call, captures),
            Event::Kernel(kernel) if kernel.runtime.is_some() => {
                self.kernels.insert(kernel.id);
            }
            // A kernel that was not found may be HIP's, too.
            Event::Dispatch(dispatch)
                if dispatch.kernel.is_none_or(|id| self.kernels.contains(&id)) =>
            {
                self.work(&dispatch.origin, true);
            }
            Event::Copy(copy) => self.work(&copy.origin, false),
            _ => {}
        }
    }

    fn call(&mut self, call: &Call, captures: impl Fn(u32) -> bool) {
        if call.parent == 0 && self.hsa.contains(&call.function) {
            let process = self.processes.entry(call.pid).or_default();
            process.stray += u64::from(process.early.remove(call.correlation).is_some());
            process.alone.add(call.correlation, ());
            return;
        }
        let asks = self.functions.get(&call.function);
        let known = self.processes.get_mut(&call.pid);
        let early = known.and_then(|process| process.early.remove(call.correlation));
        let Some(asks) = asks else {
            return;
        };
        let succeeded = matches!(call.how, CallEnd::Returned(status) if status as u32 == 0);
        let is_empty = |size: &u8| call.word(*size) == Some(0);
        if !succeeded || captures(call.pid) || asks.sizes.iter().any(is_empty) {
            return;
        }
        let kind = asks
            .kind
            .map(|kind| call.word(kind).map(|kind| kind as u32));
        let certain = match kind {
            None => asks.certain,
            Some(kind) => kind.is_some_and(|kind| kind != HOST_TO_HOST && kind != DEFAULT),
        };
        let process = self.processes.entry(call.pid).or_default();
        match early {
            Some(by_kernel) => process.made(by_kernel),
            None => {
                let forgotten = process.waiting.add(call.correlation, certain);
                process.forgotten += u64::from(forgotten == Some(true));
            }
        }
    }

    /// Learns of a copy, or of a kernel that may be one.
    fn work(&mut self, origin: &Origin, by_kernel: bool) {
        let process = self.processes.entry(origin.pid).or_default();
        let calls = [origin.caller, origin.outermost];
        let is_alone = |call: &u64| *call == 0 || process.alone.values.contains_key(call);
        if calls.iter().all(is_alone) {
            process.stray += 1;
            return;
        }
        // A call of the program's may call another one that copies.
        let waited = calls.map(|call| process.waiting.remove(call).is_some());
        if waited.contains(&true) {
            process.made(by_kernel);
            return;
        }
        for call in calls {
            if call != 0 && !process.early.values.contains_key(&call) {
                process.early.add(call, by_kernel);
            }
        }
    }

    /// Remarks on copies that are not among those of engines. `lost` is the number of records of
    /// work that are missing; processes in `blind` have work that cannot be seen.
    pub(super) fn remark(&self, lost: u64, blind: impl Fn(u32) -> bool) -> Option<String> {
        let (mut asked, mut by_kernel, mut by_cpu, mut forgotten) = (0, 0, 0, 0);
        for (pid, process) in &self.processes {
            let waiting = process.waiting.values.values();
            let waiting = waiting.filter(|certain| **certain).count() as u64;
            let unknown = process.stray.saturating_add(lost);
            let without = waiting.saturating_sub(if blind(*pid) { waiting } else { unknown });
            asked += process.by_engine + process.by_kernel + without;
            by_kernel += process.by_kernel;
            by_cpu += without;
            forgotten += process.forgotten;
        }
        let engines = asked - by_kernel - by_cpu;
        let copies = |number| plural(number, "copy", "copies");
        let kernels = (by_kernel > 0).then(|| {
            format!(
                "HIP made {by_kernel} with kernels (__amd_rocclr_copyBuffer and the like), which \
                 are among the kernels"
            )
        });
        let processor = (by_cpu > 0).then(|| {
            format!(
                "for {by_cpu} no work of a GPU was seen, so most likely HIP made them with the \
                 processor"
            )
        });
        let ways: Vec<String> = kernels.into_iter().chain(processor).collect();
        let more = match forgotten {
            0 => String::new(),
            _ => format!(" How {forgotten} more were made is not known."),
        };
        (!ways.is_empty()).then(|| {
            format!(
                "Of {} that programs asked for (hipMemcpy and the like), {engines} {} among the \
                 recorded copies: {}.{more}",
                copies(asked),
                if engines == 1 { "is" } else { "are" },
                ways.join(", and ")
            )
        })
    }
}

impl Process {
    fn made(&mut self, by_kernel: bool) {
        let count = if by_kernel {
            &mut self.by_kernel
        } else {
            &mut self.by_engine
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests;
