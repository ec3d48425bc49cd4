//! Reads a capture in order of time.
//!
//! # Order
//!
//! The recorder drains one ring after the other, in rounds, and a call's record is made when the
//! call ends. So records are unordered in the capture, with one guarantee: when a round that began
//! at time *t* is over, every record made before *t* is in the capture ([`Meta::Epoch`]).
//!
//! The timeline collects records until such a mark. It then releases those that end at or before
//! *t* as one group, ordered by begin, and holds the others back until the next mark. Since groups
//! follow each other in order of ends, two calls of one thread, neither of which encloses the
//! other, always come in the right order, even if the thread moved between CPUs. (A program reads
//! the clock just before it writes the record. If it is interrupted in between for longer than a
//! round, the record can be one group late.)
//!
//! Records about the GPU's work take another path, with an order of their own: see `work`. The
//! capture's metadata is read once before anything else, so that clock samples and code objects are
//! known from the first record on.
//!
//! At most [`MAX_GROUP`] bytes of records are held in memory, about what the rings can hold. A
//! capture with more between two marks is released in parts.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::File,
    io::{BufReader, Read, Seek},
    path::Path,
};

use gputrace_abi::{
    domain::Domain,
    record::{Task, task_op},
};
use gputrace_capture::{
    Block, CaptureReader, Meta, ReadError, Truncation,
    ledger::Ledger,
    meta::{End, Library, Notice, Recording},
    records,
};

use crate::{
    decode::{ioctl, tracepoint::Formats},
    derive::{
        before::Before,
        callers::Callers,
        communicators::Communicators,
        counter::Counters,
        deferred::Deferred,
        driver::DriverEvents,
        failures::Failures,
        group::{Collection, Due, Group},
        memory::Memory,
        pasids::Pasids,
        placements::Placements,
        processes::Processes,
        ranges::Ranges,
        streams::Streams,
        undrawn::Undrawn,
        unseen::Unseen,
        work::{Scout, Work, knowledge::Collected},
    },
    model::{
        event::{CallEnd, Event, FunctionInfo},
        gpu::Dispatch,
        item::Item,
        tally::Tally,
    },
};

/// Maximum size of a group in bytes. Beyond it, records are released without waiting for the end of
/// the round.
pub const MAX_GROUP: usize = 128 << 20;

/// The events of a capture, in the order described in [`crate::model::event::Event`].
///
/// An error ([`ReadError::Io`]) is returned once and ends the timeline. A capture that merely ends
/// too early is no error: a [`Notice`] says so, the account follows, and [`Timeline::truncation`]
/// has the details.
#[derive(Debug)]
pub struct Timeline<R> {
    reader: CaptureReader<R>,
    recording: Recording,
    /// Events to emit before anything else.
    ready: VecDeque<Event>,
    /// Events about the GPU's work that wait until the calls before them have been emitted, because
    /// those calls may add to them.
    held: VecDeque<Event>,
    ranges: Ranges,
    /// Whether queues are followed only for their scratch memory.
    hides_dispatches: bool,
    memory: Memory,
    placements: Placements,
    before: Before,
    callers: Callers,
    communicators: Communicators,
    collecting: Collection,
    group: Group,
    processes: Processes,
    work: Work,
    /// The epoch up to which `work` may go on when the group has been emitted: calls in it say
    /// where memory is.
    epoch: Option<u64>,
    deferred: Deferred,
    failures: Failures,
    undrawn: Undrawn,
    unseen: Unseen,
    streams: Streams,
    /// Numbers of the driver requests that have been described.
    requests: BTreeSet<u8>,
    formats: Formats,
    driver: DriverEvents,
    counters: Counters,
    pasids: Pasids,
    tally: Tally,
    ledger: Option<Box<Ledger>>,
    /// When the next [`Event::Pending`] is due; `None` if neither these nor earlier accounts are
    /// emitted.
    next_pending: Option<u64>,
    end: Option<End>,
    /// Whether the recording is still running.
    is_live: bool,
    state: State,
}

/// Time between two [`Event::Pending`], ns.
const PENDING: u64 = 100_000_000;

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// There may be more blocks.
    Reading,
    /// All blocks are read; the last group is being emitted.
    Draining,
    /// What the recording left open is being emitted.
    Finishing,
    /// The closing events have been queued.
    Closed,
}

