//! Copies to, from and within the GPU.

use super::{
    Stop,
    machine::Machine,
    queue::{now, wait_for},
};
use crate::log::{Copy, Direction, Said};

/// Sizes of the copies in bytes.
const BYTES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 8 << 20];
/// Number of copies of each size.
const TIMES: usize = 3;

/// Runs all copies, one after the other.
pub(super) fn run(
    machine: &Machine<'_>,
    say: &mut dyn FnMut(&Said) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let most = BYTES.iter().copied().max().unwrap_or_default();
    let api = machine.api;
    let host = (machine.host(most)?, machine.cpu);
    let device = (machine.device(most)?, machine.gpu);
    let other = (machine.device(most)?, machine.gpu);
    for bytes in BYTES {
        for _ in 0..TIMES {
            for (direction, to, from) in [
                (Direction::ToDevice, device, host),
                (Direction::Within, other, device),
                (Direction::ToHost, host, other),
            ] {
                let signal = api.signal()?;
                let mut copy = Copy {
                    direction,
                    bytes: bytes as u64,
                    asked_ns: now(),
                    seen_ns: None,
                    runtime_ns: None,
                };
                api.copy(to, from, bytes, signal)?;
                match wait_for(api, signal, || format!("a copy of {bytes} bytes")) {
                    Ok(seen) => copy.seen_ns = Some(seen),
                    Err(stop) => {
                        say(&Said::Copy(copy))?;
                        return Err(stop);
                    }
                }
                // A runtime without times returns an error, or zeros.
                let span = api.copy_time(signal).ok();
                copy.runtime_ns = span
                    .filter(|span| span.end != 0)
                    .map(|span| [span.start, span.end]);
                say(&Said::Copy(copy))?;
                api.destroy_signal(signal)?;
            }
        }
    }
    Ok(())
}
