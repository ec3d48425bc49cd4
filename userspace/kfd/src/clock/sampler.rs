//! Samples the GPU clocks through KFD.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;

use gputrace_files::kernel;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::{ClockError, ClockSample};
use crate::paths::Paths;

/// Maximum number of readings per sample. The most precise one is used: an interrupted one is
/// useless.
const ATTEMPTS: u32 = 4;

/// Uncertainty at which a reading is good enough, ns.
const GOOD_NS: u64 = 1_000;

/// `_IOWR('K', 0x05, struct kfd_ioctl_get_clock_counters_args)`.
const GET_CLOCK_COUNTERS: libc::c_ulong = 0xc028_4b05;

/// `struct kfd_ioctl_get_clock_counters_args` of `linux/kfd_ioctl.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockCounters {
    gpu_clock_counter: u64,
    /// `CLOCK_MONOTONIC_RAW`, ns.
    cpu_clock_counter: u64,
    /// `CLOCK_BOOTTIME`, ns.
    system_clock_counter: u64,
    system_clock_freq: u64,
    gpu_id: u32,
    pad: u32,
}

const _: () = assert!(size_of::<ClockCounters>() == 40);

/// Current time of `CLOCK_BOOTTIME`, ns.
#[must_use]
pub fn boottime_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // Neither part is negative: the clock begins at boot.
    time.tv_sec
        .unsigned_abs()
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec.unsigned_abs())
}

/// The sample in another process's request to KFD. The arguments are the `request` of `ioctl(2)`,
/// its structure after the call succeeded, and the times before and after the call (ns
/// `CLOCK_BOOTTIME`). `None` for other requests, a truncated structure, or a GPU that KFD did not
/// know.
#[must_use]
pub fn traced(
    request: u32,
    structure: &[u8],
    before_ns: u64,
    after_ns: u64,
) -> Option<ClockSample> {
    // Releases may differ in the structure's size, which is part of the request's number.
    if u64::from(request & 0xffff) != GET_CLOCK_COUNTERS & 0xffff {
        return None;
    }
    let word = |index: usize| {
        let bytes = structure.get(index * 8..index * 8 + 8)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    };
    let (tick, system, gpu_id) = (word(0)?, word(2)?, word(4)? as u32);
    (tick != 0 && gpu_id != 0)
        .then(|| ClockSample::from_counters(gpu_id, tick, system, before_ns, after_ns))
}

/// An open `/dev/kfd`, and the GPUs whose clocks to read.
///
/// Opening it makes KFD list this process, without queues or memory on any GPU, until the process
/// ends: see [`Lease`](super::Lease). It can be used only in this process, not in a forked child.
#[derive(Debug)]
pub struct Sampler {
    kfd: File,
    path: PathBuf,
    gpu_ids: Vec<u32>,
}

impl Sampler {
    /// Opens KFD's device for the GPUs with these ids
    /// ([`Topology::gpu_ids`](crate::topology::Topology::gpu_ids)).
    ///
    /// # Errors
    ///
    /// [`ClockError`]: there is no device, it may not be opened, or it is not KFD's.
    pub fn open(paths: &Paths, gpu_ids: Vec<u32>) -> Result<Self, ClockError> {
        let path = paths.dev_kfd.clone();
        // KFD accepts its requests whatever mode the file was opened in.
        let kfd = kernel::open(&path).map_err(|error| {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            classify(error, path.clone())
        })?;
        // GPU 0 is the CPU, which has no counter; the request succeeds nevertheless.
        counters(kfd.as_raw_fd(), 0).map_err(|error| classify(error, path.clone()))?;
        Ok(Self { kfd, path, gpu_ids })
    }

    /// Ids of the GPUs.
    #[must_use]
    pub fn gpu_ids(&self) -> &[u32] {
        &self.gpu_ids
    }

    /// Takes one sample of every GPU, each with its own result. This takes some microseconds per
    /// GPU.
    #[must_use]
    pub fn sample_all(&self) -> Vec<Result<ClockSample, ClockError>> {
        self.gpu_ids
            .iter()
            .map(|gpu_id| self.sample(*gpu_id))
            .collect()
    }

