//! Joins the kernels of a capture with the calls that launched them and with the external
//! correlation ids that the program had set: what a tool does with
//! `roctracer_activity_push_external_correlation_id`.
//!
//! `cargo run --example correlation -- run.gtcap`

#![expect(clippy::print_stdout, reason = "this is what the example is for")]

use std::{collections::HashMap, env, error};

use gputrace::{Capture, Event, Index};

fn main() -> Result<(), Box<dyn error::Error>> {
    let path = env::args_os().nth(1).ok_or("give a capture")?;
    let mut index = Index::default();
    let mut calls = HashMap::new();
    let mut dispatches = Vec::new();
    for event in Capture::open(path)?.events()? {
        let event = event?;
        index.learn(&event);
        match event {
            Event::Call(call) => {
                calls.insert(call.correlation, index.call_name(&call).to_owned());
            }
            // A dispatch can come before the call that launched it.
            Event::Dispatch(dispatch) => dispatches.push(dispatch),
            _ => {}
        }
    }
    for dispatch in dispatches {
        let origin = &dispatch.origin;
        println!(
            "{} by {} (correlation id {}, external {:?})",
            index.kernel_name(&dispatch),
            calls.get(&origin.caller).map_or("?", String::as_str),
            origin.caller,
            origin.external
        );
    }
    Ok(())
}
