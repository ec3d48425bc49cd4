//! KFD's events: set by interrupts, and waited for by the runtime's threads.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::uapi::{EventData, event_type};

/// All events of a process.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last_id: u32,
    events: HashMap<u32, Event>,
}

#[derive(Debug)]
struct Event {
    kind: u32,
    auto_reset: bool,
    signaled: bool,
    /// Threads waiting for it.
    waiters: u32,
    /// How often it was set, plus one; lets a waiter notice that it missed one.
    age: u64,
    /// Its data for `kfd_event_data`, for system events.
    data: [u64; 4],
}

/// `KFD_SIGNAL_EVENT_LIMIT`, which is also the number of slots in the event page.
pub(crate) const EVENT_LIMIT: u32 = 4096;

/// The timeout value that means forever.
const FOR_EVER: u32 = u32::MAX;

impl Events {
    /// Makes an event and returns its number.
    pub(crate) fn create(&self, kind: u32, auto_reset: bool) -> Result<u32, Errno> {
        let mut state = self.lock();
        // Numbers are reused only after all have been used once, so that a late interrupt finds no
        // event.
        let start = state.last_id;
        let id = (1..EVENT_LIMIT)
            .map(|step| (start + step - 1) % (EVENT_LIMIT - 1) + 1)
            .find(|id| !state.events.contains_key(id))
            .ok_or(Errno::NOSPC)?;
        state.last_id = id;
        let event = Event {
            kind,
            auto_reset,
            signaled: false,
            waiters: 0,
            age: 1,
            data: [0; 4],
        };
        state.events.insert(id, event);
        Ok(id)
    }

    /// Removes an event; its waiters are woken.
    pub(crate) fn destroy(&self, id: u32) -> Result<(), Errno> {
        let removed = self.lock().events.remove(&id);
        self.changed.notify_all();
        removed.map(drop).ok_or(Errno::INVAL)
    }

