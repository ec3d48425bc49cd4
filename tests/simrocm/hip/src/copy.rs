//! Copies and fills: their direction, and whether SDMA or a kernel executes them.

use std::sync::Arc;

use gputrace_simrocm_core::abi::{AgentHandle, CopyOperation, Signal};
use gputrace_simrocm_core::blit::{COPY, CopyArguments, FILL, FillArguments};
use gputrace_simrocm_core::ffi::Untyped;
use gputrace_simrocm_core::newer::Newer;
use gputrace_simrocm_core::status::Status;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::{Device, settings, system};
use crate::error::{Error, Hip, check};
use crate::launch::{self, Launch};
use crate::memory::{self, Place};
use crate::stream::{STAGING_BYTES, Signalled, Stream, Work};
use crate::{hsa, signals};

/// A copy of contiguous bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) destination: Untyped,
    pub(crate) source: Untyped,
    pub(crate) bytes: usize,
}

// SAFETY: the addresses are passed to the GPU, not used here.
unsafe impl Send for Copy {}
// SAFETY: as above.
unsafe impl Sync for Copy {}

/// A fill with a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) destination: u64,
    pub(crate) bytes: usize,
    pub(crate) pattern: u32,
    pub(crate) pattern_bytes: u32,
}

/// The agent in whose memory an address lies.
fn agent_of(place: Option<Place>) -> Hip<AgentHandle> {
    Ok(match place {
        Some(Place::Device(index)) => crate::device::device(index)?.agent,
        _ => system()?.cpu,
    })
}

const fn on_device(place: Option<Place>) -> bool {
    matches!(place, Some(Place::Device(_)))
}

/// Launches one of the runtime's own kernels.
fn blit(stream: &Stream, work: &mut Work, kernel: &str, arguments: &[u8], bytes: usize) -> Hip {
    const THREADS: u16 = 256;
    const BYTES_PER_THREAD: usize = 16;
    let device: &'static Device = stream.device;
    let kernel = device.blit()?.kernels.get(kernel).ok_or(Error::UNKNOWN)?;
    let threads = bytes
        .div_ceil(BYTES_PER_THREAD)
        .next_multiple_of(THREADS.into());
    let launch = Launch {
        kernel: Arc::clone(kernel),
        grid: [u32::try_from(threads).unwrap_or(u32::MAX), 1, 1],
        workgroup: [THREADS, 1, 1],
        shared_bytes: 0,
        arguments: arguments.to_vec(),
    };
    launch::submit(stream, work, &launch, Signalled::Profiled)?;
    Ok(())
}

/// Submits a fill.
pub(crate) fn fill(stream: &Stream, work: &mut Work, fill: Fill) -> Hip {
    if fill.bytes == 0 {
        return Ok(());
    }
    let arguments = FillArguments {
        destination: fill.destination,
        bytes: fill.bytes as u64,
        pattern: fill.pattern,
        pattern_bytes: fill.pattern_bytes,
    };
    blit(stream, work, FILL, arguments.as_bytes(), fill.bytes)
}

/// Submits a copy; with `wait`, returns when it is done. Copies of pageable memory are always done
/// when this returns.
pub(crate) fn copy(stream: &Stream, work: &mut Work, copy: Copy, wait: bool) -> Hip {
    let Copy {
        destination,
        source,
        bytes,
    } = copy;
    if bytes == 0 {
        return Ok(());
    }
    if destination.address() == 0 || source.address() == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let (to, from) = (
        memory::place(destination.address()),
        memory::place(source.address()),
    );
    if !on_device(to) && !on_device(from) {
        stream.drain(work)?;
        destination.copy_from(source, bytes);
        return Ok(());
    }
    let local = to == from && to == Some(Place::Device(stream.device.index));
    let pageable = to.is_none() || from.is_none();
    if local || (!pageable && bytes <= settings().blit_bytes) {
        let arguments = CopyArguments {
            source: source.address(),
            destination: destination.address(),
            bytes: bytes as u64,
        };
        blit(stream, work, COPY, arguments.as_bytes(), bytes)?;
        // Copies from device to device are not waited for.
        return if wait && !local {
            stream.drain(work)
        } else {
            Ok(())
        };
    }
    let agents = [agent_of(to)?, agent_of(from)?];
    if !pageable {
        return sdma(stream, work, copy, agents, wait);
    }
    if bytes <= PINNED_MIN_BYTES {
        return staged(stream, work, copy, agents);
    }
    let host = if to.is_none() { destination } else { source };
    let mut pinned = 0;
    check(hsa::hsa_amd_memory_lock_to_pool(
        host,
        bytes,
        &stream.agent(),
        1,
        system()?.host_pool,
        0,
        &mut pinned,
    ))?;
    let done = sdma(stream, work, copy, agents, true);
    check(hsa::hsa_amd_memory_unlock(host))?;
    done
}

/// Pageable memory up to this size goes through the staging buffer.
const PINNED_MIN_BYTES: usize = 1 << 20;
const _: () = assert!(PINNED_MIN_BYTES <= STAGING_BYTES);

