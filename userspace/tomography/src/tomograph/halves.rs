//! Checks whether every other look leads to the same result.
//!
//! What looks say depends on means that are not known yet, so there may be several solutions, each
//! consistent with itself. If two sets of looks lead to different means, the means are not known,
//! whatever the equations say.

use super::{Given, Tomograph};
use crate::Look;

/// Number of standard errors by which results may differ by chance.
const CHANCE: f64 = 2.0;

/// A mean with a larger relative error says nothing about another.
const VAGUE: f64 = 0.5;

/// Estimates from the even and from the odd looks of the whole input.
pub(crate) fn estimates(all: &[Given]) -> [Tomograph; 2] {
    [0, 1].map(|parity| {
        let mut tomograph = Tomograph::new().half();
        // By queue: the number of its next look and, if the previous look was left out, since when
        // the queue was not looked at.
        let mut queues: Vec<(u32, usize, Option<u64>)> = Vec::new();
        for given in all {
            match given {
                Given::Packet(queue, packet, _) => tomograph.packet(*queue, packet),
                Given::End(queue) => tomograph.end(*queue),
                Given::Look(queue, look, when) => {
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
                    tomograph.look_between(*queue, Look { before, ..*look }, look.time, *when);
                }
            }
        }
        tomograph.finish();
        tomograph
    })
}

/// The variance by which a mean is less certain than stated, judging by the halves. All values have
/// the same unit. Each half is a mean and its standard error.
pub(crate) fn doubt(halves: [(f64, f64); 2]) -> f64 {
    let [(one, its), (other, others)] = halves;
    if !(its <= VAGUE * one && others <= VAGUE * other) {
        return 0.0;
    }
    let half = (one - other) / 2.0;
    // Half of the difference has a quarter of the sum of both variances.
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
