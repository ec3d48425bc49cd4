//! Decodes record bytes into typed records. Everything is checked: the bytes are untrusted.

pub(crate) mod ioctl;
pub(crate) mod tracepoint;

use gputrace_abi::{
    STACK_ARGS, gpu,
    kinds::Kind,
    record::{LONG_SPAN_SIZE, LongSpan, RecordHeader, SPAN_SIZE, Span, Task, span_flags},
    sched::OffCpu,
    stack::StackUse,
};
use gputrace_capture::records::RawRecord;
use zerocopy::FromBytes;

use self::ioctl::Parts;
use crate::model::{
    event::{Call, CallEnd},
    item::Item,
    observation::{self, Observation},
    raw::MAX_CPUS,
    values::{self, Pointee},
};

/// A valid record that is neither a call of a function ([`span`]) nor about the GPU's work
/// ([`work`]).
#[derive(Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// A request to the driver.
    Ioctl(Parts<'a>),
    /// What the kernel reports.
    Observed(Observed<'a>),
    /// A process or thread event.
    Task(Task),
    /// What a pointer of the call with this correlation id pointed to.
    Value(u64, Pointee),
    /// The call with this correlation id has the stack with this number.
    Stack(u64, u32),
    /// Meant for the recorder itself; says nothing about the program.
    Internal,
}

/// What the kernel reports. New kinds of this class need a variant here, and nothing else in this
/// crate.
#[derive(Debug, PartialEq)]
pub(crate) enum Observed<'a> {
    /// A tracepoint event.
    Trace(tracepoint::Parts<'a>),
    /// A period in which a thread was off the CPU.
    OffCpu(OffCpu),
}

impl Observed<'_> {
    /// Begin and end; ns, `CLOCK_BOOTTIME`. The end may lie before the begin.
    pub(crate) fn times(&self) -> (u64, u64) {
        match self {
            Self::Trace(parts) => (parts.head.time, parts.head.time),
            Self::OffCpu(off) => (off.begin, off.end),
        }
    }

    /// The events that it describes.
    pub(crate) fn observations(&self, formats: &tracepoint::Formats) -> Vec<Observation> {
        match self {
            Self::Trace(parts) => vec![formats.observe(parts)],
            Self::OffCpu(off) => observation::off_cpu(off),
        }
    }
}

/// Why a record was skipped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A kind unknown to this version.
    Unknown,
    /// A known kind with an invalid size or content.
    Malformed,
}

/// The kind of a record whose header is plausible: the accounts can have counted it so.
#[inline(always)]
pub(crate) fn known(raw: RawRecord<'_>) -> Result<Kind, Fault> {
    let kind = raw.header.known_kind().ok_or(Fault::Unknown)?;
    let RecordHeader { domain, cpu, .. } = raw.header;
    if kind.is_counted() && !(kind.may_carry(domain) && cpu < MAX_CPUS) {
        return Err(Fault::Malformed);
    }
    Ok(kind)
}

