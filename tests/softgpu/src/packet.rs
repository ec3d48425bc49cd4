//! AQL packets of 64 bytes each, distinguished by their headers.
//!
//! Source: `hsa.h`, `hsa_ext_amd.h`; the vendor formats of AMD's packet processor.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bus::{Bus, BusResult};

/// Bytes of an AQL packet.
pub const PACKET_BYTES: u64 = 64;
/// The header of a consumed or never written slot.
pub const INVALID: u16 = 1;
/// Header bit: wait for every earlier packet of the queue.
pub const BARRIER_BIT: u16 = 1 << 8;

/// Packet types, bits 0 to 7 of the header.
pub mod kind {
    /// A vendor format, given by byte 2.
    pub const VENDOR: u16 = 0;
    /// A kernel.
    pub const KERNEL_DISPATCH: u16 = 2;
    /// Waits until all of up to five signals are 0.
    pub const BARRIER_AND: u16 = 3;
    /// A request to the host.
    pub const AGENT_DISPATCH: u16 = 4;
    /// Waits until one of up to five signals is 0.
    pub const BARRIER_OR: u16 = 5;
}

/// AMD's vendor formats, byte 2 of a vendor packet.
pub mod vendor {
    /// A buffer of PM4 commands: cache maintenance, counters.
    pub const PM4_IB: u8 = 1;
    /// Waits until a masked signal value satisfies a comparison.
    pub const BARRIER_VALUE: u8 = 2;
    /// A kernel with clusters and a dependency.
    pub const EXT_KERNEL_DISPATCH: u8 = 3;
}

/// The 64 bytes of a packet, as read from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPacket(pub [u64; 8]);

impl RawPacket {
    /// Copies a packet out of the ring.
    ///
    /// # Errors
    ///
    /// If the address of the packet is invalid.
    pub fn read(bus: &Bus, address: u64) -> BusResult<Self> {
        let mut words = [0; 8];
        for (offset, word) in (0..).step_by(8).zip(&mut words) {
            *word = bus.load_u64("AQL packet", address + offset)?;
        }
        Ok(Self(words))
    }

    fn as_type<T: FromBytes>(&self) -> T
    where
        [u64; 8]: IntoBytes,
    {
        const { assert!(size_of::<T>() == 64) };
        // The sizes are equal, as just asserted, so reading always succeeds.
        #[expect(
            clippy::unwrap_used,
            reason = "both types have 64 bytes, asserted at compile time"
        )]
        T::read_from_bytes(self.0.as_bytes()).unwrap()
    }

    /// The header: type, barrier bit, fences.
    #[must_use]
    pub const fn header(&self) -> u16 {
        (self.0[0] & 0xffff) as u16
    }

    /// The type, bits 0 to 7 of the header.
    #[must_use]
    pub const fn kind(&self) -> u16 {
        self.header() & 0xff
    }

    /// Byte 2, the format of a vendor packet.
    #[must_use]
    pub const fn vendor_format(&self) -> u8 {
        (self.0[0] >> 16 & 0xff) as u8
    }

    /// Whether the packet waits for every earlier packet.
    #[must_use]
    pub const fn barrier_bit(&self) -> bool {
        self.header() & BARRIER_BIT != 0
    }

    /// Handle of the completion signal, or 0 for none. It is the last word in every format.
    #[must_use]
    pub const fn completion_signal(&self) -> u64 {
        self.0[7]
    }

    /// The bytes, in hex.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(self.0.as_bytes())
    }
}

/// Bytes as hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// `hsa_kernel_dispatch_packet_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelDispatch {
    /// Type, barrier bit, fences.
    pub header: u16,
    /// Dimensions, bits 0 and 1.
    pub setup: u16,
    /// Work-items per workgroup.
    pub workgroup: [u16; 3],
    /// Reserved.
    pub reserved0: u16,
    /// Grid size in work-items.
    pub grid: [u32; 3],
    /// Scratch bytes per work-item.
    pub private_segment: u32,
    /// LDS bytes per workgroup.
    pub group_segment: u32,
    /// Address of the kernel descriptor.
    pub kernel_object: u64,
    /// Address of the arguments.
    pub kernarg: u64,
    /// Reserved; HIP's correlation id when an activity tool is on.
    pub reserved2: u64,
    /// Completion signal.
    pub completion: u64,
}

