//! Recordings that go on: the flight recorder's dumps, and files that follow each other.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Command, Output},
};

use gputrace_abi::domain::Domain;
use gputrace_capture::{flight::Dump, meta::EndReason};
use gputrace_e2e::{
    Bench, Outputs, Running, Trace,
    process::{PATIENCE, eventually, now, unnamed},
};
use gputrace_timeline::event::CallEnd;
use rustix::process::Signal;

const SECOND: u64 = 1_000_000_000;

/// Asks for a dump.
fn ask(bench: &Bench, pid: u32) -> Output {
    let mut command = bench.gputrace_bare();
    command.args(["dump-flight", &pid.to_string()]);
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{error}"))
}

fn dump(outputs: &Outputs, number: u32) -> PathBuf {
    outputs.file(&format!("_dump-{number}.gtcap"))
}

fn about(trace: &Trace) -> &Dump {
    let about = trace.recording.dump.as_deref();
    about.unwrap_or_else(|| panic!("the capture is no dump: {:?}", trace.recording))
}

fn reason(trace: &Trace) -> Option<&EndReason> {
    trace.end.as_ref().map(|end| &end.reason)
}

/// The account says what is in the dump.
fn account_is_of(trace: &Trace) {
    assert_eq!(trace.truncation, None);
    let ledger = trace.ledger.as_ref();
    let ledger = ledger.unwrap_or_else(|| panic!("no account"));
    let mut counted: BTreeMap<(u32, u8), (u64, u64)> = BTreeMap::new();
    for call in &trace.calls {
        let counts = counted.entry((call.cpu, call.domain)).or_default();
        match call.how {
            CallEnd::Returned(_) | CallEnd::NotSeen => counts.0 += 1,
            _ => counts.1 += 1,
        }
    }
    let told: BTreeMap<(u32, u8), (u64, u64)> = ledger
        .rows
        .iter()
        .filter(|row| Domain::from_id(row.domain).is_some_and(Domain::is_api))
        .filter(|row| row.written + row.unfinished > 0)
        .map(|row| ((row.cpu, row.domain), (row.written, row.unfinished)))
        .collect();
    assert_eq!(counted, told);
    assert_eq!(ledger.total().lost(), 0, "{ledger:?}");
}

/// The files in the outputs' directory.
fn files(outputs: &Outputs) -> Vec<String> {
    let entries = fs::read_dir(outputs.directory());
    let entries = entries.unwrap_or_else(|error| panic!("{error}"));
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_dump_has_the_last_seconds() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut program = bench.start(&["hip_calls", "loop", "200"]);
    let mut recorder = bench.attach(&outputs, &["--flight", "2s"], &[program.pid()]);
    let began = now();
    eventually("eight seconds go by", PATIENCE, || {
        now() > began + 8 * SECOND
    });
    let asked = ask(&bench, recorder.pid());
    assert!(asked.status.success(), "{asked:?}");
    recorder.wait_for_stderr("dump 1: ");
    program.close_stdin();
    program.finish();
    recorder.finish();
    let said = recorder.stderr();
    assert!(said.contains("1 dump was made"), "{said}");
    assert_eq!(files(&outputs), ["trace_dump-1.gtcap"], "{said}");

    let trace = Trace::read(&dump(&outputs, 1));
    assert_eq!(reason(&trace), Some(&EndReason::Dumped));
    let about = about(&trace);
    assert_eq!(about.causes.len(), 1, "{about:?}");
    assert!(about.causes[0].text.contains("SIGUSR2"), "{about:?}");
    // Two seconds before the cause and one after it; a part of the recording, not all of it.
    assert!(about.to >= about.causes[0].time + SECOND, "{about:?}");
    assert!(about.from + 2 * SECOND <= about.causes[0].time, "{about:?}");
    assert!(about.from > about.recording_began, "{about:?}");
    account_is_of(&trace);
    every_logged_call_is_there(&bench, &trace, about);
    // Names that were told before what is kept.
    assert!(
        trace
            .processes
            .iter()
            .any(|process| process.name == "hip_calls")
    );
}

