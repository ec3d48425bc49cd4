"""The rules of GPU work in a trace of gputrace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pftrace

TIMED = ("kernel_dispatch", "memory_copy")
UNTIMED = ("kernel_dispatch_untimed", "memory_copy_untimed")
CATEGORIES = TIMED + UNTIMED
# Domains whose records are not calls.
DOMAINS = ("KERNEL_DISPATCH", "MEMORY_COPY", "QUEUE_PACKET", "COMPLETION")
# Quality -> whether work may be drawn as long as it took. Of sampled times, the length may be known or not.
QUALITIES = {"exact": {True}, "sampled": {True, False}, "bounded": {False}, "submitted": {False}}
DISCLAIMER = "not known how long"
# What only work has that is drawn as long as it took.
TIMES = ("begin_ns", "end_ns", "delta_ns")
COUNTERS = {"kernels in flight: ": "KERNEL_DISPATCH", "copy bytes in flight: ": "MEMORY_COPY"}


def work(trace: pftrace.Trace) -> list[pftrace.Slice]:
    """All GPU work. What is not known to have taken some time is an instant."""
    return [event for event in (*trace.slices, *trace.instants) if event.category in CATEGORIES]


def check(trace: pftrace.Trace, calls: list[pftrace.Slice], complete: bool) -> Iterator[str]:
    """All rules. `complete` says that no call was lost."""
    found = work(trace)
    for event in found:
        yield from check_span(trace, event)
    for number in ("dispatch_id", "copy_id"):
        ids = Counter(event.notes[number] for event in found if number in event.notes)
        yield from (f"{number} {value} occurs {count} times" for value, count in ids.items() if count > 1)
    yield from check_rows(trace, found)
    yield from check_flows(found, calls, complete)
    yield from check_joins(found, calls)
    yield from check_counters(trace, found)
    yield from check_native(trace, found)


def check_span(trace: pftrace.Trace, event: pftrace.Slice) -> Iterator[str]:
    what = f"{event.name} at {event.begin}"
    notes = event.notes
    if notes.get("quality") not in QUALITIES:
        yield f"{what} has no quality: {notes.get('quality')}"
        return
    timed = event.category in TIMED
    track = trace.tracks.get(event.track)
    row = track.name if track else ""
    if timed not in QUALITIES[notes["quality"]]:
        yield f"{what} is {notes['quality']}, but in category {event.category}"
    if timed == row.endswith(DISCLAIMER):
        yield f"{what} is {notes['quality']}, but on the track {row!r}"
    # An instant may be anywhere.
    if event.parent is not None and (timed or event.begin != event.end):
        yield f"{what} is drawn inside {event.parent.name}"
    if not timed:
        yield from (f"{what} has {name}, but is not drawn" for name in TIMES if name in notes)
        if "unfinished" not in notes and event.begin != event.end:
            yield f"{what} is drawn until {event.end}, but how long it took is not known"
        for window in (notes["begin_window"], notes["end_window"]):
            if window["earliest_ns"] > window.get("latest_ns", window["earliest_ns"]):
                yield f"{what} has the window {window}"
        return
    begin, end = notes["begin_ns"], notes["end_ns"]
    if event.begin != begin:
        yield f"{what} began at {begin}"
    if event.end != max(end, begin + 1):
        yield f"{what} is drawn until {event.end}, but ended at {end}"
    if not notes["submit_ns"] - notes["begin_window"].get("uncertainty_ns", 0) <= begin <= end:
        yield f"{what} was submitted at {notes['submit_ns']} and took from {begin} to {end}"
    for edge, time in (("begin", begin), ("end", end)):
        window = notes[f"{edge}_window"]
        latest = window.get("latest_ns")
        if latest is None:
            yield f"{what} is {notes['quality']}, but nothing says that its {edge} has happened"
        elif not window["earliest_ns"] <= time <= latest:
            yield f"{what}: its {edge} {time} is not between {window['earliest_ns']} and {latest}"


def check_rows(trace: pftrace.Trace, found: list[pftrace.Slice]) -> Iterator[str]:
    """Lanes of one row are children of one track, which is the agent's."""
    parents: dict[str, int] = {}
    for uuid in {event.track for event in found}:
        track = trace.tracks.get(uuid)
        if track is None:
            continue
        if not track.name or track.parent not in trace.tracks:
            yield f"track {uuid} ({track.name!r}) has no name or no agent"
        if parents.setdefault(track.name, track.parent) != track.parent:
            yield f"row {track.name!r} is under two agents"
    agents = defaultdict(set)
    for event in found:
        if "queue" in event.notes:
            agents[event.notes["queue"]].add(event.notes["agent"])
    yield from (f"queue {queue} is on {agent}" for queue, agent in agents.items() if len(agent) > 1)


def innermost(event: pftrace.Slice) -> Any:
    """Correlation id of the innermost call that submitted GPU work."""
    return event.notes.get("innermost_corr_id", event.notes["corr_id"])


def check_joins(found: list[pftrace.Slice], calls: list[pftrace.Slice]) -> Iterator[str]:
    """As TraceLens joins them: a call of HIP and its work have the same `corr_id`, even if HIP called HSA for it."""
    by_id = {call.notes.get("corr_id"): call for call in calls}
    for event in found:
        call, names = by_id.get(innermost(event)), []
        while call is not None and call.category == "hsa_api":
            names.append(call.name)
            call = by_id.get(call.notes.get("ancestor_id"))
        if call is not None and call.category == "hip_api" and event.notes["corr_id"] != call.notes.get("corr_id"):
            yield f"{event.name} at {event.begin} does not join {call.name}, which called {', '.join(names)} for it"


