//! Handles Ctrl-C and similar signals while outputs are made from captures: no unfinished files are
//! left.
//!
//! A thread waits for the signals and acts on its own when one comes, whatever the other threads
//! are doing: building an index takes a minute, during which no exporter could be asked to stop.
//! Recordings handle signals differently, because they must be completed (`gputrace-session`).

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
};

use gputrace_export::abandon;
use gputrace_text::terminal;

use crate::{exit, say};

/// The signals with their names.
const SIGNALS: [(libc::c_int, &str); 3] = [
    (libc::SIGINT, "SIGINT"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGHUP, "SIGHUP"),
];

/// From now on, a signal removes all unfinished files and then ends this process with status 128
/// plus its number. Must be called before other threads exist.
pub(crate) fn leave_nothing() {
    handle(wait);
}

/// From now on, the first signal only sets the returned flag, for code that has processes to end
/// and files to remove. A second signal ends this process as in [`leave_nothing`]. Must be called
/// before other threads exist.
pub(crate) fn noted() -> Noted {
    let noted = Noted::default();
    let shared = noted.clone();
    handle(move |set| {
        let mut signal = 0;
        // SAFETY: both are alive. It fails only for a set without valid signals.
        if unsafe { libc::sigwait(set, &mut signal) } == 0 {
            shared.signal.store(signal, Ordering::Relaxed);
            shared.flag.store(true, Ordering::Release);
            wait(set);
        }
    });
    noted
}

/// A signal that may have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// Whether one has come.
    pub(crate) flag: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Noted {
    /// The exit status after the signal; `None` as long as none has come.
    pub(crate) fn status(&self) -> Option<u8> {
        let has_come = self.flag.load(Ordering::Acquire);
        has_come.then(|| status(self.signal.load(Ordering::Relaxed)))
    }
}

/// The exit status after a signal, as shells report it.
fn status(signal: libc::c_int) -> u8 {
    u8::try_from(128 + signal).unwrap_or(exit::FAILURE)
}

/// Starts a thread that waits for signals. They are blocked in all other threads, and in processes
/// that these start unless those processes unblock them.
fn handle(wait: impl FnOnce(&libc::sigset_t) + Send + 'static) {
    // SAFETY: an all-zero set is a valid value of this plain C struct.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for (signal, _) in SIGNALS {
        if !is_ignored(signal) {
            // SAFETY: the set is alive, and the number is that of a signal.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
    }
    mask(libc::SIG_BLOCK, &set);
    let waiting = std::thread::Builder::new().name("signals".to_owned());
    // Without the thread, signals end the process as by default.
    if waiting.spawn(move || wait(&set)).is_err() {
        mask(libc::SIG_UNBLOCK, &set);
    }
}

/// A shell without job control starts `command &` with SIGINT ignored, so that Ctrl-C does not
/// reach it; nohup ignores SIGHUP.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero action is a valid value of this plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only queries the action; the structure is alive.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

fn mask(how: libc::c_int, set: &libc::sigset_t) {
    // SAFETY: the set is alive; the old mask is not requested.
    unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) };
}

fn wait(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: both are alive. It fails only for a set without valid signals.
    if unsafe { libc::sigwait(set, &mut signal) } != 0 {
        return;
    }
    let complete = abandon();
    let name = SIGNALS.iter().find(|(number, _)| *number == signal);
    let name = name.map_or("a signal", |(_, name)| *name);
    terminal::erase_line();
    say(&farewell(name, &complete));
    // SAFETY: ends the process without running code of the other threads, which are still working.
    unsafe { libc::_exit(status(signal).into()) };
}

fn farewell(signal: &str, complete: &[impl AsRef<Path>]) -> String {
    if complete.is_empty() {
        return format!("interrupted ({signal}); no file was left behind");
    }
    let names: Vec<String> = complete
        .iter()
        .map(|path| path.as_ref().display().to_string())
        .collect();
    format!(
        "interrupted ({signal}); no unfinished file was left behind; complete files: {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_status() {
        let noted = Noted::default();
        assert_eq!(noted.status(), None);
        noted.signal.store(libc::SIGTERM, Ordering::Relaxed);
        noted.flag.store(true, Ordering::Release);
        assert_eq!(noted.status(), Some(143));
        assert_eq!(status(libc::SIGINT), 130);
    }

    #[test]
    fn what_is_complete_is_named() {
        assert_eq!(
            farewell("SIGINT", &[] as &[&str]),
            "interrupted (SIGINT); no file was left behind"
        );
        assert!(farewell("SIGTERM", &["a.csv", "b.csv"]).ends_with("complete files: a.csv, b.csv"));
    }
}
