//! Writes the spans into the archive.

use std::{collections::BTreeMap, io, path::Path};

use gputrace_capture::{counter::Counter, gpu::AgentKind, ledger::Ledger};
use gputrace_export::{ExportError, OutputError, functions::group_title, gpu::Gpus, json};
use gputrace_timeline::event::ProcessInfo;

use crate::{
    FORMAT,
    api::{
        Api, GROUP_ACCELERATOR, GROUP_PROCESS, LOCATION_ACCELERATOR_STREAM, LOCATION_CPU_THREAD,
        LOCATION_METRIC, METRIC_SUM, METRIC_VALUE, PARADIGM_HIP, TYPE_STRING, TYPE_UINT64,
        UNDEFINED,
    },
    archive::{Archive, ArchiveError, Events, Value},
    definitions::{
        ATTRIBUTES, CATEGORY, CORRELATION, Definitions, END_UNCERTAINTY, ESTIMATE_ERROR,
        KERNEL_CLASS, QUALITIES, QUALITY, REASONS, Region, START_UNCERTAINTY, UNFINISHED,
    },
    exporter::{Content, Location, Place, stem},
    spans::{Span, Spans},
};

impl ArchiveError {
    /// Converts to the error for the user; `name` adds the file's name to a system error.
    pub(crate) fn into_export(self, name: impl FnOnce(io::Error) -> OutputError) -> ExportError {
        match self {
            Self::System(source) => name(source).into(),
            Self::Library { .. } => ExportError::Encode {
                format: FORMAT,
                reason: self.to_string(),
            },
        }
    }
}

/// A location that has been written.
struct Written {
    id: u64,
    name: u32,
    kind: u8,
    events: u64,
    location: Location,
}

/// Numbers of the strings in attributes of events.
struct Texts {
    qualities: [u32; QUALITIES.len()],
    reasons: [u32; REASONS.len()],
}

impl Texts {
    /// The attributes of a span.
    fn attributes(
        &self,
        span: &Span,
        region: Option<&Region>,
    ) -> impl Iterator<Item = (u32, Value)> {
        let text = |texts: &[u32], number: u8| {
            let index = usize::from(number).checked_sub(1)?;
            texts.get(index).map(|text| Value::Text(*text))
        };
        let number = |number: u64| {
            (number != u64::MAX && span.quality != 0).then_some(Value::Number(number))
        };
        let correlation = (span.correlation != 0).then_some(Value::Number(span.correlation));
        [
            (CATEGORY, region.map(|region| Value::Text(region.category))),
            (CORRELATION, correlation),
            (QUALITY, text(&self.qualities, span.quality)),
            (START_UNCERTAINTY, number(span.start_uncertainty)),
            (END_UNCERTAINTY, number(span.end_uncertainty)),
            (UNFINISHED, text(&self.reasons, span.unfinished)),
            (KERNEL_CLASS, number(span.kernel_class)),
            (ESTIMATE_ERROR, number(span.estimate_error)),
        ]
        .into_iter()
        .filter_map(|(attribute, value)| Some((attribute, value?)))
    }
}

/// Writes the archive `name` into `directory`.
pub(crate) fn archive(
    api: &Api,
    directory: &Path,
    name: &str,
    content: &mut Content,
    spans: &mut Spans<Location>,
    overlapping: &mut Spans<u64>,
) -> Result<(), ArchiveError> {
    let archive = Archive::create(api, directory, name)?;
    let recording = &content.recording;
    archive.describe(
        &format!("gputrace {}", recording.tool_version),
        &recording.hostname,
    )?;
    properties(&archive, content)?;
    let texts = Texts {
        qualities: QUALITIES.map(|quality| content.definitions.string(quality.name())),
        reasons: REASONS.map(|reason| content.definitions.string(reason)),
    };
    let mut written = Vec::new();
    for location in spans.locations() {
        let mut source = spans.sorted(&location)?;
        for lane in 1.. {
            let id = written.len() as u64;
            let title = title(content, &location, lane);
            let mut events = archive.events(id)?;
            if let Place::Counters { .. } = location.place {
                for span in source {
                    let span = span?;
                    events.metric(span.begin, span.region, f64::from_bits(span.correlation))?;
                }
                written.push(Written {
                    id,
                    name: content.definitions.string(&title),
                    kind: LOCATION_METRIC,
                    events: events.finish()?,
                    location,
                });
                break;
            }
            let mut lane = Lane {
                regions: content.definitions.regions(),
                texts: &texts,
                nests: location.place == Place::Calls,
                open: Vec::new(),
            };
            let mut left = false;
            for span in source {
                let span = span?;
                if !lane.add(&mut events, &span)? {
                    overlapping.push(id, span)?;
                    left = true;
                }
            }
            lane.leave_until(&mut events, u64::MAX)?;
            written.push(Written {
                id,
                name: content.definitions.string(&title),
                kind: match location.place {
                    Place::Calls | Place::Observed(_) => LOCATION_CPU_THREAD,
                    _ => LOCATION_ACCELERATOR_STREAM,
                },
                events: events.finish()?,
                location,
            });
            if !left {
                break;
            }
            source = overlapping.sorted(&id)?;
        }
    }
    if written.is_empty() {
        // Readers reject an archive without locations.
        written.push(Written {
            id: 0,
            name: content.definitions.string("no events"),
            kind: LOCATION_CPU_THREAD,
            events: archive.events(0)?.finish()?,
            location: Location {
                pid: content.recording.main_pid.unwrap_or(0),
                tid: 0,
                place: Place::Calls,
            },
        });
    }
    definitions(&archive, content, &written)?;
    archive.close()
}

