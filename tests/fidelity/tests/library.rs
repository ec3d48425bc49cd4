//! A session of the library `gputrace` on the real runtime: kernels and copies as the software GPU
//! logged them, with the calls that asked for them.

mod support;

use std::{collections::BTreeMap, env, fs, process::Command};

use gputrace::{Domain, Event, Index, Session};
use gputrace_e2e::{Running, sample};
use gputrace_fidelity::{release::equip, run::ROOM};

use support::{gputrace, kernels, program, release};

/// What `many_kernels` launches, in turn.
const NAMES: [&str; 3] = ["small_a", "small_b", "small_c"];

#[test]
fn a_session_delivers_what_the_gpu_ran() {
    let Some(release) = release("7.2.4") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    fs::write(place.join("softgpu.toml"), "").expect("the settings");
    let program = program(&release, "many_kernels", &["300"]);
    let mut environment = Command::new("");
    equip(&mut environment, place).expect("the software GPU");
    let mut builder = Session::builder()
        .recorder(gputrace())
        .domains([
            Domain::HipRuntime,
            Domain::KernelDispatch,
            Domain::MemoryCopy,
        ])
        .launch(std::iter::once(program.get_program()).chain(program.get_args()));
    for option in ROOM {
        builder = builder.option(option);
    }
    for (name, value) in environment.get_envs() {
        builder = builder.env(name, value.expect("only variables that are set"));
    }
    let mut session = builder.start().expect("a session");
    let mut index = Index::default();
    let mut calls = BTreeMap::new();
    let mut dispatches = Vec::new();
    for event in session.events() {
        let event = event.expect("an event");
        index.learn(&event);
        match event {
            Event::Call(call) => {
                calls.insert(call.correlation, index.call_name(&call).to_owned());
            }
            Event::Dispatch(one) => {
                let queue = index.queue(one.queue).expect("its queue is known");
                let agent = queue.node_id.and_then(|node| index.agent(node));
                assert!(agent.is_some(), "{queue:?}");
                // Names are read while the program runs: late if the recorder was stopped meanwhile.
                let name = index.kernel(&one).map(|kernel| kernel.kernel.name.clone());
                dispatches.push((one, name));
            }
            _ => {}
        }
    }
    session.finish().expect("an orderly end");
    let ledger = index.ledger().expect("an account");
    assert!(ledger.complete && ledger.total().lost() == 0, "{ledger:?}");

    let mut truth: Vec<_> = NAMES
        .iter()
        .flat_map(|name| {
            let times = kernels(place, name).into_iter();
            times.map(move |(begin, end)| (begin, end, *name))
        })
        .collect();
    truth.sort_unstable();
    assert_eq!((dispatches.len(), truth.len()), (300, 300));
    dispatches.sort_unstable_by_key(|(one, _)| one.time.begin);
    for ((one, name), (begin, end, known)) in dispatches.iter().zip(&truth) {
        assert!(name.as_ref().is_none_or(|name| name == known), "{one:?}");
        let time = &one.time;
        for (window, truth) in [(time.begin_window, begin), (time.end_window, end)] {
            let latest = window.latest.unwrap_or(u64::MAX);
            assert!((window.earliest..=latest).contains(truth), "{one:?}");
        }
        assert!(time.drawn_begin().is_some() && time.drawn_end().is_some());
        let caller = calls.get(&one.origin.caller).map(String::as_str);
        assert_eq!(caller, Some("hipLaunchKernel"));
    }
}

#[test]
fn a_tool_in_c_gets_every_kernel() {
    let Some(release) = release("7.2.4") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    fs::write(place.join("softgpu.toml"), "").expect("the settings");
    let program = program(&release, "many_kernels", &["300"]);
    let recorder = gputrace();
    let beside = recorder.parent().expect("its directory").to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(std::iter::once(beside).chain(env::split_paths(&path)));
    let mut command = Command::new(sample::compile("activity", place));
    command
        .arg(program.get_program())
        .args(program.get_args())
        .env("PATH", path.expect("paths"));
    equip(&mut command, place).expect("the software GPU");
    let mut tool = Running::start("a tool", &mut command);
    tool.finish();
    let text = tool.stdout();
    assert!(text.trim_end().ends_with(", lost 0"), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("kernel "));
    let told: Vec<&str> = lines.collect();
    assert_eq!(told.len(), 300, "{text}");
    assert!(told.iter().all(|line| line.ends_with(" ns")), "{text}");
    let mut lengths: Vec<u64> = told
        .iter()
        .filter_map(|line| line.rsplit(": ").next()?.strip_suffix(" ns")?.parse().ok())
        .collect();
    let mut truth: Vec<u64> = NAMES
        .iter()
        .flat_map(|name| kernels(place, name))
        .map(|(begin, end)| end - begin)
        .collect();
    lengths.sort_unstable();
    truth.sort_unstable();
    for (told, truth) in lengths.iter().zip(&truth) {
        // The GPU counts in ticks of 10 ns.
        assert!(told.abs_diff(*truth) <= 20, "{told} for {truth}");
    }
}
