//! Allocated memory over time, by agent.

use std::collections::BTreeMap;

use gputrace_timeline::{
    event::Event,
    observation::{FieldValue, Observation},
};

/// Maximum number of points in a curve.
const POINTS: usize = 2048;

/// Allocated bytes over time; each value holds until the next point. Of points that lie close
/// together, the one with the most bytes is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    /// Times, ns `CLOCK_BOOTTIME`, and bytes.
    pub(super) points: Vec<(u64, u64)>,
    pub(super) peak: u64,
}

impl Curve {
    fn add(&mut self, time: u64, bytes: u64) {
        self.peak = self.peak.max(bytes);
        if self.points.len() == POINTS {
            let pairs = self.points.chunks(2);
            self.points = pairs
                .filter_map(|pair| {
                    let most = pair.iter().map(|(_, bytes)| *bytes).max()?;
                    pair.first().map(|(time, _)| (*time, most))
                })
                .collect();
        }
        self.points.push((time, bytes));
    }
}

/// The curves by node.
#[derive(Debug, Default)]
pub(super) struct MemoryUse {
    pub(super) nodes: BTreeMap<u32, Curve>,
}

impl MemoryUse {
    pub(super) fn event(&mut self, event: &Event) {
        if let Event::Observation(one) = event
            && let Some((node, bytes)) = live(one)
        {
            self.nodes.entry(node).or_default().add(one.end, bytes);
        }
    }
}

/// Node and allocated bytes there, if the observation has them.
fn live(one: &Observation) -> Option<(u32, u64)> {
    match (one.get("node")?, one.get("live_bytes")?) {
        (FieldValue::Number(node), FieldValue::Number(bytes)) => {
            Some((u32::try_from(*node).ok()?, *bytes))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_curve_is_bounded_in_order_and_keeps_its_peak(changes in proptest::collection::vec(0..1_000_000_u64, 0..20_000)) {
            let mut curve = Curve::default();
            for (time, bytes) in (0..).zip(&changes) {
                curve.add(time, *bytes);
            }
            prop_assert!(curve.points.len() <= POINTS);
            prop_assert!(curve.points.is_sorted_by(|(one, _), (other, _)| one < other));
            prop_assert_eq!(curve.peak, changes.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(curve.points.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0), curve.peak);
            prop_assert_eq!(curve.points.last().map(|(_, bytes)| *bytes), changes.last().copied());
        }
    }
}
