//! Merges several captures, of one host or of several, into one timeline.
//!
//! [`Merged`] is a [`Source`] like a single capture, so every exporter accepts it. Ids that each
//! capture assigns by itself (functions, correlation ids, kernels, queues) are made unique. A host
//! is a boot of a machine: captures of the same boot share clock, processes, agents and CPUs. For
//! further hosts, [`HOST_IDS`] is added to process and thread ids once, twice and so on, and
//! [`HOST_NODES`] to the agents' nodes; CPUs are numbered after those of the hosts before. Names of
//! processes and agents get the suffix `@HOST`.
//!
//! Clocks of different hosts are aligned by `CLOCK_REALTIME`, of which captures hold snapshots
//! ([`ClockSnapshot`](gputrace_capture::meta::ClockSnapshot)): every time is converted to the clock
//! of the host that booted first. This is as accurate as the hosts' clocks agree, and remarks say
//! how accurate that is known to be ([`Alignment`]). Captures without snapshots are refused if they
//! would need them.

mod clock;
mod ids;

use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    path::{Path, PathBuf},
};

use gputrace_capture::{
    Block, CaptureReader, Meta, ReadError, Truncation,
    ledger::Ledger,
    meta::{End, Mode, Notice, Recording},
};
use gputrace_files::own;
use gputrace_timeline::{Tally, Timeline, event::Event, extent::Extent};

use crate::run::Source;
pub use clock::Alignment;
use clock::Clock;
use ids::{Counters, Names};

/// Added to process and thread ids, once per host before. Linux has no ids above 2^22.
pub const HOST_IDS: u32 = 10_000_000;

/// Added to node numbers of KFD's topology, once per host before.
pub const HOST_NODES: u32 = 1_000;

/// Maximum number of hosts that [`HOST_IDS`] can tell apart.
const MOST_HOSTS: usize = 400;

/// Why captures cannot be merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There are fewer than two.
    #[error("there is nothing to merge: give two captures or more")]
    TooFew,
    /// There are too many hosts.
    #[error("captures of more than {MOST_HOSTS} hosts cannot be merged")]
    TooMany,
    /// The same file is given twice.
    #[error("{} is given twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
    },
    /// A capture cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The capture.
        path: PathBuf,
        /// Why.
        #[source]
        cause: ReadError,
    },
    /// The captures' clocks cannot be related.
    #[error(
        "{path} cannot be aligned with {}: they come from different hosts or boots, and {path} \
         holds no time of day (CLOCK_REALTIME)",
        reference.display(), path = path.display()
    )]
    Unaligned {
        /// The capture that lacks snapshots.
        path: PathBuf,
        /// A capture of another host.
        reference: PathBuf,
    },
}

/// A capture before its records are read.
#[derive(Debug)]
struct Input {
    path: PathBuf,
    recording: Recording,
    extent: Extent,
    clock: Clock,
    /// Index of its host.
    host: usize,
    alignment: Alignment,
}

/// Captures that can be merged.
#[derive(Debug)]
pub struct Plan {
    inputs: Vec<Input>,
    /// Index of the capture whose clock is used for all.
    reference: usize,
    /// For each host, the number of CPUs of the hosts before.
    first_cpu: Vec<u32>,
    remarks: Vec<String>,
    selected_regions: bool,
}

impl Plan {
    /// Examines the captures at `paths`, without reading their records.
    ///
    /// # Errors
    /// [`MergeError`] if one cannot be read, or they cannot be merged.
    pub fn new(paths: &[PathBuf]) -> Result<Self, MergeError> {
        if paths.len() < 2 {
            return Err(MergeError::TooFew);
        }
        for (at, path) in paths.iter().enumerate() {
            if paths.iter().take(at).any(|other| same_file(path, other)) {
                return Err(MergeError::Twice { path: path.clone() });
            }
        }
        let mut inputs: Vec<Input> = Vec::new();
        // The first capture of each host.
        let mut hosts: Vec<usize> = Vec::new();
        for path in paths {
            let (recording, extent, clock) = look(path).map_err(|cause| MergeError::Read {
                path: path.clone(),
                cause,
            })?;
            let same = hosts.iter().position(|first| {
                inputs.get(*first).is_some_and(|other| {
                    clock::same_boot((&other.recording, &other.clock), (&recording, &clock))
                })
            });
            let host = same.unwrap_or_else(|| {
                hosts.push(inputs.len());
                hosts.len() - 1
            });
            if hosts.len() > MOST_HOSTS {
                return Err(MergeError::TooMany);
            }
            inputs.push(Input {
                path: path.clone(),
                recording,
                extent,
                clock,
                host,
                alignment: Alignment::default(),
            });
        }
        let reference = align(&mut inputs, hosts.len())?;
        let mut first_cpu = vec![0; hosts.len()];
        let mut next = 0_u32;
        for (host, first) in first_cpu.iter_mut().enumerate() {
            *first = next;
            let of_host = inputs.iter().filter(|input| input.host == host);
            next =
                next.saturating_add(of_host.map(|input| input.recording.cpus).max().unwrap_or(0));
        }
        let remarks = remarks(&inputs, reference);
        Ok(Self {
            inputs,
            reference,
            first_cpu,
            remarks,
            selected_regions: false,
        })
    }

