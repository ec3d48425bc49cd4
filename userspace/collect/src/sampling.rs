//! Decides when the GPUs' clocks are read: only while GPUs work.
//!
//! Reading the clock of an idle GPU may keep it from falling asleep, and a process that has KFD
//! open blocks an administrator who changes partitions or drivers. So KFD is opened when work is
//! seen, and closed some time after the last work.

use std::{collections::BTreeMap, time::Duration};

use gputrace_capture::Meta;
use gputrace_kfd::{
    Paths,
    clock::{ClockError, ClockSample, Lease, Thinner},
};

use crate::clocks;

/// How often clocks are read while work is submitted, ns: ten times per second, so that drift
/// between two samples is below a microsecond.
const EVERY: u64 = 100_000_000;

/// How often clocks are read while work continues and no new work is submitted, ns.
const SELDOM: u64 = 1_000_000_000;

/// How long KFD stays open after the last work, ns.
const LINGER: u64 = 2_000_000_000;

/// Pause after a failure to open KFD before the next attempt, ns.
const AGAIN: u64 = 10_000_000_000;

/// Time between the first two readings. A reading is uncertain by some microseconds at most, so the
/// rate is known to one part in a thousand.
const APART: Duration = Duration::from_millis(5);

/// Time of which only the last sample is written, if the others say nothing new, ns.
const WINDOW: u64 = 1_000_000_000;

/// The clocks of this node's GPUs.
#[derive(Debug)]
pub struct GpuClocks {
    paths: Paths,
    gpu_ids: Vec<u32>,
    lease: Option<Lease>,
    /// Samples of the first readings, which show whether the clocks can be read.
    first: Vec<ClockSample>,
}

impl GpuClocks {
    /// The clocks of the GPUs with these ids. They are read twice within [`APART`], to see whether
    /// they can be read. If a clock leaps before the first work, this pair tells its rate: a short
    /// program is over before many more samples have been taken.
    ///
    /// # Errors
    ///
    /// [`ClockError`]: KFD cannot be opened.
    pub fn new(paths: Paths, gpu_ids: Vec<u32>) -> Result<Self, ClockError> {
        let mut clocks = Self {
            paths,
            gpu_ids,
            lease: None,
            first: Vec::new(),
        };
        clocks.open()?;
        clocks.first = clocks.read();
        std::thread::sleep(APART);
        // Takes the first ones with it.
        clocks.first = clocks.read();
        clocks.close();
        Ok(clocks)
    }
}

/// Reads clocks. Tests have an implementation of their own.
pub(crate) trait Reader {
    /// Prepares for reading.
    fn open(&mut self) -> Result<(), ClockError>;
    /// Reads all clocks that can be read.
    fn read(&mut self) -> Vec<ClockSample>;
    /// Closes everything that was opened.
    fn close(&mut self);
}

impl Reader for GpuClocks {
    fn open(&mut self) -> Result<(), ClockError> {
        self.lease = Some(Lease::open(&self.paths, self.gpu_ids.clone())?);
        Ok(())
    }

    fn read(&mut self) -> Vec<ClockSample> {
        let mut samples = std::mem::take(&mut self.first);
        let Some(lease) = &mut self.lease else {
            return samples;
        };
        match lease.sample_all() {
            // A single missing sample does not matter. The timeline reports it if there are none at
            // all.
            Ok(found) => samples.extend(found.into_iter().filter_map(|sample| {
                sample
                    .inspect_err(|error| tracing::debug!("GPU clock: {error}"))
                    .ok()
            })),
            Err(error) => {
                tracing::debug!("GPU clocks: {error}");
                self.lease = None;
            }
        }
        samples
    }

    fn close(&mut self) {
        self.lease = None;
    }
}

/// Reads clocks when they are due.
#[derive(Debug)]
pub(crate) struct Sampling<R> {
    reader: R,
    is_open: bool,
    /// When work was last seen, ns `CLOCK_BOOTTIME`.
    worked: Option<u64>,
    due: u64,
    window: u64,
    thinners: BTreeMap<u32, Thinner>,
}

impl<R: Reader> Sampling<R> {
    /// Makes a sampler. With `prompt`, every sample is written at once, because somebody waits for
    /// it.
    pub(crate) fn new(reader: R, prompt: bool) -> Self {
        Self {
            reader,
            is_open: false,
            worked: None,
            due: 0,
            window: if prompt { 0 } else { WINDOW },
            thinners: BTreeMap::new(),
        }
    }

    /// Whether [`Sampling::tick`] has something to do although nothing is submitted.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Notes that work was submitted, or is about to be, at `now`. Returns whether this is the first
    /// work after a pause, so that a sample is due at once: while nobody used the GPU, its clock may
    /// have leapt.
    pub(crate) fn works(&mut self, now: u64) -> bool {
        self.worked = Some(now);
        !self.is_open && now >= self.due
    }

    /// Reads the clocks if they are due. `is_busy` says whether there is unfinished work.
    pub(crate) fn tick(&mut self, now: u64, is_busy: bool, into: &mut Vec<Meta>) {
        let is_recent = self
            .worked
            .is_some_and(|worked| now.saturating_sub(worked) < LINGER);
        let is_wanted = is_recent || is_busy;
        if is_wanted && !self.is_open && now >= self.due {
            match self.reader.open() {
                Ok(()) => self.is_open = true,
                Err(error) => {
                    tracing::debug!("GPU clocks: {error}");
                    self.due = now.saturating_add(AGAIN);
                }
            }
        }
        if !self.is_open || is_wanted && now < self.due {
            return;
        }
        self.due = now.saturating_add(if is_recent { EVERY } else { SELDOM });
        self.read(into);
        if !is_wanted {
            self.close(into);
            // The next work must not wait for its first sample.
            self.due = now;
        }
    }

