//! Behaviours of ROCm releases newer than 6.4, which can be enabled one by one.
//!
//! `SIMROCM_NEWER` contains names of [`Newer`] separated by commas, or `all`. Sources:
//! `ROCm/rocm-systems` (`clr`, `rocr-runtime`), 2026, HSA AMD interface 1.31.

use std::sync::OnceLock;

/// Environment variable with the enabled behaviours.
pub const VARIABLE: &str = "SIMROCM_NEWER";

/// A behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Newer {
    /// `doorbell_batches`: a graph launch reserves the slots of all its packets at once, and rings
    /// the doorbell after the first 8 packets, then after every 256, then after the last.
    DoorbellBatches = 1,
    /// `ext_dispatch`: kernels are launched by vendor packets,
    /// `HSA_AMD_PACKET_TYPE_EXT_KERNEL_DISPATCH`.
    ExtDispatch = 2,
    /// `queue_desc`: HIP creates its queues by `hsa_amd_queue_create`.
    QueueDesc = 4,
    /// `signal_batch`: HIP creates the signals of a pool by `hsa_amd_signal_batch_create`.
    SignalBatch = 8,
    /// `gpu_only_signals`: HIP's signals raise no interrupt (`HSA_AMD_SIGNAL_AMD_GPU_ONLY`).
    GpuOnlySignals = 16,
    /// `copy_batch`: HIP's copies are submitted by `hsa_amd_memory_async_batch_copy`.
    CopyBatch = 32,
    /// `moved_fields`: the runtime's own structures have other ids, as if a release had changed
    /// their layout. No real release does so, and `all` does not include it.
    MovedFields = 64,
}

impl Newer {
    const ALL: [(&'static str, Self); 7] = [
        ("doorbell_batches", Self::DoorbellBatches),
        ("ext_dispatch", Self::ExtDispatch),
        ("queue_desc", Self::QueueDesc),
        ("signal_batch", Self::SignalBatch),
        ("gpu_only_signals", Self::GpuOnlySignals),
        ("copy_batch", Self::CopyBatch),
        ("moved_fields", Self::MovedFields),
    ];

    /// Whether the environment enables it. Read once; an unknown name ends the program.
    #[must_use]
    pub fn wanted(self) -> bool {
        static WANTED: OnceLock<u8> = OnceLock::new();
        let wanted = WANTED.get_or_init(|| {
            let list = std::env::var(VARIABLE).unwrap_or_default();
            parse(&list).unwrap_or_else(|unknown| {
                let known: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
                crate::ffi::die(&format!(
                    "{VARIABLE}: {unknown:?} is unknown; there are {} and all",
                    known.join(", ")
                ))
            })
        });
        wanted & self as u8 != 0
    }
}

/// The behaviours in a list, as bits; or an unknown name.
fn parse(list: &str) -> Result<u8, &str> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(bits).try_fold(0, |sum, bits| Ok(sum | bits?))
}

fn bits(name: &str) -> Result<u8, &str> {
    if name == "all" {
        let real = Newer::ALL
            .iter()
            .filter(|(_, one)| *one != Newer::MovedFields);
        return Ok(real.fold(0, |sum, (_, one)| sum | *one as u8));
    }
    let found = Newer::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, one)| *one as u8).ok_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse(""), Ok(0));
        assert_eq!(parse("ext_dispatch, doorbell_batches"), Ok(3));
        assert_eq!(parse("all"), Ok(63));
        assert_eq!(parse("moved_fields"), Ok(64));
        assert_eq!(parse("queue_desc,nonsense"), Err("nonsense"));
    }
}
