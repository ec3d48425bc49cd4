//! Follows processes and threads through forks, execs and renames.

use std::collections::{HashMap, VecDeque};

use gputrace_abi::record::{Task, task_op};
use gputrace_capture::meta;

use crate::model::{
    event::{Event, Lifetime, LifetimeChange, ProcessInfo, ThreadInfo},
    raw::name,
};

/// Processes alive at the current point of the timeline.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    known: HashMap<u32, ProcessInfo>,
}

impl Processes {
    /// Takes a description that the recorder wrote.
    pub(crate) fn described(&mut self, process: meta::Process, events: &mut VecDeque<Event>) {
        let meta::Process {
            pid,
            parent,
            start,
            name,
            executable,
            command,
            identity,
            threads,
        } = process;
        self.update(
            ProcessInfo {
                pid,
                parent,
                name,
                executable,
                command,
                start,
                identity,
            },
            events,
        );
        events.extend(threads.into_iter().map(|thread| {
            Event::Thread(ThreadInfo {
                pid,
                tid: thread.tid,
                name: thread.name,
            })
        }));
    }

    /// Takes a task event; returns `false` if its operation is unknown.
    pub(crate) fn task(&mut self, task: &Task, events: &mut VecDeque<Event>) -> bool {
        let Task {
            time,
            pid,
            tid,
            parent,
            ..
        } = *task;
        let name = name(&task.comm);
        let change = match task.op {
            task_op::FORK => {
                // A new process is a copy: same executable, same arguments, until it executes
                // another program.
                let origin = self.known.get(&parent).cloned().unwrap_or_default();
                let child = ProcessInfo {
                    pid,
                    parent,
                    name: name.clone(),
                    start: time,
                    identity: origin.identity.of_child(),
                    ..origin
                };
                self.update(child, events);
                self.thread(pid, tid, name, events);
                LifetimeChange::ProcessStarted { parent }
            }
            task_op::THREAD => {
                self.thread(pid, tid, name, events);
                LifetimeChange::ThreadStarted { creator: parent }
            }
            task_op::EXEC => {
                let before = self.known.get(&pid).cloned().unwrap_or_default();
                let process = ProcessInfo {
                    pid,
                    parent: before.parent,
                    start: before.start,
                    name: name.clone(),
                    identity: before.identity.after_exec(),
                    ..ProcessInfo::default()
                };
                self.update(process, events);
                // Whichever thread called exec, it is now the main thread.
                self.thread(pid, pid, name.clone(), events);
                LifetimeChange::Executed { name }
            }
            task_op::RENAME => {
                if tid == pid {
                    let before = self.known.get(&pid).cloned().unwrap_or_default();
                    self.update(
                        ProcessInfo {
                            pid,
                            name: name.clone(),
                            ..before
                        },
                        events,
                    );
                }
                self.thread(pid, tid, name.clone(), events);
                LifetimeChange::Renamed { name }
            }
            task_op::EXIT => {
                if tid == pid {
                    self.known.remove(&pid);
                }
                LifetimeChange::Exited
            }
            // These concern only the recorder.
            task_op::LINKER | task_op::NEW_IMAGE => {
                return true;
            }
            _ => return false,
        };
        events.push_back(Event::Lifetime(Lifetime {
            time,
            pid,
            tid,
            what: change,
        }));
        true
    }

    fn update(&mut self, process: ProcessInfo, events: &mut VecDeque<Event>) {
        self.known.insert(process.pid, process.clone());
        events.push_back(Event::Process(Box::new(process)));
    }

    fn thread(&self, pid: u32, tid: u32, name: String, events: &mut VecDeque<Event>) {
        events.push_back(Event::Thread(ThreadInfo { pid, tid, name }));
    }
}
