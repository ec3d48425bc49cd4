//! Keeps the slices of a GPU's row apart.
//!
//! Kernels on one queue run at the same time, end in a different order than they began, and become
//! known in yet another order. Slices on one track must nest (module `nesting` explains why), and
//! kernels do not nest. So a row has several tracks of the same name, called lanes, which viewers
//! draw as one. A slice goes to the first lane that is free during its time, regardless of what
//! came before.

use gputrace_export::intervals::Intervals;

/// Maximum number of lanes in a row: a GPU has fewer slots for kernels of one queue.
pub(super) const LANES: usize = 64;

/// Maximum number of intervals remembered per lane. Beyond it, distant gaps count as taken.
const REMEMBERED: usize = 1024;

/// The lanes of a row, and the times that are taken on each.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    taken: Vec<Intervals>,
}

impl Lanes {
    /// Finds a lane for `begin..end` and takes it. `None` if all are taken.
    ///
    /// Packets of the same time stay in the order of the file. So an end that is written now would
    /// come after an already written begin of the same time, and would end the wrong slice.
    /// Therefore the nanosecond after `end` must be free too; the one before `begin` may be taken.
    pub(super) fn place(&mut self, begin: u64, end: u64) -> Option<usize> {
        let free = |lane: &Intervals| lane.is_free(begin, end.saturating_add(1));
        let lane = match self.taken.iter().position(free) {
            Some(lane) => lane,
            None if self.taken.len() < LANES => {
                self.taken.push(Intervals::default());
                self.taken.len() - 1
            }
            None => return None,
        };
        let taken = self.taken.get_mut(lane)?;
        taken.insert(begin, end);
        if taken.len() > REMEMBERED {
            taken.coarsen(begin);
        }
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Processes the packets of all slices as a viewer does, and checks that every slice gets its
    /// own end.
    fn check(spans: &[(u64, u64)]) -> usize {
        let mut lanes = Lanes::default();
        let mut packets: Vec<(usize, u64, usize, bool)> = Vec::new();
        for (number, (begin, end)) in spans.iter().enumerate() {
            let lane = lanes.place(*begin, *end).unwrap_or(LANES + number);
            packets.push((lane, *begin, number, true));
            packets.push((lane, *end, number, false));
        }
        packets.sort_by_key(|(lane, time, ..)| (*lane, *time));
        let mut open = None;
        for (_, _, number, begins) in packets {
            if begins {
                assert_eq!(open, None, "{spans:?}");
                open = Some(number);
            } else {
                assert_eq!(open.take(), Some(number), "{spans:?}");
            }
        }
        lanes.taken.len()
    }

    proptest! {
        #[test]
        fn slices_get_their_own_ends_in_any_order(
            spans in proptest::collection::vec((0_u64..500, 1_u64..60), 0..150),
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(begin, length)| (begin, begin + length)).collect();
            check(&spans);
        }
    }

    #[test]
    fn one_after_the_other_needs_one_lane() {
        let in_order: Vec<_> = (0..5000).map(|n| (n * 10, n * 10 + 10)).collect();
        assert_eq!(check(&in_order), 1);
        let with_gaps: Vec<_> = (0..5000).map(|n| (n * 10, n * 10 + 9)).collect();
        assert_eq!(check(&with_gaps), 1);
        let backwards: Vec<_> = with_gaps.into_iter().rev().collect();
        assert_eq!(check(&backwards), 1);
        let four_at_once: Vec<_> = (0..5000).map(|n| (n * 10, n * 10 + 40)).collect();
        assert_eq!(check(&four_at_once), 4);
    }

    #[test]
    fn there_are_not_more_lanes_than_said() {
        let all_at_once: Vec<_> = (0..500).map(|_| (10, 20)).collect();
        assert_eq!(check(&all_at_once), LANES);
    }
}
