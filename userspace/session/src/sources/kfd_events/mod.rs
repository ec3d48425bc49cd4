//! KFD's SMI events (`--kfd-events`): evictions, migrations, page faults, resets, throttling. They
//! come from KFD's own descriptor or, where that cannot be opened, from breakpoints on the driver's
//! functions.

mod functions;
mod listener;

use std::sync::Arc;

use gputrace_abi::domain::Domain;
use gputrace_capture::Meta;
use gputrace_collect::CommandSender;
use gputrace_kfd::Paths;
use gputrace_loader::{calls::Calls, ioctls::Ioctls, tracepoint::Functions};

use self::listener::Listener;
use super::{Source, Wanted};
use crate::said::notice;

pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let request = wanted.request;
    request.domains.contains(&Domain::KfdEvent).then(|| {
        Box::new(Events {
            per_second: request.tracepoint_rate,
            listener: None,
            functions: None,
        }) as Box<dyn Source>
    })
}

/// State of the source of the driver's events.
#[derive(Debug)]
struct Events {
    /// Maximum number of records of breakpoints per second.
    per_second: u64,
    listener: Option<Listener>,
    functions: Option<Functions>,
}

impl Source for Events {
    fn start(&mut self, calls: &Arc<Calls>, sender: &CommandSender) -> Vec<Meta> {
        let (listener, mut remarks) = Listener::start(&Paths::default(), sender.clone());
        let mut layouts = Vec::new();
        if listener.is_none() && Ioctls::is_driver_loaded() {
            match functions::attach(calls, self.per_second) {
                Ok((functions, found)) => {
                    self.functions = Some(functions);
                    remarks.push(format!(
                        "events of KFD are recorded by breakpoints on {} of the driver's functions instead: all but migrations",
                        found.len()
                    ));
                    layouts = found;
                }
                Err(error) => remarks.push(format!("nor by breakpoints in the driver: {error}")),
            }
        }
        self.listener = listener;
        layouts.extend(remarks.into_iter().map(notice));
        layouts
    }

    fn missed(&self) -> u64 {
        self.functions.as_ref().map_or(0, Functions::missed)
    }

    fn stop(&mut self) {
        drop(self.listener.take());
    }
}
