//! Runs a target over all inputs of a directory.

use std::any::Any;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// No input may take so long on a processor: hundreds of times what the slowest takes. Time spent
/// waiting for a processor does not count, so a busy machine fails no input.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The least stack that threads of gputrace have.
const STACK: usize = 2 << 20;

/// How often a thread that takes long is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The committed inputs of all targets.
#[must_use]
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Runs a target over the files of `directory`, in the order of their names; how many there are.
///
/// # Errors
///
/// Says which inputs the target panicked on. Says on which one it took longer than `limit` on a
/// processor; those behind it are not run. A directory that is missing or empty is an error, too.
pub fn replay(directory: &Path, run: fn(&[u8]), limit: Duration) -> Result<usize, String> {
    let inputs = inputs(directory)?;
    let mut findings = Vec::new();
    for path in &inputs {
        let input = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        match run_one(path, input, run, limit) {
            Outcome::Well => {}
            Outcome::Panicked(why) => findings.push(format!("{}: {why}", path.display())),
            Outcome::Endless => {
                let path = path.display();
                findings.push(format!("{path}: not done after {limit:?} on a processor"));
                // Its thread cannot be ended, and would take the others' processor.
                break;
            }
        }
    }
    if findings.is_empty() {
        Ok(inputs.len())
    } else {
        Err(findings.join("\n"))
    }
}

fn inputs(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    if paths.is_empty() {
        return Err(format!("{}: no inputs", directory.display()));
    }
    paths.sort();
    Ok(paths)
}

enum Outcome {
    Well,
    Panicked(String),
    Endless,
}

/// Each input has a thread of its own that is called like it: where a thread overflows its stack,
/// its name is all that is ever said.
fn run_one(path: &Path, input: Vec<u8>, run: fn(&[u8]), limit: Duration) -> Outcome {
    let number = Arc::new(AtomicI32::new(0));
    let (over, is_over) = channel::<()>();
    let worker = thread::Builder::new()
        .name(path.display().to_string())
        .stack_size(STACK)
        .spawn({
            let number = Arc::clone(&number);
            move || {
                // Dropped when the input is done with, also by a panic.
                let _over = over;
                number.store(
                    rustix::thread::gettid().as_raw_nonzero().get(),
                    Ordering::Relaxed,
                );
                run(&input);
            }
        })
        .expect("a thread can be started");
    while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let spent = processor_time(number.load(Ordering::Relaxed));
        if spent.is_some_and(|spent| spent > limit) {
            return Outcome::Endless;
        }
    }
    match worker.join() {
        Ok(()) => Outcome::Well,
        Err(why) => Outcome::Panicked(message(why.as_ref())),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked".to_owned())
}

/// The time of processors that a thread of this process has had; `None` if it has ended.
fn processor_time(thread: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name, in brackets, can hold anything. Behind it: user and system time are fields 14 and
    // 15, counted from 1, and the state is field 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(Duration::from_millis(
        ticks * 1000 / rustix::param::clock_ticks_per_second(),
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn directory(inputs: &[(&str, &[u8])]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, input) in inputs {
            fs::write(directory.path().join(name), input).expect("a file");
        }
        directory
    }

    /// Ends what would go on without end, when it has been found.
    static IS_OVER: AtomicBool = AtomicBool::new(false);

    fn picky(input: &[u8]) {
        match input {
            b"bad" => panic!("bad input"),
            b"endless" => {
                while !IS_OVER.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_input_is_run() {
        let directory = directory(&[("a", b"good"), ("b", b"")]);
        assert_eq!(replay(directory.path(), picky, LIMIT), Ok(2));
    }

    #[test]
    fn inputs_that_panic_are_named() {
        let directory = directory(&[("3", b"bad"), ("1", b"bad"), ("2", b"good")]);
        let findings = replay(directory.path(), picky, LIMIT).expect_err("two are bad");
        let named: Vec<&str> = findings
            .lines()
            .filter_map(|line| line.rsplit_once('/').map(|(_, end)| end))
            .collect();
        assert_eq!(named, ["1: bad input", "3: bad input"]);
    }

    #[test]
    fn an_input_without_end_is_named() {
        let directory = directory(&[("1", b"endless"), ("2", b"bad")]);
        let limit = Duration::from_millis(200);
        let finding = replay(directory.path(), picky, limit).expect_err("one never ends");
        IS_OVER.store(true, Ordering::Relaxed);
        assert!(
            finding.ends_with("/1: not done after 200ms on a processor"),
            "{finding}"
        );
    }

    #[test]
    fn no_inputs_are_no_success() {
        let directory = directory(&[]);
        assert!(replay(directory.path(), picky, LIMIT).is_err());
        assert!(replay(&directory.path().join("none"), picky, LIMIT).is_err());
    }
}