    /// Whether to hide what programs did while they did not want to be recorded: see
    /// [`Timeline::selected_regions`].
    #[must_use]
    pub fn selected_regions(mut self, selected: bool) -> Self {
        self.selected_regions = selected;
        self
    }

    /// Remarks for users: how clocks were aligned, and what the merged captures may contain twice.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Begin and end of the whole, on the common clock.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let aligned = |input: &Input| {
            let alignment = &input.alignment;
            (
                alignment.apply(input.extent.begin),
                alignment.apply(input.extent.end),
            )
        };
        let (begin, end) = self
            .inputs
            .iter()
            .map(aligned)
            .fold((u64::MAX, 0), |(first, last), (begin, end)| {
                (first.min(begin), last.max(end))
            });
        Extent {
            begin: begin.min(end),
            end,
        }
    }

    /// Opens the captures.
    ///
    /// # Errors
    /// [`MergeError::Read`] if one can no longer be read.
    pub fn open(&self) -> Result<Merged<BufReader<File>>, MergeError> {
        let open = |input: &Input| {
            let timeline = Timeline::open(&input.path).map_err(|cause| MergeError::Read {
                path: input.path.clone(),
                cause,
            })?;
            Ok(if self.selected_regions {
                timeline.selected_regions()
            } else {
                timeline
            })
        };
        let timelines = self.inputs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Merged::new(self, timelines))
    }

    /// The recording that describes all captures together.
    fn recording(&self) -> Recording {
        let Some(reference) = self.inputs.get(self.reference) else {
            return Recording::default();
        };
        let mut recording = reference.recording.clone();
        let mut hosts: Vec<&str> = Vec::new();
        for input in &self.inputs {
            let other = &input.recording;
            if !hosts.contains(&other.hostname.as_str()) {
                hosts.push(&other.hostname);
            }
            for domain in &other.domains {
                if !recording.domains.contains(domain) {
                    recording.domains.push(domain.clone());
                }
            }
            if other.mode != recording.mode {
                recording.mode = Mode::Merged {
                    captures: self.inputs.len() as u64,
                };
            }
        }
        // Prices of one machine are assumed to be those of the others.
        if let Some(prices) = recording.prices.as_mut().filter(|_| hosts.len() > 1) {
            prices.measured = false;
        }
        recording.hostname = hosts.join("+");
        let last = self.first_cpu.last().copied().unwrap_or(0);
        let of_last = self
            .inputs
            .iter()
            .filter(|input| input.host + 1 == self.first_cpu.len());
        let cpus = of_last.map(|input| input.recording.cpus).max().unwrap_or(0);
        recording.cpus = last.saturating_add(cpus);
        // Another capture may have begun earlier.
        let earlier = recording
            .clocks
            .boottime
            .saturating_sub(self.extent().begin);
        let clocks = &mut recording.clocks;
        for clock in [
            &mut clocks.boottime,
            &mut clocks.monotonic,
            &mut clocks.monotonic_raw,
            &mut clocks.realtime,
        ] {
            *clock = clock.saturating_sub(earlier);
        }
        recording.main_pid = None;
        recording
    }
}

