//! Decodes record bytes into typed records. Everything is checked: the bytes are untrusted.

pub(crate) mod ioctl;
pub(crate) mod tracepoint;

use gputrace_abi::{
    STACK_ARGS,
    domain::{DOMAINS, Domain},
    gpu,
    record::{LONG_SPAN_SIZE, LongSpan, RecordHeader, SPAN_SIZE, Span, Task, kind, span_flags},
    sched::OffCpu,
};
use gputrace_capture::records::RawRecord;
use zerocopy::FromBytes;

use self::ioctl::Parts;
use crate::model::{
    event::{Call, CallEnd},
    item::Item,
    observation,
    raw::MAX_CPUS,
    values::{self, Pointee},
};

/// A valid record.
#[derive(Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// A finished or unfinished call.
    Call(LongSpan),
    /// A request to the driver.
    Ioctl(Parts<'a>),
    /// A tracepoint event.
    Trace(tracepoint::Parts<'a>),
    /// A period in which a thread was off the CPU.
    OffCpu(OffCpu),
    /// A process or thread event.
    Task(Task),
    /// What a pointer of the call with this correlation id pointed to.
    Value(u64, Pointee),
    /// A record about the GPU's work; `counted` tells whether the accounts count it.
    Work { item: Item, counted: bool },
    /// Meant for the recorder itself; says nothing about the program.
    Internal,
}

/// Why a record was skipped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A kind unknown to this version.
    Unknown,
    /// A known kind with an invalid size or content.
    Malformed,
}

