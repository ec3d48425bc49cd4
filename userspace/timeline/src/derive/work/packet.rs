//! Decodes AQL packets: the layouts of `hsa.h` and `amd_hsa_queue.h`, and of AMD's vendor packets.

/// Types in the low byte of a packet's header (`hsa_packet_type_t`).
mod packet_type {
    pub(super) const VENDOR: u64 = 0;
    /// Not written yet, or consumed: the hardware writes this value when it takes a packet.
    pub(super) const INVALID: u64 = 1;
    pub(super) const KERNEL_DISPATCH: u64 = 2;
    pub(super) const BARRIER_AND: u64 = 3;
    /// The last of the known types, `BARRIER_OR`.
    pub(super) const LAST: u64 = 5;
}

/// `AmdFormat` of a vendor packet that dispatches a kernel in clusters of workgroups
/// (`HSA_AMD_PACKET_TYPE_EXT_KERNEL_DISPATCH`).
const EXT_KERNEL_DISPATCH: u64 = 3;

/// Formats of vendor packets that are known: `PM4_IB`, `BARRIER_VALUE`, [`EXT_KERNEL_DISPATCH`],
/// and the mark of ROCr's intercepted queues.
const KNOWN_FORMATS: [u64; 4] = [1, 2, EXT_KERNEL_DISPATCH, 0xfe];

/// Maximum number of work-items in a workgroup, on every AMD GPU.
const MAX_WORKGROUP: u64 = 1024;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel dispatch.
    Kernel,
    /// A kernel dispatch in AMD's own format.
    ExtKernel,
    /// Anything else: a barrier, an agent dispatch, or a vendor packet.
    Other,
}

/// The 64 bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aql(pub(crate) [u64; 8]);

impl Aql {
    fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// `bytes` bytes at `offset`; they must not cross a word boundary.
    fn field(&self, offset: usize, bytes: u32) -> u64 {
        let shifted = self.word(offset / 8) >> (offset % 8 * 8);
        if bytes >= 8 {
            shifted
        } else {
            shifted & ((1 << (bytes * 8)) - 1)
        }
    }

    fn half(&self, offset: usize) -> u32 {
        self.field(offset, 4) as u32
    }

    /// Whether the header still has the packet's type.
    pub(crate) fn has_type(&self) -> bool {
        self.field(0, 1) != packet_type::INVALID
    }

    /// The packet's kind. If the header has been consumed, the body decides.
    ///
    /// A consumed packet counts as a dispatch only if nothing but a dispatch can look like it:
    /// `setup` has one to three dimensions and nothing else, the workgroup has 1 to 1024
    /// work-items, the grid has at least one, unused dimensions are 1, reserved bytes are 0, and
    /// `kernel_object` is aligned. Barrier packets have 0 where the workgroup sizes would be, agent
    /// dispatches have 0 in the second of them, and AMD's `PM4_IB` has no kernel object.
    pub(crate) fn kind(&self) -> Kind {
        match self.field(0, 1) {
            packet_type::KERNEL_DISPATCH => Kind::Kernel,
            packet_type::VENDOR if self.field(2, 1) == EXT_KERNEL_DISPATCH => Kind::ExtKernel,
            packet_type::INVALID if self.looks_like_kernel() => Kind::Kernel,
            packet_type::INVALID if self.looks_like_ext_kernel() => Kind::ExtKernel,
            _ => Kind::Other,
        }
    }

    /// What the packet is called if this version does not know it: it may start a kernel.
    pub(crate) fn unknown(&self) -> Option<(&'static str, u8)> {
        let (kind, format) = (self.field(0, 1), self.field(2, 1));
        match kind {
            packet_type::VENDOR if !KNOWN_FORMATS.contains(&format) => {
                Some(("AMD's format", format as u8))
            }
            _ if kind > packet_type::LAST => Some(("type", kind as u8)),
            _ => None,
        }
    }