    /// Sets an event.
    pub(crate) fn set(&self, id: u32) -> Result<(), Errno> {
        let mut state = self.lock();
        let event = state.events.get_mut(&id).ok_or(Errno::INVAL)?;
        event.set();
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Clears an event.
    pub(crate) fn reset(&self, id: u32) -> Result<(), Errno> {
        self.lock()
            .events
            .get_mut(&id)
            .ok_or(Errno::INVAL)?
            .signaled = false;
        Ok(())
    }

    /// Sets every event of a system kind, with its data.
    pub(crate) fn raise(&self, kind: u32, data: [u64; 4]) {
        for event in self
            .lock()
            .events
            .values_mut()
            .filter(|event| event.kind == kind)
        {
            event.data = data;
            event.set();
        }
        self.changed.notify_all();
    }

    /// Waits for any or all of the events; returns false after the timeout (ms). Fills in the data
    /// of events that were set.
    ///
    /// As in the kernel's `kfd_events.c`, setting an event reaches all its current waiters, and the
    /// event stays set only if there are none. Otherwise, of two threads that wait for an event,
    /// the first would take it from the other: ROCr destroys a queue by setting an event that its
    /// event thread waits for, and then waits for it, too.
    pub(crate) fn wait(
        &self,
        wanted: &mut [EventData],
        all: bool,
        timeout_ms: u32,
    ) -> Result<bool, Errno> {
        let deadline = (timeout_ms != FOR_EVER)
            .then(|| Instant::now() + Duration::from_millis(u64::from(timeout_ms)));
        let mut state = self.lock();
        let mut waits = state.begin_wait(wanted)?;
        let outcome = loop {
            if !state.look(wanted, &mut waits) {
                break Err(Errno::INVAL);
            }
            let mut activated = waits.iter().map(|wait| wait.activated);
            let enough = if all {
                activated.all(|activated| activated)
            } else {
                activated.any(|activated| activated)
            };
            if enough {
                break Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break Ok(false);
            }
            let left = left.unwrap_or(Duration::from_secs(3_600));
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        };
        state.end_wait(wanted);
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event {
    const fn set(&mut self) {
        self.age += 1;
        self.signaled = !self.auto_reset || self.waiters == 0;
    }
}

/// One thread's wait for one event.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The event's age when the wait began.
    age: u64,
    activated: bool,
}

impl State {
    /// Registers a waiter at each event and takes those that are already set.
    fn begin_wait(&mut self, wanted: &[EventData]) -> Result<Vec<Wait>, Errno> {
        if wanted
            .iter()
            .any(|data| !self.events.contains_key(&data.event_id))
        {
            return Err(Errno::INVAL);
        }
        let mut waits = Vec::with_capacity(wanted.len());
        for data in wanted {
            let event = self.events.get_mut(&data.event_id).ok_or(Errno::INVAL)?;
            waits.push(Wait {
                age: event.age,
                activated: event.signaled,
            });
            event.signaled &= !event.auto_reset;
            event.waiters += 1;
        }
        Ok(waits)
    }

    /// Unregisters the waiter at the events that still exist.
    fn end_wait(&mut self, wanted: &[EventData]) {
        for data in wanted {
            if let Some(event) = self.events.get_mut(&data.event_id) {
                event.waiters = event.waiters.saturating_sub(1);
            }
        }
    }

    /// Marks the events that were set, and fills in their data; returns false if an event no longer
    /// exists.
    fn look(&self, wanted: &mut [EventData], waits: &mut [Wait]) -> bool {
        for (data, wait) in wanted.iter_mut().zip(waits) {
            let Some(event) = self.events.get(&data.event_id) else {
                return false;
            };
            let [first, ..] = &mut data.data;
            let missed = event.kind == event_type::SIGNAL && *first != 0 && *first != event.age;
            wait.activated |= event.age != wait.age || missed;
            if !wait.activated {
                continue;
            }
            if event.kind != event_type::SIGNAL {
                data.data = event.data;
            } else if *first != 0 {
                *first = event.age;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(event_id: u32) -> EventData {
        EventData {
            data: [0; 4],
            kfd_event_data_ext: 0,
            event_id,
            pad: 0,
        }
    }

    #[test]
    fn any_and_all_are_told_apart() {
        let events = Events::default();
        let ids = [
            events.create(0, true).unwrap(),
            events.create(0, true).unwrap(),
        ];
        events.set(ids[1]).unwrap();
        let mut wanted = ids.map(data);
        assert_eq!(events.wait(&mut wanted, true, 1), Ok(false));
        events.set(ids[1]).unwrap();
        assert_eq!(events.wait(&mut wanted, false, 1), Ok(true));
        assert_eq!(
            events.wait(&mut wanted, false, 1),
            Ok(false),
            "it resets itself"
        );
    }

    #[test]
    fn a_waiter_is_woken() {
        let events = Events::default();
        let id = events.create(0, true).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| events.wait(&mut [data(id)], false, FOR_EVER));
            events.set(id).unwrap();
            assert_eq!(waiter.join().unwrap(), Ok(true));
        });
    }

    #[test]
    fn an_event_reaches_all_of_its_waiters() {
        let events = Events::default();
        let id = events.create(0, true).unwrap();
        std::thread::scope(|scope| {
            let wait = || events.wait(&mut [data(id)], true, FOR_EVER);
            let waiters = [scope.spawn(wait), scope.spawn(wait)];
            while events.lock().events[&id].waiters < 2 {
                std::thread::yield_now();
            }
            events.set(id).unwrap();
            // It was consumed by those two; a third comes too late.
            assert_eq!(events.wait(&mut [data(id)], true, 0), Ok(false));
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Ok(true));
            }
        });
        assert_eq!(events.lock().events[&id].waiters, 0);
    }

    #[test]
    fn an_age_shows_what_was_missed() {
        let events = Events::default();
        let id = events.create(0, true).unwrap();
        events.set(id).unwrap();
        assert_eq!(events.wait(&mut [data(id)], false, 0), Ok(true));
        let mut wanted = [data(id)];
        wanted[0].data[0] = 1;
        assert_eq!(events.wait(&mut wanted, false, 0), Ok(true));
        assert_eq!(wanted[0].data[0], 2);
        assert_eq!(events.wait(&mut wanted, false, 0), Ok(false));
    }

    #[test]
    fn system_events_carry_their_data_and_unknown_ones_are_errors() {
        let events = Events::default();
        let id = events.create(event_type::HW_EXCEPTION, false).unwrap();
        events.raise(event_type::HW_EXCEPTION, [1, 2, 3, 4]);
        let mut wanted = [data(id)];
        assert_eq!(events.wait(&mut wanted, false, 0), Ok(true));
        assert_eq!(wanted[0].data, [1, 2, 3, 4]);
        events.destroy(id).unwrap();
        assert_eq!(events.wait(&mut wanted, false, 0), Err(Errno::INVAL));
        assert_eq!(events.set(id), Err(Errno::INVAL));
    }
}