pub(crate) fn decode(raw: RawRecord<'_>) -> Result<Record<'_>, Fault> {
    match raw.header.kind {
        kind::SPAN | kind::UNFINISHED => span(raw).map(Record::Call).ok_or(Fault::Malformed),
        kind::TASK => Task::read_from_bytes(raw.bytes)
            .map(Record::Task)
            .map_err(|_| Fault::Malformed),
        kind::IOCTL | kind::IOCTL_UNFINISHED => {
            ioctl::parts(raw).map(Record::Ioctl).ok_or(Fault::Malformed)
        }
        kind::TRACE => tracepoint::parts(raw)
            .map(Record::Trace)
            .ok_or(Fault::Malformed),
        kind::OFF_CPU | kind::OFF_CPU_OPEN => observation::read_off_cpu(raw)
            .map(Record::OffCpu)
            .ok_or(Fault::Malformed),
        kind::LINKER => Ok(Record::Internal),
        kind::VALUE => value(raw).ok_or(Fault::Malformed),
        _ if is_work(raw) => work(raw)
            .map(|(item, counted)| Record::Work { item, counted })
            .ok_or(Fault::Malformed),
        _ => Err(Fault::Unknown),
    }
}

fn value(raw: RawRecord<'_>) -> Option<Record<'_>> {
    let RecordHeader { domain, cpu, .. } = raw.header;
    let (correlation, pointee) = values::read(raw.bytes)?;
    let plausible = domain == Domain::ArgumentData.id() && cpu < MAX_CPUS && correlation != 0;
    plausible.then_some(Record::Value(correlation, pointee))
}

/// Whether a record is about the GPU's work.
pub(crate) fn is_work(raw: RawRecord<'_>) -> bool {
    let kind = raw.header.kind;
    matches!(
        kind,
        kind::PACKET | kind::COMPLETION | kind::COPY | kind::QUEUE | kind::SCRATCH | kind::ACTIVITY
    )
}

/// Decodes a record about the GPU's work, and tells whether the accounts count it.
#[inline(always)]
pub(crate) fn work(raw: RawRecord<'_>) -> Option<(Item, bool)> {
    let RecordHeader {
        kind, domain, cpu, ..
    } = raw.header;
    let domains: &[Domain] = match kind {
        kind::PACKET => &[Domain::KernelDispatch, Domain::QueuePacket],
        kind::COMPLETION => &[Domain::Completion],
        kind::COPY => &[Domain::MemoryCopy],
        kind::SCRATCH => &[Domain::ScratchMemory],
        _ => &[],
    };
    let counted = !domains.is_empty();
    if counted && (cpu >= MAX_CPUS || !domains.iter().any(|known| known.id() == domain)) {
        return None;
    }
    let item = match kind {
        kind::PACKET => Item::Packet(gpu::Packet::read_from_bytes(raw.bytes).ok()?),
        kind::COMPLETION => Item::Completion(gpu::Completion::read_from_bytes(raw.bytes).ok()?),
        kind::COPY => Item::Copy(gpu::Copy::read_from_bytes(raw.bytes).ok()?),
        kind::SCRATCH => Item::Scratch(gpu::ScratchState::read_from_bytes(raw.bytes).ok()?),
        kind::ACTIVITY => Item::Activity(gpu::Activity::read_from_bytes(raw.bytes).ok()?),
        _ => Item::Queue(gpu::QueueState::read_from_bytes(raw.bytes).ok()?),
    };
    Some((item, counted))
}

/// Whether a record is a call, finished or not.
pub(crate) fn is_call(raw: RawRecord<'_>) -> bool {
    matches!(raw.header.kind, kind::SPAN | kind::UNFINISHED)
}

/// Decodes a record for which [`is_call`] is true.
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
    let Span {
        header,
        correlation,
        ..
    } = &long.span;
    let plausible =
        usize::from(header.domain) < DOMAINS && header.cpu < MAX_CPUS && *correlation != 0;
    plausible.then_some(long)
}

/// Converts a record that [`span`] accepted into a call.
#[inline(always)]
pub(crate) fn call(record: &LongSpan) -> Call {
    let span = &record.span;
    let how = match span.header.kind {
        kind::SPAN if span.flags & span_flags::END_NOT_RECORDED != 0 => CallEnd::NotSeen,
        kind::SPAN => CallEnd::Returned(span.result),
        _ if span.flags & span_flags::THREAD_EXITED != 0 => CallEnd::ThreadExited,
        _ if span.flags & span_flags::EXECUTED != 0 => CallEnd::Executed,
        _ => CallEnd::RecordingStopped,
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
        pointees: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn sizes_and_kinds_are_checked() {
        let span = sample();
        assert!(matches!(
            decode(first(span.as_bytes())),
            Ok(Record::Call(_))
        ));
        let fault = |change: fn(&mut Span)| {
            let mut changed = span;
            change(&mut changed);
            decode(first(changed.as_bytes())).unwrap_err()
        };
        assert_eq!(fault(|span| span.header.kind = 77), Fault::Unknown);
        assert_eq!(fault(|span| span.header.size = 111), Fault::Malformed);
        assert_eq!(
            fault(|span| span.header.domain = DOMAINS as u8),
            Fault::Malformed
        );
        assert_eq!(fault(|span| span.header.cpu = MAX_CPUS), Fault::Malformed);
        assert_eq!(fault(|span| span.correlation = 0), Fault::Malformed);
        let mut task = span;
        task.header.kind = kind::TASK;
        assert_eq!(decode(first(task.as_bytes())), Err(Fault::Malformed));
        task.header.kind = kind::LINKER;
        assert_eq!(decode(first(task.as_bytes())), Ok(Record::Internal));
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
        let item = Item::Packet(packet);
        assert_eq!(
            decode(first(packet.as_bytes())),
            Ok(Record::Work {
                item,
                counted: true
            })
        );
        let fault = |change: fn(&mut gpu::Packet)| {
            let mut changed = packet;
            change(&mut changed);
            decode(first(changed.as_bytes())).map(drop)
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
        assert!(matches!(
            decode(first(state.as_bytes())),
            Ok(Record::Work { counted: false, .. })
        ));
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
                if let Ok(Record::Call(span)) = decode(raw) {
                    let call = call(&span);
                    prop_assert!(call.end >= call.begin);
                }
            }
        }
    }
}