/// Each call of the program's log that was made in the time of the dump is in it.
fn every_logged_call_is_there(bench: &Bench, trace: &Trace, about: &Dump) {
    let threads = trace.by_thread();
    let mut checked = 0;
    for (thread, logged) in &bench.log().threads {
        let mut found = threads.get(thread).into_iter().flatten();
        let in_time = logged
            .iter()
            .filter(|call| call.begin > about.from && call.end.is_some_and(|end| end <= about.to));
        for call in in_time {
            let is_it = |one: &&&gputrace_timeline::event::Call| {
                one.begin >= call.begin
                    && Some(one.end) <= call.end
                    && trace.is_call_of(one, &call.name)
            };
            assert!(found.any(|one| is_it(&one)), "{call:?} of {thread:?}");
            checked += 1;
        }
    }
    assert!(checked > 200, "only {checked} calls");
}

#[test]
fn a_call_that_does_not_return_is_dumped_while_it_is_open() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut program = bench.start(&["synthetic/synthetic", "block", "3"]);
    let options = ["--flight", "--dump-on", "call=200ms", "--dump-after", "1ms"];
    let mut recorder = bench.attach(&outputs, &options, &[program.pid()]);
    program.send("go");
    program.wait_for_stdout("inside");
    recorder.wait_for_stderr("has not returned for");
    recorder.wait_for_stderr("dump 1: ");
    program.close_stdin();
    program.finish();
    recorder.finish();
    let trace = Trace::read(&dump(&outputs, 1));
    account_is_of(&trace);
    let open = trace
        .calls
        .iter()
        .filter(|call| call.how == CallEnd::RecordingStopped);
    assert_eq!(open.count(), 3, "{:?}", trace.calls);
    // Nothing went on meanwhile, so the account is exact.
    let ledger = trace.ledger.as_ref().unwrap();
    assert!(
        ledger.rows.iter().all(|row| row.imbalance() == 0),
        "{ledger:?}"
    );
    // When the calls have returned at last, they are the same.
    assert_eq!(
        files(&outputs),
        ["trace_dump-1.gtcap"],
        "{}",
        recorder.stderr()
    );
}

#[test]
fn an_error_is_dumped_with_the_end_of_its_program() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    // On a machine without a GPU, every call fails.
    let outputs = bench.launch(
        &["--flight", "--dump-on", "error=hipErrorNoDevice"],
        &["hip_calls", "single", "3"],
    );
    let trace = Trace::read(&dump(&outputs, 1));
    trace.assert_sound(&EndReason::TargetsGone);
    let about = about(&trace);
    let first = &about.causes[0].text;
    assert!(first.contains("returned hipErrorNoDevice"), "{about:?}");
    assert!(about.causes.len() > 1, "{about:?}");
    assert_eq!(about.from, about.recording_began);
    assert!(trace.calls.len() > 100, "{}", trace.calls.len());
}

#[test]
fn a_program_that_is_killed_is_dumped() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    for (script, dumps) in [
        ("\"$0\" single 2; kill -SEGV $$", 1),
        ("\"$0\" single 2", 0),
    ] {
        let outputs = bench.outputs(dumps);
        let mut command = bench.gputrace(&outputs);
        command
            .args([
                "--flight",
                "60s,64MiB",
                "--dump-on",
                "killed",
                "--",
                "sh",
                "-c",
                script,
            ])
            .arg(bench.program("hip_calls"));
        let mut recorder = Running::start("gputrace", &mut command);
        let status = recorder.wait();
        let said = recorder.stderr();
        assert_eq!(files(&outputs).len(), dumps as usize, "{said}");
        if dumps == 0 {
            assert!(status.success(), "{said}");
            assert!(said.contains("no dump was made"), "{said}");
            continue;
        }
        assert_eq!(status.code(), Some(128 + Signal::SEGV.as_raw()), "{said}");
        let trace = Trace::read(&dump(&outputs, 1));
        trace.assert_sound(&EndReason::TargetsGone);
        let about = about(&trace);
        let why = "the program was ended by signal 11";
        assert_eq!(about.causes[0].text, why, "{about:?}");
    }
}

