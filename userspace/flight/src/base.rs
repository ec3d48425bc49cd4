//! What discarded blocks said and later records need.

use std::collections::{BTreeMap, VecDeque, btree_map::Entry};

use gputrace_abi::record::{Task, kind, task_op};
use gputrace_capture::{
    Meta,
    counter::CounterValues,
    gpu::GpuClock,
    ledger::Ledger,
    meta::{ClockSnapshot, Notice, Process, Thread},
    records,
};
use zerocopy::FromBytes as _;

/// Maximum number of processes that are remembered. More than a node runs: it only bounds what a
/// defect could cost.
const PROCESSES: usize = 1 << 16;

/// Maximum number of remarks that are remembered; the latest are.
const NOTICES: usize = 256;

/// Number of processes that ended last, whose late descriptions are not remembered.
const ENDED: usize = 1 << 10;

/// Number of readings of each GPU's clock that are remembered: two, so that the pace of the clock
/// at the begin of what is kept is known.
const CLOCKS: usize = 2;

/// Identifies what a process has on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Own {
    AgentHandle(u64),
    Queue(u64, u64),
    CodeObject(u64),
    Pasid(u64),
    Stack(u32),
}

/// A process that has not ended.
#[derive(Clone, Debug, Default)]
struct Living {
    process: Process,
    own: BTreeMap<Own, Meta>,
}

/// What was said in blocks that are discarded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    /// Libraries, agents, layouts of tracepoints, counters: they hold for the whole recording.
    lasting: Vec<Meta>,
    processes: BTreeMap<u32, Living>,
    /// Processes that have ended, with the time.
    ended: VecDeque<(u32, u64)>,
    /// Ended processes whose last records may still follow, because rings are drained one after the
    /// other; with the time.
    leaving: Vec<(u32, u64)>,
    /// Number of processes that were not remembered because there were [`PROCESSES`].
    pub(crate) forgotten: u64,
    clocks: Option<ClockSnapshot>,
    gpu_clocks: BTreeMap<u32, VecDeque<GpuClock>>,
    /// The last value of each counter.
    values: BTreeMap<u32, f64>,
    notices: VecDeque<Notice>,
    ledger: Option<Ledger>,
}

impl Base {
    /// Remembers what is needed of a document that is discarded.
    pub(crate) fn meta(&mut self, meta: Meta) {
        match meta {
            Meta::Library(_)
            | Meta::Agent(_)
            | Meta::TraceFormat(_)
            | Meta::Counter(_)
            | Meta::CodeFile(_) => {
                self.lasting.push(meta);
            }
            Meta::Process(process) => self.process(*process),
            Meta::Queue(queue) => self.own(queue.pid, Own::Queue(queue.address, queue.id), meta),
            Meta::AgentHandle(agent) => self.own(agent.pid, Own::AgentHandle(agent.handle), meta),
            Meta::Pasid(pasid) => self.own(pasid.pid, Own::Pasid(pasid.pasid), meta),
            Meta::CodeObject(ref object) => {
                self.own(object.pid, Own::CodeObject(object.load_base), meta);
            }
            // Programs give calls the numbers of stacks that were told before.
            Meta::Stack(ref stack) => self.own(stack.pid, Own::Stack(stack.number), meta),
            Meta::Clocks(clocks) => self.clocks = Some(clocks),
            Meta::GpuClock(clock) => {
                let clocks = self.gpu_clocks.entry(clock.gpu_id).or_default();
                push(clocks, clock, CLOCKS);
            }
            Meta::CounterValues(values) => {
                values.gone.iter().for_each(|number| {
                    self.values.remove(number);
                });
                self.values.extend(values.values);
            }
            Meta::Notice(notice) => push(&mut self.notices, notice, NOTICES),
            Meta::Ledger(ledger) => self.ledger = Some(*ledger),
            Meta::Epoch(epoch) => self.round_over(epoch.time),
            // These are about their own moment, or were taken elsewhere.
            Meta::Recording(_)
            | Meta::End(_)
            | Meta::KfdEvent(_)
            | Meta::Pause(_)
            | Meta::Annotation(_) => {}
        }
    }

    /// Everything recorded before `time` has been discarded.
    fn round_over(&mut self, time: u64) {
        for (pid, ended) in self.leaving.extract_if(.., |(_, ended)| *ended < time) {
            // Another process may have its id by now.
            if let Entry::Occupied(living) = self.processes.entry(pid)
                && living.get().process.start <= ended
            {
                living.remove();
            }
        }
    }

