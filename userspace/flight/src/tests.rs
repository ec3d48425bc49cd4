//! Dumps of made-up recordings, held against what was recorded.

use std::{collections::BTreeMap, io::Cursor, time::Duration};

use gputrace_abi::{
    counters::DropReason,
    domain::Domain,
    record::{RecordHeader, SPAN_SIZE, Span, TASK_SIZE, Task, kind, task_op},
};
use gputrace_capture::{
    Block, CaptureReader, CaptureWriter, Meta,
    counter::{Counter, CounterValues},
    flight::{Cause, Dump},
    gpu::Queue,
    ledger::{Ledger, LedgerRow},
    meta::{ClockSnapshot, EndReason, Epoch, Library, Notice, Process, Recording, Thread},
    records,
};
use proptest::prelude::*;
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use crate::{Limits, Moment, Ring, Taken, dump};

const SECOND: u64 = 1_000_000_000;
const BEGAN: u64 = 100 * SECOND;
const DOMAINS: [Domain; 2] = [Domain::HipRuntime, Domain::HsaCore];

/// A recording that is made, and the truth about it.
struct Recorder {
    writer: CaptureWriter<Cursor<Vec<u8>>>,
    now: u64,
    correlation: u64,
    /// End of each call in the capture, by correlation id.
    ended: BTreeMap<u64, u64>,
    ledger: Ledger,
    /// Processes that live.
    living: Vec<u32>,
}

impl Recorder {
    fn new() -> Self {
        let recording = Recording {
            abi_version: gputrace_abi::ABI_VERSION,
            clocks: ClockSnapshot {
                boottime: BEGAN,
                monotonic: BEGAN - 50,
                monotonic_raw: BEGAN - 60,
                realtime: 7 * BEGAN,
                ..ClockSnapshot::default()
            },
            ..Recording::default()
        };
        let row = |domain: Domain| LedgerRow {
            domain: domain.id(),
            dropped: vec![0; DropReason::ALL.len()],
            ..LedgerRow::default()
        };
        let mut recorder = Self {
            writer: CaptureWriter::create(Cursor::new(Vec::new()), &recording).unwrap(),
            now: BEGAN,
            correlation: 0,
            ended: BTreeMap::new(),
            ledger: Ledger {
                rows: DOMAINS.map(row).into(),
                ..Ledger::default()
            },
            living: Vec::new(),
        };
        recorder.meta(Library::default());
        recorder
    }

    fn meta(&mut self, meta: impl Into<Meta>) {
        self.writer.meta(&meta.into()).unwrap();
    }

    fn span(&mut self, domain: usize, pid: u32, kind: u8) -> Span {
        let mut span = Span::new_zeroed();
        self.correlation += 1;
        span.header = RecordHeader {
            size: SPAN_SIZE as u16,
            kind,
            domain: DOMAINS[domain].id(),
            cpu: 0,
        };
        (span.pid, span.tid, span.correlation) = (pid, pid, self.correlation);
        (span.begin, span.end) = (self.now, self.now);
        self.ledger.rows[domain].seen += 1;
        span
    }

    fn call(&mut self, domain: usize, pid: u32) {
        let span = self.span(domain, pid, kind::SPAN);
        self.writer.records(span.as_bytes()).unwrap();
        self.ended.insert(span.correlation, span.end);
        self.ledger.rows[domain].written += 1;
    }

    /// A call that is still open: it is seen, and not written.
    fn open(&mut self, domain: usize, pid: u32) -> Vec<u8> {
        self.span(domain, pid, kind::UNFINISHED).as_bytes().to_vec()
    }

    fn lose(&mut self, domain: usize) {
        let row = &mut self.ledger.rows[domain];
        row.seen += 1;
        row.dropped[DropReason::RingFull as usize] += 1;
    }

    fn task(&mut self, op: u8, pid: u32, tid: u32, name: &str) {
        let mut task = Task::new_zeroed();
        task.header.kind = kind::TASK;
        task.header.size = TASK_SIZE as u16;
        (task.op, task.pid, task.tid, task.time) = (op, pid, tid, self.now);
        task.comm[..name.len()].copy_from_slice(name.as_bytes());
        self.writer.records(task.as_bytes()).unwrap();
    }

