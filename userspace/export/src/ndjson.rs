//! NDJSON: one JSON object per line, in gputrace's own documented and versioned format.
//!
//! `docs/ndjson.md` describes the lines and `docs/ndjson.schema.json` is their JSON Schema. Lines
//! come in the order of the timeline's events, see [`gputrace_timeline::event`]; each refers only
//! to lines before it. The first line has the format's version.

use std::io::{self, Write};

use gputrace_capture::{
    gpu::AgentKind,
    ledger::Ledger,
    meta::{ClockSnapshot, Recording},
};
use gputrace_text::json::to_writer;
use gputrace_timeline::{
    args::{self, ArgValue},
    event::{Call, Event, FunctionInfo, Lifetime, LifetimeChange, ProcessInfo},
    gpu::{
        AgentInfo, CodeObjectInfo, Copy, Dispatch, KernelInfo, KnownBy, QueueInfo, RuntimeKernel,
    },
    observation::Observation,
    stream::StreamInfo,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::{
    classes::ClassRecord,
    counters::CounterRecord,
    functions::Functions,
    gpu::{Gpus, queue_id},
    json::loss,
    json::records::Knowledge,
    lines::line_exporters,
    observed::ObservationRecord,
    output::{OutputDir, OutputError, OutputFile},
};

/// Version of the format. It is incremented when a member is removed or changes its meaning. New
/// members and new types of lines, which readers must ignore, do not change it.
pub const VERSION: u32 = 2;

const FORMAT: &str = "ndjson";

/// Writes lines.
#[derive(Debug)]
pub struct NdjsonWriter<W> {
    out: W,
    line: Vec<u8>,
    functions: Functions,
    gpus: Gpus,
}

/// Serialized in its human-readable form.
struct Shown<'a>(ArgValue<'a>);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ArgValue::Signed(value) => serializer.serialize_i64(value),
            ArgValue::Unsigned(value) => serializer.serialize_u64(value),
            ArgValue::Bool(value) => serializer.serialize_bool(value),
            ArgValue::Real(bits) => serializer.serialize_f64(f64::from_bits(bits)),
            ArgValue::Unrecorded | ArgValue::Unreadable | ArgValue::Place(_) => {
                serializer.serialize_none()
            }
            ArgValue::Hex(_)
            | ArgValue::Dim3 { .. }
            | ArgValue::Status { .. }
            | ArgValue::Enumerator { .. }
            | ArgValue::Flags(_)
            | ArgValue::Named(_)
            | ArgValue::Text { .. } => serializer.collect_str(&self.0),
        }
    }
}

#[derive(Serialize)]
struct Argument<'a> {
    name: &'a str,
    value: Shown<'a>,
}

#[derive(Serialize)]
struct CallLine<'a> {
    r#type: &'static str,
    domain: &'a str,
    function: &'a str,
    pid: u32,
    tid: u32,
    begin: u64,
    end: u64,
    correlation_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<u64>,
    parent: u64,
    depth: u16,
    cpu: u32,
    args: Vec<Argument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<&'static str>,
}

#[derive(Serialize)]
struct ObservationLine<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    observation: ObservationRecord<'a>,
}

#[derive(Serialize)]
struct CounterLine<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    counter: CounterRecord<'a>,
}

#[derive(Serialize)]
struct ClassLine<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    class: ClassRecord<'a>,
}

#[derive(Serialize)]
struct DispatchLine<'a> {
    r#type: &'static str,
    dispatch_id: u64,
    kernel: &'a str,
    kernel_id: Option<u32>,
    kernel_object: u64,
    pid: u32,
    tid: u32,
    agent: Option<u32>,
    queue: u64,
    packet_index: u64,
    stream: Option<u64>,
    stream_id: u32,
    correlation_id: u64,
    outermost_correlation_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<u64>,
    deferred: bool,
    begin: Option<u64>,
    end: Option<u64>,
    #[serde(flatten)]
    knowledge: Knowledge,
    workgroup: [u32; 3],
    grid: [u32; 3],
    private_size: u32,
    group_size: u32,
    barrier: bool,
    read_later: bool,
}

