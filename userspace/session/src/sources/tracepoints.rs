//! Chooses the tracepoints to record, and attaches the program to them.

use std::{collections::BTreeSet, sync::Arc};

use gputrace_capture::{
    Meta,
    tracepoint::{TraceField, TraceFormat},
};
use gputrace_loader::{
    ProbeError,
    calls::Calls,
    tracefs::{self, Tracepoint},
    tracepoint::Tracing,
};
use gputrace_text::tables::plural;

use super::{Source, Wanted};
use crate::said::notice;

/// Tracepoints of `--driver-trace`: what the driver does for and to processes. Register accesses
/// and single page table writes are left out, because there are far too many. The GPU scheduler is
/// listed under its names before and after Linux 6.16. Some events exist only in AMD's own driver
/// packages.
const DRIVER: [&str; 14] = [
    "amdgpu:amdgpu_bo_create",
    "amdgpu:amdgpu_bo_move",
    "amdgpu:amdgpu_vm_bo_map",
    "amdgpu:amdgpu_vm_bo_unmap",
    "amdgpu:amdgpu_vm_update_ptes",
    "amdgpu:amdgpu_iv",
    "amdgpu:amdgpu_pasid_allocated",
    "amdgpu:amdgpu_pasid_freed",
    "amdgpu:amdgpu_reset_reg_dumps",
    "amdgpu:amdgpu_isolation",
    "amdgpu:amdgpu_cleaner_shader",
    "gpu_scheduler:*",
    "amdkfd:*",
    "gpu_mem:*",
];

pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let request = wanted.request;
    let mut pending = request.tracepoints.clone();
    let named = !pending.is_empty();
    if request.driver_trace {
        pending.extend(DRIVER.map(str::to_owned));
    }
    (!pending.is_empty()).then(|| {
        Box::new(Tracepoints {
            pending,
            named,
            told: false,
            attached: BTreeSet::new(),
            per_second: request.tracepoint_rate,
            tracing: None,
        }) as Box<dyn Source>
    })
}

/// The tracepoints of a recording.
#[derive(Debug)]
struct Tracepoints {
    /// Requested tracepoints that have not been found yet.
    pending: Vec<String>,
    /// Whether the user named tracepoints, and is told about those that do not exist.
    named: bool,
    told: bool,
    attached: BTreeSet<String>,
    per_second: u64,
    tracing: Option<Tracing>,
}

impl Source for Tracepoints {
    fn tick(&mut self, calls: &Arc<Calls>) -> Vec<Meta> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let mut news = Vec::new();
        let mut missing = Vec::new();
        for wanted in std::mem::take(&mut self.pending) {
            let names = tracefs::matching(&wanted);
            if names.is_empty() {
                missing.push(wanted);
            }
            for name in names {
                if let Err(error) = self.attach_one(calls, &name, &mut news) {
                    news.push(notice(format!(
                        "tracepoint {name} is not recorded: {error}"
                    )));
                }
            }
        }
        if !missing.is_empty() && !std::mem::replace(&mut self.told, true) {
            let list = missing.join(", ");
            let known = self.attached.len();
            news.push(notice(if let Err(error) = tracefs::tracefs() {
                format!("tracepoints are not recorded ({list}): {error}")
            } else if self.named || known == 0 {
                format!(
                    "this kernel has no tracepoint {list} yet; it is recorded when a module adds it"
                )
            } else {
                format!(
                    "{} of the driver recorded; this kernel has no {list}",
                    plural(known as u64, "tracepoint is", "tracepoints are")
                )
            }));
        }
        self.pending = missing;
        news
    }

    fn missed(&self) -> u64 {
        self.tracing.as_ref().map_or(0, Tracing::missed)
    }
}

impl Tracepoints {
    fn attach_one(
        &mut self,
        calls: &Calls,
        name: &str,
        news: &mut Vec<Meta>,
    ) -> Result<(), ProbeError> {
        let Some((category, event)) = name.split_once(':') else {
            return Ok(());
        };
        if self.attached.len() >= Tracing::MOST || self.attached.contains(name) {
            return Ok(());
        }
        let tracepoint = Tracepoint::read(category, event)?;
        let number = self.attached.len() as u32;
        let tracing = match &mut self.tracing {
            Some(tracing) => tracing,
            none => none.insert(Tracing::load(calls, self.per_second)?),
        };
        tracing.attach(number, &tracepoint)?;
        self.attached.insert(name.to_owned());
        news.push(describe(number, &tracepoint).into());
        Ok(())
    }
}

fn describe(number: u32, tracepoint: &Tracepoint) -> TraceFormat {
    TraceFormat {
        number,
        category: tracepoint.category().to_owned(),
        name: tracepoint.event().to_owned(),
        fields: tracepoint
            .fields()
            .map(|field| TraceField {
                name: field.name.clone(),
                c_type: field.c_type.clone(),
                offset: field.offset,
                size: field.size,
                signed: field.signed,
                count: field.count,
            })
            .collect(),
    }
}
