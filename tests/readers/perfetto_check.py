#!/usr/bin/env python3
"""Checks a trace of gputrace with the official Perfetto protos.

usage: perfetto_check.py TRACE [--csv-hip FILE] [--csv-hsa FILE] [--csv-kernel FILE] [--csv-copy FILE] [--json]

Prints what is in the trace. Exit status: 0 if all is well, 1 if a rule is broken (the rules that are go
to stderr), 2 if the files cannot be read.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_check
import pftrace

CSV_COLUMNS = (
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
)
API = (
    "hip_api",
    "hsa_api",
    "marker_api",
    "rccl_api",
    "rocdecode_api",
    "rocjpeg_api",
    "rocshmem_api",
    "hipfile_api",
    "external_correlation_api",
    "kfd_ioctl",
    "library_api",
    "function",
    "unknown_api",
)
# Observations of threads, memory and the driver: spans that are not calls.
OBSERVED = ("memory_allocation", "hip_memory", "scratch_memory", "sched", "driver", "kfd_event", "counter")
# Domains in the account whose records are not calls in the trace.
NO_CALLS = ("MEMORY_ALLOCATION", "SCRATCH_MEMORY", "ARGUMENT_DATA", "SCHED", "TRACEPOINT", "KFD_EVENT", "COUNTER")
# REALTIME, MONOTONIC, MONOTONIC_RAW, BOOTTIME
CLOCKS = {1, 3, 5, 6}
# Ranges and marks: made of one or two calls each.
RANGES = "MARKER_CORE_API"
# Tracks of a process for ranges that may overlap.
LANES = "ROCTx ranges"
# Maximum number of violations shown.
SHOWN = 50


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a trace of gputrace with the official Perfetto protos.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--csv-hip", type=Path, help="NAME_hip_api_trace.csv of the same recording")
    parser.add_argument("--csv-hsa", type=Path, help="NAME_hsa_api_trace.csv of the same recording")
    parser.add_argument("--csv-kernel", type=Path, help="NAME_kernel_trace.csv of the same recording")
    parser.add_argument("--csv-copy", type=Path, help="NAME_memory_copy_trace.csv of the same recording")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    try:
        trace = pftrace.read(arguments.trace)
        files = {"hip_api": arguments.csv_hip, "hsa_api": arguments.csv_hsa}
        rows = {category: list(read_csv(path)) for category, path in files.items() if path}
        gpu_files = {"kernel_dispatch": arguments.csv_kernel, "memory_copy": arguments.csv_copy}
        gpu_rows = {category: list(read_csv(path)) for category, path in gpu_files.items() if path}
    except (OSError, ValueError) as error:
        print(f"perfetto_check: {error}", file=sys.stderr)
        return 2

    # Marks are instants.
    calls = [event for event in (*trace.slices, *trace.instants) if event.category in API]
    violations = trace.violations
    violations += check_clocks(trace)
    violations += check_calls(trace, calls)
    found = ledgers(trace)
    # If calls were lost, the other end of a flow can be missing.
    complete = len(found) == 1 and found[0].notes["complete"] and found[0].notes["lost"] == 0
    violations += gpu_check.check(trace, calls, complete)
    violations += check_ledger(trace, calls)
    for category, expected in rows.items():
        violations += check_csv(trace, calls, category, expected)
    for category, expected in gpu_rows.items():
        violations += gpu_check.check_csv(trace, category, expected)

    summary = summarise(trace, calls)
    summary["violations"] = violations
    if arguments.json:
        json.dump(summary, sys.stdout, indent=1)
        print()
    else:
        show(summary)
    for violation in violations[:SHOWN]:
        print(f"violation: {violation}", file=sys.stderr)
    if len(violations) > SHOWN:
        print(f"... and {len(violations) - SHOWN} more", file=sys.stderr)
    return 1 if violations else 0


def check_clocks(trace: pftrace.Trace) -> Iterator[str]:
    if not trace.clock_snapshots:
        yield "no clock snapshot"
    if trace.primary_clocks - {pftrace.BOOTTIME}:
        yield f"a primary clock that is not BOOTTIME: {trace.primary_clocks}"
    last = 0
    for snapshot in trace.clock_snapshots:
        if missing := CLOCKS - snapshot.keys():
            yield f"a clock snapshot without clocks {missing}"
        if snapshot.get(pftrace.BOOTTIME, 0) <= last:
            yield "clock snapshots do not go forward"
        last = snapshot.get(pftrace.BOOTTIME, 0)


def check_calls(trace: pftrace.Trace, calls: list[pftrace.Slice]) -> Iterator[str]:
    categories = (*API, *OBSERVED, *gpu_check.CATEGORIES)
    others = Counter(event.category for event in trace.slices if event.category not in categories)
    if others:
        yield f"slices are neither API calls nor GPU work nor observed: {dict(others)}"
    known: dict[int, pftrace.Slice] = {}
    for call in calls:
        if (number := call.notes.get("corr_id")) is None:
            yield f"{call.name} at {call.begin} has no corr_id"
        elif number in known:
            yield f"corr_id {number} occurs twice"
        else:
            known[number] = call
        if is_free_range(trace, call):
            continue
        if (thread := trace.thread_of(call)) is None:
            yield f"{call.name} at {call.begin} is not on a thread's track"
        elif thread[1] != call.notes.get("tid"):
            yield f"{call.name} at {call.begin} is on the track of thread {thread[1]}: {call.notes}"
        if ("unfinished" in call.notes) and ("retval" in call.notes):
            yield f"{call.name} at {call.begin} is unfinished and has returned"
    for call in calls:
        # The stack of paired slices must agree with the recorder.
        ancestor = call.notes.get("ancestor_id", 0)
        outer = call.parent
        # Ranges are not callers.
        while outer and outer.notes.get("kind") == RANGES:
            outer = outer.parent
        around = outer.notes.get("corr_id") if outer else 0
        if is_free_range(trace, call):
            continue
        if around != ancestor and (ancestor == 0 or ancestor in known):
            yield f"{call.name} ({call.notes.get('corr_id')}) is inside {around}, but was called by {ancestor}"


def is_free_range(trace: pftrace.Trace, call: pftrace.Slice) -> bool:
    """Whether it is a range that may overlap with others, on a track of its process."""
    track = trace.tracks.get(call.track)
    parent = trace.tracks.get(track.parent) if track else None
    own = parent is not None and parent.pid is not None and track.tid is None and track.name == LANES
    return own and call.notes.get("kind") == RANGES


def ledgers(trace: pftrace.Trace) -> list[pftrace.Slice]:
    tracks = {track.uuid for track in trace.tracks.values() if track.name == "gputrace: loss ledger"}
    return [event for event in trace.instants if event.track in tracks and "rows" in event.notes]


def check_ledger(trace: pftrace.Trace, calls: list[pftrace.Slice]) -> Iterator[str]:
    found = ledgers(trace)
    if len(found) != 1:
        yield f"{len(found)} loss ledgers"
        return
    ledger = found[0].notes
    rows = ledger["rows"] or []
    for column in ("seen", "written", "unfinished", "lost"):
        if (total := sum(row[column] for row in rows)) != ledger[column]:
            yield f"ledger: {column} is {ledger[column]}, but its rows add up to {total}"
    for row in [*rows, ledger]:
        name = f"{row['domain']}, CPU {row['cpu']}" if "cpu" in row else "total"
        lost = sum(row["dropped"].values()) if row["dropped"] else 0
        if lost != row["lost"]:
            yield f"ledger: {name}: lost {row['lost']}, but by reason {lost}"
        balance = row["seen"] - row["written"] - row["unfinished"] - lost
        if balance != row["imbalance"]:
            yield f"ledger: {name}: imbalance {row['imbalance']}, but it is {balance}"
        if ledger["complete"] and balance != 0:
            yield f"ledger: {name}: does not balance: {row}"
    if not ledger["complete"]:
        return
    shown = Counter((call.notes["kind"], "unfinished" in call.notes) for call in calls)
    accounts = Counter()
    for row in rows:
        if row["domain"] in gpu_check.DOMAINS or row["domain"] in NO_CALLS:
            # Its records are not calls, and several of them can be about one kernel.
            continue
        accounts[row["domain"], False] += row["written"]
        accounts[row["domain"], True] += row["unfinished"]
    for domain, unfinished in shown.keys() | accounts.keys():
        drawn, accounted = shown[domain, unfinished], accounts[domain, unfinished]
        if domain == RANGES:
            # An open range comes from a call that has returned; a call that ends nothing is not
            # drawn.
            drawn = shown[domain, False] + shown[domain, True]
            accounted = accounts[domain, False] + accounts[domain, True]
            if drawn > accounted:
                yield f"{domain}: {drawn} ranges and marks in the trace, of {accounted} calls in the ledger"
        elif drawn != accounted:
            what = "unfinished" if unfinished else "finished"
            yield f"{domain}: {drawn} {what} calls in the trace, {accounted} in the ledger"


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file, strict=True)


def check_csv(
    trace: pftrace.Trace, calls: list[pftrace.Slice], category: str, rows: list[dict[str, str]]
) -> Iterator[str]:
    expected = {int(row["Correlation_Id"]): tuple(row[column] for column in CSV_COLUMNS) for row in rows}
    if len(expected) != len(rows):
        yield f"{category}: a correlation id occurs twice in the CSV file"
    drawn, finished = {}, set()
    for call in calls:
        if call.category == category:
            notes = call.notes
            pid, tid = trace.thread_of(call) or (None, None)
            times = notes.get("begin_ns", call.begin), notes.get("end_ns", call.end)
            fields = (notes["kind"], call.name, pid, tid, notes["corr_id"], *times)
            drawn[notes["corr_id"]] = tuple(map(str, fields))
            if "unfinished" not in notes:
                finished.add(notes["corr_id"])
    # rocprofv3's tables contain the calls that returned; whether they contain others is not checked
    # here.
    for number in sorted(expected.keys() | finished):
        if expected.get(number) != drawn.get(number):
            yield f"{category} {number}: CSV has {expected.get(number)}, the trace {drawn.get(number)}"


def summarise(trace: pftrace.Trace, calls: list[pftrace.Slice]) -> dict[str, Any]:
    threads: Counter[str] = Counter()
    for call in calls:
        if thread := trace.thread_of(call):
            threads[f"{thread[0]}/{thread[1]}"] += 1
    ledger = [{key: event.notes[key] for key in event.notes if key != "rows"} for event in ledgers(trace)]
    return {
        "packets": trace.packets,
        "clock_snapshots": len(trace.clock_snapshots),
        "calls": len(calls),
        "unfinished": sum("unfinished" in call.notes for call in calls),
        "moved": sum("begin_ns" in call.notes for call in calls),
        "deepest": max((call.depth for call in calls), default=-1) + 1,
        "functions": dict(Counter(call.name for call in calls).most_common()),
        "domains": dict(Counter(call.notes.get("kind") for call in calls).most_common()),
        "threads": dict(threads.most_common()),
        "gpu": gpu_check.summarise(trace),
        "observed": dict(Counter(event.category for event in trace.slices if event.category in OBSERVED).most_common()),
        "instants": dict(Counter(event.category for event in trace.instants).most_common()),
        "ledger": ledger[0] if ledger else None,
    }


def show(summary: dict[str, Any]) -> None:
    for key, value in summary.items():
        if isinstance(value, dict) and key != "ledger":
            print(f"{key}:")
            for name, count in value.items():
                print(f"  {count:>10}  {name}")
        elif key != "violations":
            print(f"{key}: {value}")


if __name__ == "__main__":
    sys.exit(main())
