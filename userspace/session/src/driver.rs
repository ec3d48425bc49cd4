//! What the recording hears from the driver itself.
//!
//! Requests to `/dev/kfd` are traced by programs of their own, which need the driver: where it is loaded later, they are
//! attached then.

use gputrace_abi::domain::Domain;
use gputrace_capture::{Meta, meta::Notice};
use gputrace_collect::{Command, clocks};
use gputrace_probe::{
    ProbeError,
    calls::Calls,
    ioctls::{Ioctls, Place},
    sched::Sched,
};

use crate::{request::Request, tracepoints::Tracepoints};

/// Programs on the driver.
#[derive(Debug)]
pub(crate) struct Driver {
    wanted: bool,
    place: Option<Place>,
    threads: u32,
    ioctls: Option<Ioctls>,
    /// Whether scheduling is to be followed.
    sched_wanted: bool,
    sched: Option<Sched>,
    tracepoints: Tracepoints,
    /// What the user was told last of why there are none.
    told: bool,
}

impl Driver {
    /// Attaches what the request asks for, if the driver is there.
    pub(crate) fn new(request: &Request) -> Self {
        Self {
            wanted: request.domains.contains(&Domain::KfdIoctl),
            place: request.kfd_place,
            threads: request.max_threads,
            ioctls: None,
            sched_wanted: request.domains.contains(&Domain::Sched),
            sched: None,
            tracepoints: Tracepoints::new(request),
            told: false,
        }
    }

    /// The runtime's requests for GPUs' clocks are wanted: gputrace cannot make its own.
    pub(crate) fn want_clocks(&mut self) {
        self.wanted = true;
    }

    /// Attaches what is not attached yet and can be now. Returns what the capture
    /// is to hold of it, and the user to hear.
    pub(crate) fn attach(&mut self, calls: &Calls) -> Vec<Meta> {
        let mut news: Vec<String> = Vec::new();
        if std::mem::take(&mut self.sched_wanted) {
            match Sched::attach(calls, self.threads) {
                Ok(sched) => self.sched = Some(sched),
                Err(error) => news.push(format!("scheduling is not followed: {error}")),
            }
        }
        news.extend(self.attach_ioctls(calls));
        let time = clocks::now();
        let mut metas: Vec<Meta> = news
            .into_iter()
            .map(|text| Notice { time, text }.into())
            .collect();
        metas.extend(self.tracepoints.attach(calls));
        metas
    }

    fn attach_ioctls(&mut self, calls: &Calls) -> Option<String> {
        if !self.wanted || self.ioctls.is_some() {
            return None;
        }
        if !Ioctls::is_driver_loaded() {
            let news = "amdgpu is not loaded: there is no /dev/kfd. Its ioctls are traced as soon as it is";
            return self.say_once(news.to_owned());
        }
        match Ioctls::attach(calls, self.place, self.threads) {
            Ok(ioctls) => {
                let place = ioctls.place();
                let cost = place.cost().map(|cost| format!("; {cost}")).unwrap_or_default();
                self.ioctls = Some(ioctls);
                Some(format!("tracing the ioctls of /dev/kfd by {place}{cost}"))
            }
            Err(error) => {
                // It will not get better by itself.
                self.wanted = matches!(error, ProbeError::NoTracefs { .. });
                self.say_once(format!("the ioctls of /dev/kfd are not traced: {error}"))
            }
        }
    }

    fn say_once(&mut self, news: String) -> Option<String> {
        (!std::mem::replace(&mut self.told, true)).then_some(news)
    }

    /// How often the kernel left programs on the driver out.
    pub(crate) fn missed(&self) -> u64 {
        self.ioctls.as_ref().map_or(0, Ioctls::missed) + self.tracepoints.missed()
    }

    /// What is open: to be written when the programs have been stopped.
    pub(crate) fn open(&self) -> Result<[Command; 2], ProbeError> {
        let ioctls = self.ioctls.as_ref().map_or(Ok(Vec::new()), Ioctls::open)?;
        let off_cpu = self.sched.as_ref().map_or(Ok(Vec::new()), Sched::open)?;
        Ok([Command::OpenIoctls(ioctls), Command::OpenOffCpu(off_cpu)])
    }
}
