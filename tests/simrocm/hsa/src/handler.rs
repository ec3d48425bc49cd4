//! Functions that are called when a signal gets a certain value. One thread handles all of them, as
//! in ROCr.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gputrace_simrocm_core::abi::{SharedSignal, Signal};
use gputrace_simrocm_core::ffi::die;

use crate::events;
use crate::signal::holds;

/// Returns whether it wants to be called again.
type Function = Box<dyn FnMut(i64) -> bool + Send>;

struct Handler {
    signal: Signal,
    condition: u32,
    value: i64,
    function: Function,
}

struct Handlers {
    waiting: Vec<Handler>,
    /// The signal whose function is being called, unless the signal has been destroyed meanwhile.
    called: Option<Signal>,
}

static HANDLERS: Mutex<Handlers> = Mutex::new(Handlers {
    waiting: Vec::new(),
    called: None,
});
/// Id of the process in which the thread runs; a child must start its own.
static RUNS_IN: AtomicU32 = AtomicU32::new(0);

fn lock() -> MutexGuard<'static, Handlers> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `function` with the value when the signal's value satisfies the condition.
pub(crate) fn add(
    signal: Signal,
    condition: u32,
    value: i64,
    function: impl FnMut(i64) -> bool + Send + 'static,
) {
    lock().waiting.push(Handler {
        signal,
        condition,
        value,
        function: Box::new(function),
    });
    let own = std::process::id();
    if RUNS_IN.swap(own, Ordering::AcqRel) != own {
        let thread = std::thread::Builder::new().name("simrocm-async".to_owned());
        if let Err(error) = thread.spawn(run) {
            die(&format!("no thread for asynchronous handlers: {error}"));
        }
    }
    // Wakes the thread, which does not know the new signal yet.
    events::set(0);
}

/// Removes the handlers of a signal that is being destroyed.
pub(crate) fn forget(signal: Signal) {
    let mut handlers = lock();
    handlers.waiting.retain(|handler| handler.signal != signal);
    if handlers.called == Some(signal) {
        handlers.called = None;
    }
}

impl Handler {
    /// The value, if the function waits for it.
    fn due(&self) -> Option<i64> {
        let value = self.signal.get()?.value.load(Ordering::Acquire);
        holds(self.condition, value, self.value).then_some(value)
    }
}

impl Handlers {
    fn take_due(&mut self) -> Option<(Handler, i64)> {
        let mut all = self.waiting.iter().enumerate();
        let (position, value) =
            all.find_map(|(position, handler)| Some((position, handler.due()?)))?;
        let handler = self.waiting.remove(position);
        self.called = Some(handler.signal);
        Some((handler, value))
    }
}

fn run() {
    loop {
        let mut handlers = lock();
        while let Some((mut handler, value)) = handlers.take_due() {
            // The function may add handlers and destroy signals, so the lock is released.
            drop(handlers);
            let again = (handler.function)(value);
            handlers = lock();
            if again && handlers.called.is_some() {
                handlers.waiting.push(handler);
            }
        }
        let silent = |signal: &SharedSignal| signal.event_id.load(Ordering::Relaxed) == 0;
        let mut signals = handlers
            .waiting
            .iter()
            .filter_map(|handler| handler.signal.get());
        let polled = signals.any(silent);
        drop(handlers);
        let longest = if polled {
            events::POLL
        } else {
            Duration::from_millis(20)
        };
        events::sleep_on_any(longest, || {
            lock().waiting.iter().any(|handler| handler.due().is_some())
        });
    }
}