    fn looks_like_kernel(&self) -> bool {
        let dimensions = self.field(2, 2);
        let workgroup = self.workgroup();
        let grid = self.grid(Kind::Kernel);
        let unused = dimensions as usize..3;
        let is_flat = |sizes: &[u32; 3]| {
            sizes
                .get(unused.clone())
                .is_some_and(|unused| unused.iter().all(|size| *size == 1))
        };
        (1..=3).contains(&dimensions)
            && self.field(10, 2) == 0
            && is_flat(&workgroup)
            && is_flat(&grid)
            && grid.iter().all(|size| *size > 0)
            && self.looks_executable()
    }

    fn looks_like_ext_kernel(&self) -> bool {
        self.field(2, 1) == EXT_KERNEL_DISPATCH
            && (1..=3).contains(&self.field(3, 1))
            && self.grid(Kind::ExtKernel).iter().all(|size| *size > 0)
            && self.looks_executable()
    }

    fn looks_executable(&self) -> bool {
        let size: u64 = self
            .workgroup()
            .iter()
            .map(|size| u64::from(*size))
            .product();
        (1..=MAX_WORKGROUP).contains(&size)
            && self.kernel_object() != 0
            && self.kernel_object().is_multiple_of(64)
            && self.signal().is_multiple_of(8)
    }

    /// The barrier bit: the packet begins after all packets before it have ended. Always `false`
    /// for a consumed header, which has lost the bit.
    pub(crate) fn barrier(&self) -> bool {
        self.field(0, 2) >> 8 & 1 != 0
    }

    /// Whether the packet does nothing but wait for earlier packets, i.e. is a `BARRIER_AND`
    /// without signals.
    pub(crate) fn only_waits(&self) -> bool {
        self.field(0, 1) == packet_type::BARRIER_AND && (1..=5).all(|signal| self.word(signal) == 0)
    }

    /// Workgroup size in work-items.
    pub(crate) fn workgroup(&self) -> [u32; 3] {
        [4, 6, 8].map(|offset| self.field(offset, 2) as u32)
    }

    /// Grid size in work-items. The vendor's format counts clusters of workgroups.
    pub(crate) fn grid(&self, kind: Kind) -> [u32; 3] {
        if kind != Kind::ExtKernel {
            return [12, 16, 20].map(|offset| self.half(offset));
        }
        let [x, y, z] = self.workgroup();
        let clusters = [
            (x, self.half(12), self.field(20, 1)),
            (y, self.field(16, 2) as u32, self.field(21, 1)),
            (z, self.field(18, 2) as u32, self.field(22, 1)),
        ];
        clusters.map(|(workgroup, count, size)| {
            workgroup.saturating_mul(count).saturating_mul(size as u32)
        })
    }

    /// Private memory per work-item, in bytes.
    pub(crate) fn private_size(&self) -> u32 {
        self.half(24)
    }

    /// Group memory per workgroup, in bytes.
    pub(crate) fn group_size(&self) -> u32 {
        self.half(28)
    }

    /// Address of the kernel descriptor.
    pub(crate) fn kernel_object(&self) -> u64 {
        self.word(4)
    }

    /// Address of the kernel's arguments.
    pub(crate) fn kernarg(&self) -> u64 {
        self.word(5)
    }

