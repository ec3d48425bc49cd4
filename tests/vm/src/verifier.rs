//! The verifier's figures for each program: how much work it took, and how much stack it needs.
//!
//! Each program is loaded separately, so that a rejected program does not hide the others. Settings
//! and sizes of maps are those of a recording, because the verifier follows the values of read-only
//! data.

use std::{
    fmt, fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, anyhow};
use gputrace_abi::config::ProbeConfig;
use gputrace_loader::{
    layout::{living_threads, program_stack, task_pid},
    possible_cpus,
};
use libbpf_rs::{MapType, ObjectBuilder, OpenObject, OpenProgram, PrintLevel};
use zerocopy::IntoBytes as _;

/// `BPF_LOG_STATS` of `linux/bpf_verifier.h`: the verifier's summary, without a line per
/// instruction.
const LOG_STATS: u32 = 4;

/// libbpf's messages since the last program.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Result of loading a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The kernel accepted it.
    Loaded(Statistics),
    /// The kernel rejected it with this message.
    Refused(String),
}

/// The verifier's summary of a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    /// Number of instructions processed over all paths; the limit is a million.
    instructions: u64,
    /// Maximum number of states remembered at a time.
    peak_states: u64,
    /// Bytes of stack of the program and of each function that it calls, as the kernel prints them:
    /// `224+160`.
    stack: String,
    /// Time taken, ms.
    milliseconds: u64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded(Statistics {
                instructions,
                peak_states,
                stack,
                milliseconds,
            }) => write!(
                f,
                "instructions={instructions} peak_states={peak_states} stack={stack} ms={milliseconds}"
            ),
            Self::Refused(words) => write!(f, "refused: {words}"),
        }
    }
}

/// Loads each program of the object at `path` separately, or those whose names begin with `wanted`.
///
/// # Errors
///
/// When the object cannot be read, or the kernel lacks a feature that all of them need.
pub(crate) fn verdicts(path: &Path, wanted: Option<&str>) -> Result<Vec<(String, Verdict)>> {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| {
        SAID.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(&text);
    })));
    let object = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let names: Vec<String> = open(&object)?
        .progs()
        .filter(|program| !is_on_missing_module(program))
        .map(|program| program.name().to_string_lossy().into_owned())
        .filter(|name| wanted.is_none_or(|wanted| name.starts_with(wanted)))
        .collect();
    names
        .into_iter()
        .map(|name| Ok((name.clone(), load(&object, &name)?)))
        .collect()
}

/// Whether a program is for a function of the driver and the driver is not loaded: then the program
/// cannot be loaded either.
fn is_on_missing_module(program: &OpenProgram<'_>) -> bool {
    let section = program.section().to_string_lossy();
    let traced = section.starts_with("fentry/") || section.starts_with("fexit/");
    traced && !Path::new("/sys/kernel/btf/amdgpu").exists()
}

fn open(object: &[u8]) -> Result<OpenObject> {
    Ok(ObjectBuilder::default()
        .name("gputrace")?
        .open_memory(object)?)
}

/// Loads program `name` alone.
fn load(object: &[u8], name: &str) -> Result<Verdict> {
    let mut open = open(object)?;
    configure(&mut open)?;
    for mut program in open.progs_mut() {
        let chosen = program.name() == name;
        program.set_autoload(chosen);
        if chosen {
            program.set_log_level(LOG_STATS);
        }
    }
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let result = open.load();
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match result {
        Ok(_) => Statistics::parse(&said).map(Verdict::Loaded).ok_or_else(|| {
            anyhow!("the verifier's summary of {name} is not to be found in what libbpf says:\n{said}")
        }),
        Err(error) => Ok(Verdict::Refused(
            reason(&said).unwrap_or_else(|| error.to_string()),
        )),
    }
}

/// Sets maps and settings as for a recording: see `configure` of `gputrace-loader`.
fn configure(open: &mut OpenObject) -> Result<()> {
    let cpus = possible_cpus();
    let config = ProbeConfig {
        cpus,
        follow_forks: 1,
        wakeup_bytes: 1 << 20,
        task_pid: task_pid()?,
        task_mm: program_stack().0,
        mm_start_stack: program_stack().1,
        wakeup_mask: 63,
        calls_per_window: 1_000_000,
        idle_threads: 1024,
        task_signal: living_threads().0,
        signal_live: living_threads().1,
        every_library: 0,
        busy_cpus: 1,
    };
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".config") {
            map.set_initial_value(config.as_bytes())?;
        } else if map.map_type() == MapType::ArrayOfMaps {
            map.set_max_entries(cpus)?;
        }
    }
    Ok(())
}

impl Statistics {
    /// Finds the verifier's summary in its log:
    ///
    /// ```text
    /// verification time 3021 usec
    /// stack depth 208+160
    /// processed 9120 insns (limit 1000000) max_states_per_insn 4 total_states 301 peak_states 120 mark_read 31
    /// ```
    fn parse(log: &str) -> Option<Self> {
        let mut found = Self::default();
        let mut complete = false;
        for line in log.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["verification", "time", microseconds, ..] => {
                    found.milliseconds = microseconds.parse::<u64>().ok()?.div_ceil(1000);
                }
                ["stack", "depth", depth, ..] => found.stack = (*depth).to_owned(),
                ["processed", instructions, "insns", rest @ ..] => {
                    found.instructions = instructions.parse().ok()?;
                    let at = rest.iter().position(|word| *word == "peak_states")?;
                    found.peak_states = rest.get(at + 1)?.parse().ok()?;
                    complete = true;
                }
                _ => {}
            }
        }
        complete.then_some(found)
    }
}

/// The line in the log of a rejected program that gives the reason: the last one before the
/// summary.
fn reason(log: &str) -> Option<String> {
    let mut reason = None;
    let mut inside = false;
    for line in log.lines() {
        if line.contains("BEGIN PROG LOAD LOG") {
            inside = true;
        } else if line.contains("END PROG LOAD LOG") {
            break;
        } else if inside
            && !["processed ", "verification time ", "stack depth "]
                .iter()
                .any(|start| line.starts_with(start))
        {
            reason = Some(line.to_owned());
        }
    }
    let summary = Statistics::parse(log)
        .map(|statistics| format!(" (after {} instructions)", statistics.instructions))
        .unwrap_or_default();
    reason.map(|words| words + &summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "libbpf: prog 'call_enter': BPF program load failed: -EACCES\n\
        libbpf: prog 'call_enter': -- BEGIN PROG LOAD LOG --\n\
        combined stack size of 3 calls is 640. Too large\n\
        verification time 5000001 usec\n\
        stack depth 208+208+160\n\
        processed 794490 insns (limit 1000000) max_states_per_insn 31 total_states 18801 peak_states 8589 mark_read 61\n\
        -- END PROG LOAD LOG --\n";

    #[test]
    fn the_summary_is_found() {
        assert_eq!(
            Statistics::parse(REFUSED),
            Some(Statistics {
                instructions: 794_490,
                peak_states: 8589,
                stack: "208+208+160".to_owned(),
                milliseconds: 5001,
            })
        );
        for none in ["", "processed x insns", "processed 4 insns peak_states"] {
            assert_eq!(Statistics::parse(none), None, "{none}");
        }
    }

    #[test]
    fn a_refusal_is_given_in_the_verifiers_words() {
        assert_eq!(
            reason(REFUSED).unwrap(),
            "combined stack size of 3 calls is 640. Too large (after 794490 instructions)"
        );
        assert_eq!(reason("libbpf: no BTF"), None);
    }
}
