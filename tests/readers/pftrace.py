"""Reads Perfetto traces with the protos of the official `perfetto` package.

What trace processor does with a trace of track events is done here in the open: interned strings are
resolved packet by packet, events are sorted by time (those of the same time keep the order of the file),
and each track's beginnings and ends are paired by a stack. Whatever does not fit is a violation.
"""

from __future__ import annotations

import mmap
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

CLEARED = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED = protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
BOOTTIME = protos.BUILTIN_CLOCK_BOOTTIME

INTERNED = {
    "event_categories": "name",
    "event_names": "name",
    "debug_annotation_names": "name",
    "debug_annotation_string_values": "str",
    "gpu_specifications": "name",
    "graphics_contexts": "pid",
}


@dataclass(slots=True)
class Slice:
    """A slice, or an instant (then `end` equals `begin`). Times in ns."""

    track: int
    name: str
    category: str
    begin: int
    end: int
    notes: dict[str, Any]
    flows: list[int] = field(default_factory=list)
    depth: int = 0
    parent: Slice | None = None


@dataclass
class Track:
    """What descriptors say of a track."""

    uuid: int
    parent: int
    name: str
    pid: int | None = None
    tid: int | None = None


@dataclass(frozen=True, slots=True)
class Native:
    """A GPU event in Perfetto's own form. Times in ns."""

    begin: int
    duration: int
    queue: str
    stage: str
    pid: int


@dataclass
class Trace:
    """A decoded trace."""

    packets: int = 0
    resets: int = 0
    clock_snapshots: list[dict[int, int]] = field(default_factory=list)
    primary_clocks: set[int] = field(default_factory=set)
    tracks: dict[int, Track] = field(default_factory=dict)
    # In order of begin.
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    # Track -> (time, value), in order of time.
    counters: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    native: list[Native] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def thread_of(self, event: Slice) -> tuple[int, int] | None:
        """Process and thread id of the thread whose track the event is on."""
        track = self.tracks.get(event.track)
        return None if track is None or track.tid is None else (track.pid, track.tid)

    def process_name(self, uuid: int) -> str:
        """Name of the process that the thread track `uuid` belongs to."""
        track = self.tracks.get(uuid)
        parent = self.tracks.get(track.parent) if track else None
        return parent.name if parent else ""


def read(path: Path) -> Trace:
    """Decodes the trace in `path`."""
    reader = _Reader()
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            reader.trace.violations.append("the file is empty")
            return reader.trace
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for packet in _packets(data, reader.wrong):
                reader.packet(packet)
    reader.finish()
    return reader.trace


def _packets(data: mmap.mmap | bytes, wrong: Callable[[str], None]) -> Iterator[protos.TracePacket]:
    """The packets of a trace one by one: a `Trace` is nothing but repeated fields 1."""
    position, size = 0, len(data)
    while position < size:
        start = position
        if data[position] != 0x0A:
            wrong(f"byte {start}: not the beginning of a packet")
            return
        position += 1
        length = shift = 0
        while True:
            if position >= size or shift > 63:
                wrong(f"byte {start}: the packet's length is cut off")
                return
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if position + length > size:
            wrong(f"byte {start}: the packet is cut off")
            return
        packet = protos.TracePacket()
        try:
            packet.ParseFromString(data[position : position + length])
        except DecodeError as error:
            wrong(f"byte {start}: {error}")
        else:
            if packet.HasField("compressed_packets"):
                yield from _compressed(packet.compressed_packets, start, wrong)
            else:
                yield packet
        position += length


def _compressed(data: bytes, start: int, wrong: Callable[[str], None]) -> Iterator[protos.TracePacket]:
    """The packets in a compressed one: a trace by itself."""
    try:
        inside = zlib.decompress(data)
    except zlib.error as error:
        wrong(f"byte {start}: {error}")
    else:
        yield from _packets(inside, lambda text: wrong(f"byte {start}, compressed: {text}"))


class _Sequence:
    """Incremental state of a packet sequence."""

    def __init__(self) -> None:
        self.valid = False
        self.clock = 0
        self.tables: dict[str, dict[int, Any]] = {table: {} for table in INTERNED}

    def clear(self) -> None:
        self.valid = True
        self.clock = 0
        for table in self.tables.values():
            table.clear()


