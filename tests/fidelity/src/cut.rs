//! State of a program when gputrace attached.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt as _};

use anyhow::{Context as _, Result, bail};

use crate::truth::AqlQueue;

/// Offset of `write_dispatch_id` in an `amd_queue_t` (`amd_hsa_queue.h`).
const WRITE_INDEX: u64 = 56;

/// The moment from which a recording must be complete. The program was stopped at that time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The time in ns of `CLOCK_BOOTTIME`.
    pub time: u64,
    /// Write indices of the existing queues, by process and KFD queue number. For queues already
    /// destroyed, the highest possible index.
    pub write_indices: BTreeMap<(u32, u32), u64>,
    /// Number of threads of each process.
    pub threads: BTreeMap<u32, usize>,
}

impl Cut {
    /// Reads the state of stopped processes.
    ///
    /// # Errors
    ///
    /// If the memory of a process cannot be read.
    pub fn take(time: u64, pids: &[u32], queues: &[AqlQueue]) -> Result<Self> {
        let mut cut = Self {
            time,
            ..Self::default()
        };
        for pid in pids {
            let threads =
                std::fs::read_dir(format!("/proc/{pid}/task")).context("a stopped process")?;
            cut.threads.insert(*pid, threads.count());
        }
        for queue in queues.iter().filter(|queue| pids.contains(&queue.pid)) {
            let memory =
                File::open(format!("/proc/{}/mem", queue.pid)).context("a stopped process")?;
            let mut word = [0; 8];
            let read = memory.read_exact_at(&mut word, queue.address + WRITE_INDEX);
            // A queue's memory goes with the queue; nothing is submitted to it any more.
            let is_gone = queue.ended || read.is_err();
            let write_index = if is_gone {
                u64::MAX
            } else {
                u64::from_le_bytes(word)
            };
            cut.write_indices
                .insert((queue.pid, queue.number), write_index);
        }
        Ok(cut)
    }

    /// As text, for [`Cut::parse`]: a line for each number.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("time {}\n", self.time);
        for ((pid, queue), index) in &self.write_indices {
            text.push_str(&format!("queue {pid} {queue} {index}\n"));
        }
        for (pid, threads) in &self.threads {
            text.push_str(&format!("threads {pid} {threads}\n"));
        }
        text
    }

    /// Reads what [`Cut::text`] wrote.
    ///
    /// # Errors
    ///
    /// Names the line that is not of it.
    pub fn parse(text: &str) -> Result<Self> {
        let mut cut = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let what = words.next().unwrap_or_default();
            let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
            let numbers = numbers.with_context(|| line.to_owned())?;
            match (what, numbers.as_slice()) {
                ("time", [time]) => cut.time = *time,
                ("queue", [pid, queue, index]) => {
                    let queue = (u32::try_from(*pid)?, u32::try_from(*queue)?);
                    cut.write_indices.insert(queue, *index);
                }
                ("threads", [pid, threads]) => {
                    cut.threads
                        .insert(u32::try_from(*pid)?, usize::try_from(*threads)?);
                }
                _ => bail!("not of a cut: {line:?}"),
            }
        }
        Ok(cut)
    }

    /// Whether the packet at `index` of a queue was certainly submitted after the cut.
    #[must_use]
    pub fn is_after(&self, pid: u32, queue: u32, index: u64) -> bool {
        self.write_indices
            .get(&(pid, queue))
            .is_none_or(|write_index| index >= *write_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_read_back() {
        let cut = Cut {
            time: 17,
            write_indices: BTreeMap::from([((1, 2), 3), ((1, 4), u64::MAX)]),
            threads: BTreeMap::from([(1, 5)]),
        };
        assert_eq!(Cut::parse(&cut.text()).unwrap(), cut);
        for wrong in ["time", "time 1 2", "queue 1 2", "threads 1 x", "what 1"] {
            assert!(Cut::parse(wrong).is_err(), "{wrong}");
        }
    }
}
