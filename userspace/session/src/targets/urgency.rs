//! Being fast where others wait.
//!
//! A thread of a launched program that has mapped a library is held, on a CPU, until gputrace has put
//! its probes on. On a busy machine gputrace would get its turn too late. So its threads run before
//! others while it records; they do little. Outputs, which take long, are made as usual.

use gputrace_files::kernel;
use rustix::process::{Pid, getpriority_process, setpriority_process};

/// The most urgent of ordinary priorities.
const URGENT: i32 = -20;

/// The threads of this process are urgent as long as this lives.
#[derive(Debug)]
pub(crate) struct Urgency {
    /// Their priority before.
    before: i32,
}

impl Urgency {
    /// Makes the threads that there are now urgent, and those that they start. Without the capability
    /// `CAP_SYS_NICE` nothing happens.
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

/// Sets the priority of each thread of this process. The kernel takes a thread's id for a process's.
fn set(priority: i32) {
    for thread in kernel::list("/proc/self/task").unwrap_or_default() {
        let id = thread.to_str().and_then(|name| name.parse().ok());
        if let Some(id) = id.and_then(Pid::from_raw) {
            // A thread that has just ended, or one that may not be changed: then it is as it was.
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
