//! Ctrl-C and the like while outputs are made of captures: nothing unfinished stays behind.
//!
//! A thread waits for the signals. It needs nobody's help when one comes, so that it does not matter what the others are at:
//! building an index takes a minute in which no exporter could be asked to stop. Recordings do otherwise, since theirs
//! is to be completed (`gputrace-session`).

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gputrace_export::abandon;
use gputrace_text::terminal;

use crate::say;

/// The signals, as people know them.
const SIGNALS: [(libc::c_int, &str); 3] = [
    (libc::SIGINT, "SIGINT"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGHUP, "SIGHUP"),
];

/// From now on a signal ends this process, by status 128 and its number, after all unfinished files have been removed. To
/// be called before there are other threads.
pub(crate) fn leave_nothing() {
    handle(wait);
}

/// From now on the first signal only sets the flag that is returned, for whoever has processes to end and files to remove; a
/// second one ends this process as [`leave_nothing`] does. To be called before there are other threads.
pub(crate) fn noted() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&flag);
    handle(move |set| {
        let mut signal = 0;
        // SAFETY: both are alive. It fails only for a set without valid signals.
        if unsafe { libc::sigwait(set, &mut signal) } == 0 {
            noted.store(true, Ordering::Relaxed);
            wait(set);
        }
    });
    flag
}

/// Has a thread of its own wait for signals. They are blocked in all others, and in processes that these start unless these
/// unblock them.
fn handle(wait: impl FnOnce(&libc::sigset_t) + Send + 'static) {
    // SAFETY: an all-zero set is a valid value of this plain C struct.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for (signal, _) in SIGNALS {
        if !is_ignored(signal) {
            // SAFETY: the set is alive, and the number that of a signal.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
    }
    mask(libc::SIG_BLOCK, &set);
    let waiting = std::thread::Builder::new().name("signals".to_owned());
    // Without the thread, signals end the process as they always did.
    if waiting.spawn(move || wait(&set)).is_err() {
        mask(libc::SIG_UNBLOCK, &set);
    }
}

/// A shell without job control starts `command &` so that Ctrl-C does not reach it; nohup does the same.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero action is a valid value of this plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; the structure is alive.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

fn mask(how: libc::c_int, set: &libc::sigset_t) {
    // SAFETY: the set is alive; the old mask is not asked for.
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
    // SAFETY: ends the process without running anything of the other threads, which are at work.
    unsafe { libc::_exit(128 + signal) };
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
        "interrupted ({signal}); no unfinished file was left behind, complete are {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_complete_is_named() {
        assert_eq!(
            farewell("SIGINT", &[] as &[&str]),
            "interrupted (SIGINT); no file was left behind"
        );
        assert!(farewell("SIGTERM", &["a.csv", "b.csv"]).ends_with("complete are a.csv, b.csv"));
    }
}