/// The open regions of a location.
struct Lane<'a> {
    regions: &'a [Region],
    texts: &'a Texts,
    /// Whether regions may be nested.
    nests: bool,
    /// End and region of each open region.
    open: Vec<(u64, u32)>,
}

impl Lane<'_> {
    /// Ends the regions that have ended by `time`.
    fn leave_until(&mut self, events: &mut Events<'_>, time: u64) -> Result<(), ArchiveError> {
        while let Some((end, region)) = self.open.pop_if(|(end, _)| *end <= time) {
            events.leave(end, region)?;
        }
        Ok(())
    }

    /// Begins a span that does not begin before the last one; returns `false` if it does not fit
    /// here.
    fn add(&mut self, events: &mut Events<'_>, span: &Span) -> Result<bool, ArchiveError> {
        self.leave_until(events, span.begin)?;
        let fits = self
            .open
            .last()
            .is_none_or(|(end, _)| self.nests && span.end <= *end);
        if fits {
            let region = self.regions.get(span.region as usize);
            events.enter(span.begin, span.region, self.texts.attributes(span, region))?;
            self.open.push((span.end, span.region));
        }
        Ok(fits)
    }
}

/// Name of a location; `lane` counts locations of the same kind from 1.
fn title(content: &Content, location: &Location, lane: u32) -> String {
    let Location { pid, tid, place } = *location;
    let agent = |node| agent_title(&content.gpus, node);
    let mut title = match place {
        Place::Calls => match content.threads.get(&(pid, tid)) {
            Some(name) if !name.is_empty() => format!("Thread {tid} ({name})"),
            _ => format!("Thread {tid}"),
        },
        Place::Kernels { node, queue } => {
            format!("Thread {tid}, Compute on {}, Queue {queue}", agent(node))
        }
        Place::Copies { node } => format!("Thread {tid}, Copy to {}", agent(node)),
        Place::Untimed => format!("Thread {tid}, Untimed work"),
        Place::Observed(domain) => {
            let what = group_title(stem(domain));
            match (pid, tid) {
                (0, _) => what,
                (_, 0) => format!("Process, {what}"),
                _ => format!("Thread {tid}, {what}"),
            }
        }
        Place::Counters { node } if pid == 0 => format!("Counters of {}", agent(node)),
        Place::Counters { node } => format!("Counters on {}", agent(node)),
    };
    if lane > 1 {
        title.push_str(&format!(" (overlapping {lane})"));
    }
    title
}

fn agent_title(gpus: &Gpus, node: Option<u32>) -> String {
    match node.and_then(|node| gpus.agent(node)) {
        Some(info) => {
            let kind = match info.agent.kind {
                AgentKind::Cpu => "CPU",
                AgentKind::Gpu => "GPU",
            };
            format!("{kind} {}", info.absolute_index)
        }
        None => node.map_or_else(|| "UNK 0".to_owned(), |node| format!("UNK {node}")),
    }
}

/// Writes the data for which OTF2 has no definitions.
fn properties(archive: &Archive<'_>, content: &Content) -> Result<(), ArchiveError> {
    let text = |value: serde_json::Result<String>| value.map_err(io::Error::other);
    let recording = text(serde_json::to_string(&content.recording))?;
    archive.property("GPUTRACE::RECORDING", &recording)?;
    let loss = match &content.ledger {
        // With rows by CPU it would be too long for a property.
        Some(ledger) => {
            let sums = Ledger {
                rows: ledger.by_domain(),
                ..ledger.clone()
            };
            json::loss(&sums).to_string()
        }
        None => "null".to_owned(),
    };
    archive.property("GPUTRACE::LOSS", &loss)?;
    let notices = text(serde_json::to_string(&content.notices))?;
    archive.property("GPUTRACE::NOTICES", &notices)
}

/// Ids of the processes that have locations.
fn pids_of(written: &[Written]) -> Vec<u32> {
    written
        .iter()
        .map(|written| &written.location)
        .filter(|location| location.pid != 0 || !matches!(location.place, Place::Counters { .. }))
        .map(|location| location.pid)
        .collect()
}

/// Title of a process: the program that was started, if known.
fn process_title(pid: u32, info: Option<&ProcessInfo>) -> String {
    let name = info.map_or("", |info| match info.command.first() {
        Some(program) if !program.is_empty() => program,
        _ if !info.executable.is_empty() => &info.executable,
        _ => &info.name,
    });
    if pid == 0 {
        "kernel".to_owned()
    } else if name.is_empty() {
        format!("process {pid}")
    } else {
        format!("{name} ({pid})")
    }
}

