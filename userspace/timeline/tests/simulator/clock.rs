//! Simulates the GPU's clock.

use gputrace_capture::gpu::GpuClock;
use gputrace_timeline::synthetic::gpu::GPU_NODE;

use super::Random;

/// A jump of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jump {
    /// When, in host ns.
    pub(crate) at: u64,
    /// Size in ticks.
    pub(crate) by: i64,
}

/// A counter of about 100 MHz.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Count at host time 0.
    pub(crate) offset: u64,
    /// How much it runs fast, in parts per million.
    pub(crate) drift: i64,
    pub(crate) jump: Option<Jump>,
    /// Half the width of a reading, ns; 0 for a clock that nobody samples.
    pub(crate) uncertainty: u64,
}

impl Clock {
    /// The count at a host time.
    pub(crate) fn tick(&self, time: u64) -> u64 {
        let counted = u128::from(time) * (1_000_000 + i128::from(self.drift)) as u128 / 10_000_000;
        let jump = self
            .jump
            .filter(|jump| time >= jump.at)
            .map_or(0, |jump| jump.by);
        (self.offset + counted as u64).wrapping_add_signed(jump)
    }

    /// Ten samples per second over a period.
    pub(crate) fn samples(&self, from: u64, to: u64, random: &mut Random) -> Vec<GpuClock> {
        if self.uncertainty == 0 {
            return Vec::new();
        }
        let moments = (from..=to).step_by(100_000_000);
        let sampled = moments.map(|time| GpuClock {
            gpu_id: GPU_NODE,
            tick: self.tick(time),
            boottime: time - self.uncertainty + random.between(0, 2 * self.uncertainty),
            uncertainty: self.uncertainty,
            ..GpuClock::default()
        });
        sampled.collect()
    }

    /// Whether a time is so close to a jump that the samples are less accurate.
    pub(crate) fn is_near_jump(&self, time: u64) -> bool {
        self.jump
            .is_some_and(|jump| time.abs_diff(jump.at) < 250_000_000)
    }
}
