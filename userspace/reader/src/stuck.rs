//! The processes that have not answered, and how long they are skipped.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use gputrace_files::kernel;

/// How long a process is skipped the first time, and at most.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(1);

/// Maximum number of processes remembered. Each has cost a wait, so there are never many.
const ROOM: usize = 1024;

#[derive(Debug)]
struct Process {
    /// Start time in `/proc/PID/stat`: another process may get the same id.
    began: Option<u64>,
    until: Instant,
    pause: Duration,
    /// Whether [`take`] has returned the process.
    is_told: bool,
}

static PROCESSES: Mutex<Option<HashMap<u32, Process>>> = Mutex::new(None);

/// Number of processes, so that nobody takes the lock as long as there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn lock() -> MutexGuard<'static, Option<HashMap<u32, Process>>> {
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of processes that do not answer.
pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Whether a process is being skipped.
pub(crate) fn is_left_alone(pid: u32, now: Instant) -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut processes = lock();
    let Some(processes) = processes.as_mut() else {
        return false;
    };
    let Entry::Occupied(entry) = processes.entry(pid) else {
        return false;
    };
    if entry.get().began != began(pid) {
        entry.remove();
        COUNT.store(processes.len(), Ordering::Relaxed);
        return false;
    }
    now < entry.get().until
}

/// Adds a process that has not answered.
pub(crate) fn add(pid: u32, now: Instant) {
    let mut processes = lock();
    let processes = processes.get_or_insert_default();
    if processes.len() >= ROOM
        && !processes.contains_key(&pid)
        && let Some(oldest) = processes.iter().min_by_key(|(_, process)| process.until)
    {
        let oldest = *oldest.0;
        processes.remove(&oldest);
    }
    let process = processes.entry(pid).or_insert_with(|| Process {
        began: began(pid),
        until: now,
        pause: FIRST / 2,
        is_told: false,
    });
    process.pause = (process.pause * 2).min(MOST);
    process.until = now + process.pause;
    COUNT.store(processes.len(), Ordering::Relaxed);
}

/// See [`crate::take_stuck`].
pub(crate) fn take() -> Vec<u32> {
    let mut processes = lock();
    let untold = processes
        .iter_mut()
        .flatten()
        .filter(|(_, process)| !process.is_told);
    untold
        .map(|(pid, process)| {
            process.is_told = true;
            *pid
        })
        .collect()
}

/// Start time of a process: field 22 of `/proc/PID/stat`, which never blocks.
fn began(pid: u32) -> Option<u64> {
    let stat = kernel::read(format!("/proc/{pid}/stat")).ok()?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_left_alone_for_longer_each_time() {
        let (pid, now) = (std::process::id(), Instant::now());
        assert!(!is_left_alone(pid, now));
        add(pid, now);
        assert!(is_left_alone(pid, now + FIRST / 2));
        assert!(!is_left_alone(pid, now + FIRST));
        add(pid, now);
        assert!(is_left_alone(pid, now + FIRST));
        assert!(!is_left_alone(pid, now + FIRST * 2));
        for _ in 0..20 {
            add(pid, now);
        }
        assert!(!is_left_alone(pid, now + MOST));
        assert!(take().contains(&pid));
        assert!(!take().contains(&pid), "told once");
        // Filled with processes that are gone; only the room is limited.
        for other in 0..2 * ROOM as u32 {
            add((1 << 30) + other, now + MOST * 2);
        }
        assert!(COUNT.load(Ordering::Relaxed) <= ROOM);
    }
}