    /// Reads the clocks a last time, if there was work since the previous reading.
    pub(crate) fn finish(&mut self, now: u64, is_busy: bool, into: &mut Vec<Meta>) {
        self.due = now;
        self.tick(now, is_busy, into);
        self.close(into);
    }

    fn read(&mut self, into: &mut Vec<Meta>) {
        for sample in self.reader.read() {
            let window = self.window;
            let thinner = self.thinners.entry(sample.gpu_id);
            let thinner = thinner.or_insert_with(|| Thinner::new(window));
            into.extend(thinner.push(sample).iter().map(clocks::gpu_clock));
        }
    }

    fn close(&mut self, into: &mut Vec<Meta>) {
        let kept = self.thinners.values_mut().flat_map(Thinner::flush);
        into.extend(kept.map(|sample| clocks::gpu_clock(&sample)));
        self.reader.close();
        self.is_open = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TICK: u64 = SECOND / 40;

    /// Eight clocks that run evenly, and counts of the operations on them.
    #[derive(Debug, Default)]
    struct Even {
        now: u64,
        is_open: bool,
        refuses: bool,
        opened: usize,
        reads: usize,
    }

    impl Reader for Even {
        fn open(&mut self) -> Result<(), ClockError> {
            self.opened += 1;
            if self.refuses {
                return Err(ClockError::UnknownGpu { gpu_id: 1 });
            }
            self.is_open = true;
            Ok(())
        }

        fn read(&mut self) -> Vec<ClockSample> {
            assert!(self.is_open);
            self.reads += 1;
            let sample = |gpu_id| ClockSample {
                gpu_id,
                gpu_tick: self.now / 10,
                boottime_ns: self.now,
                uncertainty_ns: 400,
                ..ClockSample::default()
            };
            (0..8).map(sample).collect()
        }

        fn close(&mut self) {
            self.is_open = false;
        }
    }

    fn run(sampling: &mut Sampling<Even>, from: u64, to: u64, is_busy: bool) -> Vec<Meta> {
        let mut metas = Vec::new();
        for now in (from..to).step_by(TICK as usize) {
            sampling.reader.now = now;
            sampling.tick(now, is_busy, &mut metas);
        }
        metas
    }

    #[test]
    fn an_idle_gpu_is_let_alone_for_a_week() {
        let mut sampling = Sampling::new(Even::default(), false);
        let week = 7 * 24 * 3_600 * SECOND;
        let mut metas = Vec::new();
        for now in (0..week).step_by(SECOND as usize) {
            sampling.reader.now = now;
            // Two seconds of work per day, whose end is not observed.
            if now % (week / 7) < 2 * SECOND {
                sampling.works(now);
            }
            sampling.tick(now, false, &mut metas);
            if now % (week / 7) == 10 * SECOND {
                assert!(!sampling.reader.is_open);
            }
        }
        assert_eq!(sampling.reader.opened, 7);
        assert!(
            (7..50).contains(&sampling.reader.reads),
            "{}",
            sampling.reader.reads
        );
        assert!(metas.len() < 8 * 7 * 6, "{}", metas.len());
    }

    #[test]
    fn while_work_comes_clocks_are_read_ten_times_a_second() {
        for (prompt, least, most) in [(true, 795, 816), (false, 80, 104)] {
            let mut sampling = Sampling::new(Even::default(), prompt);
            let mut metas = Vec::new();
            for second in 10..20 {
                sampling.works(second * SECOND);
                metas.extend(run(
                    &mut sampling,
                    second * SECOND,
                    (second + 1) * SECOND,
                    false,
                ));
            }
            assert!(
                (least..=most).contains(&metas.len()),
                "{prompt} {}",
                metas.len()
            );
            assert!((99..=102).contains(&sampling.reader.reads));
            // The clocks are read a last time afterwards.
            let reads = sampling.reader.reads;
            metas = run(&mut sampling, 20 * SECOND, 60 * SECOND, false);
            assert!(!sampling.reader.is_open && sampling.reader.reads - reads <= 11);
            assert!(matches!(
                metas.last(),
                Some(Meta::GpuClock(clock)) if clock.boottime >= 21 * SECOND
            ));
        }
    }

    #[test]
    fn work_that_goes_on_keeps_the_clocks_read() {
        let mut sampling = Sampling::new(Even::default(), false);
        sampling.works(SECOND);
        run(&mut sampling, SECOND, 3_600 * SECOND, true);
        assert!(sampling.reader.is_open);
        assert!((3_500..3_700).contains(&sampling.reader.reads));
        let mut metas = Vec::new();
        sampling.finish(3_600 * SECOND, true, &mut metas);
        assert!(!sampling.reader.is_open && !metas.is_empty());
    }

    #[test]
    fn a_short_recording_has_samples_too() {
        let mut sampling = Sampling::new(Even::default(), false);
        let mut metas = Vec::new();
        sampling.works(SECOND);
        sampling.finish(SECOND, false, &mut metas);
        assert_eq!((metas.len(), sampling.reader.is_open), (8, false));
        // Without any work nothing is read.
        let mut sampling = Sampling::new(Even::default(), false);
        metas.clear();
        sampling.finish(SECOND, false, &mut metas);
        assert_eq!((metas.len(), sampling.reader.opened), (0, 0));
    }

    #[test]
    fn what_refuses_is_not_asked_all_the_time() {
        let refuses = Even {
            refuses: true,
            ..Even::default()
        };
        let mut sampling = Sampling::new(refuses, false);
        run(&mut sampling, 0, 100 * SECOND, true);
        assert_eq!(sampling.reader.opened, 10);
    }
}
