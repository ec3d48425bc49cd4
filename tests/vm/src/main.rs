//! Queries of the running kernel, which `cargo xtask vm --suite` makes inside each of its virtual
//! machines:
//!
//! ```text
//! gputrace-vm verifier PROBES.o [PREFIX]   what the kernel's verifier makes of each eBPF program   (module `verifier`)
//! gputrace-vm kfd                 whether /dev/kfd answers, and with which version         (module `kfd`)
//! gputrace-vm ioctls LOG          makes every request to /dev/kfd and writes them down      (module `ioctls`)
//! gputrace-vm check-ioctls LOG CAPTURE   holds a recording of that against what it has written down
//! gputrace-vm check-sides NDJSON  holds ioctls against the calls of the runtime that made them (module `sides`)
//! ```
//!
//! Results go to standard output, one line each, which xtask reads. It works on any machine on
//! which gputrace works, so figures of a guest can be compared with the host's.

mod ioctls;
mod kfd;
mod sides;
mod verifier;

use std::{env, io::Write as _, path::Path, process::ExitCode};

use anyhow::{Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true if everything is as expected.
fn run() -> Result<bool> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut output = std::io::stdout().lock();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["verifier", object, wanted @ ..] => {
            let mut all_loaded = true;
            for (program, verdict) in
                verifier::verdicts(Path::new(object), wanted.first().copied())?
            {
                all_loaded &= matches!(verdict, verifier::Verdict::Loaded(_));
                writeln!(output, "{program} {verdict}")?;
            }
            Ok(all_loaded)
        }
        ["kfd"] => {
            writeln!(output, "{}", kfd::version()?)?;
            Ok(true)
        }
        ["ioctls", log] => ioctls::issue(Path::new(log)).map(|()| true),
        ["check-ioctls", log, capture] => {
            writeln!(
                output,
                "{}",
                ioctls::check(Path::new(log), Path::new(capture))?
            )?;
            Ok(true)
        }
        ["check-sides", lines] => {
            writeln!(output, "{}", sides::check(Path::new(lines))?)?;
            Ok(true)
        }
        _ => bail!(
            "usage: gputrace-vm verifier PROBES.o [PREFIX] | kfd | ioctls LOG | check-ioctls LOG CAPTURE | check-sides NDJSON"
        ),
    }
}