    /// Completion signal, or 0 if there is none. All kinds of packets have it at the same offset.
    pub(crate) fn signal(&self) -> u64 {
        self.word(7)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet with header, setup, workgroup 64×2×1, grid 640×4×1, private 16, group 32, object,
    /// arguments, and signal.
    fn dispatch() -> Aql {
        Aql([
            2 | 1 << 8 | 2 << 16 | 64 << 32 | 2 << 48,
            1 | 640 << 32,
            4 | 1 << 32,
            16 | 32 << 32,
            0x7f00_0000_1240,
            0x5000,
            0,
            0x9000,
        ])
    }

    fn consumed(packet: Aql) -> Aql {
        let mut words = packet.0;
        words[0] = words[0] & !0xffff | packet_type::INVALID;
        Aql(words)
    }

    #[test]
    fn a_dispatch_is_read() {
        let packet = dispatch();
        assert_eq!(
            (packet.kind(), packet.barrier(), packet.has_type()),
            (Kind::Kernel, true, true)
        );
        assert_eq!(
            (packet.workgroup(), packet.grid(Kind::Kernel)),
            ([64, 2, 1], [640, 4, 1])
        );
        assert_eq!((packet.private_size(), packet.group_size()), (16, 32));
        assert_eq!(
            (packet.kernel_object(), packet.kernarg(), packet.signal()),
            (0x7f00_0000_1240, 0x5000, 0x9000)
        );
    }

    #[test]
    fn a_dispatch_of_clusters_is_read() {
        // Workgroup 8×4×2; 3×5×7 clusters of 2×1×1 workgroups.
        let packet = Aql([
            3 << 16 | 3 << 24 | 8 << 32 | 4 << 48,
            2 | 3 << 32,
            5 | 7 << 16 | 2 << 32 | 1 << 40 | 1 << 48,
            0,
            0x1240,
            0,
            0,
            0,
        ]);
        assert_eq!(packet.kind(), Kind::ExtKernel);
        assert_eq!(packet.grid(Kind::ExtKernel), [48, 20, 14]);
        assert_eq!(consumed(packet).kind(), Kind::ExtKernel);
    }

    #[test]
    fn consumed_packets_are_told_by_their_bodies() {
        let packet = consumed(dispatch());
        assert_eq!(
            (packet.kind(), packet.barrier(), packet.has_type()),
            (Kind::Kernel, false, false)
        );
        // Barrier-AND on two signals; agent dispatch of type 1 with arguments; BARRIER_VALUE;
        // PM4_IB.
        for words in [
            [1, 0x7000, 0x8000, 0, 0, 0, 0, 0x9000],
            [1 | 1 << 16, 0x7000, 1, 1, 0x40, 1, 0, 0x9000],
            [1 | 2 << 16, 0x7000, 1, u64::MAX, 3, 0, 0, 0x9000],
            [
                1 | 1 << 16 | 0xc002_3f00 << 32,
                0x1000,
                0x40,
                10,
                0,
                0,
                0,
                0x9000,
            ],
        ] {
            assert_eq!(Aql(words).kind(), Kind::Other, "{words:x?}");
        }
        // Values that a dispatch cannot have.
        for (word, value) in [
            (0, 1 | 4 << 16 | 64 << 32 | 2 << 48),
            (0, 1 | 2 << 16 | 1024 << 32 | 2 << 48),
            (1, 1 | 1 << 16 | 640 << 32),
            (1, 1),
            (2, 4 | 2 << 32),
            (4, 0),
            (4, 0x1241),
            (7, 0x9001),
        ] {
            let mut words = packet.0;
            words[word] = value;
            assert_eq!(Aql(words).kind(), Kind::Other, "{words:x?}");
        }
    }

    #[test]
    fn what_is_not_known_has_a_name() {
        let unknown = |head| Aql([head, 0, 0, 0, 0, 0, 0, 0]).unknown();
        for known in [2, 1, 3, 4, 5, 1 << 16, 2 << 16, 3 << 16] {
            assert_eq!(unknown(known), None, "{known:#x}");
        }
        assert_eq!(unknown(4 << 16), Some(("AMD's format", 4)));
        assert_eq!(unknown(6 | 1 << 8), Some(("type", 6)));
    }

    proptest! {
        #[test]
        fn no_packet_panics(words: [u64; 8]) {
            let packet = Aql(words);
            let kind = packet.kind();
            let _ = (packet.grid(kind), packet.barrier(), packet.signal());
        }
    }
}
