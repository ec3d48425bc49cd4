//! Prints every HIP call of a process with its arguments: what a tool does with roctracer's API
//! callbacks.
//!
//! `sudo -E cargo run --example calls -- PID`

#![expect(clippy::print_stdout, reason = "this is what the example is for")]

use std::{env, error};

use gputrace::{Domain, Event, Index, Session, args};

fn main() -> Result<(), Box<dyn error::Error>> {
    let pid = env::args().nth(1).ok_or("give a process id")?.parse()?;
    let mut session = Session::builder()
        .attach(pid)
        .domains([Domain::HipRuntime])
        .start()?;
    let mut index = Index::default();
    for event in session.events() {
        let event = event?;
        index.learn(&event);
        let Event::Call(call) = &event else { continue };
        let Some(function) = index.function(call.function) else {
            continue;
        };
        let arguments: Vec<String> = args::decoded(function, call)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        println!(
            "{:>6} {:>9} ns  {}({})",
            call.tid,
            call.end - call.begin,
            index.call_name(call),
            arguments.join(", ")
        );
    }
    session.finish()?;
    Ok(())
}