    fn account(&mut self) {
        let ledger = Ledger {
            time: self.now,
            ..self.ledger.clone()
        };
        self.meta(ledger);
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.writer.flush().unwrap();
        self.writer.sink().get_ref().clone()
    }

    fn moment(&mut self, open: Vec<u8>) -> Moment {
        Moment {
            time: self.now,
            ledger: self.ledger.clone(),
            open,
            further: Vec::new(),
            bytes: self.bytes().len() as u64,
            ended: None,
        }
    }
}

/// Follows a capture that grows.
struct Follower {
    ring: Ring,
    sequence: u64,
}

impl Follower {
    fn new(limits: Limits) -> Self {
        let first = Recorder::new().bytes();
        let begin = CaptureReader::new(Cursor::new(first)).unwrap().position();
        Self {
            ring: Ring::new(limits, begin),
            sequence: 0,
        }
    }

    fn follow(&mut self, recorder: &mut Recorder) {
        let bytes = Cursor::new(recorder.bytes());
        let mut reader = CaptureReader::resume(bytes, self.ring.end(), self.sequence).unwrap();
        while let Some(block) = reader.next_block().unwrap() {
            let block = Taken::from(block);
            self.ring.push(block, reader.position(), recorder.now);
            self.sequence += 1;
        }
    }

    /// A dump. What the ring does not keep is overwritten before.
    fn dump(&self, recorder: &mut Recorder, moment: &Moment) -> Dumped {
        let mut bytes = recorder.bytes();
        let begin = usize::try_from(self.ring.begin()).unwrap();
        bytes[..begin].fill(0);
        let about = Dump {
            number: 1,
            causes: vec![Cause {
                time: moment.time,
                text: "a test".to_owned(),
            }],
            ..Dump::default()
        };
        let mut into = Cursor::new(Vec::new());
        let written = dump(&self.ring, Cursor::new(bytes), &mut into, moment, about).unwrap();
        assert_eq!(written.bytes, into.get_ref().len() as u64);
        Dumped::read(into.into_inner())
    }
}

/// What a dump contains.
#[derive(Default)]
struct Dumped {
    recording: Recording,
    ended: BTreeMap<u64, u64>,
    open: Vec<u64>,
    counts: BTreeMap<u8, (u64, u64)>,
    metas: Vec<Meta>,
    ledger: Ledger,
    end: Option<EndReason>,
}

impl Dumped {
    fn read(bytes: Vec<u8>) -> Self {
        let mut reader = CaptureReader::new(Cursor::new(bytes)).unwrap();
        let mut dumped = Self::default();
        while let Some(block) = reader.next_block().unwrap() {
            match block {
                Block::Records(run) => dumped.records(run),
                Block::Meta(Meta::Recording(recording)) => dumped.recording = *recording,
                Block::Meta(Meta::Ledger(ledger)) => dumped.ledger = *ledger,
                Block::Meta(Meta::End(end)) => dumped.end = Some(end.reason),
                Block::Meta(meta) => dumped.metas.push(meta),
                Block::Unknown { kind } => panic!("kind {kind}"),
            }
        }
        assert_eq!(reader.truncation(), None);
        dumped
    }

    fn records(&mut self, run: &[u8]) {
        for record in records::split(run) {
            let record = record.unwrap();
            let counts = self.counts.entry(record.header.domain).or_default();
            let Ok((span, _)) = Span::read_from_prefix(record.bytes) else {
                continue;
            };
            match record.header.kind {
                kind::SPAN => {
                    counts.0 += 1;
                    self.ended.insert(span.correlation, span.end);
                }
                kind::UNFINISHED => {
                    counts.1 += 1;
                    self.open.push(span.correlation);
                }
                _ => {}
            }
        }
    }

    fn process(&self, pid: u32) -> Option<&Process> {
        let mut processes = self.metas.iter().filter_map(|meta| match meta {
            Meta::Process(process) if process.pid == pid => Some(&**process),
            _ => None,
        });
        processes.next_back()
    }

    fn about(&self) -> &Dump {
        self.recording.dump.as_deref().unwrap()
    }
}

