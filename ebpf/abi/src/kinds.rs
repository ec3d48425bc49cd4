//! Kinds of records: one row with all facts about each.

use core::mem::offset_of;

use crate::{
    domain::{DOMAINS, Domain},
    gpu::{self, Activity, Completion, Described, Packet, QueueState, ScratchState},
    kfd::{Ioctl, LongIoctl, ShortIoctl},
    record::{LongSpan, RecordHeader, Span, Task},
    sched::OffCpu,
    stack::StackUse,
    tracepoint::{LongTrace, ShortTrace},
    values::{LONG_SIZE, MEDIUM_SIZE, SHORT_SIZE, Value},
};

/// What the records of a kind are about, and so who handles them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A call of a function.
    Call,
    /// A request to the driver; it is a call, too.
    Request,
    /// What the kernel reports about a thread or a GPU.
    Observation,
    /// The GPU's work, or the state of a queue or GPU.
    GpuWork,
    /// What a pointer of a call points to.
    Value,
    /// Which stack a call has.
    Stack,
    /// The beginning or end of a process or thread, or a change of it.
    Task,
    /// For the recorder itself; never in a capture.
    Internal,
}

/// All facts about a kind. Each kind's row lists its differences from [`Row::new`].
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    class: Class,
    /// One bit per domain.
    domains: u32,
    pid: Option<usize>,
    is_limited: bool,
    end: Option<usize>,
}

impl Row {
    /// A kind that is in no account, of finished records that belong to no traced process.
    const fn new(name: &'static str, class: Class) -> Self {
        Self {
            name,
            class,
            domains: 0,
            pid: None,
            is_limited: false,
            end: None,
        }
    }

    /// Accounts count the records, under one of these domains.
    const fn domains(self, domains: &[Domain]) -> Self {
        let mut rest = domains;
        let mut bits = 0;
        while let [first, others @ ..] = rest {
            bits |= 1 << first.id();
            rest = others;
        }
        Self {
            domains: bits,
            ..self
        }
    }

    /// Accounts count the records, under the domain of the function, which may be unknown to this
    /// version.
    const fn any_domain(self) -> Self {
        Self {
            domains: u32::MAX,
            ..self
        }
    }

    /// The records belong to the traced process whose id is at offset `pid`.
    const fn of_process(self, pid: usize) -> Self {
        Self {
            pid: Some(pid),
            ..self
        }
    }

    /// The records take a share of what one process may write: it can cause any number of them.
    const fn limited(self) -> Self {
        Self {
            is_limited: true,
            ..self
        }
    }

    /// The records are about what had begun and not ended. The field at offset `end` is when
    /// nothing more was seen of it.
    const fn unfinished(self, end: usize) -> Self {
        Self {
            end: Some(end),
            ..self
        }
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $variant:ident [$($structure:ty),*], $row:expr;)*) => {
        /// Numbers of the kinds of records; never reused, because captures hold them.
        pub mod kind {
            $($(#[$doc])* pub const $constant: u8 = $number;)*
        }

        /// A kind of records.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $variant = kind::$constant,)* }

        impl Kind {
            /// Every kind, in the order in which they are listed for users.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The kind with this number; `None` for a number that this version does not know.
            #[inline]
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $(kind::$constant => Some(Self::$variant),)* _ => None }
            }

            /// Sizes that its records have in a ring, in bytes. In a capture, a [`Value`] has only
            /// the bytes that it needs.
            #[inline]
            #[must_use]
            pub const fn sizes(self) -> &'static [usize] {
                match self { $(Self::$variant => &[$(size_of::<$structure>()),*],)* }
            }

            #[inline]
            const fn row(self) -> &'static Row {
                match self { $(Self::$variant => const { &$row },)* }
            }
        }
    };
}

use self::Class::{Call, GpuWork, Internal, Observation, Request};