/// A counter's unit, and the mode that tells whether its values add up.
fn unit_and_mode(counter: &Counter) -> (&str, u8) {
    let mode = if counter.cumulative {
        METRIC_SUM
    } else {
        METRIC_VALUE
    };
    let unit = if counter.unit.is_empty() {
        "#"
    } else {
        &counter.unit
    };
    (unit, mode)
}

/// Groups of locations, numbered from 0: processes, then agents, then one for agents that are not
/// known.
struct Groups {
    pids: Vec<u32>,
    nodes: Vec<u32>,
}

impl Groups {
    fn new(written: &[Written], processes: &BTreeMap<u32, ProcessInfo>, gpus: &Gpus) -> Self {
        let mut pids = pids_of(written);
        pids.extend(processes.keys());
        pids.sort_unstable();
        pids.dedup();
        let nodes = gpus.agents().iter().map(|info| info.agent.node_id);
        Self {
            pids,
            nodes: nodes.collect(),
        }
    }

    /// Their names and kinds, in order.
    fn titles(
        &self,
        processes: &BTreeMap<u32, ProcessInfo>,
        gpus: &Gpus,
        definitions: &mut Definitions,
    ) -> Vec<(u32, u8)> {
        let mut titles: Vec<(u32, u8)> = Vec::new();
        for pid in &self.pids {
            let title = process_title(*pid, processes.get(pid));
            titles.push((definitions.string(&title), GROUP_PROCESS));
        }
        for info in gpus.agents() {
            titles.push((definitions.string(&info.agent.name), GROUP_ACCELERATOR));
        }
        titles.push((definitions.string("unknown agent"), GROUP_ACCELERATOR));
        titles
    }

    /// The group of a location.
    fn of(&self, location: &Location) -> u32 {
        match location.place {
            Place::Counters { node } if location.pid == 0 => self.accelerator(node),
            Place::Calls | Place::Observed(_) | Place::Counters { .. } => {
                self.pids.binary_search(&location.pid).unwrap_or(0) as u32
            }
            Place::Kernels { node, .. } | Place::Copies { node } => self.accelerator(node),
            Place::Untimed => self.accelerator(None),
        }
    }

    fn accelerator(&self, node: Option<u32>) -> u32 {
        let position = node.and_then(|node| self.nodes.binary_search(&node).ok());
        (self.pids.len() + position.unwrap_or(self.nodes.len())) as u32
    }
}

fn definitions(
    archive: &Archive<'_>,
    content: &mut Content,
    written: &[Written],
) -> Result<(), ArchiveError> {
    let Content {
        recording,
        processes,
        gpus,
        definitions,
        counters,
        first,
        last,
        ..
    } = content;
    let global = archive.definitions(written.iter().map(|location| location.id))?;
    let first = (*first).min(*last);
    let clocks = &recording.clocks;
    let realtime = clocks
        .realtime
        .saturating_add_signed(first.wrapping_sub(clocks.boottime) as i64);
    global.clock(
        first,
        last.saturating_sub(first).saturating_add(1),
        realtime,
    )?;

    let groups = Groups::new(written, processes, gpus);
    let titles: Vec<(u32, u8)> = groups.titles(processes, gpus, definitions);
    let attributes: Vec<(u32, u32, u8)> = ATTRIBUTES
        .iter()
        .map(|(name, description, is_text)| {
            let kind = if *is_text { TYPE_STRING } else { TYPE_UINT64 };
            (
                definitions.string(name),
                definitions.string(description),
                kind,
            )
        })
        .collect();
    let metrics: Vec<(u32, u32, u8)> = counters
        .iter()
        .map(|counter| {
            let (unit, mode) = unit_and_mode(counter);
            (
                definitions.string(&counter.name),
                definitions.string(unit),
                mode,
            )
        })
        .collect();
    let (node, class) = (
        definitions.string(&recording.hostname),
        definitions.string("node"),
    );

    for (text, id) in definitions.strings().iter().zip(0_u32..) {
        global.string(id, text)?;
    }
    for ((name, description, kind), id) in attributes.into_iter().zip(0_u32..) {
        global.attribute(id, name, description, kind)?;
    }
    for (region, id) in definitions.regions().iter().zip(0_u32..) {
        global.region(id, region.name, region.role, PARADIGM_HIP)?;
    }
    for ((name, unit, mode), id) in metrics.into_iter().zip(0_u32..) {
        global.metric(id, name, unit, mode)?;
    }
    global.node(0, node, class, UNDEFINED)?;
    for ((name, kind), id) in titles.into_iter().zip(0_u32..) {
        global.group(id, name, kind, 0, UNDEFINED)?;
    }
    for written in written {
        global.location(
            written.id,
            written.name,
            written.kind,
            written.events,
            groups.of(&written.location),
        )?;
    }
    Ok(())
}