impl Timeline<BufReader<File>> {
    /// Opens a capture.
    ///
    /// # Errors
    /// [`ReadError`] if the file cannot be opened or is not a capture that this version can read.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::new(CaptureReader::open(path)?)
    }
}

impl<R: Read + Seek> Timeline<R> {
    /// Iterates over the capture in `reader`, which must be at its beginning.
    ///
    /// # Errors
    /// [`ReadError`] if the capture cannot be read or does not begin with a description of the
    /// recording.
    pub fn new(mut reader: CaptureReader<R>) -> Result<Self, ReadError> {
        let recording = match reader.next_block()? {
            Some(Block::Meta(Meta::Recording(recording))) => *recording,
            _ => return Err(ReadError::NoRecording),
        };
        let mut collected = Collected::default();
        let mut formats = Formats::default();
        let mut ready = VecDeque::from([Event::Recording(Box::new(recording.clone()))]);
        // What cannot be read now cannot be read later either, and is reported then.
        while let Ok(Some(meta)) = reader.next_meta() {
            match meta {
                Meta::TraceFormat(format) => formats.learn(*format),
                Meta::CodeFile(file) => ready.push_back(Event::CodeFile(file)),
                Meta::Stack(stack) => ready.push_back(Event::Stack(stack)),
                meta => collected.take(meta),
            }
        }
        reader.rewind()?;
        let dispatches = Domain::KernelDispatch.name();
        let has_dispatches = recording.domains.iter().any(|name| name == dispatches);
        let work = if has_dispatches && collected.may_tell_means() {
            let scout = scouted(&mut reader, Scout::new(collected));
            reader.rewind()?;
            scout.finish(&mut ready)
        } else {
            Work::new(collected, &mut ready)
        };
        let mut timeline = Self::with(reader, recording, ready, work);
        timeline.formats = formats;
        Ok(timeline)
    }

    /// Follows a recording that is still running; `reader` blocks until more has been written.
    /// Metadata applies from the place where it stands in the capture, see `work::live`.
    ///
    /// # Errors
    /// As [`Timeline::new`].
    pub fn follow(mut reader: CaptureReader<R>) -> Result<Self, ReadError> {
        let recording = match reader.next_block()? {
            Some(Block::Meta(Meta::Recording(recording))) => *recording,
            _ => return Err(ReadError::NoRecording),
        };
        let ready = VecDeque::from([Event::Recording(Box::new(recording.clone()))]);
        Ok(Self {
            is_live: true,
            ..Self::with(reader, recording, ready, Work::follow())
        })
    }

    /// Also emits the accounts that the recorder writes about every second while something happens,
    /// and [`Event::Pending`] with them and every [`PENDING`] of the recording's time.
    #[must_use]
    pub fn with_accounts(self) -> Self {
        Self {
            next_pending: Some(0),
            ..self
        }
    }

    fn with(
        reader: CaptureReader<R>,
        recording: Recording,
        ready: VecDeque<Event>,
        mut work: Work,
    ) -> Self {
        work.begin(recording.clocks.boottime);
        let has = |domain: Domain| recording.domains.iter().any(|name| name == domain.name());
        let hides_dispatches = has(Domain::ScratchMemory) && !has(Domain::KernelDispatch);
        let mut memory = Memory::new(&recording.domains);
        ready.iter().for_each(|event| memory.agent(event));
        Self {
            reader,
            ready,
            recording,
            held: VecDeque::new(),
            ranges: Ranges::default(),
            hides_dispatches,
            memory,
            placements: Placements::default(),
            before: Before::default(),
            callers: Callers::default(),
            communicators: Communicators::default(),
            collecting: Collection::default(),
            group: Group::default(),
            processes: Processes::default(),
            work,
            epoch: None,
            deferred: Deferred::default(),
            failures: Failures::default(),
            undrawn: Undrawn::default(),
            unseen: Unseen::default(),
            streams: Streams::default(),
            requests: BTreeSet::new(),
            formats: Formats::default(),
            driver: DriverEvents::default(),
            counters: Counters::default(),
            pasids: Pasids::default(),
            tally: Tally::default(),
            ledger: None,
            next_pending: None,
            end: None,
            is_live: false,
            state: State::Reading,
        }
    }

    /// How the recording was made.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Hides what programs did while they did not want to be recorded: calls, dispatches and copies
    /// outside the regions between `roctxProfilerResume` and `roctxProfilerPause` and the like.
    /// Must be called before the first event is taken.
    #[must_use]
    pub fn selected_regions(mut self) -> Self {
        self.ranges.select();
        self
    }