/// A step of a recording.
#[derive(Clone, Debug)]
enum Step {
    Calls(usize, u32, u8),
    Lose(usize),
    Account,
    Start(u32),
    End(u32),
    Wait(u64),
    Follow,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2usize, 1..6u32, 1..40u8).prop_map(|(d, pid, n)| Step::Calls(d, pid, n)),
        2 => (0..2usize).prop_map(Step::Lose),
        2 => Just(Step::Account),
        2 => (1..6u32).prop_map(Step::Start),
        1 => (1..6u32).prop_map(Step::End),
        4 => (1..3 * SECOND).prop_map(Step::Wait),
        4 => Just(Step::Follow),
    ]
}

fn carry_out(recorder: &mut Recorder, follower: &mut Follower, step: &Step) {
    match *step {
        Step::Calls(domain, pid, count) => {
            for _ in 0..count {
                recorder.now += 1;
                recorder.call(domain, pid);
            }
        }
        Step::Lose(domain) => recorder.lose(domain),
        Step::Account => recorder.account(),
        Step::Start(pid) if !recorder.living.contains(&pid) => {
            recorder.living.push(pid);
            recorder.now += 1;
            let start = recorder.now;
            recorder.meta(Process {
                pid,
                start,
                ..Process::default()
            });
            recorder.meta(Queue {
                pid,
                ..Queue::default()
            });
        }
        Step::End(pid) if recorder.living.contains(&pid) => {
            recorder.living.retain(|living| *living != pid);
            recorder.now += 1;
            recorder.task(task_op::EXIT, pid, pid, "");
        }
        Step::Start(_) | Step::End(_) => {}
        Step::Wait(time) => recorder.now += time,
        Step::Follow => follower.follow(recorder),
    }
}

proptest! {
    /// A dump has what its limits promise, all that explains it, and an account that says exactly
    /// what is in it.
    #[test]
    fn dumps_have_the_end_of_a_recording_and_its_account(
        steps in proptest::collection::vec(step(), 1..120),
        seconds in 1..6u64,
        bytes in prop_oneof![Just(4000u64), Just(1 << 20)],
        open in 0..3usize,
    ) {
        let limits = Limits { time: Some(Duration::from_secs(seconds)), bytes };
        let mut recorder = Recorder::new();
        let mut follower = Follower::new(limits);
        for step in &steps {
            carry_out(&mut recorder, &mut follower, step);
        }
        let mut calls = Vec::new();
        for _ in 0..open {
            calls.extend(recorder.open(0, 1));
        }
        follower.follow(&mut recorder);
        let moment = recorder.moment(calls);
        let dumped = follower.dump(&mut recorder, &moment);

        // Everything that ended late enough, and nothing that was not recorded.
        let about = dumped.about();
        for (correlation, end) in &recorder.ended {
            let is_there = dumped.ended.get(correlation) == Some(end);
            prop_assert!(is_there || *end <= about.from, "{end} {about:?}");
        }
        let asked = recorder.now.saturating_sub(seconds * SECOND).max(BEGAN);
        prop_assert!(about.from <= asked || about.is_short, "{about:?}");
        prop_assert!(dumped.ended.keys().all(|call| recorder.ended.contains_key(call)));
        prop_assert_eq!(dumped.open.len(), open);

        // The account says what is there, and balances.
        for row in &dumped.ledger.rows {
            let counted = dumped.counts.get(&row.domain).copied().unwrap_or_default();
            prop_assert_eq!((row.written, row.unfinished), counted);
            prop_assert_eq!(row.imbalance(), 0);
        }
        let total = dumped.ledger.total();
        prop_assert_eq!(total.written, dumped.ended.len() as u64);
        prop_assert!(total.lost() <= recorder.ledger.total().lost());

        // What explains it.
        let is_library = |meta: &Meta| matches!(meta, Meta::Library(_));
        prop_assert_eq!(dumped.metas.iter().filter(|meta| is_library(meta)).count(), 1);
        for pid in &recorder.living {
            prop_assert!(dumped.process(*pid).is_some(), "process {pid}");
        }
        let clocks = dumped.recording.clocks;
        prop_assert_eq!(clocks.boottime, about.from);
        prop_assert_eq!(clocks.realtime - clocks.boottime, 6 * BEGAN);
        prop_assert_eq!(dumped.end, Some(EndReason::Dumped));
    }
}

