//! Whether a queue's doorbells are looks.
//!
//! A doorbell reads the read index at no cost. But a program that waits for room in a full ring rings whenever a packet
//! begins. Its doorbells follow the GPU: they see each index as soon as it is reached, and what they say of begins is no
//! chance. In a simulation, means by such looks were wrong by 5 %, and their errors said 0.2 %. Then packets go in as others
//! come out, and the queue always holds as many. Whether doorbells count is decided by those before them, so that
//! what a doorbell sees does not decide whether it counts.

/// Doorbells that are judged together.
const JUDGED: u32 = 64;

/// Of these, so many may find as many packets in the queue as the one before.
const ALIKE: u32 = 44;

/// The doorbells of a queue.
#[derive(Debug, Default)]
pub(crate) struct Doorbells {
    /// Packets that had not begun at the last one.
    left: Option<u64>,
    count: u32,
    alike: u32,
    is_free: bool,
}

impl Doorbells {
    /// Takes one that found so many packets that had not begun; whether it is a look.
    pub(crate) fn ring(&mut self, left: u64) -> bool {
        let is_free = self.is_free;
        self.count += 1;
        if self.left.replace(left) == Some(left) {
            self.alike += 1;
        }
        if self.count == JUDGED {
            self.is_free = self.alike <= ALIKE;
            (self.count, self.alike) = (0, 0);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_that_wait_for_room_are_no_looks() {
        let ring = |left: &dyn Fn(u64) -> u64| {
            let mut doorbells = Doorbells::default();
            let all = (0..1000).map(|number| doorbells.ring(left(number)));
            all.skip(JUDGED as usize).filter(|is_look| *is_look).count()
        };
        let known = 1000 - JUDGED as usize;
        assert_eq!(ring(&|number| number % 40), known, "in bursts");
        assert_eq!(ring(&|_| 64), 0, "the ring is full");
        assert_eq!(
            ring(&|number| 64 - u64::from(number % 10 == 0)),
            0,
            "almost always"
        );
        assert_eq!(
            ring(&|number| 5 + number / 2 % 3),
            known,
            "at the GPU's pace"
        );
    }

    #[test]
    fn nothing_is_known_of_the_first() {
        let mut doorbells = Doorbells::default();
        assert!(!(0..u64::from(JUDGED)).any(|left| doorbells.ring(left)));
        assert!(doorbells.ring(7));
    }
}
