//! Perfetto's messages that gputrace's traces contain, as `protos/perfetto/trace/**.proto` of
//! Perfetto 51 declares them: for each field, its type, whether it is repeated, and its number.
//!
//! Transcribed by hand, because the generated code for all of Perfetto's messages is 355,000 lines.
//! `tests/official_reader.rs` checks the numbers and types: there, Perfetto's own code reads
//! traces.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(super) packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(super) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(bool, optional, tag = "87")]
    pub(super) first_packet_on_sequence: Option<bool>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(oneof = "Data", tags = "6, 11, 45, 50, 53, 60")]
    pub(super) data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Data {
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    #[prost(message, tag = "45")]
    SystemInfo(SystemInfo),
    #[prost(bytes, tag = "50")]
    CompressedPackets(Vec<u8>),
    #[prost(message, tag = "53")]
    GpuRenderStageEvent(GpuRenderStageEvent),
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacketDefaults {
    #[prost(uint32, optional, tag = "58")]
    pub(super) timestamp_clock_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<Named>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<Named>,
    #[prost(message, repeated, tag = "23")]
    pub(super) graphics_contexts: Vec<InternedGraphicsContext>,
    #[prost(message, repeated, tag = "24")]
    pub(super) gpu_specifications: Vec<GpuSpecification>,
    #[prost(message, repeated, tag = "29")]
    pub(super) debug_annotation_string_values: Vec<InternedString>,
}

/// `InternedGpuRenderStageSpecification`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GpuSpecification {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) category: Option<u32>,
}

/// `EventCategory`, `EventName` and `DebugAnnotationName`, which have these fields in common.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Named {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) str: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedGraphicsContext {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(int32, optional, tag = "2")]
    pub(super) pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(super) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub(super) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(super) flow_ids: Vec<u64>,
    #[prost(oneof = "NameField", tags = "10, 23")]
    pub(super) name_field: Option<NameField>,
    #[prost(oneof = "CounterValueField", tags = "30, 44")]
    pub(super) counter_value_field: Option<CounterValueField>,
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum NameField {
    #[prost(uint64, tag = "10")]
    NameIid(u64),
    #[prost(string, tag = "23")]
    Name(String),
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum CounterValueField {
    #[prost(int64, tag = "30")]
    CounterValue(i64),
    #[prost(double, tag = "44")]
    DoubleCounterValue(f64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(super) name_iid: Option<u64>,
    #[prost(message, repeated, tag = "11")]
    pub(super) dict_entries: Vec<DebugAnnotation>,
    #[prost(message, repeated, tag = "12")]
    pub(super) array_values: Vec<DebugAnnotation>,
    #[prost(oneof = "Value", tags = "2, 3, 4, 5, 6, 7, 17")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Value {
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(uint64, tag = "3")]
    Uint(u64),
    #[prost(int64, tag = "4")]
    Int(i64),
    #[prost(double, tag = "5")]
    Double(f64),
    #[prost(string, tag = "6")]
    String(String),
    #[prost(uint64, tag = "7")]
    Pointer(u64),
    #[prost(uint64, tag = "17")]
    Interned(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GpuRenderStageEvent {
    #[prost(uint64, optional, tag = "1")]
    pub(super) event_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) duration: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) context: Option<u64>,
    #[prost(int32, optional, tag = "11")]
    pub(super) gpu_id: Option<i32>,
    #[prost(uint64, optional, tag = "13")]
    pub(super) hw_queue_iid: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub(super) stage_iid: Option<u64>,
    #[prost(message, optional, tag = "21")]
    pub(super) launch: Option<ComputeKernelLaunch>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ComputeKernelLaunch {
    #[prost(message, optional, tag = "1")]
    pub(super) grid_size: Option<Dim3>,
    #[prost(message, optional, tag = "2")]
    pub(super) workgroup_size: Option<Dim3>,
    #[prost(message, repeated, tag = "3")]
    pub(super) args: Vec<ExtraComputeArg>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Dim3 {
    #[prost(uint32, optional, tag = "1")]
    pub(super) x: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) y: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) z: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExtraComputeArg {
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) uint_value: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    pub(super) child_ordering: Option<i32>,
}

impl TrackDescriptor {
    /// Process id of a process track; 0 for other tracks.
    pub(super) fn pid(&self) -> i32 {
        self.process.as_ref().map_or(0, ProcessDescriptor::pid)
    }

    /// Thread id of a thread track; 0 for other tracks.
    pub(super) fn tid(&self) -> i32 {
        self.thread.as_ref().map_or(0, ThreadDescriptor::tid)
    }

    /// Name of that process; empty if it is not a process track.
    pub(super) fn process_name(&self) -> &str {
        self.process
            .as_ref()
            .map_or("", ProcessDescriptor::process_name)
    }

    /// Name of that thread; empty if it is not a thread track.
    pub(super) fn thread_name(&self) -> &str {
        self.thread
            .as_ref()
            .map_or("", ThreadDescriptor::thread_name)
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, repeated, tag = "2")]
    pub(super) cmdline: Vec<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
    #[prost(int64, optional, tag = "7")]
    pub(super) start_timestamp_ns: Option<i64>,
    #[prost(string, repeated, tag = "8")]
    pub(super) process_labels: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(super) tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(super) thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {
    #[prost(int32, optional, tag = "3")]
    pub(super) unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
    #[prost(int32, optional, tag = "2")]
    pub(super) primary_trace_clock: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(super) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) utsname: Option<Utsname>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Utsname {
    #[prost(string, optional, tag = "1")]
    pub(super) sysname: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) version: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) release: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) machine: Option<String>,
}
