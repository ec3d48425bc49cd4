"""Reads a results file of the format `json` with Python's json, and follows every reference in it.

    json_check.py FILE [--json]

Prints how many records there are; exit status 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMBERS = (
    "metadata agents counters strings code_objects kernel_symbols host_functions summary callback_records "
    "buffer_records"
).split()
ARRAYS = (
    "kernel_dispatch hip_api hsa_api marker_api rccl_api memory_copy memory_allocation scratch_memory rocdecode_api "
    "rocjpeg_api"
).split()
NULL_AGENT = 2**64 - 1


def name(process: dict[str, Any], record: dict[str, Any]) -> tuple[str, str]:
    kind = process["strings"]["buffer_records"][record["kind"]]
    return kind["kind"], kind["operations"][record["operation"]]


def problems(document: dict[str, Any], counts: Counter[str]) -> Iterator[str]:
    calls: set[int] = set()
    for process in document["rocprofiler-sdk-tool"]:
        pid = process.get("metadata", {}).get("pid")
        yield from (f"process {pid} has no {member}" for member in MEMBERS if member not in process)
        yield from (f"process {pid} has no {array}" for array in ARRAYS if array not in process["buffer_records"])
        agents = {agent["id"]["handle"] for agent in process["agents"]} | {NULL_AGENT}
        kernels = {kernel["kernel_id"] for kernel in process["kernel_symbols"]} | {0}
        objects = {found["code_object_id"] for found in process["code_objects"]}
        yield from (
            f"kernel {kernel['kernel_id']} is of no code object"
            for kernel in process["kernel_symbols"]
            if objects and kernel["code_object_id"] not in objects
        )
        for array, records in process["buffer_records"].items():
            counts[array] += len(records)
            for record in records:
                kind, operation = name(process, record)
                what = f"{array} {operation} at {record['start_timestamp']}"
                if not operation or kind == "NONE":
                    yield f"{what} has no name"
                if record["start_timestamp"] > record["end_timestamp"]:
                    yield f"{what} ends before it begins"
                if array.endswith("_api"):
                    if record["correlation_id"]["internal"] in calls:
                        yield f"{what}: its correlation id occurs again"
                    calls.add(record["correlation_id"]["internal"])
                elif array in ("memory_allocation", "scratch_memory"):
                    if record["agent_id"]["handle"] not in agents:
                        yield f"{what} has an unknown agent {record['agent_id']}"
                else:
                    yield from work(record, what, agents, kernels, timed=True)
        own = process["gputrace"]
        counts["other_api"] += len(own["other_api"])
        for array, records in own["untimed"].items():
            counts[f"untimed {array}"] += len(records)
            for record in records:
                yield from work(record, f"untimed {array}", agents, kernels, timed=False)
    loss = document["gputrace"]["loss"]
    if loss and loss["complete"]:
        for row in loss["rows"]:
            counts["lost"] += row["lost"]
            if row["seen"] != row["written"] + row["unfinished"] + row["lost"]:
                yield f"the account does not balance: {row}"


def work(record: dict[str, Any], what: str, agents: set[int], kernels: set[int], timed: bool) -> Iterator[str]:
    notes = record["gputrace"]
    if (notes["quality"] in ("exact", "sampled")) != timed:
        yield f"{what} has quality {notes['quality']}"
    if not notes["start_earliest"] <= record["start_timestamp"]:
        yield f"{what} begins before it can"
    if notes["end_latest"] is not None and record["end_timestamp"] > notes["end_latest"]:
        yield f"{what} ends after it has"
    info = record.get("dispatch_info")
    used = [info["agent_id"]] if info else [record["dst_agent_id"], record["src_agent_id"]]
    yield from (f"{what} has an unknown agent {agent}" for agent in used if agent["handle"] not in agents)
    if info and info["kernel_id"] not in kernels:
        yield f"{what} has an unknown kernel {info['kernel_id']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    with options.file.open(encoding="utf-8") as file:
        document = json.load(file)
    counts: Counter[str] = Counter()
    found = list(problems(document, counts))
    for problem in found:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(counts))
    else:
        for what, count in counts.items():
            print(f"{count:10} {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