    /// Takes back an emitted dispatch that is no longer needed, to reuse its memory.
    pub fn take_back(&mut self, dispatch: Box<Dispatch>) {
        self.work.take_back(dispatch);
    }

    /// Counts of what has been read so far; complete when the iterator has ended.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Where and why reading stopped before the end of the file; known when the iterator has ended.
    #[must_use]
    pub fn truncation(&self) -> Option<Truncation> {
        self.reader.truncation()
    }

    /// Bytes of the file that have been read, to show progress against [`Timeline::size`].
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Size of the file in bytes when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.reader.size()
    }

    /// Reads one block, or notes that there are no more.
    fn read(&mut self) -> Result<(), ReadError> {
        match self.reader.next_block()? {
            Some(Block::Records(run)) => {
                for record in records::split(run) {
                    match record {
                        Ok(raw) => self.collecting.take(raw, &mut self.tally, &mut self.work),
                        Err(_) => self.tally.malformed_records += 1,
                    }
                }
                if self.work.is_full() {
                    self.work.make_room(&mut self.ready);
                }
                if self.collecting.bytes() >= MAX_GROUP {
                    self.collecting.release(u64::MAX, &mut self.group);
                }
            }
            Some(Block::Meta(meta)) => self.meta(meta),
            Some(Block::Unknown { .. }) => self.tally.unknown_blocks += 1,
            None => {
                self.collecting.release(u64::MAX, &mut self.group);
                self.state = State::Draining;
            }
        }
        Ok(())
    }

    fn meta(&mut self, meta: Meta) {
        match meta {
            Meta::Epoch(epoch) => {
                self.collecting.release(epoch.time, &mut self.group);
                self.epoch = Some(epoch.time);
            }
            Meta::Library(library) => {
                for info in functions(*library) {
                    self.ranges.function(&info);
                    self.memory.function(&info);
                    if self.placements.function(&info) {
                        self.work.follow_memory();
                    }
                    self.before.function(&info);
                    self.work.asked.function(&info);
                    self.callers.function(&info);
                    self.unseen.function(&info);
                    self.communicators.function(&info);
                    // A library that was probed only for allocations has calls that are not shown.
                    if info.domain != Some(Domain::MemoryAllocation) {
                        self.ready.push_back(Event::Function(Box::new(info)));
                    }
                }
            }
            Meta::Process(process) => self.processes.described(*process, &mut self.ready),
            Meta::Clocks(clocks) => self.ready.push_back(Event::Clocks(clocks)),
            Meta::Notice(notice) => {
                self.unseen.notice(&notice);
                self.ready.push_back(Event::Notice(notice));
            }
            Meta::Ledger(ledger) => {
                self.ledger = Some(ledger.clone());
                self.work
                    .learn(Meta::Ledger(ledger.clone()), &mut self.ready);
                if self.next_pending.is_some() && !ledger.complete {
                    // When nothing more happens, this is the last that comes.
                    let pending = Box::new(self.work.pending(ledger.time));
                    self.ready.push_back(Event::Pending(pending));
                    self.ready.push_back(Event::Ledger(ledger));
                }
            }
            Meta::KfdEvent(line) => {
                let known = self.driver.take(&line);
                self.ready.extend(
                    known
                        .into_iter()
                        .map(|one| Event::Observation(Box::new(one))),
                );
            }
            Meta::Pasid(pasid) => self.pasids.learn(pasid),
            Meta::Counter(counter) => self.counters.learn(*counter),
            Meta::CounterValues(read) => {
                self.tally.malformed_records += self.counters.take(&read, &mut self.ready);
            }
            Meta::Annotation(annotation) => self.ranges.note(&annotation, &mut self.ready),
            Meta::End(end) => self.end = Some(end),
            // A second one adds nothing.
            Meta::Recording(_) => {}
            // For a whole capture, the first pass has read these.
            Meta::Agent(_)
            | Meta::GpuClock(_)
            | Meta::Queue(_)
            | Meta::AgentHandle(_)
            | Meta::CodeObject(_)
            | Meta::Pause(_) => {
                self.work.learn(meta, &mut self.ready);
            }
            // Already known, unless the recording is still running.
            Meta::TraceFormat(format) => self.formats.learn(*format),
            Meta::CodeFile(file) if self.is_live => self.ready.push_back(Event::CodeFile(file)),
            Meta::Stack(stack) if self.is_live => self.ready.push_back(Event::Stack(stack)),
            Meta::CodeFile(_) | Meta::Stack(_) => {}
        }
    }

    /// Notes that a task began, or closes what it had open when it ended or executed another
    /// program.
    fn task(&mut self, task: &Task) {
        if matches!(task.op, task_op::FORK | task_op::EXEC) {
            self.ranges.begun(task.pid);
        }
        let how = match task.op {
            task_op::EXIT => CallEnd::ThreadExited,
            task_op::EXEC => CallEnd::Executed,
            _ => return,
        };
        if task.pid == task.tid || task.op == task_op::EXEC {
            self.memory.settle(&mut self.ready);
            self.memory.ended(task.pid);
            self.communicators.ended(task.pid);
        }
        self.ranges
            .ended((task.pid, task.tid), task.time, how, &mut self.ready);
    }

    /// Last step before an event is emitted: attaches ranges and counter readings. Returns `false`
    /// if the event is hidden.
    fn annotate(&mut self, event: &mut Event) -> bool {
        self.deferred.seen(event);
        self.before.seen(event);
        self.callers.seen(event);
        self.work.direct(event);
        self.unseen.seen(event);
        self.streams.seen(event);
        let values = &self.collecting.values;
        match event {
            Event::Dispatch(dispatch) => {
                dispatch.origin.stack_number = values.stack(dispatch.origin.outermost);
            }
            Event::Copy(copy) => copy.origin.stack_number = values.stack(copy.origin.outermost),
            _ => {}
        }
        let is_hidden = self.hides_dispatches && matches!(event, Event::Dispatch(_));
        let is_shown = !is_hidden && self.ranges.annotate(event);
        if is_shown && let Event::Dispatch(dispatch) = event {
            let node = self.work.node_of(dispatch);
            self.counters.annotate(dispatch, node);
        }
        if is_shown {
            self.failures.seen(event);
            self.undrawn.seen(event);
        }
        is_shown
    }

    /// Queues the events for what the recording left open.
    fn finish(&mut self) {
        let end = self
            .end
            .as_ref()
            .map_or(self.collecting.latest(), |end| end.time);
        self.ranges.finish(end, &mut self.ready);
        self.work.finish(&mut self.ready);
        self.tally.duplicate_packets = self.work.duplicates();
        self.tally.nothing_selected = self.ranges.nothing_selected();
        self.tally.failed_calls = self.failures.remarks().collect();
    }

    /// Queues the closing events: remarks, the account, the end mark.
    fn close(&mut self) {
        let time = self
            .end
            .as_ref()
            .map_or(self.collecting.latest(), |end| end.time);
        let open = self.driver.finish(time);
        self.ready
            .extend(open.map(|one| Event::Observation(Box::new(one))));
        // First what everything else depends on.
        self.tally.undrawn = self.undrawn.remarks().collect();
        let mut remarks = self.tally.failed_calls.clone();
        remarks.extend(self.work.remarks().chain(self.ranges.remarks()));
        let (domains, ledger) = (&self.recording.domains, self.ledger.as_deref());
        remarks.extend(self.unseen.remarks(domains, ledger));
        remarks.extend(self.before.remark(self.work.older_queues()));
        remarks.extend([self.memory.remarks(), self.counters.remarks()].concat());
        remarks.extend(self.streams.remark());
        remarks.extend_from_slice(&self.tally.undrawn);
        match (self.reader.truncation(), &self.end) {
            (Some(truncation), _) => remarks.push(format!("{truncation}. The recorder was killed or ran out of disk space, or the file was damaged.")),
            (None, None) => remarks.push(
                "The capture has no end mark: the recorder was killed or ran out of disk space. Everything up to its last whole block was \
                 read; calls that were open then, and the final account, are missing."
                    .to_owned(),
            ),
            (None, Some(_)) => {}
        }
        remarks.extend(self.tally.remarks(self.collecting.values.forgotten));
        if let Some(ledger) = self.ledger.as_ref().filter(|ledger| ledger.complete)
            && !self.tally.agrees(ledger)
        {
            let (found, said) = (self.tally.total(), ledger.total());
            remarks.push(format!(
                "The capture holds {} finished and {} unfinished calls and records, but its account says {} and {}. This is a \
                 defect of gputrace or a damaged capture; please report it.",
                found.finished, found.unfinished, said.written, said.unfinished
            ));
        }
        self.ready.extend(
            remarks
                .into_iter()
                .map(|text| Event::Notice(Notice { time, text })),
        );
        self.ready.extend(self.ledger.take().map(Event::Ledger));
        self.ready.extend(self.end.take().map(Event::End));
    }
}

