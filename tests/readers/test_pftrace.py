"""Tests of the checks themselves: a good trace passes, and each kind of damage is found.

usage: python -m unittest discover tests/readers
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import perfetto_check
import pftrace
import render_trace
from pftrace import protos

Damage = Callable[[protos.Trace], None]

NAMES = ("corr_id", "ancestor_id", "tid", "kind", "rows")
PROCESS, THREAD, LEDGER = 1, 2, 3
CSV = """"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"HIP_RUNTIME_API","hipInit",7,8,1,100,200
"HIP_RUNTIME_API","hipInit",7,8,2,120,180
"""


def good() -> protos.Trace:
    """A trace of two calls, one inside the other."""
    trace = protos.Trace()

    def packet(flags: int = pftrace.NEEDED, **fields: int) -> protos.TracePacket:
        return trace.packet.add(trusted_packet_sequence_id=1, sequence_flags=flags, **fields)

    packet(pftrace.CLEARED).trace_packet_defaults.timestamp_clock_id = pftrace.BOOTTIME
    snapshot = packet().clock_snapshot
    snapshot.primary_trace_clock = pftrace.BOOTTIME
    for clock in perfetto_check.CLOCKS:
        snapshot.clocks.add(clock_id=clock, timestamp=50)
    process = packet().track_descriptor
    process.uuid, process.process.pid, process.process.process_name = PROCESS, 7, "app"
    thread = packet().track_descriptor
    thread.uuid, thread.parent_uuid, thread.thread.pid, thread.thread.tid = THREAD, PROCESS, 7, 8
    ledger = packet().track_descriptor
    ledger.uuid, ledger.name = LEDGER, "gputrace: loss ledger"

    def event(time: int, kind: int, track: int = THREAD) -> protos.TracePacket:
        added = packet(timestamp=time)
        added.track_event.type, added.track_event.track_uuid = kind, track
        return added

    def call(time: int, number: int, ancestor: int) -> protos.TracePacket:
        added = event(time, protos.TrackEvent.TYPE_SLICE_BEGIN)
        added.track_event.category_iids.append(1)
        added.track_event.name_iid = 1
        for iid, value in ((1, number), (2, ancestor), (3, 8)):
            added.track_event.debug_annotations.add(name_iid=iid, uint_value=value)
        added.track_event.debug_annotations.add(name_iid=4, string_value="HIP_RUNTIME_API")
        return added

    interned = call(100, 1, 0).interned_data
    interned.event_categories.add(iid=1, name="hip_api")
    interned.event_names.add(iid=1, name="hipInit")
    for iid, name in enumerate(NAMES, start=1):
        interned.debug_annotation_names.add(iid=iid, name=name)
    call(120, 2, 1)
    event(180, protos.TrackEvent.TYPE_SLICE_END)
    event(200, protos.TrackEvent.TYPE_SLICE_END)

    account = event(300, protos.TrackEvent.TYPE_INSTANT, LEDGER).track_event
    account.name = "loss ledger"
    account.debug_annotations.add(name="complete", bool_value=True)
    rows = account.debug_annotations.add(name_iid=5)
    row = rows.array_values.add().dict_entries
    row.add(name="domain", string_value="HIP_RUNTIME_API")
    row.add(name="cpu", uint_value=0)
    for columns in (account.debug_annotations, row):
        for name, value in (("seen", 3), ("written", 2), ("unfinished", 0), ("lost", 1)):
            columns.add(name=name, uint_value=value)
        columns.add(name="imbalance", int_value=0)
        columns.add(name="dropped").dict_entries.add(name="ring_full", uint_value=1)
    return trace


def events(trace: protos.Trace) -> list[protos.TracePacket]:
    """The packets with events: two beginnings, two ends, the ledger."""
    return [packet for packet in trace.packet if packet.HasField("track_event")]


def without(trace: protos.Trace, field: str, index: int = 0) -> None:
    found = [number for number, packet in enumerate(trace.packet) if packet.HasField(field)]
    del trace.packet[found[index]]


def set_time(index: int, time: int) -> Damage:
    return lambda trace: setattr(events(trace)[index], "timestamp", time)


def set_note(index: int, note: int, value: int) -> Damage:
    return lambda trace: setattr(events(trace)[index].track_event.debug_annotations[note], "uint_value", value)


# Damages to a valid trace, and the expected messages.
DAMAGES: list[tuple[Damage, str]] = [
    (lambda trace: without(trace, "trace_packet_defaults"), "needs incremental state"),
    (lambda trace: trace.packet[0].ClearField("trace_packet_defaults"), "not of BOOTTIME"),
    (lambda trace: without(trace, "clock_snapshot"), "no clock snapshot"),
    (lambda trace: without(trace, "track_descriptor", 0), "parent 1 is not described"),
    (lambda trace: without(trace, "track_descriptor", 1), "track 2 is not described before"),
    (lambda trace: events(trace)[0].ClearField("interned_data"), "is not interned"),
    (lambda trace: without(trace, "track_event", 1), "an end at 200 without a beginning"),
    (lambda trace: without(trace, "track_event", 2), "hipInit at 100 does not end"),
    (set_time(2, 120), "takes no time"),
    (set_time(1, 190), "(2) is inside 0, but was called by 1"),
    (set_note(1, 1, 0), "is inside 1, but was called by 0"),
    (set_note(0, 1, 2), "(1) is inside 0, but was called by 2"),
    (set_note(1, 0, 1), "corr_id 1 occurs twice"),
    (set_note(0, 2, 9), "is on the track of thread 8"),
    (lambda trace: without(trace, "track_event", 4), "0 loss ledgers"),
    (set_note(4, 2, 4), "ledger: seen is 4, but its rows add up to 3"),
    (set_note(4, 5, 2), "ledger: total: lost 2, but by reason 1"),
]


class Check(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def run_check(self, data: bytes, *options: str) -> tuple[int, dict, str]:
        path = self.directory / "app.pftrace"
        path.write_bytes(data)
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["perfetto_check.py", str(path), "--json", *options]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = perfetto_check.main()
        return code, json.loads(out.getvalue()), err.getvalue()

    def csv(self, text: str) -> str:
        path = self.directory / "app_hip_api_trace.csv"
        path.write_text(text)
        return str(path)

    def test_a_good_trace_passes(self) -> None:
        code, summary, _ = self.run_check(good().SerializeToString(), "--csv-hip", self.csv(CSV))
        self.assertEqual((code, summary["violations"]), (0, []))
        self.assertEqual((summary["functions"], summary["threads"]), ({"hipInit": 2}, {"7/8": 2}))
        self.assertEqual((summary["deepest"], summary["ledger"]["lost"]), (2, 1))

    def test_damage_is_found(self) -> None:
        for damage, expected in DAMAGES:
            with self.subTest(expected):
                trace = good()
                damage(trace)
                code, _, errors = self.run_check(trace.SerializeToString())
                self.assertEqual(code, 1)
                self.assertIn(expected, errors)

    def test_a_cut_trace_is_found(self) -> None:
        data = good().SerializeToString()
        for end, expected in ((0, "the file is empty"), (len(data) - 1, "the packet is cut off")):
            self.assertIn(expected, self.run_check(data[:end])[2])

    def test_other_calls_in_the_csv_file_are_found(self) -> None:
        for other in (CSV.replace("180", "181"), CSV.replace(",2,", ",3,"), CSV + CSV.splitlines()[2]):
            code, summary, _ = self.run_check(good().SerializeToString(), "--csv-hip", self.csv(other))
            self.assertEqual(code, 1)
            self.assertTrue(all("hip_api" in violation for violation in summary["violations"]))

    def test_a_picture_is_drawn(self) -> None:
        trace, picture = self.directory / "app.pftrace", self.directory / "app.svg"
        trace.write_bytes(good().SerializeToString())
        with mock.patch.object(sys, "argv", ["render_trace.py", str(trace), str(picture)]):
            self.assertEqual(render_trace.main(), 0)
        drawn = picture.read_text()
        self.assertEqual(drawn.count(">hipInit<"), 2)
        self.assertIn("2 API calls on 1 thread of 1 process, 1 of 3 lost", drawn)


if __name__ == "__main__":
    unittest.main()
