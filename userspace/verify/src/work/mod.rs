//! The bundled HSA program: it uses a GPU in ways whose outcome it knows, asks the runtime for the
//! times, and reports everything ([`crate::log`]).
//!
//! It is gputrace itself with another argument, so that nothing else has to be installed, but it is
//! a separate process, without root's rights where possible. It does not depend on being recorded.

mod copies;
mod dispatches;
mod machine;
mod queue;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use thiserror::Error;

use self::{dispatches::Dispatcher, machine::Machine};
use crate::{
    hsa::{Api, HsaError},
    log::{Part, Said},
};

/// Options of the program.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The runtime's library; by default it is searched in the system's library path, and below
    /// `/opt/rocm`.
    pub library: Option<PathBuf>,
    /// Whether to report [`Said::Ready`] when its queues exist and have been used, and then to wait
    /// until it is told to go on.
    pub waits: bool,
    /// Whether to do only copies.
    pub copies_only: bool,
    /// Whether to run also a stream of kernels that is long enough for estimates.
    pub streams: bool,
    /// KFD's topology node of the GPU to use; the runtime's first one if `None`.
    pub node: Option<u32>,
}

/// Why the program stops.
#[derive(Debug, Error)]
enum Stop {
    #[error(transparent)]
    Hsa(#[from] HsaError),
    #[error("there is no GPU")]
    NoGpu,
    #[error("there is no code object for {0}")]
    NoObject(String),
    #[error("{0} did not complete")]
    Stuck(String),
    #[error("queue {queue} failed with status {status:#x}")]
    Queue { queue: u64, status: u32 },
    #[error("{0}")]
    Failed(String),
    #[error("nobody reads the output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the program: reports what it does to `output`, and calls `go_on` where it has to wait.
/// Returns whether it did everything.
///
/// # Errors
///
/// When the reports cannot be written; all other failures are reported.
pub fn run(
    options: &Options,
    output: &mut impl Write,
    go_on: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let mut say = |said: &Said| -> Result<(), Stop> {
        let line = serde_json::to_string(said).map_err(io::Error::from)?;
        writeln!(output, "{line}")?;
        output.flush()?;
        Ok(())
    };
    let outcome = all(options, &mut say, go_on);
    let last = match outcome {
        Ok(()) => Said::Done,
        Err(Stop::Output(error)) => return Err(error),
        Err(Stop::Hsa(error @ (HsaError::Library(_) | HsaError::Function(_)))) => Said::NoRuntime {
            detail: error.to_string(),
        },
        Err(Stop::NoGpu) => Said::NoGpu,
        Err(Stop::NoObject(gfx)) => Said::NoObject { gfx },
        Err(Stop::Stuck(what)) => Said::Stuck { what },
        Err(Stop::Queue { queue, status }) => Said::QueueError { queue, status },
        Err(other) => Said::Failed {
            what: other.to_string(),
        },
    };
    let done = last == Said::Done;
    match say(&last) {
        Err(Stop::Output(error)) => Err(error),
        _ => Ok(done),
    }
}

fn all(
    options: &Options,
    say: &mut dyn FnMut(&Said) -> Result<(), Stop>,
    go_on: impl FnOnce() -> io::Result<()>,
) -> Result<(), Stop> {
    let api = Api::load(options.library.as_deref())?;
    let mut machine = Machine::new(&api, options.node, say)?;
    api.stamp_copies()?;
    let mut dispatcher = Dispatcher::new(&machine)?;
    let first = dispatcher.calibrate(&machine)?;
    if let Some([_, tick]) = first.clock_ticks {
        machine.calibrate(tick)?;
    }
    say(&Said::Clock {
        frequency_hz: machine.frequency_hz,
    })?;
    say(&Said::Dispatch(first))?;
    let part = |part: Part,
                dispatcher: &mut Dispatcher<'_>,
                say: &mut dyn FnMut(&Said) -> Result<(), Stop>| {
        let outcome = dispatcher.run(&machine, part);
        // What was done is reported even if something failed in the end.
        for said in dispatcher.take() {
            say(&said)?;
        }
        outcome
    };
    if options.waits {
        part(Part::Before, &mut dispatcher, say)?;
        say(&Said::Ready)?;
        go_on()?;
    }
    if !options.copies_only {
        for one in [
            Part::Single,
            Part::Batch,
            Part::Plain,
            Part::Stream,
            Part::Gaps,
            Part::Unstamped,
            Part::Scratch,
        ] {
            if one != Part::Stream || options.streams {
                part(one, &mut dispatcher, say)?;
            }
        }
    }
    copies::run(&machine, say)?;
    dispatcher.end()?;
    api.shut_down()?;
    Ok(())
}
