//! When a queue's read index becomes visible: at once, late, or in steps, as hardware may do.

use crate::bus::{Bus, BusResult};
use crate::config::QueueConfig;

/// The read index of an AQL queue as visible to the program.
#[derive(Debug)]
pub(crate) struct ReadIndex {
    address: u64,
    step: u64,
    delay_ns: u64,
    ahead: u64,
    reported: u64,
    /// Time in ns since which there has been something to report.
    since: Option<u64>,
}

impl ReadIndex {
    pub(crate) const fn new(config: &QueueConfig, address: u64, reported: u64) -> Self {
        Self {
            address,
            step: config.read_index_step,
            delay_ns: config.read_index_delay_ns,
            ahead: config.read_index_ahead,
            reported,
            since: None,
        }
    }

    /// Reports `consumed` if it is due. An empty queue reports regardless of the step, because a
    /// program that waits for room would wait forever. If something is held back, returns the time
    /// (ns) of the next look. Indices reported ahead are limited by `announced`.
    pub(crate) fn report(
        &mut self,
        bus: &Bus,
        (consumed, announced): (u64, u64),
        now_ns: u64,
        drained: bool,
    ) -> BusResult<Option<u64>> {
        let consumed = (consumed + self.ahead).min(announced.max(consumed));
        if consumed == self.reported {
            return Ok(None);
        }
        let due = *self.since.get_or_insert(now_ns) + self.delay_ns;
        if consumed - self.reported < self.step && !drained {
            return Ok(None);
        }
        if now_ns < due {
            return Ok(Some(due));
        }
        bus.store_u64("read index", self.address, consumed)?;
        self.reported = consumed;
        self.since = None;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::bus::Identity;

    #[test]
    fn steps_and_delays_are_kept_unless_drained() {
        let cell = AtomicU64::new(0);
        // SAFETY: only the cell's address is handed in.
        let bus = unsafe { Bus::new(Arc::new(Identity)) };
        let config = QueueConfig {
            read_index_step: 4,
            read_index_delay_ns: 100,
            ..QueueConfig::default()
        };
        let mut index = ReadIndex::new(&config, cell.as_ptr() as u64, 0);
        let seen = || cell.load(Ordering::Relaxed);
        assert_eq!(
            (index.report(&bus, (3, 3), 1_000, false), seen()),
            (Ok(None), 0)
        );
        assert_eq!(
            (index.report(&bus, (4, 4), 1_050, false), seen()),
            (Ok(Some(1_100)), 0)
        );
        assert_eq!(
            (index.report(&bus, (5, 5), 1_100, false), seen()),
            (Ok(None), 5)
        );
        assert_eq!(
            (index.report(&bus, (6, 6), 1_200, true), seen()),
            (Ok(Some(1_300)), 5)
        );
        assert_eq!(
            (index.report(&bus, (6, 6), 1_300, true), seen()),
            (Ok(None), 6)
        );
    }

    #[test]
    fn ahead_is_no_further_than_what_was_announced() {
        let cell = AtomicU64::new(0);
        // SAFETY: only the cell's address is handed in.
        let bus = unsafe { Bus::new(Arc::new(Identity)) };
        let config = QueueConfig {
            read_index_ahead: 3,
            ..QueueConfig::default()
        };
        let mut index = ReadIndex::new(&config, cell.as_ptr() as u64, 0);
        let mut report = |consumed, announced| {
            index.report(&bus, (consumed, announced), 1, false).unwrap();
            cell.load(Ordering::Relaxed)
        };
        assert_eq!(
            [report(0, 0), report(0, 2), report(1, 9), report(9, 9)],
            [0, 2, 4, 9]
        );
    }
}