def check_flows(found: list[pftrace.Slice], calls: list[pftrace.Slice], complete: bool) -> Iterator[str]:
    """A flow is a call and all GPU work that it asked for; both ends of it are there."""
    by_id = {call.notes.get("corr_id"): call for call in calls}
    for call in calls:
        if call.flows and call.flows != [call.notes.get("corr_id")]:
            yield f"{call.name} at {call.begin} has flows {call.flows}"
    for event in found:
        what = f"{event.name} at {event.begin}"
        expected = {innermost(event), event.notes["outermost_corr_id"]} - {0}
        if len(event.flows) != len(expected) or set(event.flows) != expected:
            yield f"{what} has flows {event.flows}, not {expected}"
        for flow in event.flows:
            call = by_id.get(flow)
            if call is None:
                if complete:
                    yield f"{what}: flow {flow} has no other end"
                continue
            if flow not in call.flows:
                yield f"{what}: {call.name} ({flow}) is not the other end of its flow"
            # A call can be moved by one nanosecond.
            if not call.begin <= event.notes["submit_ns"] + 1:
                yield f"{what} was submitted at {event.notes['submit_ns']}, before {call.name} at {call.begin}"


def check_counters(trace: pftrace.Trace, found: list[pftrace.Slice]) -> Iterator[str]:
    """Counters say what the spans say."""
    if any("so late that the counters" in event.name for event in trace.instants):
        return
    expected: dict[str, Counter[int]] = defaultdict(Counter)
    for event in found:
        notes = event.notes
        # What is not drawn was in flight until it is proven to have ended.
        end = event.end if "unfinished" in notes else notes.get("end_ns", notes["end_window"].get("latest_ns", 0))
        begin = notes["submit_ns"] or event.begin
        if begin < end:
            kind = notes["kind"]
            amount = notes["copy_bytes"] if kind == "MEMORY_COPY" else 1
            track = trace.tracks.get(event.track)
            changes = expected[f"{kind} {track.parent if track else None}"]
            changes[begin] += amount
            changes[end] -= amount
    for uuid, values in trace.counters.items():
        track = trace.tracks.get(uuid)
        if track is None:
            yield f"counter {uuid} is not described"
            continue
        prefix = next((prefix for prefix in COUNTERS if track.name.startswith(prefix)), None)
        if prefix is None:
            # A counter of something else: memory, clocks, power.
            continue
        changes = expected.pop(f"{COUNTERS[prefix]} {track.parent}", Counter())
        level, levels = 0, []
        for time, change in sorted(changes.items()):
            if change:
                level += change
                levels.append((time, level))
        if levels != values:
            yield f"counter {track.name!r} says {values[:9]}, the spans {levels[:9]}"
    yield from (f"no counter for {key}" for key, changes in expected.items() if any(changes.values()))


def check_native(trace: pftrace.Trace, found: list[pftrace.Slice]) -> Iterator[str]:
    if not trace.native:
        return
    native = Counter((event.begin, event.duration, event.queue, event.stage, event.pid) for event in trace.native)
    drawn = Counter(
        (event.begin, event.end - event.begin, trace.tracks[event.track].name, event.name, event.notes["pid"])
        for event in found
        if event.category in TIMED and event.track in trace.tracks
    )
    yield from (f"native event {event} is no slice" for event in native - drawn)
    yield from (f"slice {event} is no native event" for event in drawn - native)


def check_csv(trace: pftrace.Trace, category: str, rows: list[dict[str, str]]) -> Iterator[str]:
    """The table has exactly the spans of `category`."""
    columns = {
        "kernel_dispatch": ("Dispatch_Id", "Kernel_Name", "Queue_Id", "Thread_Id", "Grid_Size_X"),
        "memory_copy": ("Direction",),
    }[category] + ("Kind", "Correlation_Id", "Start_Timestamp", "End_Timestamp")
    expected = Counter(tuple(row[column] for column in columns) for row in rows)
    drawn: Counter[tuple[str, ...]] = Counter()
    for event in work(trace):
        if event.category == category:
            notes = event.notes
            kernel = category == "kernel_dispatch"
            fields = (
                (notes["dispatch_id"], event.name, notes["queue"], notes["tid"], notes["grid"]["x"])
                if kernel
                else (notes["operation"],)
            )
            fields += (notes["kind"], innermost(event), notes["begin_ns"], notes["end_ns"])
            drawn[tuple(map(str, fields))] += 1
    yield from (f"{category}: only the CSV file has {row}" for row in expected - drawn)
    yield from (f"{category}: only the trace has {row}" for row in drawn - expected)


def summarise(trace: pftrace.Trace) -> dict[str, Any]:
    found = work(trace)
    flows = {flow for event in found for flow in event.flows}
    kinds = (event.category.partition("_untimed") for event in found)
    return {
        **Counter(f"untimed {kind}" if untimed else kind for kind, untimed, _ in kinds),
        **Counter(f"{event.notes.get('kind')} {event.notes.get('quality')}" for event in found),
        "rows": len({trace.tracks[event.track].name for event in found if event.track in trace.tracks}),
        "flows": len(flows),
        "counters": len(trace.counters),
        "native": len(trace.native),
        "unfinished GPU work": sum("unfinished" in event.notes for event in found),
    }
