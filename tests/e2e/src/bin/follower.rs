//! Follows a process by the library `gputrace`, and prints its calls: `follower GPUTRACE PID`.

#![expect(clippy::print_stdout, reason = "this is what the program is for")]

use std::{env, error};

use gputrace::{Event, Index, Session};

fn main() -> Result<(), Box<dyn error::Error>> {
    let mut arguments = env::args_os().skip(1);
    let recorder = arguments.next().ok_or("no recorder")?;
    let pid = arguments.next().ok_or("no process")?;
    let pid = pid.to_string_lossy().parse()?;
    let mut session = Session::builder().recorder(recorder).attach(pid).start()?;
    let mut index = Index::default();
    for event in session.events() {
        let event = event?;
        index.learn(&event);
        if let Event::Call(call) = &event {
            println!("{} {} ns", index.call_name(call), call.end - call.begin);
        }
    }
    session.finish()?;
    Ok(())
}
