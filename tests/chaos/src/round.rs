//! Runs a whole round.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use gputrace_e2e::{Bench, Running};

use crate::{
    left::{self, Kernel},
    plan::{End, Of, Round},
    recording::Made,
    shared::Shared,
    target::{Seen, Target},
};

/// Runs a round and checks what must be true. The program begins with `crowd` processes at once.
///
/// # Panics
/// If a check fails.
pub fn run(bench: &Bench, round: &Round, crowd: u32) {
    let before = Kernel::now();
    let target = Target::new(bench, round, crowd);
    let alone = target.alone(&Shared::create(&bench.path().join("alone")));
    left::wait_for_no_process();

    let shared = Shared::create(&bench.path().join("traced"));
    let launched = round
        .recordings
        .first()
        .is_some_and(|first| first.of == Of::Launched);
    let mut program = (!launched).then(|| target.start(0, &shared));
    let mut launcher = None;
    let mut told_to_end = false;
    for (number, plan) in (0..).zip(&round.recordings) {
        let mut made = Made::begin(bench, number, plan, &target, &shared);
        let status = made.end();
        made.check(status);
        before.wait_for_nothing_new();
        if plan.of == Of::Launched {
            told_to_end = plan.end == End::Terminate;
            launcher = Some((made.passed_on(status), made.gputrace));
        }
    }

    shared.stop();
    let seen = match (&mut program, launcher) {
        (Some(program), _) => {
            let status = program.wait();
            Some(Seen {
                text: program.stdout(),
                status,
            })
        }
        // gputrace has told the program to end and may have waited for it; how much the program had
        // printed by then is undefined.
        (None, _) if told_to_end => None,
        (None, Some((passed_on, gputrace))) => {
            outlived(&shared, passed_on, &gputrace, alone.status)
        }
        (None, None) => None,
    };
    if let Some(seen) = seen {
        assert_eq!(
            seen.text, alone.text,
            "INVARIANT: the program saw something else than alone"
        );
        assert_eq!(
            seen.status, alone.status,
            "INVARIANT: the program ended otherwise than alone"
        );
    }
    left::wait_for_no_process();
    before.wait_for_nothing_new();
}

/// How a launched program ended, whose output is part of gputrace's. `None` if it never started
/// because gputrace was killed.
fn outlived(
    shared: &Shared,
    passed_on: Option<i32>,
    gputrace: &Running,
    alone: ExitStatus,
) -> Option<Seen> {
    let status = match passed_on {
        // As in a shell: 128 plus the signal.
        Some(code) if Some(code) == alone.code().or(alone.signal().map(|signal| 128 + signal)) => {
            alone
        }
        Some(code) => ExitStatus::from_raw(code << 8),
        None if shared.pid() == 0 => {
            left::wait_for_no_process();
            return None;
        }
        None => left::end_of_orphan(shared.pid()),
    };
    gputrace.wait_for_end_of_output();
    Some(Seen {
        text: gputrace.stdout(),
        status,
    })
}
