//! Random pauses.

/// A generator of random numbers: SplitMix64, which is cheap and uniform enough for pauses.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Makes a generator. `seed` should differ between recordings.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random value, evenly distributed between half a period and one and a half.
    pub(crate) fn jittered(&mut self, period: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The high half of the product is below the period.
        let part = (u128::from(mixed) * u128::from(period)) >> 64;
        period / 2 + part as u64
    }
}