/// Chooses the capture whose clock is used for all, and aligns the others with it.
fn align(inputs: &mut [Input], hosts: usize) -> Result<usize, MergeError> {
    if hosts < 2 {
        return Ok(0);
    }
    if let Some(lacking) = inputs.iter().find(|input| !input.clock.is_known()) {
        let other = inputs.iter().find(|input| input.host != lacking.host);
        return Err(MergeError::Unaligned {
            path: lacking.path.clone(),
            reference: other.unwrap_or(lacking).path.clone(),
        });
    }
    // Times are unsigned. Nothing can precede the boot of the host that booted first, but something
    // can precede another host's boot.
    let booted = |(_, input): &(usize, &Input)| input.clock.boot();
    let reference = inputs.iter().enumerate().min_by_key(booted);
    let Some((reference, clock, host)) =
        reference.map(|(at, input)| (at, input.clock.clone(), input.host))
    else {
        return Ok(0);
    };
    for input in inputs.iter_mut().filter(|input| input.host != host) {
        input.alignment = input.clock.aligned_to(&clock).unwrap_or_default();
    }
    Ok(reference)
}

/// Name of a capture in remarks: its file's name.
fn title(path: &Path) -> String {
    path.file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| own::canonical(path).ok();
    one == other || (real(one).is_some() && real(one) == real(other))
}

/// Reads a capture's metadata.
fn look(path: &Path) -> Result<(Recording, Extent, Clock), ReadError> {
    let mut reader = CaptureReader::open(path)?;
    let recording = match reader.next_block()? {
        Some(Block::Meta(Meta::Recording(recording))) => *recording,
        _ => return Err(ReadError::NoRecording),
    };
    let mut clock = Clock::default();
    clock.take(&recording.clocks);
    while let Some(meta) = reader.next_meta()? {
        if let Meta::Clocks(snapshot) = meta {
            clock.take(&snapshot);
        }
    }
    Ok((recording, Extent::of(path)?, clock))
}

fn remarks(inputs: &[Input], reference: usize) -> Vec<String> {
    let mut remarks = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let name = title(&input.path);
        let host = &input.recording.hostname;
        let of_reference = inputs
            .get(reference)
            .is_none_or(|reference| reference.host == input.host);
        remarks.push(if at == reference {
            format!("Merged: times are those of {name}, of {host}.")
        } else if of_reference {
            format!("Merged: {name} comes from the same boot of {host}, on the same clock.")
        } else {
            format!("Merged: {name}, of {host}, {}.", input.alignment)
        });
        for other in inputs
            .iter()
            .take(at)
            .filter(|other| other.host == input.host)
        {
            if other.extent.begin <= input.extent.end && input.extent.begin <= other.extent.end {
                remarks.push(format!(
                    "Merged: {} and {name} were recorded on {host} at the same time. What both \
                     traced appears twice, and calls in one have no parents in the other.",
                    title(&other.path)
                ));
            }
        }
    }
    remarks
}

/// A capture being read.
#[derive(Debug)]
struct Stream<R> {
    timeline: Timeline<R>,
    names: Names,
    alignment: Alignment,
    title: String,
    /// The next event with its time.
    next: Option<(u64, Result<Event, ReadError>)>,
    time: u64,
}

impl<R: Read + Seek> Stream<R> {
    fn advance(&mut self, counters: &mut Counters) {
        self.next = self.timeline.next().map(|event| {
            let event = event.map(|event| self.names.apply(event, &self.alignment, counters));
            if let Ok(event) = &event {
                self.time = time_of(event).unwrap_or(self.time);
            }
            (self.time, event)
        });
    }
}

/// The time of an event, to merge captures; its accuracy does not matter.
fn time_of(event: &Event) -> Option<u64> {
    match event {
        Event::Call(call) => Some(call.begin),
        Event::Dispatch(dispatch) => Some(dispatch.time.begin),
        Event::Copy(copy) => Some(copy.time.begin),
        Event::Lifetime(lifetime) => Some(lifetime.time),
        Event::Counter(sample) => Some(sample.time),
        Event::Activity(reading) => Some(reading.time),
        _ => None,
    }
}

/// The events of several captures, in the order that [`Event`] promises.
#[derive(Debug)]
pub struct Merged<R> {
    streams: Vec<Stream<R>>,
    /// Index of the capture whose clock is used for all.
    reference: usize,
    counters: Counters,
    /// Events that come before everything else, last one first.
    first: Vec<Event>,
    /// Data emitted when all streams have ended.
    ledger: Option<Ledger>,
    accounts: usize,
    ends: Vec<End>,
    last: Vec<Event>,
    closed: bool,
    tally: Tally,
}