/// AMD's kernel dispatch with clusters (2026 headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtKernelDispatch {
    /// Type, barrier bit, fences.
    pub header: u16,
    /// Vendor format, 3.
    pub format: u8,
    /// Dimensions.
    pub setup: u8,
    /// Work-items per workgroup.
    pub workgroup: [u16; 3],
    /// Reserved.
    pub reserved0: u16,
    /// Clusters, x.
    pub cluster_count_x: u32,
    /// Clusters, y and z.
    pub cluster_count_yz: [u16; 2],
    /// Workgroups per cluster.
    pub cluster_size: [u8; 3],
    /// Performance hint.
    pub hint: u8,
    /// Scratch bytes per work-item.
    pub private_segment: u32,
    /// LDS bytes per workgroup.
    pub group_segment: u32,
    /// Address of the kernel descriptor.
    pub kernel_object: u64,
    /// Address of the arguments.
    pub kernarg: u64,
    /// Signal to wait for, 0 for none.
    pub dep_signal: u64,
    /// Completion signal.
    pub completion: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BarrierBytes {
    header: [u16; 4],
    dependencies: [u64; 5],
    reserved: u64,
    completion: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BarrierValueBytes {
    header: [u16; 4],
    signal: u64,
    value: i64,
    mask: i64,
    condition: u32,
    reserved: [u32; 5],
    completion: u64,
}

/// The comparison of a barrier-value packet, `hsa_signal_condition_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Greater or equal.
    Gte,
}

impl Condition {
    /// Whether the comparison holds for `left` and `right`.
    #[must_use]
    pub const fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Eq => left == right,
            Self::Ne => left != right,
            Self::Lt => left < right,
            Self::Gte => left >= right,
        }
    }
}

/// A kernel to run, from either packet format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Address of the kernel descriptor.
    pub kernel_object: u64,
    /// Grid size in work-items.
    pub grid: [u32; 3],
    /// Work-items per workgroup.
    pub workgroup: [u16; 3],
    /// Scratch bytes per work-item.
    pub private_segment: u32,
    /// LDS bytes per workgroup.
    pub group_segment: u32,
    /// Address of the arguments.
    pub kernarg: u64,
    /// Signal to wait for first, 0 for none.
    pub dependency: u64,
}

/// A decoded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Runs a kernel.
    Kernel(Kernel),
    /// Waits until every signal (0 = none) is 0.
    BarrierAnd([u64; 5]),
    /// Waits until one of the signals is 0.
    BarrierOr([u64; 5]),
    /// Waits until `value & mask` of the signal satisfies the comparison with `value`.
    BarrierValue {
        /// The signal.
        signal: u64,
        /// The value to compare with.
        value: i64,
        /// The mask.
        mask: i64,
        /// The comparison.
        condition: Condition,
    },
    /// PM4 commands, which are ignored here.
    Pm4,
    /// A request to the host, which completes here without an answer.
    AgentDispatch,
}

