//! Keeps the slices of a GPU's row apart.
//!
//! Kernels on one queue run at the same time, end in another order than they began, and become known in
//! yet another. Slices on one track must nest (module `nesting` says why), and two kernels are not inside
//! each other, so a row has several tracks, called lanes, of the same name, which viewers draw as one.
//! A slice goes to the first lane where its time is free, whatever came before it.

use gputrace_export::intervals::Intervals;

/// Lanes of a row at most: a GPU has fewer places for kernels of one queue.
pub(super) const LANES: usize = 64;

/// Intervals remembered for a lane. Beyond that, gaps that are far away count as taken.
const REMEMBERED: usize = 1024;

/// The lanes of a row, and which times are taken on each.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    taken: Vec<Intervals>,
}

impl Lanes {
    /// Finds a lane for `begin..end` and takes it. `None` if all are taken.
    ///
    /// Packets of one time stay in the order of the file, so an end that is written now would come after a
    /// beginning of that time which is written already, and end the wrong slice. So the nanosecond after
    /// `end` must be free too; that before `begin` may be taken.
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

    /// Lays out the packets of all slices as a viewer does, and checks that every slice gets its own end.
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