impl<R: Read + Seek> Merged<R> {
    fn new(plan: &Plan, timelines: Vec<Timeline<R>>) -> Self {
        let inputs = plan.inputs.len() as u64;
        let hosts = plan.first_cpu.len();
        let mut counters = Counters::default();
        let streams = plan
            .inputs
            .iter()
            .zip(timelines)
            .enumerate()
            .map(|(at, (input, timeline))| {
                let names = Names::new(
                    (at as u64, inputs),
                    input.host,
                    plan.first_cpu.get(input.host).copied().unwrap_or(0),
                    (hosts > 1).then(|| input.recording.hostname.clone()),
                );
                let mut stream = Stream {
                    timeline,
                    names,
                    alignment: input.alignment.clone(),
                    title: title(&input.path),
                    next: None,
                    time: 0,
                };
                stream.advance(&mut counters);
                stream
            })
            .collect();
        let recording = plan.recording();
        let time = recording.clocks.boottime;
        let mut first: Vec<Event> = plan
            .remarks
            .iter()
            .map(|text| {
                Event::Notice(Notice {
                    time,
                    text: text.clone(),
                })
            })
            .collect();
        first.push(Event::Recording(Box::new(recording)));
        // Events are taken from the back.
        let remarks = first.len() - 1;
        if let Some(remarks) = first.get_mut(..remarks) {
            remarks.reverse();
        }
        Self {
            streams,
            reference: plan.reference,
            counters,
            first,
            ledger: None,
            accounts: 0,
            ends: Vec::new(),
            last: Vec::new(),
            closed: false,
            tally: Tally::default(),
        }
    }

    /// Keeps events that are emitted once, at the begin or the end; returns all others.
    fn keep(&mut self, from: usize, event: Event) -> Option<Event> {
        match event {
            Event::Recording(_) => None,
            // Snapshots relate the clocks of one host.
            Event::Clocks(_) if from != self.reference => None,
            Event::Ledger(ledger) => {
                self.accounts += 1;
                match &mut self.ledger {
                    Some(sum) => ids::add(sum, &ledger),
                    None => self.ledger = Some(*ledger),
                }
                None
            }
            Event::End(end) => {
                self.ends.push(end);
                None
            }
            Event::Notice(mut notice) => {
                if let Some(stream) = self.streams.get(from) {
                    notice.text = format!("{}: {}", stream.title, notice.text);
                }
                Some(Event::Notice(notice))
            }
            other => Some(other),
        }
    }

    fn close(&mut self) {
        self.closed = true;
        for stream in &self.streams {
            let first_cpu = stream.names.first_cpu();
            self.tally.absorb(stream.timeline.tally(), first_cpu);
        }
        let all = self.streams.len();
        if self.ends.len() == all {
            let latest = self.ends.drain(..).max_by_key(|end| end.time);
            self.last.extend(latest.map(Event::End));
        }
        if let Some(mut ledger) = self.ledger.take() {
            ledger.complete &= self.accounts == all;
            ledger.rows.sort_by_key(|row| (row.domain, row.cpu));
            self.last.push(Event::Ledger(Box::new(ledger)));
        }
    }
}

impl<R: Read + Seek> Iterator for Merged<R> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(event) = self.first.pop() {
            return Some(Ok(event));
        }
        loop {
            let waiting = self.streams.iter().enumerate();
            let earliest = waiting
                .filter_map(|(at, stream)| stream.next.as_ref().map(|(time, _)| (*time, at)))
                .min();
            let Some((_, at)) = earliest else {
                if !self.closed {
                    self.close();
                }
                return self.last.pop().map(Ok);
            };
            let stream = self.streams.get_mut(at)?;
            let (_, event) = stream.next.take()?;
            stream.advance(&mut self.counters);
            match event {
                Err(error) => return Some(Err(error)),
                Ok(event) => {
                    if let Some(event) = self.keep(at, event) {
                        return Some(Ok(event));
                    }
                }
            }
        }
    }
}

impl<R: Read + Seek> Source for Merged<R> {
    fn position(&self) -> u64 {
        self.streams
            .iter()
            .map(|stream| stream.timeline.position())
            .sum()
    }

    fn size(&self) -> u64 {
        self.streams
            .iter()
            .map(|stream| stream.timeline.size())
            .sum()
    }

    fn truncation(&self) -> Option<Truncation> {
        self.streams
            .iter()
            .find_map(|stream| stream.timeline.truncation())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
