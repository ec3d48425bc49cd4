//! The probe-site planner: chooses the instruction of a function to probe, and determines the cost
//! of a hit.
//!
//! A uprobe replaces one instruction by a breakpoint. At each hit, the kernel must still carry out
//! the replaced instruction. How it does that decides the cost of the probe
//! (`arch/x86/kernel/uprobes.c`):
//!
//! * a few instructions are *emulated* in the breakpoint handler: about 0.4 µs per hit;
//! * all others are *single-stepped* in a copy: a second exception, about 0.9 µs on a physical
//!   machine and about 14 µs in a virtual one, where the debug exception leaves the guest;
//! * some are refused, and the attach call fails.
//!
//! Functions compiled for Indirect Branch Tracking begin with `endbr64`, which is single-stepped.
//! The instruction after it is usually a `push`, which is emulated. Both see the same registers and
//! the same stack, so a probe on the second serves equally well, for entry and for return.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind};

/// How the kernel carries out the probed instruction at each hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostClass {
    /// The five-byte `nop`. Kernels from 6.18 replace it by a call, without any exception (about
    /// 0.2 µs); older ones single-step it.
    Optimized,
    /// Carried out inside the breakpoint handler (about 0.4 µs): `push` of a register, one-byte
    /// `nop`, relative `call`, `jmp` and conditional jumps.
    Emulated,
    /// Executed in a copy under the debug exception (about 0.9 µs; about 14 µs in a virtual
    /// machine).
    SingleStepped,
}

impl CostClass {
    /// Stable machine-readable name, e.g. `single_stepped`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::Emulated => "emulated",
            Self::SingleStepped => "single_stepped",
        }
    }
}

/// Why no probe can be placed on a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unprobeable {
    /// The file's own code has a breakpoint there; the kernel would take it for another probe's.
    #[error("its first instruction is already a breakpoint (int3)")]
    Breakpoint,
    /// A `lock` prefix, which the kernel refuses.
    #[error("its first instruction has a lock prefix, which uprobes do not support")]
    LockPrefix,
    /// An `es`, `cs`, `ss` or `ds` prefix (also `notrack` and branch hints), which the kernel
    /// refuses.
    #[error("its first instruction has a segment prefix, which uprobes do not support")]
    SegmentPrefix,
    /// A relative branch with a 16-bit operand, which the kernel refuses.
    #[error("it begins with a 16-bit branch, which uprobes do not support")]
    ShortBranch,
    /// The kernel looks only at the opcode byte, takes the instruction for a branch or a `nop`, and
    /// would skip it: the traced program would compute something else. Seen on Linux 6.18 with
    /// `vmovdqa [rdi], ymm0` (0x7f, `jg`) and `xchg r8, rax` (0x90, `nop`): both did nothing.
    #[error("the kernel would mistake its first instruction for a branch or a nop and skip it")]
    Mistaken,
    /// An opcode that the kernel's table excludes.
    #[error("its first instruction (opcode {0:#04x}) is not supported by uprobes")]
    Opcode(u8),
    /// Not an instruction, or cut off by the end of the code.
    #[error("its code cannot be decoded as x86-64 instructions")]
    Undecodable,
    /// The function is not called, but reached by a jump from the kernel or another part of the
    /// program.
    #[error("it is not called but jumped to, so there is no return address where a call has one")]
    NotCalled,
    /// The function reads or moves its return address, returns twice, or switches stacks.
    #[error("it works with its own return address or stack, so its calls have no certain end")]
    ReturnAddress,
    /// The symbol has no size, or an implausible one.
    #[error("the size of its code is not known, so its return instructions cannot be found")]
    UnknownSize,
    /// The function has no instruction that returns.
    #[error("no instruction was found that returns from it, so its end would not be seen")]
    NoReturn,
    /// The function contains a branch to its own first instruction.
    #[error(
        "it jumps back to its first instruction, so iterations of a loop could not be told from \
         calls"
    )]
    Loop,
    /// Entry and exit would be the same instruction.
    #[error("its first instruction already leaves it")]
    OnlyReturn,
    /// Every exit is a jump to other code, so the call goes on behind it.
    #[error("it only jumps to other code, which returns in its place")]
    OnlyJumps,
    /// The symbol is not in code that the file contains.
    #[error("its address is not in the file's code")]
    NotCode,
}