proptest! {
    /// Files that follow each other have each call once, and accounts that add up to the whole.
    #[test]
    fn parts_of_a_recording_are_the_whole(
        parts in proptest::collection::vec(proptest::collection::vec(step(), 1..30), 1..6),
        open in 0..3usize,
    ) {
        let limits = Limits { time: None, bytes: u64::MAX };
        let mut recorder = Recorder::new();
        let mut follower = Follower::new(limits);
        let (mut ended, mut total) = (BTreeMap::new(), LedgerRow::default());
        let (mut before, mut calls) = (BEGAN, Vec::new());
        for steps in &parts {
            for step in steps {
                carry_out(&mut recorder, &mut follower, step);
            }
            // They stay open, so each part has those of the parts before it as well.
            for _ in 0..open {
                calls.extend(recorder.open(0, 1));
            }
            follower.follow(&mut recorder);
            let moment = recorder.moment(calls.clone());
            // Some blocks of the next part may have been taken when the file is written.
            recorder.now += 1;
            recorder.call(0, 1);
            follower.follow(&mut recorder);
            let dumped = follower.dump(&mut recorder, &moment);
            follower.ring.discard_dumped(&moment);

            prop_assert_eq!(dumped.about().from, before);
            prop_assert!(!dumped.about().is_short);
            before = moment.time;
            for pid in &recorder.living {
                prop_assert!(dumped.process(*pid).is_some(), "process {}", pid);
            }
            let row = dumped.ledger.total();
            prop_assert_eq!(row.unfinished, (calls.len() / SPAN_SIZE) as u64);
            prop_assert_eq!(row.imbalance(), 0);
            total.seen += row.seen - row.unfinished;
            total.written += row.written;
            total.dropped = vec![total.lost() + row.lost()];
            for (call, end) in dumped.ended {
                prop_assert_eq!(ended.insert(call, end), None, "call {} twice", call);
            }
        }
        // The last call came after the last moment.
        recorder.ended.pop_last();
        prop_assert_eq!(&ended, &recorder.ended);
        let whole = recorder.ledger.total();
        prop_assert_eq!(total.written, whole.written - 1);
        prop_assert_eq!(total.lost(), whole.lost());
        let never = (calls.len() / SPAN_SIZE) as u64;
        prop_assert_eq!(total.seen, whole.seen - 1 - never);
    }
}

/// A recording of which only the last block is kept.
fn nearly_nothing() -> (Recorder, Follower) {
    let limits = Limits {
        time: None,
        bytes: 1,
    };
    (Recorder::new(), Follower::new(limits))
}

fn dump_now(recorder: &mut Recorder, follower: &mut Follower, open: Vec<u8>) -> Dumped {
    follower.follow(recorder);
    let moment = recorder.moment(open);
    follower.dump(recorder, &moment)
}

#[test]
fn names_outlive_the_blocks_that_said_them() {
    let (mut recorder, mut follower) = nearly_nothing();
    let process = |pid, name: &str| Process {
        pid,
        name: name.to_owned(),
        threads: vec![Thread {
            tid: pid,
            name: name.to_owned(),
        }],
        ..Process::default()
    };
    recorder.meta(process(7, "first"));
    recorder.meta(process(8, "gone"));
    recorder.task(task_op::THREAD, 7, 71, "worker");
    recorder.task(task_op::THREAD, 7, 72, "ended");
    recorder.task(task_op::RENAME, 7, 71, "reader");
    recorder.task(task_op::EXIT, 7, 72, "");
    recorder.task(task_op::EXIT, 8, 8, "");
    recorder.task(task_op::FORK, 9, 9, "child");
    // In the same round, records of processes that have ended may follow.
    recorder.account();
    let dumped = dump_now(&mut recorder, &mut follower, Vec::new());
    assert!(dumped.process(8).is_some());
    let time = recorder.now + 1;
    recorder.meta(Epoch { time });
    // Descriptions of them come late.
    recorder.meta(process(8, "gone"));
    recorder.meta(Queue {
        pid: 8,
        ..Queue::default()
    });
    recorder.call(0, 7);
    recorder.account();
    let dumped = dump_now(&mut recorder, &mut follower, Vec::new());
    let threads: Vec<(u32, &str)> = dumped
        .process(7)
        .unwrap()
        .threads
        .iter()
        .map(|thread| (thread.tid, thread.name.as_str()))
        .collect();
    assert_eq!(threads, [(7, "first"), (71, "reader")]);
    assert_eq!(dumped.process(9).unwrap().name, "child");
    assert_eq!(dumped.process(8), None);
    assert!(
        !dumped
            .metas
            .iter()
            .any(|meta| matches!(meta, Meta::Queue(_)))
    );
    assert_eq!(dumped.ended.len(), 0);
}

