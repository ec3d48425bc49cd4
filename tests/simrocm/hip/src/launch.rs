//! Kernel launches: writes arguments to memory and a packet to the queue.

use std::sync::Arc;

use gputrace_simrocm_core::code_object::Argument;
use gputrace_simrocm_core::ffi::{In, Untyped};
use gputrace_simrocm_core::newer::Newer;
use gputrace_simrocm_core::packet::SYSTEM_FENCES;
use gputrace_softgpu::packet::{BARRIER_BIT, ExtKernelDispatch, KernelDispatch, kind, vendor};

use crate::device::{HwQueue, settings};
use crate::error::{Error, Hip};
use crate::module::Kernel;
use crate::signals::Completion;
use crate::stream::{Signalled, Stream, Work};

/// A launch, ready to be submitted.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    /// Size of the grid in work-items.
    pub(crate) grid: [u32; 3],
    /// Size of a workgroup in work-items.
    pub(crate) workgroup: [u16; 3],
    /// Dynamic LDS, bytes.
    pub(crate) shared_bytes: u32,
    /// Content of the argument segment.
    pub(crate) arguments: Vec<u8>,
}

/// The form in which a program passes arguments.
#[derive(Clone, Copy)]
pub(crate) enum Arguments {
    /// Pointers to the arguments (`void** args`).
    List(In<Untyped>),
    /// A buffer in its final layout, with its size.
    Packed(Untyped, usize),
}

impl Launch {
    /// A launch of `blocks` blocks of `threads` threads.
    pub(crate) fn new(
        kernel: Arc<Kernel>,
        blocks: [u32; 3],
        threads: [u32; 3],
        shared_bytes: u32,
        arguments: Arguments,
    ) -> Hip<Self> {
        const MOST_THREADS: u64 = 1024;
        let product: u64 = threads.iter().map(|count| u64::from(*count)).product();
        let wrong = Error::INVALID_CONFIGURATION;
        if product == 0 || product > MOST_THREADS || blocks.contains(&0) {
            return Err(wrong);
        }
        let mut grid = [0; 3];
        let mut workgroup = [0; 3];
        let sides = grid.iter_mut().zip(&mut workgroup);
        for ((items, group), (blocks, threads)) in sides.zip(blocks.iter().zip(threads)) {
            *items = blocks.checked_mul(threads).ok_or(wrong)?;
            *group = u16::try_from(threads).map_err(|_| wrong)?;
        }
        let mut launch = Self {
            kernel,
            grid,
            workgroup,
            shared_bytes,
            arguments: Vec::new(),
        };
        launch.arguments = launch.lay_out(blocks, arguments)?;
        Ok(launch)
    }

    fn lay_out(&self, blocks: [u32; 3], from: Arguments) -> Hip<Vec<u8>> {
        let metadata = &self.kernel.metadata;
        let mut segment = vec![0_u8; metadata.kernarg_bytes as usize];
        let mut put = |offset: u64, bytes: &[u8]| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(to) = at
                .checked_add(bytes.len())
                .and_then(|end| segment.get_mut(at..end))
            {
                to.copy_from_slice(bytes);
            }
        };
        let hidden = |argument: &&Argument| argument.kind.starts_with("hidden_");
        match from {
            Arguments::Packed(at, bytes) => {
                put(0, &at.bytes(bytes.min(metadata.kernarg_bytes as usize)));
            }
            Arguments::List(list) => {
                let visible = metadata
                    .arguments
                    .iter()
                    .filter(|argument| !hidden(argument));
                let count = visible.clone().count();
                let pointers = list.list(count);
                if pointers.len() < count {
                    return Err(Error::INVALID_VALUE);
                }
                for (argument, pointer) in visible.zip(pointers) {
                    let bytes =
                        usize::try_from(argument.bytes).map_err(|_| Error::INVALID_VALUE)?;
                    put(argument.offset, &pointer.bytes(bytes));
                }
            }
        }
        for argument in metadata.arguments.iter().filter(hidden) {
            if let Some(value) = self.hidden(&argument.kind, blocks) {
                let value = value.to_le_bytes();
                let bytes = usize::try_from(argument.bytes)
                    .unwrap_or(0)
                    .min(value.len());
                put(argument.offset, value.get(..bytes).unwrap_or_default());
            }
        }
        Ok(segment)
    }

    /// The value of an argument that the compiler added.
    fn hidden(&self, kind: &str, blocks: [u32; 3]) -> Option<u64> {
        let axis = |name: &str| {
            let letter = kind.strip_prefix(name)?;
            ["x", "y", "z"].iter().position(|axis| *axis == letter)
        };
        if let Some(axis) = axis("hidden_block_count_") {
            return blocks.get(axis).map(|count| u64::from(*count));
        }
        if let Some(axis) = axis("hidden_group_size_") {
            return self.workgroup.get(axis).map(|count| u64::from(*count));
        }
        match kind {
            "hidden_grid_dims" => Some(self.dimensions().into()),
            "hidden_dynamic_lds_size" => Some(self.shared_bytes.into()),
            _ => None,
        }
    }

    fn dimensions(&self) -> u8 {
        match self.grid {
            [_, 1, 1] => 1,
            [_, _, 1] => 2,
            _ => 3,
        }
    }

    /// The packet of a launch whose arguments are at `kernarg`.
    pub(crate) fn packet(&self, kernarg: u64, completion: Option<&Completion>) -> [u64; 8] {
        let completion = completion.map_or(0, |completion| completion.signal.0);
        let metadata = &self.kernel.metadata;
        let group_segment = metadata.group_bytes.saturating_add(self.shared_bytes);
        if Newer::ExtDispatch.wanted() {
            let groups = |axis: usize| {
                let items = self.grid.get(axis).copied().unwrap_or(1);
                let group = self.workgroup.get(axis).copied().unwrap_or(1);
                items.checked_div(group.into()).unwrap_or(1)
            };
            let short = |groups: u32| u16::try_from(groups).unwrap_or(u16::MAX);
            return zerocopy::transmute!(ExtKernelDispatch {
                header: kind::VENDOR | BARRIER_BIT | SYSTEM_FENCES,
                format: vendor::EXT_KERNEL_DISPATCH,
                setup: self.dimensions(),
                workgroup: self.workgroup,
                reserved0: 0,
                cluster_count_x: groups(0),
                cluster_count_yz: [short(groups(1)), short(groups(2))],
                cluster_size: [1; 3],
                hint: 0,
                private_segment: metadata.private_bytes,
                group_segment,
                kernel_object: self.kernel.object,
                kernarg,
                dep_signal: 0,
                completion,
            });
        }
        zerocopy::transmute!(KernelDispatch {
            header: kind::KERNEL_DISPATCH | BARRIER_BIT | SYSTEM_FENCES,
            setup: self.dimensions().into(),
            workgroup: self.workgroup,
            reserved0: 0,
            grid: self.grid,
            private_segment: metadata.private_bytes,
            group_segment,
            kernel_object: self.kernel.object,
            kernarg,
            reserved2: 0,
            completion,
        })
    }
}

