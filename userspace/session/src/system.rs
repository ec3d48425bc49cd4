//! Facts about the machine for the capture.

use gputrace_abi::ABI_VERSION;
use gputrace_capture::meta::{Mode, ProbePrices, Recording};
use gputrace_collect::clocks;
use gputrace_files::kernel;
use gputrace_loader::possible_cpus;

use crate::request::{Request, Targets};

/// While this file exists, no gputrace records on this node: those that run end their recordings,
/// and no new one begins.
pub const STOP_FILE: &str = "/run/gputrace.stop";

/// Whether an operator has switched recording off on this node, by [`STOP_FILE`].
#[must_use]
pub fn is_switched_off() -> bool {
    kernel::exists(STOP_FILE)
}

/// This machine's name.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Release of the running kernel.
#[must_use]
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// The first metadata of the capture.
pub(crate) fn recording(
    request: &Request,
    backend: &str,
    main_pid: Option<u32>,
    prices: ProbePrices,
) -> Recording {
    let uname = rustix::system::uname();
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    Recording {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        abi_version: ABI_VERSION,
        hostname: text(uname.nodename()),
        kernel_release: text(uname.release()),
        kernel_version: text(uname.version()),
        machine: text(uname.machine()),
        boot_id: kernel::read_text("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default(),
        cpus: possible_cpus(),
        command: request.command_line.clone(),
        mode: match &request.targets {
            Targets::Launch { command, .. } => Mode::Launch {
                command: command
                    .iter()
                    .map(|arg| arg.to_string_lossy().into_owned())
                    .collect(),
            },
            Targets::Attach { pids, .. } => Mode::Attach { pids: pids.clone() },
            Targets::Node => Mode::Node,
        },
        domains: request
            .domains
            .iter()
            .map(|domain| domain.name().to_owned())
            .collect(),
        backend: backend.to_owned(),
        clocks: clocks::snapshot(),
        main_pid,
        prices: Some(prices),
        dump: None,
    }
}

/// Default size of each CPU's ring, bytes: 4 MiB with few CPUs and less with many, so that all
/// rings together stay within 256 MiB; but at least 512 KiB.
pub(crate) fn ring_bytes(cpus: usize) -> u32 {
    const ALL: usize = 256 << 20;
    let each = (ALL / cpus.max(1)).clamp(512 << 10, 4 << 20);
    // Rounded down to a power of two, as the kernel requires. The clamp keeps it within u32.
    1 << each.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_shrink_with_the_number_of_cpus() {
        assert_eq!(ring_bytes(2), 4 << 20);
        assert_eq!(ring_bytes(64), 4 << 20);
        assert_eq!(ring_bytes(100), 2 << 20);
        assert_eq!(ring_bytes(4096), 512 << 10);
    }
}