/// Place of a probe, relative to the start of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSite {
    /// Bytes between the function's start and the probed instruction: 0, or 4 after an `endbr64`.
    pub skipped: u8,
    /// Cost of a hit.
    pub cost: CostClass,
}

/// Length of `endbr64`.
const ENDBR64: u8 = 4;

/// The five-byte `nop` that kernels from 6.18 can replace by a call.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Pages are patched one at a time, so a replaceable `nop` must not cross a page's end.
const PAGE_SIZE: u64 = 4096;

/// Chooses the instruction to probe.
///
/// `code` holds the function's bytes, as many as are known: its size, or what follows if the symbol
/// has none. `address` is the function's address in the file's own address space. An `endbr64` is
/// skipped if that makes a hit cheaper and no branch in `code` jumps to the instruction after it (a
/// loop back to it would look like further calls).
///
/// # Errors
///
/// [`Unprobeable`] if the kernel would refuse a probe on the function's first instruction, or would
/// execute that instruction wrongly.
pub fn plan(code: &[u8], address: u64) -> Result<ProbeSite, Unprobeable> {
    let (cost, length) = classify(code, address)?;
    let first = ProbeSite { skipped: 0, cost };
    let Some(behind) = code.get(usize::from(ENDBR64)..) else {
        return Ok(first);
    };
    if length != usize::from(ENDBR64) || decode(code, address).code() != Code::Endbr64 {
        return Ok(first);
    }
    let target = address.wrapping_add(u64::from(ENDBR64));
    match classify(behind, target) {
        Ok((cheaper, _)) if cheaper < cost && !branches_to(code, address, target) => {
            Ok(ProbeSite {
                skipped: ENDBR64,
                cost: cheaper,
            })
        }
        _ => Ok(first),
    }
}

fn decode(code: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode()
}

/// Cost and length of the instruction at the start of `code`, following `arch_uprobe_analyze_insn`.
fn classify(code: &[u8], address: u64) -> Result<(CostClass, usize), Unprobeable> {
    if code.is_empty() {
        return Err(Unprobeable::NotCode);
    }
    if code.first() == Some(&0xcc) {
        return Err(Unprobeable::Breakpoint);
    }
    let instruction = decode(code, address);
    if instruction.is_invalid() {
        return Err(Unprobeable::Undecodable);
    }
    let bytes = code
        .get(..instruction.len())
        .ok_or(Unprobeable::Undecodable)?;
    let shape = Shape::of(bytes).ok_or(Unprobeable::Undecodable)?;
    shape.cost(bytes, address).map(|cost| (cost, bytes.len()))
}

/// Cost of a probe on the first instruction of `code`.
///
/// # Errors
///
/// As [`plan`].
pub(crate) fn cost(code: &[u8], address: u64) -> Result<CostClass, Unprobeable> {
    classify(code, address).map(|(cost, _)| cost)
}

/// Whether a relative branch or call in `code` leads to `target`.
fn branches_to(code: &[u8], address: u64, target: u64) -> bool {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
        .iter()
        .any(|instruction| {
            instruction.op0_kind() == OpKind::NearBranch64 && instruction.near_branch64() == target
        })
}

/// The parts of an instruction on which the kernel's decision depends.
struct Shape {
    lock: bool,
    segment: bool,
    operand_size: bool,
    /// The REX prefix, 0 if there is none.
    rex: u8,
    /// VEX or EVEX encoded.
    vector: bool,
    /// First opcode byte; for vector encodings the byte after the prefix, as in the kernel's
    /// decoder.
    opcode: u8,
    /// The byte after it, 0 if there is none.
    next: u8,
}