    /// Takes one sample of a GPU: the most precise of a few readings.
    ///
    /// # Errors
    ///
    /// [`ClockError`]: KFD does not know the GPU or refuses.
    pub fn sample(&self, gpu_id: u32) -> Result<ClockSample, ClockError> {
        let sample = sample(self.kfd.as_raw_fd(), gpu_id);
        let sample = sample.map_err(|error| classify(error, self.path.clone()))?;
        sample.ok_or(ClockError::UnknownGpu { gpu_id })
    }
}

/// Takes the most precise of a few readings; `None` if KFD does not know the GPU. Allocates nothing
/// and takes no lock.
pub(super) fn sample(kfd: RawFd, gpu_id: u32) -> Result<Option<ClockSample>, Errno> {
    let mut best: Option<ClockSample> = None;
    for _ in 0..ATTEMPTS {
        let before = boottime_ns();
        let counters = counters(kfd, gpu_id)?;
        let after = boottime_ns();
        // For an unknown GPU, KFD succeeds and leaves 0.
        if counters.gpu_clock_counter == 0 {
            return Ok(None);
        }
        let system = counters.system_clock_counter;
        let tick = counters.gpu_clock_counter;
        let sample = ClockSample::from_counters(gpu_id, tick, system, before, after);
        if best.is_none_or(|best| sample.uncertainty_ns < best.uncertainty_ns) {
            best = Some(sample);
        }
        if sample.uncertainty_ns <= GOOD_NS {
            break;
        }
    }
    Ok(best)
}

/// Makes the request.
pub(super) fn counters(kfd: RawFd, gpu_id: u32) -> Result<ClockCounters, Errno> {
    let mut counters = ClockCounters {
        gpu_id,
        ..ClockCounters::default()
    };
    loop {
        // SAFETY: the request's size is that of the structure, which lives through the call and may
        // hold any bytes.
        let result = unsafe { libc::ioctl(kfd, GET_CLOCK_COUNTERS, &raw mut counters) };
        if result == 0 {
            return Ok(counters);
        }
        // Allocates nothing: it reads the thread's error number.
        let error = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        if error != Errno::INTR {
            return Err(error);
        }
    }
}

pub(super) fn classify(error: Errno, path: PathBuf) -> ClockError {
    match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::NOTDIR => ClockError::NoDevice { path },
        Errno::ACCESS | Errno::PERM => ClockError::Denied { path, error },
        Errno::NOTTY => ClockError::NotKfd { path },
        Errno::BADF => ClockError::OtherProcess { path },
        error => ClockError::Failed { path, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kfds_own_reading_narrows_a_sample_if_it_can_be_true() {
        let sample = |system| ClockSample::from_counters(1, 2, system, 1_000, 3_001);
        let known = sample(1_501);
        assert_eq!((known.boottime_ns, known.uncertainty_ns), (1_250, 251));
        for lie in [0, 999, 3_002] {
            assert_eq!(
                (sample(lie).boottime_ns, sample(lie).uncertainty_ns),
                (2_000, 1_001)
            );
        }
    }

    #[test]
    fn somebody_elses_request_is_a_sample_too() {
        let words = [500_u64, 0, 2_000, 1_000_000_000, 31_000];
        let structure: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let request = GET_CLOCK_COUNTERS as u32;
        let sample = traced(request, &structure, 1_000, 3_000);
        assert_eq!(
            sample,
            Some(ClockSample::from_counters(31_000, 500, 2_000, 1_000, 3_000))
        );
        assert_eq!(traced(request ^ 1, &structure, 1_000, 3_000), None);
        for length in 0..structure.len() {
            assert_eq!(traced(request, &structure[..length], 1_000, 3_000), None);
        }
        // The CPU's clock, and a GPU that KFD does not know.
        for zero in [0, 4] {
            let mut words = words;
            words[zero] = 0;
            let structure: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(traced(request, &structure, 1_000, 3_000), None);
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let mut paths = Paths::under(directory.path());
        let open = |paths: &Paths| Sampler::open(paths, Vec::new()).unwrap_err();
        let path = paths.dev_kfd.clone();
        assert_eq!(open(&paths), ClockError::NoDevice { path });
        // A device that does not belong to KFD.
        paths.dev_kfd = "/dev/null".into();
        let path = paths.dev_kfd.clone();
        assert_eq!(open(&paths), ClockError::NotKfd { path: path.clone() });
        let denied = classify(Errno::ACCESS, path.clone());
        assert!(denied.to_string().contains("group render"), "{denied}");
        let other = classify(Errno::BADF, path.clone());
        assert_eq!(other, ClockError::OtherProcess { path });
    }
}
