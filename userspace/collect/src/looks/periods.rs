//! How long the times between looks were.

/// Histogram steps per power of two of the period.
const STEPS: u64 = 8;

/// A histogram of periods.
#[derive(Debug)]
pub(super) struct Periods {
    counts: Vec<u64>,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            counts: vec![0; 64 * STEPS as usize],
        }
    }
}

impl Periods {
    /// Counts a period, ns.
    pub(super) fn add(&mut self, period: u64) {
        let power = u64::from(period.max(1).ilog2());
        // The three bits below the highest.
        let step = if power >= 3 {
            period >> (power - 3) & (STEPS - 1)
        } else {
            0
        };
        if let Some(count) = self.counts.get_mut((power * STEPS + step) as usize) {
            *count += 1;
        }
    }

    /// Median of the periods, ns, exact within a sixteenth; 0 if there were none.
    pub(super) fn median(&self) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let mut below = 0;
        for (bin, count) in self.counts.iter().enumerate() {
            below += count;
            if below * 2 > all {
                let (power, step) = (bin as u64 / STEPS, bin as u64 % STEPS);
                let low = (1_u64 << power) + (step << power) / STEPS;
                return low + (1 << power) / STEPS / 2;
            }
        }
        0
    }
}