impl Shape {
    /// Decodes one whole instruction.
    fn of(bytes: &[u8]) -> Option<Self> {
        let (mut lock, mut segment, mut operand_size) = (false, false, false);
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            match byte {
                0xf0 => lock = true,
                0x26 | 0x2e | 0x36 | 0x3e => segment = true,
                0x66 => operand_size = true,
                0x64 | 0x65 | 0x67 | 0xf2 | 0xf3 => {}
                _ => break,
            }
            rest = tail;
        }
        let rex = rest
            .first()
            .copied()
            .filter(|byte| matches!(byte, 0x40..=0x4f))
            .unwrap_or(0);
        if rex != 0 {
            rest = rest.get(1..)?;
        }
        let vector_prefix = match rest.first()? {
            0xc5 => 2,
            0xc4 => 3,
            0x62 => 4,
            _ => 0,
        };
        let rest = rest.get(vector_prefix..)?;
        let opcode = *rest.first()?;
        let vector = vector_prefix != 0;
        // A REX prefix counts only directly before the opcode. Compilers never write it elsewhere,
        // and the kernel's decoder and the processor may disagree about such an instruction.
        let misplaced = matches!(opcode, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
        if !vector && misplaced {
            return None;
        }
        let next = rest.get(1).copied().unwrap_or(0);
        Some(Self {
            lock,
            segment,
            operand_size,
            rex,
            vector,
            opcode,
            next,
        })
    }

    /// The kernel's decision: `uprobe_init_insn`, then `branch_setup_xol_ops`, then
    /// `push_setup_xol_ops`; everything else is single-stepped.
    fn cost(&self, bytes: &[u8], address: u64) -> Result<CostClass, Unprobeable> {
        if self.lock {
            return Err(Unprobeable::LockPrefix);
        }
        if self.segment {
            return Err(Unprobeable::SegmentPrefix);
        }
        if excluded(self.opcode) || self.is_xop() || self.masks_exceptions() {
            return Err(Unprobeable::Opcode(self.opcode));
        }
        if bytes == NOP5 && PAGE_SIZE - address % PAGE_SIZE >= NOP5.len() as u64 {
            return Ok(CostClass::Optimized);
        }
        // `xchg r8, rax` and similar instructions share the opcode of `nop`.
        let is_nop = self.opcode == 0x90;
        if (is_nop && self.rex & 1 != 0) || (self.vector && (is_nop || self.is_branch())) {
            return Err(Unprobeable::Mistaken);
        }
        if is_nop {
            return Ok(CostClass::Emulated);
        }
        if self.is_branch() {
            return if self.operand_size {
                Err(Unprobeable::ShortBranch)
            } else {
                Ok(CostClass::Emulated)
            };
        }
        let plain_push = matches!(bytes, [0x50..=0x57] | [0x41, 0x50..=0x57]);
        Ok(if plain_push {
            CostClass::Emulated
        } else {
            CostClass::SingleStepped
        })
    }

    /// Whether the opcode alone is that of a relative `call`, `jmp` or conditional jump.
    fn is_branch(&self) -> bool {
        match self.opcode {
            0x70..=0x7f | 0xe8 | 0xe9 | 0xeb => true,
            0x0f => !self.vector && matches!(self.next, 0x80..=0x8f),
            _ => false,
        }
    }

    /// Whether this is AMD's XOP encoding, which the kernel's decoder takes for a `pop`.
    fn is_xop(&self) -> bool {
        !self.vector && self.opcode == 0x8f && self.next & 0x38 != 0
    }

    /// Whether this is a `mov` to the stack segment register, which delays the debug exception of a
    /// single step.
    fn masks_exceptions(&self) -> bool {
        !self.vector && self.opcode == 0x8e && self.next & 0x38 == 0x10
    }
}