/// Submits a launch on a stream. Returns its completion, if it has one.
pub(crate) fn submit(
    stream: &Stream,
    work: &mut Work,
    launch: &Launch,
    signalled: Signalled,
) -> Hip<Option<Arc<Completion>>> {
    let kernarg = stream.kernarg(work, launch.arguments.len())?;
    kernarg.put_bytes(&launch.arguments);
    submit_at(stream, work, launch, kernarg.address(), signalled)
}

/// Submits a launch whose arguments are in memory.
pub(crate) fn submit_at(
    stream: &Stream,
    work: &mut Work,
    launch: &Launch,
    kernarg: u64,
    signalled: Signalled,
) -> Hip<Option<Arc<Completion>>> {
    if launch.kernel.device != stream.device.index {
        return Err(Error::INVALID_DEVICE_FUNCTION);
    }
    stream.submit_waits(work, &stream.queue);
    if work.batch_is_full() {
        stream.marker(work)?;
    }
    let index = stream.queue.reserve(1);
    let completion = stream.signal(work, signalled)?;
    let packet = launch.packet(kernarg, completion.as_deref());
    stream.queue.write(index, packet);
    stream.queue.ring(index);
    work.submitted(completion.clone());
    if settings().blocking {
        stream.drain(work)?;
    }
    Ok(completion)
}

/// Submits a launch to the device's queue for cooperative kernels: after the stream's earlier work,
/// and before its later work.
pub(crate) fn submit_cooperative(stream: &Stream, work: &mut Work, launch: &Launch) -> Hip {
    let queue: Arc<HwQueue> = stream.device.cooperative_queue()?;
    let kernarg = stream.kernarg(work, launch.arguments.len())?;
    kernarg.put_bytes(&launch.arguments);
    let before = stream.completion_of(work)?;
    work.wait_for(before);
    stream.submit_waits(work, &queue);
    let index = queue.reserve(1);
    let completion = work.take_signal()?;
    queue.write(index, launch.packet(kernarg.address(), Some(&completion)));
    queue.ring(index);
    work.copied(&completion);
    Ok(())
}

/// Submits launches (with the addresses of their arguments) one after the other, as newer releases
/// replay a graph: all slots are reserved at once, and the doorbell rings after the first 8
/// packets, then after every 256, then at the end.
pub(crate) fn submit_batch(stream: &Stream, work: &mut Work, launches: &[(Launch, u64)]) -> Hip {
    const FIRST: u64 = 8;
    const EACH: u64 = 256;
    /// Less than the capacity of the queue, so that one reservation fits.
    const MOST: usize = 4_096;
    for part in launches.chunks(MOST) {
        stream.submit_waits(work, &stream.queue);
        let count = part.len() as u64;
        let first = stream.queue.reserve(count);
        let mut rung = 0;
        for (number, (launch, kernarg)) in (1..).zip(part) {
            let index = first + number - 1;
            let completion = stream.signal(work, Signalled::Profiled)?;
            stream
                .queue
                .write(index, launch.packet(*kernarg, completion.as_deref()));
            work.submitted(completion);
            let due = if rung == 0 { FIRST } else { rung + EACH };
            if number == due || number == count {
                stream.queue.ring(index);
                rung = number;
            }
        }
    }
    Ok(())
}
