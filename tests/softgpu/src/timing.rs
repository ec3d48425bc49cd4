//! Durations of kernels. Since they compute nothing, a table defines the durations.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::bus::BusResult;

/// A duration: fixed, or drawn from a seeded distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Duration {
    /// Always the same.
    Fixed {
        /// Nanoseconds.
        fixed_ns: u64,
    },
    /// Uniformly distributed over a range.
    Uniform {
        /// Minimum and maximum in nanoseconds, both included.
        uniform_ns: [u64; 2],
    },
    /// Exponentially distributed: mostly short, occasionally long. Limited to 20 times the mean.
    Exponential {
        /// Mean, nanoseconds.
        exponential_ns: u64,
    },
    /// Proportional to the grid.
    PerItem {
        /// Picoseconds per work-item.
        per_work_item_ps: u64,
    },
    /// Given by an argument: 64 bits, in ticks of the agent's clock.
    Argument {
        /// Offset of the argument in bytes from the first one.
        ticks_argument: u64,
    },
}

/// A rule for the duration of kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRule {
    /// Kernel name as in the code object, without `.kd`; `*` and `?` are wildcards.
    #[serde(default = "any_name")]
    pub name: String,
    /// Minimum number of work-items of the grid.
    #[serde(default)]
    pub min_work_items: u64,
    /// Maximum number of work-items of the grid.
    #[serde(default = "no_limit")]
    pub max_work_items: u64,
    /// Their duration.
    pub duration: Duration,
    /// They read the clock at their begin and end, and store both at the address in this argument
    /// (offset in bytes from the first one), unless it is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_argument: Option<u64>,
}

pub(crate) fn any_name() -> String {
    "*".to_owned()
}

const fn no_limit() -> u64 {
    // The largest integer in TOML.
    i64::MAX.unsigned_abs()
}

/// The rules, prepared for look-ups.
#[derive(Debug)]
pub(crate) struct Durations {
    seed: u64,
    default: Duration,
    rules: Vec<(WildMatch, KernelRule)>,
}

impl Durations {
    pub(crate) fn new(seed: u64, default: Duration, rules: &[KernelRule]) -> Self {
        let rules = rules
            .iter()
            .map(|rule| (WildMatch::new(&rule.name), rule.clone()))
            .collect();
        Self {
            seed,
            default,
            rules,
        }
    }

    /// The rule for a kernel, if any.
    pub(crate) fn rule(&self, name: &str, work_items: u64) -> Option<&KernelRule> {
        let rule = self.rules.iter().find(|(pattern, rule)| {
            (rule.min_work_items..=rule.max_work_items).contains(&work_items)
                && pattern.matches(name)
        });
        rule.map(|(_, rule)| rule)
    }

    /// Duration in ns of this kernel at this place. It is the same for the same seed, queue and
    /// index. `argument` returns the nanoseconds given by the argument at an offset.
    pub(crate) fn duration_ns(
        &self,
        name: &str,
        work_items: u64,
        (queue, index): (u32, u64),
        argument: impl FnOnce(u64) -> BusResult<u64>,
    ) -> BusResult<u64> {
        let duration = self
            .rule(name, work_items)
            .map_or(self.default, |rule| rule.duration);
        let draw = || mix(self.seed ^ mix(u64::from(queue) << 48 ^ index));
        Ok(match duration {
            Duration::Argument { ticks_argument } => argument(ticks_argument)?,
            Duration::Fixed { fixed_ns } => fixed_ns,
            Duration::Uniform {
                uniform_ns: [from, to],
            } => {
                let values = to.saturating_sub(from).saturating_add(1);
                from + draw() % values
            }
            Duration::Exponential { exponential_ns } => exponential(exponential_ns, draw()),
            Duration::PerItem { per_work_item_ps } => {
                work_items.saturating_mul(per_work_item_ps) / 1_000
            }
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a random duration needs no more precision than a double has; it is positive and cut"
)]
fn exponential(mean_ns: u64, draw: u64) -> u64 {
    // In (0, 1], so that the logarithm is finite.
    let uniform = ((draw >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let factor = (-uniform.ln()).min(20.0);
    (mean_ns as f64 * factor) as u64
}

/// The finaliser of SplitMix64: every bit of the input changes half of the output's bits.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, min: u64, max: u64, fixed_ns: u64) -> KernelRule {
        KernelRule {
            name: name.to_owned(),
            min_work_items: min,
            max_work_items: max,
            duration: Duration::Fixed { fixed_ns },
            clock_argument: None,
        }
    }

    fn no_argument(_: u64) -> BusResult<u64> {
        panic!("no rule names an argument")
    }

    #[test]
    fn the_first_matching_rule_wins() {
        let rules = [
            rule("vadd*", 0, 100, 1),
            rule("vadd*", 0, u64::MAX, 2),
            rule("*blas*", 0, 10, 3),
        ];
        let durations = Durations::new(1, Duration::Fixed { fixed_ns: 9 }, &rules);
        for (name, work_items, ns) in [
            ("vadd_f32", 100, 1),
            ("vadd_f32", 101, 2),
            ("rocblas_x", 10, 3),
            ("rocblas_x", 11, 9),
        ] {
            let found = durations.duration_ns(name, work_items, (1, 0), no_argument);
            assert_eq!(found.unwrap(), ns, "{name} {work_items}");
        }
    }

    #[test]
    fn an_argument_can_say_how_long() {
        let duration = Duration::Argument { ticks_argument: 8 };
        let durations = Durations::new(1, duration, &[]);
        let argument = |at| Ok(at * 100);
        assert_eq!(
            durations.duration_ns("k", 1, (0, 0), argument).unwrap(),
            800
        );
    }

    #[test]
    fn draws_follow_the_seed_and_the_place_only() {
        let draw = |seed, index| {
            Durations::new(
                seed,
                Duration::Uniform {
                    uniform_ns: [10, 1_000_000],
                },
                &[],
            )
            .duration_ns("k", 1, (3, index), no_argument)
            .unwrap()
        };
        assert_eq!(draw(1, 5), draw(1, 5));
        assert_ne!(draw(1, 5), draw(2, 5));
        assert_ne!(draw(1, 5), draw(1, 6));
        assert!((0..1_000).all(|index| (10..=1_000_000).contains(&draw(1, index))));
    }

    #[test]
    fn exponential_has_its_mean_and_an_end() {
        let durations = Durations::new(
            1,
            Duration::Exponential {
                exponential_ns: 10_000,
            },
            &[],
        );
        let draws: Vec<u64> = (0..10_000)
            .map(|index| {
                durations
                    .duration_ns("k", 1, (0, index), no_argument)
                    .unwrap()
            })
            .collect();
        let mean = draws.iter().sum::<u64>() / 10_000;
        assert!((9_500..10_500).contains(&mean), "{mean}");
        assert!(draws.iter().all(|draw| *draw <= 200_000));
    }
}