impl<R: Read + Seek> Iterator for Timeline<R> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.streams.next() {
                return Some(Ok(event));
            }
            if let Some(mut event) = self.ready.pop_front() {
                if self.annotate(&mut event) {
                    return Some(Ok(self.streams.announced(event)));
                }
                continue;
            }
            match self.group.next(&self.formats, &mut self.collecting.values) {
                Some(Due::Call(mut call)) => {
                    if let Some(request) = &call.request
                        && self.requests.insert(request.nr())
                    {
                        let function = ioctl::function(request.nr());
                        self.ready.push_back(Event::Function(Box::new(function)));
                    }
                    self.communicators.call(&mut call);
                    self.before.call(&call);
                    self.work.asked.call(&call);
                    if let Some(change) = self.placements.call(&call) {
                        self.work.take(Item::Placement(change));
                    }
                    if !self.memory.call(&call, &mut self.ready) {
                        continue;
                    }
                    // Fast path: most calls need not be queued.
                    if self.ready.is_empty() && self.ranges.passes(&mut call) {
                        let mut event = Event::Call(call);
                        if self.annotate(&mut event) {
                            return Some(Ok(self.streams.announced(event)));
                        }
                        continue;
                    }
                    self.ranges.call(call, &mut self.ready);
                    continue;
                }
                Some(Due::Observed(observations)) => {
                    for mut one in observations {
                        if one.domain == Domain::Tracepoint.id() {
                            self.pasids.join(&mut one);
                            if let Some(known) = self.driver.called(&one, self.work.only_gpu()) {
                                let known = known
                                    .into_iter()
                                    .map(|one| Event::Observation(Box::new(one)));
                                self.ready.extend(known);
                                continue;
                            }
                        }
                        self.ready.push_back(Event::Observation(Box::new(one)));
                    }
                    continue;
                }
                Some(Due::Task(task)) => {
                    if !self.processes.task(&task, &mut self.ready) {
                        self.tally.unknown_records += 1;
                    }
                    self.task(&task);
                    continue;
                }
                None if self.memory.waits() => {
                    self.memory.settle(&mut self.ready);
                    continue;
                }
                None if !self.held.is_empty() => {
                    // Nothing is ready, or it would have been emitted above.
                    std::mem::swap(&mut self.ready, &mut self.held);
                    continue;
                }
                None => {}
            }
            if let Some(epoch) = self.epoch.take() {
                self.work.advance(epoch, &mut self.held);
                if self.next_pending.is_some_and(|due| due <= epoch) {
                    self.next_pending = Some(epoch.saturating_add(PENDING));
                    let pending = Box::new(self.work.pending(epoch));
                    self.held.push_back(Event::Pending(pending));
                }
                continue;
            }
            match self.state {
                State::Reading => {
                    if let Err(error) = self.read() {
                        self.state = State::Closed;
                        return Some(Err(error));
                    }
                }
                State::Draining => {
                    self.state = State::Finishing;
                    self.finish();
                }
                State::Finishing => {
                    self.state = State::Closed;
                    self.close();
                }
                State::Closed => return None,
            }
        }
    }
}

/// Passes all records about the GPU's work to the scout. Read errors are ignored here: they are
/// reported when the same block is read again.
fn scouted<R: Read + Seek>(reader: &mut CaptureReader<R>, mut scout: Scout) -> Scout {
    while let Ok(Some(block)) = reader.next_block() {
        match block {
            Block::Records(run) => scout.records(run),
            Block::Meta(meta) => scout.meta(&meta),
            Block::Unknown { .. } => {}
        }
    }
    scout
}

fn functions(library: Library) -> impl Iterator<Item = FunctionInfo> {
    let Library {
        path,
        build_id,
        functions,
        ..
    } = library;
    functions.into_iter().map(move |function| FunctionInfo {
        domain: Domain::from_id(function.domain),
        function,
        library: path.clone(),
        build_id: build_id.clone(),
        range: None,
    })
}