records! {
    /// A finished call: [`crate::record::Span`] or [`crate::record::LongSpan`].
    SPAN = 1, Span [Span, LongSpan], Row::new("span", Call)
        .any_domain().of_process(offset_of!(Span, pid)).limited();
    /// A call that had not returned when its thread ended, the program was replaced by exec, or the
    /// recording stopped; layout of [`crate::record::kind::SPAN`], `end` is that moment and
    /// `result` is 0.
    UNFINISHED = 2, Unfinished [Span, LongSpan], Row::new("unfinished", Call)
        .any_domain().of_process(offset_of!(Span, pid)).unfinished(offset_of!(Span, end));
    /// A task was created, executed a program, was renamed or ended: [`crate::record::Task`].
    TASK = 3, Task [Task], Row::new("task", Class::Task);
    /// A traced process has mapped libraries or code objects: [`crate::record::Task`], never in a
    /// capture.
    LINKER = 4, Linker [Task], Row::new("linker", Internal);
    /// A packet in a queue: [`crate::gpu::Packet`].
    PACKET = 5, Packet [Packet], Row::new("packet", GpuWork)
        .domains(&[Domain::KernelDispatch, Domain::QueuePacket])
        .of_process(offset_of!(Packet, pid)).limited();
    /// A completion signal: [`crate::gpu::Completion`].
    COMPLETION = 6, Completion [Completion], Row::new("completion", GpuWork)
        .domains(&[Domain::Completion]).of_process(offset_of!(Completion, pid)).limited();
    /// A copy: [`struct@crate::gpu::Copy`].
    COPY = 7, Copy [gpu::Copy], Row::new("copy", GpuWork)
        .domains(&[Domain::MemoryCopy]).of_process(offset_of!(gpu::Copy, pid)).limited();
    /// A queue's indices, or its end: [`crate::gpu::QueueState`].
    QUEUE = 8, Queue [QueueState], Row::new("queue_state", GpuWork)
        .of_process(offset_of!(QueueState, pid));
    /// The scratch memory of a queue, when it has changed: [`crate::gpu::ScratchState`].
    SCRATCH = 11, Scratch [ScratchState], Row::new("scratch", GpuWork)
        .domains(&[Domain::ScratchMemory]).of_process(offset_of!(ScratchState, pid));
    /// A queue or agent seen for the first time: [`crate::gpu::Described`], never in a capture.
    DESCRIBED = 9, Described [Described], Row::new("described", Internal);
    /// A GPU is active or idle: [`crate::gpu::Activity`].
    ACTIVITY = 12, Activity [Activity], Row::new("activity", GpuWork);
    /// A value that a pointer argument of a call points to: [`crate::values::Value`].
    VALUE = 10, Value [[u8; SHORT_SIZE], [u8; MEDIUM_SIZE], [u8; LONG_SIZE]],
        Row::new("value", Class::Value)
        .domains(&[Domain::ArgumentData]).of_process(offset_of!(Value, pid)).limited();
    /// Which stack a call has: [`crate::stack::StackUse`].
    STACK = 13, Stack [StackUse], Row::new("stack", Class::Stack);
    /// A request to the driver: [`crate::kfd::ShortIoctl`] or [`crate::kfd::LongIoctl`].
    IOCTL = 32, Ioctl [ShortIoctl, LongIoctl], Row::new("ioctl", Request)
        .domains(&[Domain::KfdIoctl]).of_process(offset_of!(Ioctl, pid)).limited();
    /// A request to the driver that had not returned when the recording stopped; layout of
    /// [`crate::record::kind::IOCTL`].
    IOCTL_UNFINISHED = 33, IoctlUnfinished [ShortIoctl, LongIoctl],
        Row::new("ioctl_unfinished", Request).domains(&[Domain::KfdIoctl])
        .of_process(offset_of!(Ioctl, pid)).unfinished(offset_of!(Ioctl, end));
    /// A thread had no processor: [`crate::sched::OffCpu`].
    OFF_CPU = 34, OffCpu [OffCpu], Row::new("off_cpu", Observation)
        .domains(&[Domain::Sched]).of_process(offset_of!(OffCpu, pid));
    /// A thread had no processor when the recording stopped; layout of
    /// [`crate::record::kind::OFF_CPU`].
    OFF_CPU_OPEN = 35, OffCpuOpen [OffCpu], Row::new("off_cpu_open", Observation)
        .domains(&[Domain::Sched])
        .of_process(offset_of!(OffCpu, pid)).unfinished(offset_of!(OffCpu, end));
    /// A tracepoint of the kernel fired, in any process: [`crate::tracepoint::ShortTrace`] or
    /// [`crate::tracepoint::LongTrace`].
    TRACE = 36, Trace [ShortTrace, LongTrace], Row::new("trace", Observation)
        .domains(&[Domain::Tracepoint]);
}

const _: () = assert!(DOMAINS == u32::BITS as usize);

impl Kind {
    /// Number in records.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name that `gputrace dump` prints, e.g. `span`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// What its records are about.
    #[inline]
    #[must_use]
    pub const fn class(self) -> Class {
        self.row().class
    }

    /// Whether a record in a ring can have this size, in bytes.
    #[inline]
    #[must_use]
    pub fn accepts(self, size: usize) -> bool {
        self.sizes().contains(&size)
    }