class _Reader:
    def __init__(self) -> None:
        self.trace = Trace()
        self.sequences: dict[int, _Sequence] = defaultdict(_Sequence)
        # Track -> (time, type, event).
        self.events: dict[int, list[tuple[int, int, Slice | None]]] = defaultdict(list)

    def wrong(self, violation: str) -> None:
        self.trace.violations.append(violation)

    def packet(self, packet: protos.TracePacket) -> None:
        self.trace.packets += 1
        sequence = self.sequences[packet.trusted_packet_sequence_id]
        if packet.sequence_flags & CLEARED:
            sequence.clear()
            self.trace.resets += 1
        if packet.HasField("trace_packet_defaults"):
            sequence.clock = packet.trace_packet_defaults.timestamp_clock_id
        if packet.sequence_flags & NEEDED and not sequence.valid:
            self.wrong(f"packet {self.trace.packets}: needs incremental state before there is any")
        if packet.HasField("interned_data"):
            self.intern(packet.interned_data, sequence)
        match packet.WhichOneof("data"):
            case "track_descriptor":
                self.descriptor(packet.track_descriptor)
            case "track_event":
                self.event(packet, sequence)
            case "gpu_render_stage_event":
                self.native(packet, sequence)
            case "clock_snapshot":
                snapshot = packet.clock_snapshot
                self.trace.primary_clocks.add(snapshot.primary_trace_clock)
                self.trace.clock_snapshots.append({clock.clock_id: clock.timestamp for clock in snapshot.clocks})

    def intern(self, data: protos.InternedData, sequence: _Sequence) -> None:
        for table, attribute in INTERNED.items():
            known = sequence.tables[table]
            for entry in getattr(data, table):
                text = getattr(entry, attribute)
                text = text.decode() if isinstance(text, bytes) else text
                if known.setdefault(entry.iid, text) != text or entry.iid == 0:
                    self.wrong(f"packet {self.trace.packets}: {table} {entry.iid} has two meanings")

    def descriptor(self, descriptor: protos.TrackDescriptor) -> None:
        track = Track(descriptor.uuid, descriptor.parent_uuid, descriptor.name)
        if descriptor.HasField("process"):
            track.pid = descriptor.process.pid
            track.name = descriptor.process.process_name
        if descriptor.HasField("thread"):
            track.pid, track.tid = descriptor.thread.pid, descriptor.thread.tid
            track.name = descriptor.thread.thread_name
        known = self.trace.tracks.setdefault(track.uuid, track)
        if (known.parent, known.pid, known.tid) != (track.parent, track.pid, track.tid):
            self.wrong(f"track {track.uuid} has two meanings: {known} and {track}")
        self.trace.tracks[track.uuid] = track

    def clock(self, packet: protos.TracePacket, sequence: _Sequence, where: str) -> None:
        if (packet.timestamp_clock_id or sequence.clock) != BOOTTIME:
            self.wrong(f"{where}: its time is not of BOOTTIME")

    def native(self, packet: protos.TracePacket, sequence: _Sequence) -> None:
        event = packet.gpu_render_stage_event
        where = f"packet {self.trace.packets}"
        self.clock(packet, sequence, where)
        queue = self.resolve(sequence, "gpu_specifications", event.hw_queue_iid, where)
        stage = self.resolve(sequence, "gpu_specifications", event.stage_iid, where)
        pid = self.resolve(sequence, "graphics_contexts", event.context, where)
        self.trace.native.append(Native(packet.timestamp, event.duration, queue, stage, pid))

    def event(self, packet: protos.TracePacket, sequence: _Sequence) -> None:
        event = packet.track_event
        where = f"packet {self.trace.packets}"
        self.clock(packet, sequence, where)
        if event.track_uuid not in self.trace.tracks:
            self.wrong(f"{where}: track {event.track_uuid} is not described before")
        if event.type == event.TYPE_COUNTER:
            self.trace.counters[event.track_uuid].append((packet.timestamp, event.counter_value))
            return
        shown = None
        if event.type != event.TYPE_SLICE_END:
            name = event.name or self.resolve(sequence, "event_names", event.name_iid, where)
            categories = [self.resolve(sequence, "event_categories", iid, where) for iid in event.category_iids]
            shown = Slice(event.track_uuid, name, ",".join(categories), packet.timestamp, packet.timestamp, {})
            shown.flows.extend(event.flow_ids)
            for annotation in event.debug_annotations:
                key, value = self.annotation(annotation, sequence, where)
                if key in shown.notes:
                    self.wrong(f"{where}: annotation {key} occurs twice")
                shown.notes[key] = value
        self.events[event.track_uuid].append((packet.timestamp, event.type, shown))

    def resolve(self, sequence: _Sequence, table: str, iid: int, where: str) -> Any:
        text = sequence.tables[table].get(iid)
        if text is None:
            self.wrong(f"{where}: {table} {iid} is not interned")
            return f"(unknown {iid})"
        return text

    def annotation(self, annotation: protos.DebugAnnotation, sequence: _Sequence, where: str) -> tuple[str, Any]:
        name = annotation.name
        if annotation.HasField("name_iid"):
            name = self.resolve(sequence, "debug_annotation_names", annotation.name_iid, where)
        match annotation.WhichOneof("value"):
            case "string_value_iid":
                iid = annotation.string_value_iid
                return name, self.resolve(sequence, "debug_annotation_string_values", iid, where)
            case str(kind):
                return name, getattr(annotation, kind)
        if annotation.array_values:
            return name, [self.annotation(item, sequence, where)[1] for item in annotation.array_values]
        return name, dict(self.annotation(entry, sequence, where) for entry in annotation.dict_entries)

    def finish(self) -> None:
        trace = self.trace
        for track, events in self.events.items():
            # Stable, like trace processor's sort.
            events.sort(key=lambda event: event[0])
            self.pair(track, events)
        for values in trace.counters.values():
            values.sort(key=lambda value: value[0])
        for track in trace.tracks.values():
            if track.parent and track.parent not in trace.tracks:
                self.wrong(f"track {track.uuid}: its parent {track.parent} is not described")
        trace.slices.sort(key=lambda event: event.begin)
        trace.instants.sort(key=lambda event: event.begin)

    def pair(self, track: int, events: list[tuple[int, int, Slice | None]]) -> None:
        begin, end = protos.TrackEvent.TYPE_SLICE_BEGIN, protos.TrackEvent.TYPE_SLICE_END
        instant = protos.TrackEvent.TYPE_INSTANT
        stack: list[Slice] = []
        for time, kind, event in events:
            if kind == end:
                if not stack:
                    self.wrong(f"track {track}: an end at {time} without a beginning")
                    continue
                ended = stack.pop()
                ended.end = time
                if ended.end <= ended.begin:
                    self.wrong(f"track {track}: {ended.name} at {ended.begin} takes no time")
                self.trace.slices.append(ended)
            elif kind in (begin, instant):
                event.depth = len(stack)
                event.parent = stack[-1] if stack else None
                if kind == begin:
                    stack.append(event)
                else:
                    self.trace.instants.append(event)
            else:
                self.wrong(f"track {track}: event of type {kind} at {time}")
        for event in stack:
            self.wrong(f"track {track}: {event.name} at {event.begin} does not end")
