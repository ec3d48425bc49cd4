//! What really happened, from the logs of the software GPU and of the workloads.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Result, ensure};
use gputrace_harness::{
    is_own, launch_of,
    said::{self, Launch, Said},
};
use gputrace_softgpu::truth::{Copy, Dispatch, QueueKind, Record, Scratch, read_directory};

/// An AQL queue of the software GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AqlQueue {
    /// Process id.
    pub pid: u32,
    /// Queue number assigned by KFD.
    pub number: u32,
    /// Address of `amd_queue_t` in the process.
    pub address: u64,
    /// Whether it was destroyed.
    pub ended: bool,
}

/// Everything logged while a workload ran.
#[derive(Debug, Default)]
pub struct Truth {
    /// Kernels executed by the GPU.
    pub dispatches: Vec<Dispatch>,
    /// Copies done by the GPU's engines.
    pub copies: Vec<Copy>,
    /// The runtime's answers to requests for scratch memory.
    pub scratch: Vec<Scratch>,
    /// AQL queues.
    pub queues: Vec<AqlQueue>,
    /// The workload's log of its launches, in order.
    pub launches: Vec<Launch>,
    /// ROCr's own queues, by process and KFD queue number; see the crate's rules.
    pub internal: BTreeSet<(u32, u32)>,
    /// What was unknown to the software GPU.
    pub unknown: Vec<String>,
}

impl Truth {
    /// Reads the software GPU's logs in `directory`, and the workload's log `said`, which may be
    /// missing.
    ///
    /// # Errors
    ///
    /// If a log cannot be read.
    pub fn read(directory: &Path, said: &Path) -> Result<Self> {
        let mut truth = Self::default();
        for record in read_directory(directory)? {
            match record {
                Record::Dispatch(dispatch) => truth.dispatches.push(dispatch),
                Record::Copy(copy) => truth.copies.push(copy),
                Record::Scratch(scratch) => truth.scratch.push(scratch),
                Record::Queue {
                    pid,
                    queue,
                    kind: QueueKind::Aql,
                    address,
                    ..
                } => truth.queues.push(AqlQueue {
                    pid,
                    number: queue,
                    address,
                    ended: false,
                }),
                Record::QueueEnd { pid, queue, .. } => {
                    let ended = |one: &&mut AqlQueue| (one.pid, one.number) == (pid, queue);
                    if let Some(ended) = truth.queues.iter_mut().find(ended) {
                        ended.ended = true;
                    }
                }
                Record::Unknown { what, .. } => truth.unknown.push(what.into_owned()),
                _ => {}
            }
        }
        truth.internal = internal(&truth.dispatches);
        truth.launches = said::read(said)?
            .into_iter()
            .filter_map(|said| match said {
                Said::Kernel(launch) => Some(launch),
                _ => None,
            })
            .collect();
        Ok(truth)
    }

    /// Checks that the workload did what its log says. Otherwise there is nothing to compare a
    /// recording with.
    ///
    /// # Errors
    ///
    /// Describes the difference.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.unknown.is_empty(),
            "the software GPU met {:?}",
            self.unknown
        );
        let own = self
            .dispatches
            .iter()
            .filter(|dispatch| is_own(&dispatch.kernel));
        let mut ran: Vec<Launch> = own.map(launch_of).collect();
        let mut said = self.launches.clone();
        ran.sort();
        said.sort();
        ensure!(
            ran == said,
            "the program says that it launched {} kernels, the GPU executed {}",
            said.len(),
            ran.len()
        );
        Ok(())
    }

    /// Whether a dispatch was in one of ROCr's own queues.
    #[must_use]
    pub fn is_internal(&self, dispatch: &Dispatch) -> bool {
        self.internal
            .contains(&(dispatch.place.pid, dispatch.place.queue))
    }
}

/// Queues that carried only kernels of code that ROCr does not list.
fn internal(dispatches: &[Dispatch]) -> BTreeSet<(u32, u32)> {
    let mut named: BTreeMap<(u32, u32), bool> = BTreeMap::new();
    for dispatch in dispatches {
        *named
            .entry((dispatch.place.pid, dispatch.place.queue))
            .or_default() |= !dispatch.kernel.is_empty();
    }
    let unnamed = named.into_iter().filter(|(_, named)| !named);
    unnamed.map(|(queue, _)| queue).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_softgpu::truth::{Place, Stamp};

    use super::*;

    fn dispatch(queue: u32, kernel: &str) -> Dispatch {
        Dispatch {
            place: Place {
                pid: 1,
                agent: 0,
                queue,
                index: 0,
            },
            hsa_queue: 0,
            kernel_object: 0,
            kernel: kernel.into(),
            grid: [1; 3],
            workgroup: [1; 3],
            begin: Stamp::default(),
            end: None,
            signal: 0,
            stamped: false,
            fault: None,
        }
    }

    #[test]
    fn a_queue_with_one_listed_kernel_is_not_internal() {
        let found = internal(&[
            dispatch(1, ""),
            dispatch(2, ""),
            dispatch(2, "listed"),
            dispatch(3, "__amd_rocclr_copyBuffer"),
        ]);
        assert_eq!(found, BTreeSet::from([(1, 1)]));
    }

    #[test]
    fn what_ran_must_be_what_was_launched() {
        let mut truth = Truth {
            dispatches: vec![dispatch(1, "a"), dispatch(1, "__amd_rocclr_fillBuffer")],
            ..Truth::default()
        };
        assert!(truth.check().is_err());
        truth.launches.push(launch_of(&dispatch(9, "a")));
        truth.check().unwrap();
    }
}