#[test]
fn dumps_because_of_rules_are_limited_and_the_rest_is_counted() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--flight", "--dump-on", "error", "--dump-after", "1ms"])
        .args(["--dump-pause", "1ms", "--dump-limit", "2", "--"])
        .arg(bench.program("hip_calls"))
        .args(["loop", "20"]);
    let mut recorder = Running::start("gputrace", &mut command);
    recorder.wait_for_stderr("dump 2: ");
    let asked = ask(&bench, recorder.pid());
    assert!(asked.status.success(), "{asked:?}");
    // One that is asked for is made in any case.
    recorder.wait_for_stderr("dump 3: ");
    recorder.close_stdin();
    recorder.finish();
    let said = recorder.stderr();
    assert_eq!(files(&outputs).len(), 3, "{said}");
    assert!(said.contains("without a dump: --dump-limit"), "{said}");
}

#[test]
fn the_file_takes_no_more_space_than_is_kept() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut program = bench.start(&["hip_calls", "loop", "0"]);
    let mut recorder = bench.attach(&outputs, &["--flight", "1MiB"], &[program.pid()]);
    let pid = recorder.pid();
    eventually(
        "16 MiB are recorded, and most are given back",
        PATIENCE,
        || {
            unnamed(pid, outputs.directory())
                .is_some_and(|file| file.size() > 16 << 20 && file.blocks() * 512 < 6 << 20)
        },
    );
    let asked = ask(&bench, pid);
    assert!(asked.status.success(), "{asked:?}");
    recorder.wait_for_stderr("dump 1: ");
    program.close_stdin();
    program.finish();
    recorder.finish();
    let path = dump(&outputs, 1);
    let trace = Trace::read(&path);
    account_is_of(&trace);
    assert!(trace.calls.len() > 1000, "{}", trace.calls.len());
    let size = fs::metadata(&path).map_or(0, |file| file.len());
    assert!(size < 4 << 20, "{size} bytes");
}

#[test]
fn a_recording_goes_on_in_another_file() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--hip-trace", "--keep", "100", "--max-size", "1MiB"],
        &["hip_calls", "single", "500"],
    );
    let parts: Vec<Trace> = (1..)
        .map(|number| {
            outputs
                .directory()
                .join(format!("trace_part-{number}.gtcap"))
        })
        .take_while(|path| path.exists())
        .map(|path| Trace::read(&path))
        .collect();
    assert!(parts.len() > 2, "{:?}", files(&outputs));
    assert_eq!(parts.len(), files(&outputs).len());
    for part in &parts {
        account_is_of(part);
        assert!(about(part).is_part && !about(part).is_short);
        let names = part.processes.iter().map(|process| process.name.as_str());
        assert!(part.calls.is_empty() || names.into_iter().any(|name| name == "hip_calls"));
    }
    for pair in parts.windows(2) {
        assert_eq!(reason(&pair[0]), Some(&EndReason::Continued));
        assert_eq!(about(&pair[0]).to, about(&pair[1]).from);
    }
    assert_eq!(reason(parts.last().unwrap()), Some(&EndReason::TargetsGone));
    // Together they are the program's own log: each call is in one file. One that was open at the
    // end of a file is in it as unfinished too.
    let mut whole = Trace::read(&outputs.file("_part-1.gtcap"));
    whole.calls = parts.into_iter().flat_map(|part| part.calls).collect();
    whole
        .calls
        .retain(|call| matches!(call.how, CallEnd::Returned(_)));
    whole.calls.sort_by_key(|call| (call.begin, call.depth));
    let everything = Dump {
        to: u64::MAX,
        ..Dump::default()
    };
    every_logged_call_is_there(&bench, &whole, &everything);
    let mut ids: Vec<u64> = whole.calls.iter().map(|call| call.correlation).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "calls that are in two files");
}