    /// Whether the accounts count its records.
    #[inline]
    #[must_use]
    pub const fn is_counted(self) -> bool {
        self.row().domains != 0
    }

    /// Whether accounts count its records as what had begun and not ended.
    #[inline]
    #[must_use]
    pub const fn is_unfinished(self) -> bool {
        self.row().end.is_some()
    }

    /// Whether its records can be counted under the domain with this number.
    #[inline]
    #[must_use]
    pub const fn may_carry(self, domain: u8) -> bool {
        (domain as usize) < DOMAINS && self.row().domains >> domain & 1 != 0
    }

    /// Offset of the id of the traced process that a record belongs to; `None` if it belongs to
    /// none, or if that does not matter.
    #[inline]
    #[must_use]
    pub const fn pid_at(self) -> Option<usize> {
        self.row().pid
    }

    /// Whether a record takes a share of what its process may write; not if there are few of them,
    /// or if no process can cause them at will.
    #[inline]
    #[must_use]
    pub const fn is_limited(self) -> bool {
        self.row().is_limited
    }

    /// Offset of the end (ns, `CLOCK_BOOTTIME`) in an unfinished record: the moment when nothing
    /// more was seen of it. `None` for finished ones.
    #[must_use]
    pub const fn end_at(self) -> Option<usize> {
        self.row().end
    }
}

impl RecordHeader {
    /// The kind; `None` for a number that this version does not know.
    #[inline]
    #[must_use]
    pub const fn known_kind(&self) -> Option<Kind> {
        Kind::from_number(self.kind)
    }

    /// Whether the record is about what had begun and not ended.
    #[inline]
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        matches!(self.known_kind(), Some(kind) if kind.is_unfinished())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_round_trip() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(Kind::from_number(kind.number()), Some(*kind));
            let others = &Kind::ALL[index + 1..];
            assert!(others.iter().all(|other| other.name() != kind.name()));
        }
        let known = (0..=u8::MAX).filter_map(Kind::from_number);
        assert_eq!(known.count(), Kind::ALL.len());
    }

    /// The sizes are those in the captures of this [`crate::ABI_VERSION`].
    #[test]
    fn sizes_are_those_of_the_structures() {
        let sizes = [
            (kind::SPAN, &[112, 176][..]),
            (kind::UNFINISHED, &[112, 176]),
            (kind::TASK, &[48]),
            (kind::LINKER, &[48]),
            (kind::PACKET, &[160]),
            (kind::COMPLETION, &[72]),
            (kind::COPY, &[112]),
            (kind::STACK, &[16]),
            (kind::QUEUE, &[56]),
            (kind::SCRATCH, &[64]),
            (kind::DESCRIBED, &[64]),
            (kind::ACTIVITY, &[40]),
            (kind::VALUE, &[64, 280, 1024]),
            (kind::IOCTL, &[208, 944]),
            (kind::IOCTL_UNFINISHED, &[208, 944]),
            (kind::OFF_CPU, &[48]),
            (kind::OFF_CPU_OPEN, &[48]),
            (kind::TRACE, &[160, 544]),
        ];
        assert_eq!(sizes.len(), Kind::ALL.len());
        for (number, sizes) in sizes {
            assert_eq!(Kind::from_number(number).unwrap().sizes(), sizes);
        }
    }

    #[test]
    fn fields_lie_within_the_shortest_record() {
        for kind in Kind::ALL {
            let least = *kind.sizes().iter().min().unwrap();
            assert!(kind.pid_at().is_none_or(|at| at + 4 <= least), "{kind:?}");
            assert!(kind.end_at().is_none_or(|at| at + 8 <= least), "{kind:?}");
            assert!(kind.pid_at().is_some() || !kind.is_limited(), "{kind:?}");
        }
    }

    #[test]
    fn only_counted_kinds_have_domains() {
        for kind in Kind::ALL {
            let has_domain = (0..=u8::MAX).any(|domain| kind.may_carry(domain));
            assert_eq!(kind.is_counted(), has_domain, "{kind:?}");
            assert!(kind.is_counted() || !kind.is_unfinished(), "{kind:?}");
            assert!(!kind.may_carry(DOMAINS as u8), "{kind:?}");
        }
        assert!(Kind::Packet.may_carry(Domain::QueuePacket.id()));
        assert!(!Kind::Packet.may_carry(Domain::MemoryCopy.id()));
        assert!(Kind::Span.may_carry(31));
    }
}