/// Decodes a record of `kind`; `None` if it is malformed, or for [`span`] or [`work`].
pub(crate) fn decode(kind: Kind, raw: RawRecord<'_>) -> Option<Record<'_>> {
    match kind {
        Kind::Task => Task::read_from_bytes(raw.bytes).ok().map(Record::Task),
        Kind::Ioctl | Kind::IoctlUnfinished => ioctl::parts(raw).map(Record::Ioctl),
        Kind::Trace => tracepoint::parts(raw)
            .map(Observed::Trace)
            .map(Record::Observed),
        Kind::OffCpu | Kind::OffCpuOpen => OffCpu::read_from_bytes(raw.bytes)
            .ok()
            .map(Observed::OffCpu)
            .map(Record::Observed),
        Kind::Value => values::read(raw.bytes)
            .filter(|(correlation, _)| *correlation != 0)
            .map(|(correlation, pointee)| Record::Value(correlation, pointee)),
        Kind::Stack => StackUse::read_from_bytes(raw.bytes)
            .ok()
            .map(|used| Record::Stack(used.correlation, used.stack)),
        Kind::Linker | Kind::Described => Some(Record::Internal),
        Kind::Span | Kind::Unfinished => None,
        Kind::Packet | Kind::Completion | Kind::Copy => None,
        Kind::Queue | Kind::Scratch | Kind::Activity => None,
    }
}

/// Decodes a record of [`Class::GpuWork`](gputrace_abi::kinds::Class::GpuWork).
#[inline(always)]
pub(crate) fn work(kind: Kind, raw: RawRecord<'_>) -> Option<Item> {
    Some(match kind {
        Kind::Packet => Item::Packet(gpu::Packet::read_from_bytes(raw.bytes).ok()?),
        Kind::Completion => Item::Completion(gpu::Completion::read_from_bytes(raw.bytes).ok()?),
        Kind::Copy => Item::Copy(gpu::Copy::read_from_bytes(raw.bytes).ok()?),
        Kind::Queue => Item::Queue(gpu::QueueState::read_from_bytes(raw.bytes).ok()?),
        Kind::Scratch => Item::Scratch(gpu::ScratchState::read_from_bytes(raw.bytes).ok()?),
        Kind::Activity => Item::Activity(gpu::Activity::read_from_bytes(raw.bytes).ok()?),
        _ => return None,
    })
}

/// Decodes a record of [`Class::Call`](gputrace_abi::kinds::Class::Call).
#[inline(always)]
pub(crate) fn span(raw: RawRecord<'_>) -> Option<LongSpan> {
    let bytes = raw.bytes;
    let long = match bytes.len() {
        SPAN_SIZE => LongSpan {
            span: Span::read_from_bytes(bytes).ok()?,
            stack: [0; STACK_ARGS],
        },
        LONG_SPAN_SIZE => LongSpan::read_from_bytes(bytes).ok()?,
        _ => return None,
    };
    (long.span.correlation != 0).then_some(long)
}

/// Converts a record that [`span`] accepted into a call.
#[inline(always)]
pub(crate) fn call(record: &LongSpan) -> Call {
    let span = &record.span;
    let has = |flag| span.flags & flag != 0;
    let how = match span.header.is_unfinished() {
        false if has(span_flags::END_NOT_RECORDED) => CallEnd::NotSeen,
        false => CallEnd::Returned(span.result),
        true if has(span_flags::THREAD_EXITED) => CallEnd::ThreadExited,
        true if has(span_flags::EXECUTED) => CallEnd::Executed,
        true => CallEnd::RecordingStopped,
    };
    Call {
        function: span.function,
        domain: span.header.domain,
        pid: span.pid,
        tid: span.tid,
        begin: span.begin,
        end: span.end.max(span.begin),
        correlation: span.correlation,
        parent: span.parent,
        depth: span.depth,
        cpu: span.header.cpu,
        how,
        stack_readable: span.flags & span_flags::STACK_ARGS_UNREADABLE == 0,
        args: span.args,
        stack: record.stack,
        request: None,
        range: 0,
        external: None,
        stream_id: 0,
        stack_number: None,
        pointees: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::{
        domain::{DOMAINS, Domain},
        kinds::Class,
        record::kind,
    };
    use gputrace_capture::records;
    use proptest::prelude::*;
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn first(bytes: &[u8]) -> RawRecord<'_> {
        records::split(bytes).next().unwrap().unwrap()
    }

    fn sample() -> Span {
        let mut span = Span::new_zeroed();
        span.header.size = SPAN_SIZE as u16;
        span.header.kind = kind::SPAN;
        span.correlation = 7;
        span.begin = 10;
        span.end = 9;
        span.result = 100;
        span
    }

    /// The kind of a valid record.
    fn valid(bytes: &[u8]) -> Result<Kind, Fault> {
        let raw = first(bytes);
        let kind = known(raw)?;
        let is_valid = match kind.class() {
            Class::Call => span(raw).is_some(),
            Class::GpuWork => work(kind, raw).is_some(),
            _ => decode(kind, raw).is_some(),
        };
        is_valid.then_some(kind).ok_or(Fault::Malformed)
    }

    #[test]
    fn sizes_and_kinds_are_checked() {
        let sample = sample();
        assert_eq!(valid(sample.as_bytes()), Ok(Kind::Span));
        let fault = |change: fn(&mut Span)| {
            let mut changed = sample;
            change(&mut changed);
            valid(changed.as_bytes()).unwrap_err()
        };
        assert_eq!(fault(|span| span.header.kind = 77), Fault::Unknown);
        assert_eq!(fault(|span| span.header.size = 111), Fault::Malformed);
        assert_eq!(
            fault(|span| span.header.domain = DOMAINS as u8),
            Fault::Malformed
        );
        assert_eq!(fault(|span| span.header.cpu = MAX_CPUS), Fault::Malformed);
        assert_eq!(fault(|span| span.correlation = 0), Fault::Malformed);
        assert_eq!(
            fault(|span| span.header.kind = kind::TASK),
            Fault::Malformed
        );
    }

    /// Records for the recorder itself are not of a kind that only a newer version knows.
    #[test]
    fn internal_records_say_nothing() {
        for (number, internal) in [
            (kind::LINKER, Kind::Linker),
            (kind::DESCRIBED, Kind::Described),
        ] {
            let mut record = sample();
            record.header.kind = number;
            let raw = first(record.as_bytes());
            assert_eq!(known(raw), Ok(internal));
            assert_eq!(decode(internal, raw), Some(Record::Internal));
        }
    }

    /// Every kind has the domains of its row, and an account of its own.
    #[test]
    fn records_of_other_domains_are_malformed() {
        let domain = |number, domain: Domain| {
            let mut record = sample();
            (record.header.kind, record.header.domain) = (number, domain.id());
            known(first(record.as_bytes())).map(drop)
        };
        for (number, own) in [
            (kind::IOCTL, Domain::KfdIoctl),
            (kind::OFF_CPU_OPEN, Domain::Sched),
            (kind::TRACE, Domain::Tracepoint),
            (kind::VALUE, Domain::ArgumentData),
        ] {
            assert_eq!(domain(number, own), Ok(()));
            assert_eq!(domain(number, Domain::HipRuntime), Err(Fault::Malformed));
        }
        assert_eq!(domain(kind::SPAN, Domain::Library), Ok(()));
    }

    #[test]
    fn records_of_the_gpu_have_their_size_and_domain() {
        let mut packet = gpu::Packet::new_zeroed();
        packet.header = RecordHeader {
            size: gpu::PACKET_RECORD_SIZE as u16,
            kind: kind::PACKET,
            domain: Domain::QueuePacket.id(),
            cpu: 3,
        };
        assert_eq!(valid(packet.as_bytes()), Ok(Kind::Packet));
        let fault = |change: fn(&mut gpu::Packet)| {
            let mut changed = packet;
            change(&mut changed);
            valid(changed.as_bytes()).map(drop)
        };
        let wrong: [fn(&mut gpu::Packet); 4] = [
            |packet| packet.header.size -= 8,
            |packet| packet.header.domain = Domain::MemoryCopy.id(),
            |packet| packet.header.cpu = MAX_CPUS,
            |packet| packet.header.kind = kind::COPY,
        ];
        for change in wrong {
            assert_eq!(fault(change), Err(Fault::Malformed));
        }
        let mut state = gpu::QueueState::new_zeroed();
        state.header = RecordHeader {
            size: gpu::QUEUE_STATE_SIZE as u16,
            kind: kind::QUEUE,
            domain: 0,
            cpu: 0,
        };
        assert_eq!(valid(state.as_bytes()), Ok(Kind::Queue));
        assert!(!Kind::Queue.is_counted());
    }

    #[test]
    fn a_call_never_ends_before_it_begins() {
        let call = call(&LongSpan {
            span: sample(),
            stack: [0; STACK_ARGS],
        });
        assert_eq!(
            (call.begin, call.end, call.how),
            (10, 10, CallEnd::Returned(100))
        );
    }

    #[test]
    fn a_call_without_an_end_has_no_result() {
        let mut span = sample();
        span.flags = span_flags::END_NOT_RECORDED;
        span.end = span.begin;
        let call = call(&LongSpan {
            span,
            stack: [0; STACK_ARGS],
        });
        assert_eq!((call.begin, call.end, call.how), (10, 10, CallEnd::NotSeen));
    }

    #[test]
    fn unfinished_calls_say_why() {
        let mut span = sample();
        span.header.kind = kind::UNFINISHED;
        for (flags, how) in [
            (span_flags::THREAD_EXITED, CallEnd::ThreadExited),
            (
                span_flags::EXECUTED | span_flags::STACK_ARGS_UNREADABLE,
                CallEnd::Executed,
            ),
            (span_flags::RECORDING_STOPPED, CallEnd::RecordingStopped),
        ] {
            span.flags = flags;
            assert_eq!(
                call(&LongSpan {
                    span,
                    stack: [0; STACK_ARGS]
                })
                .how,
                how
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            for raw in records::split(&bytes).flatten() {
                if let Ok(kind) = known(raw) {
                    let _ = (work(kind, raw), decode(kind, raw));
                }
                if let Some(span) = span(raw) {
                    let call = call(&span);
                    prop_assert!(call.end >= call.begin);
                }
            }
        }
    }
}
