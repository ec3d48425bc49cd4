//! Events: points in time in streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gputrace_simrocm_core::abi::AgentHandle;

use crate::error::{Error, Hip, check};
use crate::hsa;
use crate::signals::{self, Completion};

/// Whether an event means the begin or the end of the work that a signal completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Begin,
    End,
}

/// What an event was last recorded as.
#[derive(Clone)]
struct Recorded {
    completion: Arc<Completion>,
    agent: AgentHandle,
    moment: Moment,
}

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    pub(crate) flags: u32,
    recorded: Mutex<Option<Recorded>>,
}

/// Flag `hipEventDisableTiming`.
const DISABLE_TIMING: u32 = 2;

static EVENTS: RwLock<Option<HashMap<u64, Arc<Event>>>> = RwLock::new(None);

/// Creates an event; the handle is its address.
pub(crate) fn create(flags: u32) -> u64 {
    let event = Arc::new(Event {
        flags,
        ..Event::default()
    });
    let handle = Arc::as_ptr(&event) as u64;
    let mut events = EVENTS.write().unwrap_or_else(PoisonError::into_inner);
    events.get_or_insert_default().insert(handle, event);
    handle
}

/// Destroys an event.
pub(crate) fn destroy(handle: u64) -> Hip {
    let mut events = EVENTS.write().unwrap_or_else(PoisonError::into_inner);
    let gone = events.get_or_insert_default().remove(&handle);
    gone.map(drop).ok_or(Error::INVALID_HANDLE)
}

/// The event of a handle.
pub(crate) fn find(handle: u64) -> Hip<Arc<Event>> {
    let events = EVENTS.read().unwrap_or_else(PoisonError::into_inner);
    let found = events.as_ref().and_then(|events| events.get(&handle));
    found.cloned().ok_or(Error::INVALID_HANDLE)
}

impl Event {
    fn recorded(&self) -> Option<Recorded> {
        self.recorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records the begin or end of work.
    pub(crate) fn record(&self, completion: Arc<Completion>, agent: AgentHandle, moment: Moment) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(Recorded {
            completion,
            agent,
            moment,
        });
    }

    /// The completion that a stream must wait for.
    pub(crate) fn completion(&self) -> Option<Arc<Completion>> {
        self.recorded().map(|recorded| recorded.completion)
    }

    /// Waits for the event.
    pub(crate) fn synchronize(&self) {
        if let Some(completion) = self.completion() {
            signals::wait(completion.signal);
        }
    }

    /// Whether it has happened.
    pub(crate) fn query(&self) -> bool {
        let done =
            |completion: Arc<Completion>| hsa::hsa_signal_load_relaxed(completion.signal) <= 0;
        self.completion().is_none_or(done)
    }

    /// When it happened, ns.
    fn time(&self) -> Hip<u64> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(Error::INVALID_HANDLE);
        }
        let recorded = self.recorded().ok_or(Error::INVALID_HANDLE)?;
        if !self.query() {
            return Err(Error::NOT_READY);
        }
        let mut span = hsa::Span::default();
        let signal = recorded.completion.signal;
        check(hsa::hsa_amd_profiling_get_dispatch_time(
            recorded.agent,
            signal,
            &mut span,
        ))?;
        Ok(match recorded.moment {
            Moment::Begin => span.start,
            Moment::End => span.end,
        })
    }
}

/// Milliseconds from one event to another.
pub(crate) fn elapsed(from: &Event, to: &Event) -> Hip<f32> {
    let (from, to) = (from.time()?, to.time()?);
    #[expect(clippy::cast_precision_loss, reason = "the C function returns a float")]
    Ok((to as f64 - from as f64) as f32 / 1e6)
}
