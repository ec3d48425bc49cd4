//! Verifies gputrace on the user's own GPU: a bundled HSA program runs under recording in every
//! mode, and the recording is compared with what the program did and with what the runtime says
//! about it.
//!
//! * [`objects`]: the program's kernels, as code objects for each instruction set;
//! * [`work`]: the program; [`log`]: its messages;
//! * [`record`]: runs the program under gputrace, in each mode;
//! * `capture`: reads the recording; `compare`: compares both;
//! * [`report`]: the verdicts.
//!
//! The crate prints nothing and decides nothing about the machine: its caller says as which user
//! the program runs, and shows the report.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod log;
pub mod objects;
pub mod record;
pub mod report;
pub mod work;

mod capture;
mod compare;
mod hsa;
#[cfg(test)]
mod recorded;

use crate::{
    capture::Recording,
    log::Said,
    record::{Mode, Setting},
    report::{Row, Section, Status, Versions},
};

/// Records the program in a mode and compares. Adds the runtime's versions to `versions`.
pub fn verify(setting: &Setting, mode: Mode, versions: &mut Versions) -> Section {
    let section = |rows| Section {
        name: mode.name(),
        mode: Some(mode),
        rows,
    };
    let failed = |row: Row| section(vec![row]);
    let made = match record::make(setting, mode) {
        Ok(made) => made,
        Err(error) => {
            return failed(
                Row::new(
                    "recording",
                    Status::Wrong,
                    error.kind(),
                    "there is nothing to compare",
                )
                .detail(error.to_string())
                .next("gputrace doctor"),
            );
        }
    };
    let machine = made.said.iter().find_map(|said| match said {
        Said::Machine {
            pid,
            hsa,
            gfx,
            node,
        } => Some((*pid, *node, hsa, gfx)),
        _ => None,
    });
    let Some((pid, node, [major, minor], gfx)) = machine else {
        return failed(compare::program(&made.said));
    };
    versions.hsa = Some(format!("{major}.{minor}"));
    versions.gfx = Some(gfx.clone());
    match Recording::read(&made.capture, pid, node) {
        Ok(recording) => section(compare::rows(mode, &made.said, &recording)),
        Err(_) => section(vec![
            compare::program(&made.said),
            Row::new(
                "recording",
                Status::Wrong,
                "the capture cannot be read",
                "there is nothing to compare",
            )
            .next("gputrace doctor"),
        ]),
    }
}