/// Copies from or to pageable memory through the staging buffer, and waits.
fn staged(stream: &Stream, work: &mut Work, copy: Copy, agents: [AgentHandle; 2]) -> Hip {
    let buffer = Stream::staging(work)?;
    let to_host = memory::place(copy.destination.address()).is_none();
    let bytes = copy.bytes;
    let small = bytes <= settings().blit_bytes;
    let (to, from) = if to_host {
        (buffer, copy.source)
    } else {
        buffer.copy_from(copy.source, bytes);
        (copy.destination, buffer)
    };
    if small {
        let arguments = CopyArguments {
            source: from.address(),
            destination: to.address(),
            bytes: bytes as u64,
        };
        blit(stream, work, COPY, arguments.as_bytes(), bytes)?;
        stream.drain(work)?;
    } else {
        let through = Copy {
            destination: to,
            source: from,
            bytes,
        };
        sdma(stream, work, through, agents, true)?;
    }
    if to_host {
        copy.destination.copy_from(buffer, bytes);
    }
    Ok(())
}

/// Submits a copy by SDMA, after the stream's work in flight.
fn sdma(stream: &Stream, work: &mut Work, copy: Copy, agents: [AgentHandle; 2], wait: bool) -> Hip {
    let [destination_agent, source_agent] = agents;
    submit(stream, work, wait, |dependencies, completion| {
        if Newer::CopyBatch.wanted() {
            let mut operation = CopyOperation::new_zeroed();
            operation.version = 1;
            operation.completion = completion;
            operation.source = copy.source.address();
            operation.source_agent = source_agent;
            operation.destination = copy.destination.address();
            operation.destination_agent = destination_agent;
            operation.size = copy.bytes as u64;
            let count = dependencies.len() as u32;
            return hsa::hsa_amd_memory_async_batch_copy(
                &operation,
                1,
                count,
                hsa::list(dependencies),
            );
        }
        hsa::hsa_amd_memory_async_copy(
            copy.destination,
            destination_agent,
            copy.source,
            source_agent,
            copy.bytes,
            dependencies.len() as u32,
            hsa::list(dependencies),
            completion,
        )
    })
}

fn submit(
    stream: &Stream,
    work: &mut Work,
    wait: bool,
    by: impl FnOnce(&[Signal], Signal) -> Status,
) -> Hip {
    let fresh = work.has_no_packets();
    let before = work.dependencies(stream, fresh)?;
    let completion = work.take_signal()?;
    let dependencies: Vec<Signal> = before.iter().map(|before| before.signal).collect();
    check(by(&dependencies, completion.signal))?;
    work.copied(&completion);
    if wait {
        signals::wait(completion.signal);
        work.ended(&completion);
    }
    Ok(())
}

/// A copy of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) destination: Untyped,
    pub(crate) destination_pitch: usize,
    pub(crate) source: Untyped,
    pub(crate) source_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Submits a copy of rows; waits if `wait` is set or pageable memory is involved.
pub(crate) fn rows(stream: &Stream, work: &mut Work, rows: Rows, wait: bool) -> Hip {
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    if rows.width > rows.destination_pitch || rows.width > rows.source_pitch {
        return Err(Error(12));
    }
    let (to, from) = (
        memory::place(rows.destination.address()),
        memory::place(rows.source.address()),
    );
    if on_device(to) == on_device(from) {
        for row in 0..rows.height {
            let one = Copy {
                destination: rows.destination.add(row * rows.destination_pitch),
                source: rows.source.add(row * rows.source_pitch),
                bytes: rows.width,
            };
            copy(stream, work, one, wait)?;
        }
        return Ok(());
    }
    let host = (to.is_none(), from.is_none());
    let pinned = match host {
        (true, _) => Some((rows.destination, rows.destination_pitch)),
        (_, true) => Some((rows.source, rows.source_pitch)),
        _ => None,
    };
    if let Some((memory, pitch)) = pinned {
        let mut at = 0;
        check(hsa::hsa_amd_memory_lock_to_pool(
            memory,
            pitch * (rows.height - 1) + rows.width,
            &stream.agent(),
            1,
            system()?.host_pool,
            0,
            &mut at,
        ))?;
    }
    let side = |base: Untyped, pitch: usize| hsa::Pitched {
        base: base.address(),
        pitch,
        slice: 0,
    };
    let word = |value: usize| u32::try_from(value).map_err(|_| Error::INVALID_VALUE);
    let range = hsa::Dim3 {
        x: word(rows.width)?,
        y: word(rows.height)?,
        z: 1,
    };
    const HOST_TO_DEVICE: u32 = 1;
    const DEVICE_TO_HOST: u32 = 2;
    let direction = if on_device(to) {
        HOST_TO_DEVICE
    } else {
        DEVICE_TO_HOST
    };
    let none = hsa::Dim3::default();
    let done = submit(
        stream,
        work,
        wait || pinned.is_some(),
        |dependencies, completion| {
            hsa::hsa_amd_memory_async_copy_rect(
                &side(rows.destination, rows.destination_pitch),
                &none,
                &side(rows.source, rows.source_pitch),
                &none,
                &range,
                stream.agent(),
                direction,
                dependencies.len() as u32,
                hsa::list(dependencies),
                completion,
            )
        },
    );
    if let Some((memory, _)) = pinned {
        check(hsa::hsa_amd_memory_unlock(memory))?;
    }
    done
}
