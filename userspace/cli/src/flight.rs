//! Flight recorders: checks before one starts, and `gputrace dump-flight`.

use anyhow::Result;
use clap::Args;
use gputrace_abi::domain::Domain;
use gputrace_files::kernel;
use gputrace_session::{Finished, Request, Rule, Targets};
use gputrace_text::tables::plural;
use gputrace_tracee::process::{self, ProcessError};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{
    args::flight::LEAST,
    exit,
    recorders::{Kind, Recorder},
    say,
};

/// Options of `dump-flight`.
#[derive(Debug, Args)]
#[command(before_help = "Example: sudo gputrace dump-flight")]
pub(crate) struct DumpFlightArgs {
    /// Process ids of flight recorders (default: all of this node).
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
}

/// What makes a flight recorder impossible, as a message for the user.
pub(crate) fn check(request: &Request) -> Result<(), String> {
    let Some(flight) = &request.output.flight else {
        return Ok(());
    };
    if request.output.live.is_some() {
        let option = if flight.parts.is_some() {
            "--keep"
        } else {
            "--flight"
        };
        return Err(format!(
            "{option} writes into files what -o - would show; drop one of them"
        ));
    }
    if flight
        .parts
        .is_some_and(|parts| parts.bytes.is_none() && parts.time.is_none())
    {
        return Err(
            "--keep needs the size or the time of a capture: add --max-size 1GiB or --max-duration 10m"
                .to_owned(),
        );
    }
    let size = flight.parts.and_then(|parts| parts.bytes);
    if size.is_some_and(|size| size < LEAST) {
        return Err("with --keep, --max-size must be at least 1MiB".to_owned());
    }
    let has = |domain| request.domains.contains(&domain);
    for rule in &flight.rules {
        let missing = match rule {
            rule if rule.needs_driver() && !has(Domain::KfdEvent) => "--kfd-events",
            Rule::Kernel { .. } | Rule::Stuck { .. } if !has(Domain::KernelDispatch) => {
                "--kernel-trace"
            }
            Rule::Call { .. } | Rule::Error { .. }
                if !request.domains.iter().any(|domain| domain.is_api()) =>
            {
                "--hip-trace"
            }
            Rule::Killed if !matches!(request.targets, Targets::Launch { .. }) => {
                return Err(
                    "--dump-on killed needs a program: gputrace --flight --dump-on killed -- ./app"
                        .to_owned(),
                );
            }
            _ => continue,
        };
        return Err(format!(
            "--dump-on {rule} needs {missing}, which the other options leave out; add it"
        ));
    }
    Ok(())
}

/// Says what a flight recorder, or a recording in several files, leaves.
pub(crate) fn tell(finished: &Finished, in_parts: bool) {
    match finished.dumps.as_deref() {
        None => {}
        Some([]) if in_parts => say("no capture could be written"),
        Some(parts) if in_parts => {
            let kept = plural(parts.len() as u64, "capture was kept", "captures were kept");
            let paths: Vec<String> = parts
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            say(&format!("{kept}: {}", paths.join(", ")));
        }
        Some([]) => say("no dump was made; `gputrace dump-flight` asks for one while it records"),
        Some(dumps) => {
            let made = plural(dumps.len() as u64, "dump was made", "dumps were made");
            say(&format!(
                "{made}; `gputrace summary {}` shows the last one",
                dumps
                    .last()
                    .map(|path| path.display().to_string())
                    .unwrap_or_default()
            ));
        }
    }
}

/// Asks flight recorders for a dump.
pub(crate) fn run(args: &DumpFlightArgs) -> Result<u8> {
    let running = recorders()?;
    for pid in &args.pids {
        if !running.contains(pid) {
            let others = others(&running);
            say(&format!(
                "error: process {pid} is no flight recorder that is ready{others}"
            ));
            return Ok(exit::NO_TARGET);
        }
    }
    let chosen = if args.pids.is_empty() {
        running
    } else {
        args.pids.clone()
    };
    if chosen.is_empty() {
        say("error: no flight recorder on this node is ready; `sudo gputrace --flight` starts one");
        return Ok(exit::NO_TARGET);
    }
    for pid in chosen {
        if let Err(error) = ask(pid) {
            say(&format!(
                "error: process {pid} cannot be asked for a dump: {error}; try sudo"
            ));
            return Ok(match error {
                Errno::PERM => exit::NO_PERMISSION,
                _ => exit::NO_TARGET,
            });
        }
        say(&format!(
            "asked process {pid} for a dump; it says when and where it is written"
        ));
    }
    Ok(0)
}

fn others(running: &[u32]) -> String {
    let pids: Vec<String> = running.iter().map(u32::to_string).collect();
    match pids.as_slice() {
        [] => "; none runs on this node".to_owned(),
        pids => format!("; these are: {}", pids.join(", ")),
    }
}

fn ask(pid: u32) -> rustix::io::Result<()> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    // It may have ended, and another process have its number by now.
    if !is_recorder(pid) {
        return Err(Errno::SRCH);
    }
    pidfd_send_signal(process, Signal::USR2)
}

/// The flight recorders that run and listen to the signal.
fn recorders() -> Result<Vec<u32>, ProcessError> {
    let mut pids = process::pids()?;
    pids.retain(|pid| is_recorder(*pid));
    pids.sort_unstable();
    Ok(pids)
}

/// Whether a process is gputrace with `--flight`, and would not be ended by SIGUSR2.
fn is_recorder(pid: u32) -> bool {
    Recorder::of(pid).is_some_and(|recorder| recorder.kind == Kind::Flight)
        && kernel::read_text(format!("/proc/{pid}/status"))
            .is_ok_and(|status| catches_usr2(&status))
}

/// Whether `/proc/PID/status` says that the process catches SIGUSR2.
fn catches_usr2(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (Signal::USR2.as_raw() - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_catches_the_signal_is_asked() {
        assert!(catches_usr2("Name:\tx\nSigCgt:\t0000000000000800\n"));
        assert!(!catches_usr2("Name:\tx\nSigCgt:\t0000000000000400\n"));
        assert!(!catches_usr2("SigCgt:\tx\n"));
        assert!(!catches_usr2(""));
    }
}
