//! Synthetic captures, and the program that works on them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test code outside of #[test] functions, of which not every test uses all"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    Meta,
    meta::{ClockSnapshot, End, Mode, Recording},
};
use gputrace_timeline::{
    event::Call,
    synthetic::{Synthetic, call, ledger},
};

pub(crate) mod documents;

pub(crate) const START: u64 = 1_000_000_000;
/// When the synthetic host booted, ns since the Unix epoch.
pub(crate) const BOOT: u64 = 1_700_000_000_000_000_000;

/// A recording of one second on `host`, which booted at `boot`: ten calls of 10 ms, one every 100
/// ms, each with a call inside.
pub(crate) fn capture(directory: &Path, host: &str, boot: u64, slower: u64) -> PathBuf {
    let clocks = |boottime: u64| ClockSnapshot {
        boottime,
        realtime: if boot == 0 { 0 } else { boot + boottime },
        uncertainty: 500,
        ..ClockSnapshot::default()
    };
    let mut made = Synthetic::new(&Recording {
        hostname: host.to_owned(),
        cpus: 1,
        mode: Mode::Launch {
            command: vec![format!("./app-of-{host}")],
        },
        clocks: clocks(START),
        ..Recording::default()
    });
    made.library(
        "libamdhip64.so",
        &[
            ("hipMemcpy", Domain::HipRuntime),
            ("hsa_init", Domain::HsaCore),
        ],
    );
    let mut calls: Vec<Call> = Vec::new();
    for number in 0..10_u64 {
        let begin = START + number * 100_000_000;
        calls.push(call(2 * number + 1, begin, begin + 10_000_000 + slower));
        calls.push(Call {
            function: 1,
            domain: Domain::HsaCore.id(),
            parent: 2 * number + 1,
            depth: 1,
            ..call(2 * number + 2, begin + 1_000_000, begin + 2_000_000)
        });
    }
    calls.iter().for_each(|call| {
        made.call(call);
    });
    made.meta(Meta::Clocks(clocks(START + 1_000_000_000)));
    made.meta(Meta::Ledger(Box::new(ledger(&calls, &[]))));
    made.meta(Meta::End(End {
        time: START + 1_000_000_000,
        ..End::default()
    }));
    let path = directory.join(format!("{host}-{slower}.gtcap"));
    fs::write(&path, made.bytes()).unwrap();
    path
}

pub(crate) fn gputrace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    command.args(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
