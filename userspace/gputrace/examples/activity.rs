//! Starts a program and adds up its kernels and copies: what a tool does with roctracer's activity
//! records.
//!
//! `sudo -E cargo run --example activity -- ./app`

#![expect(clippy::print_stdout, reason = "this is what the example is for")]

use std::{collections::BTreeMap, env, error, ops::ControlFlow};

use gputrace::{Domain, Event, Session, gpu::GpuTime};

/// Work of one name.
#[derive(Default)]
struct Total {
    count: u64,
    /// Sum of the times that are known, ns, and how many these are.
    ns: u64,
    known: u64,
}

impl Total {
    fn add(&mut self, time: &GpuTime) {
        self.count += 1;
        // Times that are not known are not guessed.
        if let Some((begin, end)) = time.drawn_begin().zip(time.drawn_end()) {
            self.ns += end - begin;
            self.known += 1;
        }
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let mut session = Session::builder()
        .launch(env::args_os().skip(1))
        .domains([Domain::KernelDispatch, Domain::MemoryCopy])
        .start()?;
    let mut totals: BTreeMap<String, Total> = BTreeMap::new();
    let mut lost = None;
    let _ = session.events().each(|event, index| {
        match event {
            Event::Dispatch(dispatch) => {
                let name = index.kernel_name(dispatch);
                totals
                    .entry(name.into_owned())
                    .or_default()
                    .add(&dispatch.time);
            }
            Event::Copy(copy) => {
                let name = copy.direction.name().to_owned();
                totals.entry(name).or_default().add(&copy.time);
            }
            Event::Ledger(ledger) => lost = Some(ledger.total().lost()),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    for (name, total) in totals {
        println!(
            "{:>8} {:>12} ns of {:>8}  {name}",
            total.count, total.ns, total.known
        );
    }
    println!("lost: {}", lost.unwrap_or_default());
    session.finish()?;
    Ok(())
}