#[test]
fn the_oldest_files_are_removed() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let mut program = bench.start(&["hip_calls", "loop", "200"]);
    let options = ["--keep", "2", "--max-duration", "300ms"];
    let mut recorder = bench.attach(&outputs, &options, &[program.pid()]);
    recorder.wait_for_stderr("part 4: ");
    program.close_stdin();
    program.finish();
    recorder.finish();
    let said = recorder.stderr();
    let number = |name: &str| {
        let number = name.strip_prefix("trace_part-")?.strip_suffix(".gtcap")?;
        number.parse::<u32>().ok()
    };
    let mut kept: Vec<u32> = files(&outputs)
        .iter()
        .filter_map(|name| number(name))
        .collect();
    kept.sort_unstable();
    let made = said.matches("gputrace: part ").count() as u32;
    assert!(made >= 4, "{said}");
    assert_eq!(kept, [made - 1, made], "{said}");
    assert!(said.contains("2 captures were kept: "), "{said}");
}

#[test]
fn a_command_is_run_for_each_dump_as_the_user_behind_sudo() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.outputs(0);
    let notes = tempfile::tempdir().unwrap();
    fs::set_permissions(notes.path(), Permissions::from_mode(0o777)).unwrap();
    let note = notes.path().join("note").display().to_string();
    let script = format!(
        "test -s \"$GPUTRACE_DUMP\" && echo $(id -u) $(id -G) $HOME ${{SUDO_UID:-none}} >{note}; exit 3"
    );
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--flight", "--dump-on", "killed", "--on-dump", &script])
        .args(["--", "sh", "-c", "\"$0\" single 2; kill -TERM $$"])
        .arg(bench.program("hip_calls"))
        .envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")]);
    let mut recorder = Running::start("gputrace", &mut command);
    recorder.wait();
    let said = recorder.stderr();
    assert!(said.contains("dump 1: "), "{said}");
    assert!(
        said.contains("the command of --on-dump failed: exit status: 3"),
        "{said}"
    );
    let note = fs::read_to_string(&note).unwrap_or_default();
    assert_eq!(note, "65534 65534 /nonexistent none\n", "{said}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = Bench::new();
    let run = |arguments: &[&str]| {
        let output: Output = bench.gputrace_bare().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    for (arguments, status, part) in [
        (
            &["--flight", "--kernel-trace", "--dump-on", "reset"][..],
            2,
            "--dump-on reset needs --kfd-events",
        ),
        (
            &["--flight", "--hip-trace", "--dump-on", "kernel=1s"],
            2,
            "--dump-on kernel=1s needs --kernel-trace",
        ),
        (&["--flight", "--dump-on", "killed"], 2, "needs a program"),
        (&["--flight", "60"], 2, "neither a time with a unit"),
        (&["--flight", "-f", "csv"], 2, "cannot be used with"),
        (&["--keep", "2", "-f", "csv"], 2, "cannot be used with"),
        (&["--keep", "2", "--flight"], 2, "cannot be used with"),
        (
            &["--keep", "2"],
            2,
            "add --max-size 1GiB or --max-duration 10m",
        ),
        (&["--keep", "2", "--max-size", "1K"], 2, "at least 1MiB"),
        (&["--dump-on", "error"], 2, "--flight"),
        (&["--on-dump", "true"], 2, "--keep"),
        (
            &["dump-flight", "1"],
            3,
            "process 1 is no flight recorder that is ready",
        ),
    ] {
        let (code, said) = run(arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    // A process that would be killed by the signal is left alone, whatever it is called.
    let copy = bench.path().join("gputrace");
    fs::copy("/bin/sleep", &copy).unwrap();
    let mut other = Command::new(&copy);
    let mut other = Running::start("gputrace", other.args(["60"]));
    let (code, said) = run(&["dump-flight", &other.pid().to_string()]);
    assert_eq!(code, Some(3), "{said}");
    other.signal(Signal::TERM);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&other.wait()),
        Some(Signal::TERM.as_raw())
    );
}