/// Whether the kernel's table `good_insns_64` has 0 for the opcode. The kernel never consults its
/// table for two-byte opcodes, because 0x0f itself is allowed.
const fn excluded(opcode: u8) -> bool {
    matches!(
        opcode,
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60..=0x62 | 0x6c..=0x6f
            | 0x82 | 0x9a | 0xcc..=0xcf | 0xd4..=0xd6 | 0xe4..=0xe7 | 0xea | 0xec..=0xef | 0xf1 | 0xf4
            | 0xfa | 0xfb
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use CostClass::{Emulated, Optimized, SingleStepped};

    const SITE: fn(u8, CostClass) -> Result<ProbeSite, Unprobeable> =
        |skipped, cost| Ok(ProbeSite { skipped, cost });

    /// Bytes from objdump of real libraries or from an assembler; the outcome from the kernel's
    /// source.
    #[test]
    fn kernel_table() {
        let cases: &[(&[u8], Result<ProbeSite, Unprobeable>, &str)] = &[
            (&[0x55], SITE(0, Emulated), "push rbp"),
            (&[0x41, 0x57, 0x41, 0x56], SITE(0, Emulated), "push r15"),
            (&[0x90], SITE(0, Emulated), "nop"),
            (&[0x66, 0x90], SITE(0, Emulated), "xchg ax, ax"),
            (&[0xf3, 0x90], SITE(0, Emulated), "pause"),
            (&[0x40, 0x90], SITE(0, Emulated), "rex nop"),
            (&[0xe8, 0x59, 0x07, 0, 0], SITE(0, Emulated), "call"),
            (&[0xe9, 0xcb, 0xae, 0x27, 0], SITE(0, Emulated), "jmp near"),
            (&[0xeb, 0x10], SITE(0, Emulated), "jmp short"),
            (&[0xf2, 0xe9, 1, 0, 0, 0], SITE(0, Emulated), "bnd jmp"),
            (&[0x74, 0x4b], SITE(0, Emulated), "je short"),
            (&[0x0f, 0x8f, 1, 0, 0, 0], SITE(0, Emulated), "jg near"),
            (&[0x0f, 0x1f, 0x44, 0, 0], SITE(0, Optimized), "nop5"),
            (&[0x0f, 0x1f, 0x40, 0], SITE(0, SingleStepped), "nop4"),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa],
                SITE(0, SingleStepped),
                "endbr64 alone",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x55],
                SITE(4, Emulated),
                "endbr64; push rbp",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54],
                SITE(4, Emulated),
                "endbr64; push r12",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0],
                SITE(4, Optimized),
                "endbr64; nop5",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 8],
                SITE(0, SingleStepped),
                "endbr64; sub rsp",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0xcc],
                SITE(0, SingleStepped),
                "endbr64; int3",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x3e, 0xff, 0xe0],
                SITE(0, SingleStepped),
                "endbr64; notrack jmp",
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfb, 0x55],
                SITE(0, SingleStepped),
                "endbr32; push",
            ),
            (
                &[0x0f, 0x1f, 0x40, 0, 0x55],
                SITE(0, SingleStepped),
                "nop4; push",
            ),
            (
                &[0x48, 0x8b, 0x05, 0x11, 0x57, 0x1f, 0],
                SITE(0, SingleStepped),
                "mov rax, [rip+x]",
            ),
            (
                &[0x48, 0x8d, 0x05, 0x11, 0x57, 0x1f, 0],
                SITE(0, SingleStepped),
                "lea rax, [rip+x]",
            ),
            (
                &[0xff, 0x25, 0xb2, 0xdf, 0x48, 0],
                SITE(0, SingleStepped),
                "jmp [rip+x]",
            ),
            (
                &[0xff, 0x15, 0xb2, 0xdf, 0x48, 0],
                SITE(0, SingleStepped),
                "call [rip+x]",
            ),
            (
                &[0xff, 0x35, 0xb2, 0xdf, 0x48, 0],
                SITE(0, SingleStepped),
                "push [rip+x]",
            ),
            (&[0x68, 1, 0, 0, 0], SITE(0, SingleStepped), "push imm32"),
            (&[0x66, 0x50], SITE(0, SingleStepped), "push ax"),
            (&[0x48, 0x50], SITE(0, SingleStepped), "rex.w push rax"),
            (&[0x5d], SITE(0, SingleStepped), "pop rbp"),
            (&[0xc3], SITE(0, SingleStepped), "ret"),
            (&[0xe3, 0x02], SITE(0, SingleStepped), "jrcxz"),
            (&[0x31, 0xc0], SITE(0, SingleStepped), "xor eax, eax"),
            (
                &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0],
                SITE(0, SingleStepped),
                "mov rax, fs:28h",
            ),
            (&[0x0f, 0x05], SITE(0, SingleStepped), "syscall"),
            (&[0xc5, 0xf8, 0x57, 0xc0], SITE(0, SingleStepped), "vxorps"),
            (
                &[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1],
                SITE(0, SingleStepped),
                "vmovaps zmm",
            ),
            (&[0xcc], Err(Unprobeable::Breakpoint), "int3"),
            (
                &[0xf0, 0xff, 0x07],
                Err(Unprobeable::LockPrefix),
                "lock inc [rdi]",
            ),
            (
                &[0x3e, 0xff, 0xe0],
                Err(Unprobeable::SegmentPrefix),
                "notrack jmp rax",
            ),
            (
                &[0x2e, 0x74, 1],
                Err(Unprobeable::SegmentPrefix),
                "je, hinted",
            ),
            (
                &[0x66, 0xe9, 1, 0, 0, 0],
                Err(Unprobeable::ShortBranch),
                "data16 jmp",
            ),
            (
                &[0x66, 0x0f, 0x84, 1, 0, 0, 0],
                Err(Unprobeable::ShortBranch),
                "data16 je",
            ),
            (&[0x49, 0x90], Err(Unprobeable::Mistaken), "xchg r8, rax"),
            (
                &[0xc5, 0xfd, 0x7f, 0x07],
                Err(Unprobeable::Mistaken),
                "vmovdqa [rdi], ymm0",
            ),
            (
                &[0xc5, 0xfd, 0xeb, 0xc1],
                Err(Unprobeable::Mistaken),
                "vpor",
            ),
            (
                &[0xc5, 0xf8, 0x90, 0xc1],
                Err(Unprobeable::Mistaken),
                "kmovw",
            ),
            (&[0xf4], Err(Unprobeable::Opcode(0xf4)), "hlt"),
            (&[0xcd, 0x80], Err(Unprobeable::Opcode(0xcd)), "int 80h"),
            (&[0x8e, 0xd0], Err(Unprobeable::Opcode(0x8e)), "mov ss, eax"),
            (
                &[0xc5, 0xf1, 0x60, 0xc2],
                Err(Unprobeable::Opcode(0x60)),
                "vpunpcklbw",
            ),
            (&[0x06], Err(Unprobeable::Undecodable), "push es"),
            (
                &[0x48],
                Err(Unprobeable::Undecodable),
                "prefix without opcode",
            ),
            (
                &[0xe8, 0x59],
                Err(Unprobeable::Undecodable),
                "call, cut off",
            ),
            (&[], Err(Unprobeable::NotCode), "nothing"),
        ];
        for (bytes, expected, what) in cases {
            assert_eq!(plan(bytes, 0x1000), *expected, "{what}: {bytes:02x?}");
        }
    }

    #[test]
    fn a_nop_across_a_page_end_is_not_optimized() {
        assert_eq!(plan(&NOP5, 0x1ffb), SITE(0, Optimized));
        assert_eq!(plan(&NOP5, 0x1ffc), SITE(0, SingleStepped));
    }

    #[test]
    fn a_loop_back_behind_endbr64_keeps_the_probe_at_the_start() {
        // endbr64; L: call +0; test eax, eax; jne L; ret
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 0, 0, 0, 0, 0x85, 0xc0, 0x75, 0xf7, 0xc3,
        ];
        assert_eq!(plan(&code, 0x1000), SITE(0, SingleStepped));
        // The same with the branch to the next instruction: no loop.
        let mut straight = code;
        straight[12] = 0;
        assert_eq!(plan(&straight, 0x1000), SITE(4, Emulated));
    }

    proptest! {
        #[test]
        fn any_bytes_at_any_address(code in proptest::collection::vec(any::<u8>(), 0..64), address: u64) {
            if let Ok(site) = plan(&code, address) {
                prop_assert!(usize::from(site.skipped) < code.len());
                prop_assert!(site.skipped == 0 || code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]));
            }
        }

        #[test]
        fn any_bytes_behind_endbr64(tail in proptest::collection::vec(any::<u8>(), 0..32)) {
            let code = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &tail].concat();
            prop_assert!(plan(&code, u64::MAX - 8).is_ok(), "endbr64 itself can always be probed");
        }
    }
}
