//! Decides which task events belong to the recording. The eBPF programs skip those of other
//! processes. Some that they report anyway (gputrace's own, and those of children that are not
//! followed) are left out here.

use std::collections::HashSet;

use gputrace_abi::record::{Task, task_op};
use gputrace_loader::tasks::Known;

/// The processes whose task events are kept.
#[derive(Debug, Default)]
pub(crate) struct Relevant {
    pids: HashSet<u32>,
    follow_forks: bool,
    /// The process looked up last; records of one process often come in a row.
    last: Option<u32>,
    /// The eBPF programs' set of processes, if the programs are loaded.
    known: Option<Known>,
    /// Number of processes for which that set had no room, so that their events are missing.
    pub(crate) refused: u64,
}

impl Relevant {
    pub(crate) fn new(follow_forks: bool, known: Option<Known>) -> Self {
        Self {
            follow_forks,
            known,
            ..Self::default()
        }
    }

    /// Adds a process. Returns true if it is new.
    pub(crate) fn add(&mut self, pid: u32) -> bool {
        if self.last == Some(pid) {
            return false;
        }
        self.last = Some(pid);
        let is_new = self.pids.insert(pid);
        if is_new
            && let Some(known) = &mut self.known
            && !known.add(pid)
        {
            self.refused += 1;
        }
        is_new
    }

    /// Whether to keep `task`. Follows forks and exits.
    pub(crate) fn keep(&mut self, task: &Task) -> bool {
        match task.op {
            task_op::FORK => {
                // The creator's fork of a child is kept in any case; the child's own events only if
                // it is traced.
                let creator = self.pids.contains(&task.parent);
                if creator && self.follow_forks {
                    self.pids.insert(task.pid);
                }
                creator
            }
            task_op::EXIT if task.pid == task.tid => {
                if self.last == Some(task.pid) {
                    self.last = None;
                }
                self.pids.remove(&task.pid)
            }
            _ => self.pids.contains(&task.pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_abi::record::{RecordHeader, kind};

    fn task(op: u8, pid: u32, tid: u32, parent: u32) -> Task {
        Task {
            header: RecordHeader {
                size: 48,
                kind: kind::TASK,
                domain: 0,
                cpu: 0,
            },
            time: 0,
            pid,
            tid,
            parent,
            op,
            held: 0,
            reserved: [0; 2],
            comm: [0; 16],
        }
    }

    #[test]
    fn follows_only_relevant_families() {
        let mut relevant = Relevant::new(true, None);
        assert!(relevant.add(10));
        assert!(!relevant.add(10));
        assert!(!relevant.keep(&task(task_op::FORK, 21, 21, 20)));
        assert!(relevant.keep(&task(task_op::FORK, 11, 11, 10)));
        assert!(relevant.keep(&task(task_op::EXEC, 11, 11, 11)));
        assert!(relevant.keep(&task(task_op::EXIT, 11, 12, 0)));
        assert!(relevant.keep(&task(task_op::EXIT, 11, 11, 0)));
        assert!(!relevant.keep(&task(task_op::RENAME, 11, 11, 0)));
        assert!(relevant.keep(&task(task_op::THREAD, 10, 99, 10)));
    }
}
