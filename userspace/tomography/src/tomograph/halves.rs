//! Whether the same comes out of every other look.
//!
//! What looks say depends on means that are not known yet, so there may be several solutions of which each agrees with itself. Where
//! two sets of looks lead to different means, these are not known, whatever the equations say.

use super::{Given, Tomograph};
use crate::Look;

/// Standard errors by which what comes out may differ by chance.
const CHANCE: f64 = 2.0;

/// A mean whose relative error is larger says nothing of another.
const VAGUE: f64 = 0.5;

/// Estimates of the even and of the odd looks, of all that was given.
pub(crate) fn estimates(all: &[Given]) -> [Tomograph; 2] {
    [0, 1].map(|parity| {
        let mut tomograph = Tomograph::new().half();
        // By queue: number of its next look, and since when it was not looked at if that was left out.
        let mut queues: Vec<(u32, usize, Option<u64>)> = Vec::new();
        for given in all {
            match given {
                Given::Packet(queue, packet, _) => tomograph.packet(*queue, packet),
                Given::End(queue) => tomograph.end(*queue),
                Given::Look(queue, look) => {
                    if !queues.iter().any(|(number, ..)| number == queue) {
                        queues.push((*queue, 0, None));
                    }
                    let Some((_, number, unseen)) =
                        queues.iter_mut().find(|(number, ..)| number == queue)
                    else {
                        continue;
                    };
                    *number += 1;
                    if *number % 2 == parity {
                        unseen.get_or_insert(look.before);
                        continue;
                    }
                    let before = unseen.take().unwrap_or(look.before);
                    tomograph.look(*queue, &Look { before, ..*look });
                }
            }
        }
        tomograph.finish();
        tomograph
    })
}

/// The variance by which a mean is less certain than was said, if the halves say so of it; all of one unit. Each half is a mean and its
/// standard error.
pub(crate) fn doubt(halves: [(f64, f64); 2]) -> f64 {
    let [(one, its), (other, others)] = halves;
    if !(its <= VAGUE * one && others <= VAGUE * other) {
        return 0.0;
    }
    let half = (one - other) / 2.0;
    // Half of the difference has a quarter of both variances.
    let chance = CHANCE * CHANCE * (its * its + others * others) / 4.0;
    (half * half - chance).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_is_what_chance_does_not_explain() {
        assert_eq!(doubt([(100.0, 3.0), (105.0, 4.0)]), 0.0);
        assert!((doubt([(100.0, 3.0), (140.0, 4.0)]) - (400.0 - 25.0)).abs() < 1e-9);
        assert_eq!(
            doubt([(100.0, 60.0), (140.0, 4.0)]),
            0.0,
            "one says nothing"
        );
        assert_eq!(doubt([(0.0, 0.0), (0.0, 0.0)]), 0.0);
    }
}
