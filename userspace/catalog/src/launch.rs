//! HIP functions that launch kernels into a stream, and the sizes in their arguments.

use gputrace_abi::{REGISTER_ARGS, STACK_ARGS};

/// Effect of a function on the kernels of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Launches one kernel into its stream; its arguments contain the size.
    Kernel(Sizes),
    /// Launches kernels, but its arguments do not say which.
    Unknown,
    /// From now on, launches into the stream are recorded into a graph instead of being executed.
    BeginCapture,
    /// From now on, launches into the stream are executed again.
    EndCapture,
    /// Creates a stream, whose handle it stores through its first argument.
    CreateStream,
    /// Destroys the stream; another one may get the same handle.
    DestroyStream,
    /// Sets the thread's device, which determines its null stream, to the first argument.
    SetDevice,
}

/// How a function receives grid and workgroup (`hip_runtime_api.h`, `hip_ext.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Two `dim3` by value, blocks and threads, after one word: x and y share a word, z has its
    /// own.
    Dim3,
    /// Six words after the first one, blocks and threads; the last one is on the stack.
    Blocks,
    /// Like `Blocks`, but the first three count work-items.
    WorkItems,
}

/// Effects of functions, by name without `_spt`.
const LAUNCHES: &[(&str, Launch)] = &[
    ("hipExtLaunchKernel", Launch::Kernel(Sizes::Dim3)),
    ("hipExtLaunchMultiKernelMultiDevice", Launch::Unknown),
    ("hipExtModuleLaunchKernel", Launch::Kernel(Sizes::WorkItems)),
    ("hipExtStreamCreateWithCUMask", Launch::CreateStream),
    ("hipGraphLaunch", Launch::Unknown),
    ("hipHccModuleLaunchKernel", Launch::Kernel(Sizes::WorkItems)),
    ("hipLaunchByPtr", Launch::Unknown),
    ("hipLaunchCooperativeKernel", Launch::Kernel(Sizes::Dim3)),
    ("hipLaunchCooperativeKernelMultiDevice", Launch::Unknown),
    ("hipLaunchKernel", Launch::Kernel(Sizes::Dim3)),
    ("hipLaunchKernelExC", Launch::Unknown),
    ("hipDrvLaunchKernelEx", Launch::Unknown),
    (
        "hipModuleLaunchCooperativeKernel",
        Launch::Kernel(Sizes::Blocks),
    ),
    (
        "hipModuleLaunchCooperativeKernelMultiDevice",
        Launch::Unknown,
    ),
    ("hipModuleLaunchKernel", Launch::Kernel(Sizes::Blocks)),
    ("hipSetDevice", Launch::SetDevice),
    ("hipStreamBeginCapture", Launch::BeginCapture),
    ("hipStreamBeginCaptureToGraph", Launch::BeginCapture),
    ("hipStreamCreate", Launch::CreateStream),
    ("hipStreamCreateWithFlags", Launch::CreateStream),
    ("hipStreamCreateWithPriority", Launch::CreateStream),
    ("hipStreamDestroy", Launch::DestroyStream),
    ("hipStreamEndCapture", Launch::EndCapture),
];

/// Suffix of functions whose null stream is the thread's own.
pub const PER_THREAD: &str = "_spt";

/// Effect of a HIP function on the kernels of a stream, and whether its null stream is the calling
/// thread's own; `None` if it has no effect.
#[must_use]
pub fn launch(name: &str) -> Option<(Launch, bool)> {
    let plain = name.strip_suffix(PER_THREAD).unwrap_or(name);
    let (_, launch) = LAUNCHES.iter().find(|(function, _)| *function == plain)?;
    Some((*launch, plain.len() != name.len()))
}

impl Sizes {
    /// Grid in work-items, and workgroup, from the words of a call's arguments.
    #[must_use]
    pub fn read(
        self,
        args: &[u64; REGISTER_ARGS],
        stack: &[u64; STACK_ARGS],
    ) -> ([u32; 3], [u32; 3]) {
        let [_, first, second, third, fourth, fifth] = *args;
        let [sixth, ..] = *stack;
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let (counts, workgroup) = match self {
            Self::Dim3 => (
                [low(first), high(first), low(second)],
                [low(third), high(third), low(fourth)],
            ),
            Self::Blocks | Self::WorkItems => (
                [low(first), low(second), low(third)],
                [low(fourth), low(fifth), low(sixth)],
            ),
        };
        let ([x, y, z], [width, height, depth]) = (counts, workgroup);
        let grid = match self {
            Self::WorkItems => counts,
            _ => [
                x.wrapping_mul(width),
                y.wrapping_mul(height),
                z.wrapping_mul(depth),
            ],
        };
        (grid, workgroup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{signature, stream_word};

    #[test]
    fn launches_are_functions_of_the_headers() {
        for (name, launch) in LAUNCHES {
            let signature = signature(name).expect("in the catalogue");
            let has_stream = stream_word(signature).is_some();
            let needs_none = matches!(
                launch,
                Launch::Unknown | Launch::SetDevice | Launch::CreateStream
            );
            assert!(has_stream || needs_none, "{name}");
        }
    }

    #[test]
    fn sizes_are_where_the_calling_convention_puts_them() {
        let blocks = [0, 3, 2, 1, 64, 4];
        assert_eq!(
            Sizes::Blocks.read(&blocks, &[1; STACK_ARGS]),
            ([192, 8, 1], [64, 4, 1])
        );
        assert_eq!(
            Sizes::WorkItems.read(&blocks, &[1; STACK_ARGS]),
            ([3, 2, 1], [64, 4, 1])
        );
        let dim3 = [0, 2 << 32 | 3, 1, 4 << 32 | 64, 1, 0];
        assert_eq!(
            Sizes::Dim3.read(&dim3, &[0; STACK_ARGS]),
            ([192, 8, 1], [64, 4, 1])
        );
    }

    #[test]
    fn forms_for_the_threads_own_stream() {
        assert_eq!(
            launch("hipLaunchKernel_spt"),
            Some((Launch::Kernel(Sizes::Dim3), true))
        );
        assert_eq!(launch("hipGraphLaunch"), Some((Launch::Unknown, false)));
        assert_eq!(launch("hipMemcpy"), None);
    }
}