#[derive(Serialize)]
struct CopyLine {
    r#type: &'static str,
    copy_id: u64,
    direction: &'static str,
    direction_by: Option<&'static str>,
    bytes: u64,
    pid: u32,
    tid: u32,
    destination_agent: Option<u32>,
    destination: u64,
    source_agent: Option<u32>,
    source: u64,
    stream: Option<u64>,
    stream_id: u32,
    engine: u32,
    correlation_id: u64,
    outermost_correlation_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<u64>,
    begin: Option<u64>,
    end: Option<u64>,
    #[serde(flatten)]
    knowledge: Knowledge,
}

impl<W: Write> NdjsonWriter<W> {
    /// Writes lines to `out`, each with one call of [`Write::write_all`].
    pub fn new(out: W) -> Self {
        Self {
            out,
            line: Vec::new(),
            functions: Functions::default(),
            gpus: Gpus::default(),
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.gpus.learn(event);
        match event {
            Event::Recording(recording) => self.value(&recording_line(recording)),
            Event::Function(info) => {
                self.functions.learn(info);
                self.value(&function_line(info))
            }
            Event::Process(info) => self.value(&process_line(info)),
            Event::Thread(info) => self.value(&json!({
                "type": "thread", "pid": info.pid, "tid": info.tid, "name": info.name,
            })),
            Event::Lifetime(lifetime) => self.value(&lifetime_line(lifetime)),
            Event::Agent(info) => self.value(&agent_line(info)),
            Event::Queue(info) => self.value(&queue_line(info)),
            Event::CodeObject(info) => self.value(&code_object_line(info)),
            Event::Stream(info) => self.value(&stream_line(info)),
            Event::CodeFile(_) | Event::Stack(_) => Ok(()),
            Event::Kernel(info) => self.value(&kernel_line(info)),
            Event::KernelClass(class) => {
                let name = self.gpus.class_name(class);
                let line = ClassLine {
                    r#type: "kernel_class",
                    class: ClassRecord::new(class, &name),
                };
                write_line(&mut self.out, &mut self.line, &line)
            }
            Event::Observation(one) => self.observation(one),
            Event::Counter(sample) => self.value(&CounterLine {
                r#type: "counter",
                counter: CounterRecord::new(sample),
            }),
            // Single readings say little; the summary has what they add up to.
            Event::Activity(_) | Event::Pending(_) => Ok(()),
            Event::Call(call) => self.call(call),
            Event::Dispatch(dispatch) => self.dispatch(dispatch),
            Event::Copy(copy) => {
                let stream = copy.origin.stream_id;
                self.value(&copy_line(copy, stream))
            }
            Event::Clocks(clocks) => self.value(&clocks_line("clocks", clocks)),
            Event::Notice(notice) => self.value(&json!({
                "type": "notice", "time": notice.time, "text": notice.text,
            })),
            Event::Ledger(ledger) => {
                let mut line = loss(ledger);
                if let Some(members) = line.as_object_mut() {
                    members.insert("type".to_owned(), "loss".into());
                }
                self.value(&line)
            }
            Event::End(end) => {
                self.value(&json!({"type": "end", "time": end.time, "reason": end.reason}))
            }
        }
    }

    fn observation(&mut self, one: &Observation) -> io::Result<()> {
        let line = ObservationLine {
            r#type: "observation",
            observation: ObservationRecord::new(one),
        };
        self.value(&line)
    }

    fn call(&mut self, call: &Call) -> io::Result<()> {
        let info = self.functions.get(call.function);
        let decoded = info.into_iter().flat_map(|info| args::decoded(info, call));
        let line = CallLine {
            r#type: "call",
            domain: &Ledger::domain_name(call.domain),
            function: self.functions.name(call.function),
            pid: call.pid,
            tid: call.tid,
            begin: call.begin,
            end: call.end,
            correlation_id: call.correlation,
            external_id: call.external,
            parent: call.parent,
            depth: call.depth,
            cpu: call.cpu,
            args: decoded
                .map(|(name, value)| Argument {
                    name,
                    value: Shown(value),
                })
                .collect(),
            returned: info.and_then(|info| args::returned(info, call)).map(Shown),
            unfinished: call.how.reason(),
        };
        write_line(&mut self.out, &mut self.line, &line)
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> io::Result<()> {
        let line = DispatchLine {
            r#type: "dispatch",
            dispatch_id: dispatch.id,
            kernel: &self.gpus.kernel_name(dispatch),
            kernel_id: self.gpus.kernel_id(dispatch),
            kernel_object: dispatch.kernel_object,
            pid: dispatch.origin.pid,
            tid: dispatch.origin.tid,
            agent: self.gpus.node_of(dispatch),
            queue: queue_id(dispatch.queue),
            packet_index: dispatch.index,
            stream: dispatch.origin.stream,
            stream_id: dispatch.origin.stream_id,
            correlation_id: dispatch.origin.innermost,
            outermost_correlation_id: dispatch.origin.outermost,
            external_id: dispatch.origin.external,
            deferred: dispatch.origin.deferred,
            begin: dispatch.time.drawn_begin(),
            end: dispatch.time.drawn_end(),
            knowledge: Knowledge::new(&dispatch.time, dispatch.origin.time),
            workgroup: dispatch.workgroup,
            grid: dispatch.grid,
            private_size: dispatch.private_size,
            group_size: dispatch.group_size,
            barrier: dispatch.barrier,
            read_later: dispatch.read_later,
        };
        write_line(&mut self.out, &mut self.line, &line)
    }

    fn value(&mut self, line: &impl Serialize) -> io::Result<()> {
        write_line(&mut self.out, &mut self.line, line)
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.out
    }
}

fn write_line(out: &mut impl Write, buffer: &mut Vec<u8>, line: &impl Serialize) -> io::Result<()> {
    buffer.clear();
    // Control characters are escaped: the line may be read on a terminal (`-o -`).
    to_writer(&mut *buffer, line)?;
    buffer.push(b'\n');
    out.write_all(buffer)
}

fn process_line(info: &ProcessInfo) -> Value {
    let mut line = json!({
        "type": "process",
        "pid": info.pid,
        "parent": info.parent,
        "name": info.name,
        "executable": info.executable,
        "command": info.command,
        "start": info.start,
    });
    if let (Value::Object(members), false) = (&mut line, info.identity.is_empty()) {
        members.insert("identity".to_owned(), json!(info.identity));
    }
    line
}

fn agent_line(info: &AgentInfo) -> Value {
    let numbers = info.agent.info.iter();
    let numbers: Map<String, Value> = numbers
        .map(|(name, value)| (name.to_lowercase(), (*value).into()))
        .collect();
    json!({
        "type": "agent",
        "node_id": info.agent.node_id,
        "gpu_id": info.agent.gpu_id,
        "kind": match info.agent.kind {
            AgentKind::Cpu => "cpu",
            AgentKind::Gpu => "gpu",
        },
        "name": info.agent.name,
        "absolute_index": info.absolute_index,
        "type_index": info.type_index,
        "info": numbers,
    })
}

fn queue_line(info: &QueueInfo) -> Value {
    json!({
        "type": "queue",
        "queue": queue_id(info.number),
        "pid": info.pid,
        "hsa_queue_id": info.id,
        "agent": info.node_id,
        "packets": info.packets,
        "kfd_queue_id": info.kfd_id,
        "before_recording": info.is_older,
    })
}

fn stream_line(info: &StreamInfo) -> Value {
    json!({
        "type": "stream",
        "stream_id": info.number,
        "pid": info.pid,
        "stream": info.key.handle,
        "tid": info.key.thread,
        "since": info.since,
    })
}

fn code_object_line(info: &CodeObjectInfo) -> Value {
    json!({
        "type": "code_object",
        "code_object_id": info.id,
        "pid": info.code_object.pid,
        "uri": info.code_object.uri,
        "target": info.code_object.target,
        "load_base": info.code_object.load_base,
        "load_size": info.code_object.load_size,
        "load_delta": info.code_object.load_delta,
    })
}

fn kernel_line(info: &KernelInfo) -> Value {
    json!({
        "type": "kernel",
        "kernel_id": info.id,
        "code_object_id": info.code_object,
        "pid": info.pid,
        "name": info.shown,
        "demangled_name": info.demangled,
        "mangled_name": info.kernel.name,
        "kernel_object": info.kernel.object,
        "group_size": info.kernel.group_size,
        "private_size": info.kernel.private_size,
        "sgpr_count": info.kernel.sgpr_count,
        "arch_vgpr_count": info.kernel.arch_vgpr_count,
        "accum_vgpr_count": info.kernel.accum_vgpr_count,
        "runtime": info.runtime.map(RuntimeKernel::name),
    })
}

fn recording_line(recording: &Recording) -> Value {
    json!({
        "type": "recording",
        "format": VERSION,
        "tool_version": recording.tool_version,
        "hostname": recording.hostname,
        "kernel_release": recording.kernel_release,
        "kernel_version": recording.kernel_version,
        "machine": recording.machine,
        "cpus": recording.cpus,
        "command": recording.command,
        "mode": recording.mode,
        "domains": recording.domains,
        "backend": recording.backend,
        "main_pid": recording.main_pid,
        "clocks": clocks_line("clocks", &recording.clocks),
    })
}

fn clocks_line(name: &str, clocks: &ClockSnapshot) -> Value {
    json!({
        "type": name,
        "boottime": clocks.boottime,
        "monotonic": clocks.monotonic,
        "monotonic_raw": clocks.monotonic_raw,
        "realtime": clocks.realtime,
        "uncertainty": clocks.uncertainty,
    })
}

fn function_line(info: &FunctionInfo) -> Value {
    json!({
        "type": "function",
        "name": info.function.name,
        "domain": Ledger::domain_name(info.function.domain),
        "library": info.library,
        "build_id": info.build_id,
    })
}

fn lifetime_line(lifetime: &Lifetime) -> Value {
    let (what, name, parent) = match &lifetime.what {
        LifetimeChange::ProcessStarted { parent } => ("process_started", None, Some(*parent)),
        LifetimeChange::ThreadStarted { .. } => ("thread_started", None, None),
        LifetimeChange::Executed { name } => ("executed", Some(name), None),
        LifetimeChange::Exited => ("exited", None, None),
        LifetimeChange::Renamed { name } => ("renamed", Some(name), None),
    };
    json!({
        "type": "lifetime",
        "time": lifetime.time,
        "pid": lifetime.pid,
        "tid": lifetime.tid,
        "what": what,
        "name": name,
        "parent": parent,
    })
}

fn copy_line(copy: &Copy, stream_id: u32) -> CopyLine {
    CopyLine {
        r#type: "copy",
        copy_id: copy.id,
        direction: copy.direction.name(),
        direction_by: copy.known_by.map(KnownBy::name),
        bytes: copy.bytes,
        pid: copy.origin.pid,
        tid: copy.origin.tid,
        destination_agent: copy.destination_node,
        destination: copy.destination,
        source_agent: copy.source_node,
        source: copy.source,
        stream: copy.origin.stream,
        stream_id,
        engine: copy.engine,
        correlation_id: copy.origin.innermost,
        outermost_correlation_id: copy.origin.outermost,
        external_id: copy.origin.external,
        begin: copy.time.drawn_begin(),
        end: copy.time.drawn_end(),
        knowledge: Knowledge::new(&copy.time, copy.origin.time),
    }
}

/// Exporter of an NDJSON file.
#[derive(Debug)]
pub struct NdjsonExporter {
    lines: NdjsonWriter<OutputFile>,
}

impl NdjsonExporter {
    /// Starts the file `file_name` (e.g. `app_results.ndjson`) in `directory`.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub fn new(directory: &OutputDir, file_name: &str) -> Result<Self, OutputError> {
        Ok(Self {
            lines: NdjsonWriter::new(directory.file(file_name)?),
        })
    }
}

line_exporters!(
    NdjsonWriter,
    NdjsonExporter,
    FORMAT,
    "all events, one JSON object per line"
);
