//! Rows that other rows refer to by number: strings, processes, threads, streams.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use gputrace_export::ExportError;
use gputrace_timeline::event::{Lifetime, LifetimeChange, ProcessInfo};
use rusqlite::params;

use crate::database::Database;

/// Numbers of the strings in `rocpd_string`: only names of functions and kinds, so there are few.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    known: HashMap<String, i64, RandomState>,
    sql: String,
}

impl Strings {
    /// The number of `text`, which gets a row if it is new.
    pub(crate) fn id(&mut self, database: &Database, text: &str) -> Result<i64, ExportError> {
        if let Some(id) = self.known.get(text) {
            return Ok(*id);
        }
        if self.sql.is_empty() {
            let sql = "INSERT INTO rocpd_string{uuid} (id, string) VALUES (?, ?)";
            self.sql = database.identity.fill(sql);
        }
        let id = self.known.len() as i64 + 1;
        database.insert(&self.sql, params![id, text])?;
        self.known.insert(text.to_owned(), id);
        Ok(id)
    }
}

/// Begin and end of a lifetime, ns `CLOCK_BOOTTIME`, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
}

/// A future row of `rocpd_info_process`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) info: ProcessInfo,
    pub(crate) life: Life,
}

/// A future row of `rocpd_info_thread`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) life: Life,
}

/// The processes and threads. As in rocprofv3's databases, their rows are numbered by process id
/// and thread id. If the kernel reused an id during the recording, the row describes the last
/// process or thread that had it.
#[derive(Debug, Default)]
pub(crate) struct Who {
    pub(crate) processes: BTreeMap<u32, Process>,
    pub(crate) threads: BTreeMap<u32, Thread>,
    /// The thread seen last, because the next event is often of the same thread.
    last: Option<(u32, u32)>,
}

impl Who {
    /// Makes sure that the thread and its process get rows.
    pub(crate) fn seen(&mut self, pid: u32, tid: u32) {
        if self.last == Some((pid, tid)) {
            return;
        }
        self.last = Some((pid, tid));
        self.process(pid);
        self.thread(pid, tid);
    }

    /// Makes sure that the process gets a row.
    pub(crate) fn process(&mut self, pid: u32) -> &mut Process {
        let process = self.processes.entry(pid).or_default();
        process.info.pid = pid;
        process
    }

    fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        let thread = self.threads.entry(tid).or_default();
        thread.pid = pid;
        thread
    }

    /// Takes a description of a process.
    pub(crate) fn describe(&mut self, info: &ProcessInfo) {
        let process = self.process(info.pid);
        if info.start != 0 {
            process.life.start = Some(info.start);
        }
        // The description after an exec may lack data that still holds.
        let before = std::mem::replace(&mut process.info, info.clone());
        if process.info.executable.is_empty() && process.info.name == before.name {
            process.info.executable = before.executable;
            process.info.command = before.command;
        }
    }

    /// Takes a thread's name.
    pub(crate) fn rename(&mut self, pid: u32, tid: u32, name: &str) {
        self.process(pid);
        name.clone_into(&mut self.thread(pid, tid).name);
    }

    /// Takes the begin or end of a process or thread.
    pub(crate) fn lifetime(&mut self, lifetime: &Lifetime) {
        let Lifetime { time, pid, tid, .. } = *lifetime;
        match lifetime.what {
            LifetimeChange::ProcessStarted { .. } => {
                let life = Life {
                    start: Some(time),
                    end: None,
                };
                self.process(pid).life = life;
                self.thread(pid, tid).life = life;
            }
            LifetimeChange::ThreadStarted { .. } => {
                self.process(pid);
                self.thread(pid, tid).life = Life {
                    start: Some(time),
                    end: None,
                };
            }
            LifetimeChange::Exited => {
                self.thread(pid, tid).life.end = Some(time);
                // A process lives until its last thread ends.
                self.process(pid).life.end = Some(time);
            }
            LifetimeChange::Executed { .. } | LifetimeChange::Renamed { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_used_again_describes_its_last_bearer() {
        let mut who = Who::default();
        let change = |time, what| Lifetime {
            time,
            pid: 7,
            tid: 7,
            what,
        };
        who.lifetime(&change(10, LifetimeChange::ProcessStarted { parent: 1 }));
        who.rename(7, 7, "first");
        who.lifetime(&change(20, LifetimeChange::Exited));
        assert_eq!(
            who.processes[&7].life,
            Life {
                start: Some(10),
                end: Some(20)
            }
        );
        who.lifetime(&change(30, LifetimeChange::ProcessStarted { parent: 1 }));
        who.rename(7, 7, "second");
        assert_eq!(
            who.threads[&7].life,
            Life {
                start: Some(30),
                end: None
            }
        );
        assert_eq!(who.threads[&7].name, "second");
    }
}
