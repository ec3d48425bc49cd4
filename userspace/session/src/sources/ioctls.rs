//! Requests to `/dev/kfd` (`--kfd-trace`). The eBPF programs that trace them need the driver: if it
//! is loaded later, they are attached then.

use std::sync::Arc;

use gputrace_abi::domain::Domain;
use gputrace_capture::Meta;
use gputrace_loader::{
    ProbeError,
    calls::Calls,
    ioctls::{Ioctls, Place},
};

use super::{Source, Wanted};
use crate::said::notice;

pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let request = wanted.request;
    let is_wanted = wanted.clocks_of_runtimes || request.domains.contains(&Domain::KfdIoctl);
    is_wanted.then(|| {
        Box::new(Requests {
            place: request.kfd_place,
            threads: request.max_threads,
            given_up: false,
            told: false,
            programs: None,
        }) as Box<dyn Source>
    })
}

/// State of the programs that trace requests.
#[derive(Debug)]
struct Requests {
    /// Where the user wants the programs; `None`: where they cost least.
    place: Option<Place>,
    /// Maximum number of threads that make requests at the same time.
    threads: u32,
    /// Whether attaching failed for a reason that will not go away.
    given_up: bool,
    /// Whether the user was told why requests are not traced.
    told: bool,
    programs: Option<Ioctls>,
}

impl Requests {
    fn attach(&mut self, calls: &Calls) -> Option<String> {
        if self.given_up || self.programs.is_some() {
            return None;
        }
        if !Ioctls::is_driver_loaded() {
            let text = "amdgpu is not loaded: there is no /dev/kfd. Its ioctls are traced as soon as it is";
            return self.say_once(text.to_owned());
        }
        match Ioctls::attach(calls, self.place, self.threads) {
            Ok(programs) => {
                let place = programs.place();
                let cost = place
                    .cost()
                    .map(|cost| format!("; {cost}"))
                    .unwrap_or_default();
                self.programs = Some(programs);
                Some(format!("tracing the ioctls of /dev/kfd by {place}{cost}"))
            }
            Err(error) => {
                self.given_up = !matches!(error, ProbeError::NoTracefs { .. });
                self.say_once(format!("the ioctls of /dev/kfd are not traced: {error}"))
            }
        }
    }

    fn say_once(&mut self, text: String) -> Option<String> {
        (!std::mem::replace(&mut self.told, true)).then_some(text)
    }
}

impl Source for Requests {
    fn tick(&mut self, calls: &Arc<Calls>) -> Vec<Meta> {
        self.attach(calls).map(notice).into_iter().collect()
    }

    fn missed(&self) -> u64 {
        self.programs.as_ref().map_or(0, Ioctls::missed)
    }

    fn open_records(&self) -> Result<Vec<u8>, ProbeError> {
        self.programs.as_ref().map_or(Ok(Vec::new()), Ioctls::open)
    }
}