    /// The records of a run that [`Base::records`] will need.
    pub(crate) fn tasks(run: &[u8]) -> Vec<u8> {
        let records = records::split(run).flatten();
        let tasks = records.filter(|record| record.header.kind == kind::TASK);
        tasks.flat_map(|record| record.bytes).copied().collect()
    }

    /// Remembers what records about tasks say.
    pub(crate) fn records(&mut self, tasks: &[u8]) {
        for record in records::split(tasks).flatten() {
            if let Ok(task) = Task::read_from_bytes(record.bytes) {
                self.task(&task);
            }
        }
    }

    fn task(&mut self, task: &Task) {
        let name = String::from_utf8_lossy(&task.comm);
        let name = name.trim_end_matches('\0').to_owned();
        match task.op {
            task_op::FORK => self.process(Process {
                pid: task.pid,
                parent: task.parent,
                start: task.time,
                name,
                ..Process::default()
            }),
            task_op::EXIT if task.pid == task.tid => {
                self.leaving.push((task.pid, task.time));
                push(&mut self.ended, (task.pid, task.time), ENDED);
            }
            op => {
                let Some(living) = self.processes.get_mut(&task.pid) else {
                    return;
                };
                if op == task_op::EXEC {
                    living.own.clear();
                    living.process.threads.clear();
                }
                if op != task_op::THREAD && task.tid == task.pid {
                    living.process.name.clone_from(&name);
                }
                let threads = &mut living.process.threads;
                threads.retain(|thread| thread.tid != task.tid);
                if op != task_op::EXIT {
                    let tid = task.tid;
                    threads.push(Thread { tid, name });
                }
            }
        }
    }

    fn process(&mut self, process: Process) {
        let pid = process.pid;
        let has_ended = |(ended, time): &(u32, u64)| *ended == pid && process.start <= *time;
        if self.ended.iter().any(has_ended) && !self.processes.contains_key(&pid) {
            return;
        }
        let replaces = |(ended, time): &mut (u32, u64)| *ended == pid && *time < process.start;
        let is_another = self.leaving.extract_if(.., replaces).count() > 0;
        if let Some(living) = self.living(pid) {
            if is_another {
                living.own.clear();
            }
            living.process = process;
        }
    }

    fn own(&mut self, pid: u32, what: Own, meta: Meta) {
        if self.ended.iter().any(|(ended, _)| *ended == pid) && !self.processes.contains_key(&pid) {
            return;
        }
        if let Some(living) = self.living(pid) {
            living.own.insert(what, meta);
        }
    }

    fn living(&mut self, pid: u32) -> Option<&mut Living> {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&pid) {
            self.forgotten += 1;
            return None;
        }
        let new = || Living {
            process: Process {
                pid,
                ..Process::default()
            },
            own: BTreeMap::new(),
        };
        Some(self.processes.entry(pid).or_insert_with(new))
    }

    /// The last of the discarded accounts.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// The last of the discarded readings of the host's clocks.
    pub(crate) fn clocks(&self) -> Option<ClockSnapshot> {
        self.clocks
    }

    /// Everything that is remembered, in an order in which a capture may contain it. Counters have
    /// their values at `time`, ns `CLOCK_BOOTTIME`.
    pub(crate) fn metas(&self, time: u64) -> impl Iterator<Item = Meta> {
        let processes = self.processes.values().flat_map(|living| {
            let process = Meta::from(living.process.clone());
            std::iter::once(process).chain(living.own.values().cloned())
        });
        let clocks = self.gpu_clocks.values().flatten();
        let values = (!self.values.is_empty()).then(|| {
            let values = self.values.iter().map(|(number, value)| (*number, *value));
            Meta::from(CounterValues {
                time,
                values: values.collect(),
                ..CounterValues::default()
            })
        });
        let lasting = self.lasting.iter().cloned();
        lasting
            .chain(processes)
            .chain(clocks.map(|clock| Meta::from(*clock)))
            .chain(values)
            .chain(self.notices.iter().map(|notice| notice.clone().into()))
    }
}

/// Appends, and removes the first if there are more than `most`.
fn push<T>(queue: &mut VecDeque<T>, one: T, most: usize) {
    queue.push_back(one);
    if queue.len() > most {
        queue.pop_front();
    }
}
