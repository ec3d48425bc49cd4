//! Raises gputrace's priority while a target may be waiting for it.
//!
//! A thread of a launched program that has mapped a library is held, on a CPU, until gputrace has
//! attached its probes. On a busy machine gputrace would be scheduled too late, so its threads have
//! priority over others while it records; they do little. Outputs, which take long, are made at the
//! ordinary priority.

use gputrace_files::kernel;
use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The highest non-real-time priority.
const URGENT: i32 = -20;

/// Raises the priority of this process's threads as long as it lives.
#[derive(Debug)]
pub(crate) struct Urgency {
    /// Priority before.
    before: i32,
}

impl Urgency {
    /// Raises the priority of all current threads, and of those that they start. Does nothing
    /// without the capability `CAP_SYS_NICE`.
    pub(crate) fn begin() -> Self {
        let before = getpriority_process(None).unwrap_or_default();
        set(URGENT);
        Self { before }
    }
}

impl Drop for Urgency {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Sets the priority of each thread of this process. The system call accepts a thread id as well as
/// a process id.
fn set(priority: i32) {
    for thread in kernel::list("/proc/self/task").unwrap_or_default() {
        let id = thread.to_str().and_then(|name| name.parse().ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            // The thread may just have ended, or may not be changed; then its priority stays.
            let _ = setpriority_process(Some(id), priority);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_urgent_until_the_end() {
        let before = getpriority_process(None).unwrap();
        if before != 0
            || setpriority_process(None, before).is_err()
            || !rustix::process::geteuid().is_root()
        {
            return gputrace_skip::skipped("neither root, nor a priority that may be changed");
        }
        let urgency = Urgency::begin();
        assert_eq!(getpriority_process(None).unwrap(), URGENT);
        let inherited = std::thread::spawn(|| getpriority_process(None).unwrap());
        assert_eq!(inherited.join().unwrap(), URGENT);
        drop(urgency);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