impl Packet {
    /// Decodes a packet. Returns `None` if its type, vendor format or condition is unknown.
    #[must_use]
    pub fn decode(raw: &RawPacket) -> Option<Self> {
        match raw.kind() {
            kind::KERNEL_DISPATCH => Some(Self::Kernel(raw.as_type::<KernelDispatch>().into())),
            kind::BARRIER_AND => Some(Self::BarrierAnd(raw.as_type::<BarrierBytes>().dependencies)),
            kind::BARRIER_OR => Some(Self::BarrierOr(raw.as_type::<BarrierBytes>().dependencies)),
            kind::AGENT_DISPATCH => Some(Self::AgentDispatch),
            kind::VENDOR => match raw.vendor_format() {
                vendor::PM4_IB => Some(Self::Pm4),
                vendor::EXT_KERNEL_DISPATCH => {
                    Some(Self::Kernel(raw.as_type::<ExtKernelDispatch>().into()))
                }
                vendor::BARRIER_VALUE => {
                    let bytes: BarrierValueBytes = raw.as_type();
                    let condition = match bytes.condition {
                        0 => Condition::Eq,
                        1 => Condition::Ne,
                        2 => Condition::Lt,
                        3 => Condition::Gte,
                        _ => return None,
                    };
                    let BarrierValueBytes {
                        signal,
                        value,
                        mask,
                        ..
                    } = bytes;
                    Some(Self::BarrierValue {
                        signal,
                        value,
                        mask,
                        condition,
                    })
                }
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<KernelDispatch> for Kernel {
    fn from(packet: KernelDispatch) -> Self {
        let KernelDispatch {
            grid,
            workgroup,
            private_segment,
            group_segment,
            kernel_object,
            kernarg,
            ..
        } = packet;
        Self {
            kernel_object,
            grid,
            workgroup,
            private_segment,
            group_segment,
            kernarg,
            dependency: 0,
        }
    }
}

impl From<ExtKernelDispatch> for Kernel {
    fn from(packet: ExtKernelDispatch) -> Self {
        let [x, y, z] = packet.workgroup;
        let [cluster_x, cluster_y, cluster_z] = packet.cluster_size;
        let [count_y, count_z] = packet.cluster_count_yz;
        let items = |workgroup: u16, cluster: u8, count: u32| {
            u32::from(workgroup)
                .wrapping_mul(cluster.into())
                .wrapping_mul(count)
        };
        Self {
            kernel_object: packet.kernel_object,
            grid: [
                items(x, cluster_x, packet.cluster_count_x),
                items(y, cluster_y, count_y.into()),
                items(z, cluster_z, count_z.into()),
            ],
            workgroup: packet.workgroup,
            private_segment: packet.private_segment,
            group_segment: packet.group_segment,
            kernarg: packet.kernarg,
            dependency: packet.dep_signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_dispatch_is_read_field_by_field() {
        let packet = KernelDispatch {
            header: 0x0b02,
            setup: 3,
            workgroup: [64, 2, 1],
            reserved0: 0,
            grid: [1 << 20, 4, 2],
            private_segment: 16,
            group_segment: 512,
            kernel_object: 0x7f00_0000_1000,
            kernarg: 0x7f00_0000_2000,
            reserved2: 0,
            completion: 0x7f00_0000_3000,
        };
        let raw = RawPacket(zerocopy::transmute!(packet));
        assert!(raw.barrier_bit());
        assert_eq!(raw.completion_signal(), 0x7f00_0000_3000);
        assert_eq!(Packet::decode(&raw), Some(Packet::Kernel(packet.into())));
    }

    #[test]
    fn clusters_multiply_into_the_grid() {
        let packet = ExtKernelDispatch {
            header: 0,
            format: vendor::EXT_KERNEL_DISPATCH,
            setup: 3,
            workgroup: [64, 2, 1],
            reserved0: 0,
            cluster_count_x: 10,
            cluster_count_yz: [3, 1],
            cluster_size: [2, 1, 1],
            hint: 0,
            private_segment: 0,
            group_segment: 0,
            kernel_object: 0x1000,
            kernarg: 0,
            dep_signal: 0x40,
            completion: 0,
        };
        let Some(Packet::Kernel(kernel)) = Packet::decode(&RawPacket(zerocopy::transmute!(packet)))
        else {
            panic!("not a kernel");
        };
        assert_eq!((kernel.grid, kernel.dependency), ([1280, 6, 1], 0x40));
    }

    #[test]
    fn unknown_types_formats_and_conditions_are_not_guessed() {
        for first in [0x0000_0006, 0x0000_00ff, 0x0009_0000] {
            assert_eq!(
                Packet::decode(&RawPacket([first, 0, 0, 0, 0, 0, 0, 0])),
                None
            );
        }
        assert_eq!(
            Packet::decode(&RawPacket([0x0002_0000, 0, 0, 0, 9, 0, 0, 0])),
            None
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(words: [u64; 8]) {
            let raw = RawPacket(words);
            let known = Packet::decode(&raw);
            proptest::prop_assert_eq!(raw.hex().len(), 128);
            proptest::prop_assert!(known.is_none() || raw.kind() <= kind::BARRIER_OR);
        }
    }

    #[test]
    fn conditions_compare_signed() {
        assert!(Condition::Lt.holds(-1, 0));
        assert!(!Condition::Gte.holds(-1, 0));
    }
}