#[test]
fn a_program_that_was_replaced_has_lost_its_queues() {
    let (mut recorder, mut follower) = nearly_nothing();
    let queue = |id| Queue {
        pid: 7,
        id,
        ..Queue::default()
    };
    recorder.meta(Process {
        pid: 7,
        ..Process::default()
    });
    recorder.meta(queue(1));
    recorder.task(task_op::EXEC, 7, 7, "second");
    recorder.meta(queue(2));
    recorder.account();
    let dumped = dump_now(&mut recorder, &mut follower, Vec::new());
    assert_eq!(dumped.process(7).unwrap().name, "second");
    let queues: Vec<u64> = dumped
        .metas
        .iter()
        .filter_map(|meta| match meta {
            Meta::Queue(queue) => Some(queue.id),
            _ => None,
        })
        .collect();
    assert_eq!(queues, [2]);
}

#[test]
fn counters_have_their_last_values() {
    let (mut recorder, mut follower) = nearly_nothing();
    recorder.meta(Counter::default());
    let values = |values: &[(u32, f64)], gone: &[u32]| CounterValues {
        values: values.to_vec(),
        gone: gone.to_vec(),
        ..CounterValues::default()
    };
    recorder.meta(values(&[(0, 1.0), (1, 5.0), (2, 9.0)], &[]));
    recorder.meta(values(&[(0, 2.0)], &[1]));
    recorder.meta(Notice {
        time: 1,
        text: "a remark".to_owned(),
    });
    recorder.call(0, 7);
    recorder.account();
    let dumped = dump_now(&mut recorder, &mut follower, Vec::new());
    let found = dumped.metas.iter().find_map(|meta| match meta {
        Meta::CounterValues(values) => Some(values),
        _ => None,
    });
    let found = found.unwrap();
    assert_eq!(found.values, [(0, 2.0), (2, 9.0)]);
    assert_eq!(found.time, dumped.about().from);
    let remarks: Vec<&str> = dumped
        .metas
        .iter()
        .filter_map(|meta| match meta {
            Meta::Notice(notice) => Some(notice.text.as_str()),
            _ => None,
        })
        .collect();
    let why = "This is dump 1 of a flight recorder, because of: a test.";
    assert_eq!(remarks, ["a remark", why]);
}

#[test]
fn calls_that_have_ended_after_all_are_not_open() {
    let limits = Limits {
        time: None,
        bytes: Limits::BYTES,
    };
    let (mut recorder, mut follower) = (Recorder::new(), Follower::new(limits));
    recorder.call(0, 7);
    let mut ended = recorder.open(0, 7);
    recorder.correlation -= 1;
    recorder.ledger.rows[0].seen -= 1;
    recorder.call(0, 7);
    ended.extend(recorder.open(0, 7));
    let dumped = dump_now(&mut recorder, &mut follower, ended);
    assert_eq!(dumped.ended.keys().collect::<Vec<_>>(), [&1, &2]);
    assert_eq!(dumped.open, [3]);
    assert_eq!(dumped.ledger.total().imbalance(), 0);
}

#[test]
fn what_is_damaged_is_said() {
    let limits = Limits {
        time: None,
        bytes: Limits::BYTES,
    };
    let (mut recorder, mut follower) = (Recorder::new(), Follower::new(limits));
    recorder.call(0, 7);
    recorder.account();
    follower.follow(&mut recorder);
    let mut moment = recorder.moment(Vec::new());
    let mut bytes = recorder.bytes();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let try_dump = |bytes: Vec<u8>, moment: &Moment| {
        let into = Cursor::new(Vec::new());
        dump(
            &follower.ring,
            Cursor::new(bytes),
            into,
            moment,
            Dump::default(),
        )
    };
    assert!(try_dump(bytes, &moment).is_err());
    // The ring has not taken all that the moment is about.
    moment.bytes += 1;
    assert!(try_dump(recorder.bytes(), &moment).is_err());
}
