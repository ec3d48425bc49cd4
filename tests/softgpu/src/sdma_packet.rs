//! SDMA packets: a table of operations, and access to their fields.
//!
//! Source: the packet structures of ROCr's `core/inc/sdma_registers.h`. The first dword holds the
//! operation in bits 0 to 7 and the sub-operation in bits 8 to 15; addresses are low dword, high
//! dword.

/// An operation that the processor supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing; the rest of the packet is skipped.
    Nop,
    /// Copies a run of bytes.
    CopyLinear,
    /// Copies a box of elements.
    CopyRect,
    /// Writes 32 bits.
    Fence,
    /// Raises an event.
    Trap,
    /// Waits for a value in memory, or flushes HDP.
    Poll,
    /// Adds to 64 bits.
    Atomic,
    /// Fills memory with a value.
    Fill,
    /// Writes the clock.
    Timestamp,
    /// Cache maintenance.
    CacheControl,
}

/// One row of the table of formats.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Operation, bits 0 to 7.
    pub code: u8,
    /// Sub-operation, bits 8 to 15; `None` for any.
    pub sub: Option<u8>,
    /// Length in dwords.
    pub dwords: usize,
    /// The operation.
    pub op: Op,
}

const fn format(code: u8, sub: Option<u8>, dwords: usize, op: Op) -> Format {
    Format {
        code,
        sub,
        dwords,
        op,
    }
}

/// All packets that the processor supports.
pub const FORMATS: [Format; 10] = [
    format(0, None, 1, Op::Nop),
    format(1, Some(0), 7, Op::CopyLinear),
    format(1, Some(4), 13, Op::CopyRect),
    format(5, None, 4, Op::Fence),
    format(6, None, 2, Op::Trap),
    format(8, None, 6, Op::Poll),
    format(10, None, 8, Op::Atomic),
    format(11, None, 5, Op::Fill),
    format(13, Some(2), 3, Op::Timestamp),
    format(17, None, 5, Op::CacheControl),
];

/// The longest packet, in dwords.
pub const MAX_DWORDS: usize = 16;

/// The format selected by a packet's first dword.
#[must_use]
pub fn format_of(first: u32) -> Option<&'static Format> {
    let [code, sub, ..] = first.to_le_bytes();
    FORMATS
        .iter()
        .find(|format| format.code == code && format.sub.is_none_or(|wanted| wanted == sub))
}

/// The dwords of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words(pub [u32; MAX_DWORDS]);

impl Words {
    /// The dword at `index`; 0 beyond the packet.
    #[must_use]
    pub fn dword(&self, index: usize) -> u32 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// The 64 bits at dwords `index` and `index + 1`.
    #[must_use]
    pub fn qword(&self, index: usize) -> u64 {
        u64::from(self.dword(index)) | u64::from(self.dword(index + 1)) << 32
    }

    /// `width` bits of dword `index`, from bit `low` on.
    #[must_use]
    pub fn bits(&self, index: usize, low: u32, width: u32) -> u64 {
        u64::from(self.dword(index)) >> low & ((1 << width) - 1)
    }

    /// Length in bytes of the packet that begins with these words.
    #[must_use]
    pub fn bytes(&self, format: &Format) -> u64 {
        let extra = if format.op == Op::Nop {
            self.bits(0, 16, 14)
        } else {
            0
        };
        (format.dwords as u64 + extra) * 4
    }
}

/// One side of a rectangular copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Address of element (0, 0, 0).
    pub base: u64,
    /// First element, x, y, z.
    pub offset: [u64; 3],
    /// Number of elements from row to row.
    pub pitch: u64,
    /// Number of elements from slice to slice.
    pub slice: u64,
}

/// A rectangular copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Size of an element in bytes.
    pub element: u64,
    /// Source.
    pub source: Side,
    /// Destination.
    pub destination: Side,
    /// Size in elements, x, y, z.
    pub size: [u64; 3],
}

impl Side {
    fn read(words: &Words, first: usize) -> Self {
        Self {
            base: words.qword(first),
            offset: [
                words.bits(first + 2, 0, 14),
                words.bits(first + 2, 16, 14),
                words.bits(first + 3, 0, 11),
            ],
            pitch: words.bits(first + 3, 13, 19) + 1,
            slice: words.bits(first + 4, 0, 28) + 1,
        }
    }

    /// Address of row `y` of slice `z` of the box.
    #[must_use]
    pub const fn row(&self, element: u64, y: u64, z: u64) -> u64 {
        let [x0, y0, z0] = self.offset;
        let elements = (z0 + z) * self.slice + (y0 + y) * self.pitch + x0;
        self.base.wrapping_add(elements * element)
    }
}

impl Rect {
    /// Reads a sub-window copy packet (gfx9 to gfx11).
    #[must_use]
    pub fn read(words: &Words) -> Self {
        Self {
            element: 1 << words.bits(0, 29, 3),
            source: Side::read(words, 1),
            destination: Side::read(words, 6),
            size: [
                words.bits(11, 0, 14) + 1,
                words.bits(11, 16, 14) + 1,
                words.bits(12, 0, 11) + 1,
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart_by_operation_and_sub_operation() {
        let op = |first| format_of(first).map(|format| format.op);
        assert_eq!(op(0x0000_0001), Some(Op::CopyLinear));
        assert_eq!(op(0x4000_0401), Some(Op::CopyRect));
        assert_eq!(op(0x0000_0201), None);
        assert_eq!(op(0x0000_020d), Some(Op::Timestamp));
        assert_eq!(op(0x0000_00ff), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_have_a_length_or_no_format(words: [u32; MAX_DWORDS]) {
            let words = Words(words);
            if let Some(format) = format_of(words.dword(0)) {
                proptest::prop_assert!((4..=4 * (1 << 14)).contains(&words.bytes(format)));
            }
            let rect = Rect::read(&words);
            // The farthest element of the farthest box stays within 64 bits.
            let [_, height, depth] = rect.size;
            for side in [rect.source, rect.destination] {
                let farthest = side.row(rect.element, height, depth).wrapping_sub(side.base);
                proptest::prop_assert!(farthest < 1 << 60);
            }
        }
    }

    #[test]
    fn a_nop_says_how_long_it_is() {
        let mut words = [0; MAX_DWORDS];
        words[0] = 3 << 16;
        let words = Words(words);
        assert_eq!(words.bytes(format_of(words.dword(0)).unwrap()), 16);
    }

    #[test]
    fn a_rect_is_read_field_by_field() {
        let words = Words([
            2 << 29 | 0x401,
            0x1000,
            0x7f00,
            5 | 6 << 16,
            7 | 99 << 13,
            9_999,
            0x2000,
            0x7f01,
            1 | 2 << 16,
            3 | 199 << 13,
            39_999,
            63 | 31 << 16,
            1,
            0,
            0,
            0,
        ]);
        let rect = Rect::read(&words);
        assert_eq!((rect.element, rect.size), (4, [64, 32, 2]));
        assert_eq!(
            rect.source,
            Side {
                base: 0x7f00_0000_1000,
                offset: [5, 6, 7],
                pitch: 100,
                slice: 10_000
            }
        );
        assert_eq!(
            rect.source.row(4, 1, 0),
            0x7f00_0000_1000 + 4 * (7 * 10_000 + 7 * 100 + 5)
        );
        assert_eq!(rect.destination.slice, 40_000);
    }
}
