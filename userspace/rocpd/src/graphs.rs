//! Launches of HIP's graphs, and which launch submitted which work.
//!
//! As in rocprofv3's databases, an executable graph has a number, from 1 in order of instantiation,
//! rather than its handle, which another graph may get when it is destroyed. Numbers are unique in
//! the recording. Work of a launch is numbered from 0 in order of submission, kernels and copies
//! alike. HIP submits the nodes of a graph in the same order each time, so this number stands for
//! the node.
//!
//! Work may come before the call that launched it, so it gets its numbers when all is known.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_capture::meta::Recording;
use gputrace_catalog::word;
use gputrace_export::ExportError;
use gputrace_timeline::{
    event::{Call, CallEnd, FunctionInfo, Lifetime, LifetimeChange},
    gpu::Origin,
};
use serde::Serialize;

use crate::{
    exporter::{Context, int, json},
    rows::{Rows, cells},
    schema::Identity,
};

/// rocprofiler-sdk's kind of records of launches.
const CATEGORY: &str = "HIP_GRAPH";

/// Row of the default queue: the work of a launch may go to several queues.
const ANY_QUEUE: i64 = 0;

/// C type of handles of executable graphs.
const HANDLE: &str = "hipGraphExec_t";

/// Gives work of launches its numbers, counts it, and names its agent if there is only one.
const NUMBER: &str = include_str!("sql/graphs.sql");

/// What functions do with executable graphs, by name without `_spt`.
const FUNCTIONS: [(&str, What); 5] = [
    ("hipGraphExecDestroy", What::Destroys),
    ("hipGraphInstantiate", What::Creates),
    ("hipGraphInstantiateWithFlags", What::Creates),
    ("hipGraphInstantiateWithParams", What::Creates),
    ("hipGraphLaunch", What::Launches),
];

#[derive(Clone, Copy, Debug)]
enum What {
    Creates,
    Destroys,
    Launches,
}

/// `extdata` of a launch.
#[derive(Serialize)]
struct Ext<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<&'a str>,
}

/// Writes launches. Memory grows with the number of graphs.
#[derive(Debug)]
pub(crate) struct Graphs {
    rows: Rows<10>,
    /// The recorded domains.
    domains: Vec<Domain>,
    /// What functions do, and the argument word with the handle.
    functions: HashMap<u32, (What, u8), RandomState>,
    /// Numbers of executable graphs, by process and handle.
    numbers: HashMap<(u32, u64), i64, RandomState>,
    count: i64,
    has_launches: bool,
}

impl Graphs {
    pub(crate) fn new(identity: &Identity, recording: &Recording) -> Self {
        let is_recorded =
            |domain: &Domain| recording.domains.iter().any(|name| name == domain.name());
        Self {
            rows: Rows::new(
                identity,
                "rocpd_graph_launch",
                "id, nid, pid, tid, queue_id, start, \"end\", graph_exec_id, event_id, extdata",
            ),
            domains: Domain::ALL.iter().copied().filter(is_recorded).collect(),
            functions: HashMap::default(),
            numbers: HashMap::default(),
            count: 0,
            has_launches: false,
        }
    }

    /// The graph of work that functions of the domain `submits` submit, until its launch is known:
    /// 0 if it may have none, `None` if nobody knows, because no call of HIP is known around it.
    pub(crate) fn of(&self, origin: &Origin, submits: Domain) -> Option<i64> {
        let Origin {
            innermost, caller, ..
        } = *origin;
        let is_hip = caller != innermost || !self.domains.contains(&submits);
        (self.domains.contains(&Domain::HipRuntime) && caller != 0 && is_hip).then_some(0)
    }

    pub(crate) fn function(&mut self, info: &FunctionInfo) {
        let name = info.function.name.as_str();
        let plain = name.strip_suffix("_spt").unwrap_or(name);
        let Some((_, what)) = FUNCTIONS.iter().find(|(known, _)| *known == plain) else {
            return;
        };
        let mut parameters = info.function.parameters.iter().flatten();
        let handle = parameters.find(|parameter| parameter.c_type.starts_with(HANDLE));
        if let Some(word) = handle.and_then(|handle| word(handle.at)) {
            self.functions.insert(info.function.id, (*what, word));
        }
    }

    pub(crate) fn lifetime(&mut self, lifetime: &Lifetime) {
        if let LifetimeChange::Executed { .. } = lifetime.what {
            self.numbers.retain(|(pid, _), _| *pid != lifetime.pid);
        }
    }

    pub(crate) fn call(&mut self, context: &mut Context, call: &Call) -> Result<(), ExportError> {
        let Some((what, word)) = self.functions.get(&call.function).copied() else {
            return Ok(());
        };
        let succeeded = match call.how {
            CallEnd::Returned(status) => status as u32 == 0,
            // Its work is there.
            _ => matches!(what, What::Launches),
        };
        let handle = match what {
            What::Creates => call.stored(word),
            What::Destroys | What::Launches => call.word(word),
        };
        let Some(handle) = handle.filter(|_| succeeded) else {
            return Ok(());
        };
        let key = (call.pid, handle);
        match what {
            What::Creates => {
                self.count += 1;
                self.numbers.insert(key, self.count);
            }
            What::Destroys => {
                self.numbers.remove(&key);
            }
            What::Launches => {
                let count = &mut self.count;
                let number = *self.numbers.entry(key).or_insert_with(|| {
                    *count += 1;
                    *count
                });
                self.launch(context, call, number)?;
            }
        }
        Ok(())
    }

    fn launch(
        &mut self,
        context: &mut Context,
        call: &Call,
        number: i64,
    ) -> Result<(), ExportError> {
        self.has_launches = true;
        let stack = (call.correlation, call.correlation);
        let event = context.event(CATEGORY, stack, "{}")?;
        let extdata = json(&Ext {
            unfinished: call.how.reason(),
        });
        let row = cells![
            int(call.correlation),
            context.node,
            call.pid,
            call.tid,
            ANY_QUEUE,
            int(call.begin),
            int(call.end),
            number,
            event,
            extdata.as_str(),
        ];
        self.rows.add(&context.database, row)
    }

    /// Inserts the waiting rows and gives work its numbers. All work must be in the database.
    pub(crate) fn finish(&mut self, context: &Context) -> Result<(), ExportError> {
        self.rows.finish(&context.database)?;
        if self.has_launches {
            let sql = context.database.identity.fill(NUMBER);
            context.database.batch(&sql)?;
        }
        Ok(())
    }
}
