"""Reads a results file of the format `json` with Python's json, and follows every reference in it.

    json_check.py FILE [--json]

Prints how many records there are; exit status 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMBERS = (
    "metadata agents counters strings code_objects kernel_symbols host_functions summary callback_records "
    "buffer_records"
).split()
ARRAYS = (
    "kernel_dispatch hip_api hsa_api marker_api rccl_api memory_copy memory_allocation scratch_memory rocdecode_api "
    "rocjpeg_api rocshmem_api hipfile_api"
).split()
# Arrays by the domain under which the summary counts their records.
DOMAINS = {array: "KERNEL_DISPATCH" if array == "kernel_dispatch" else array.upper() for array in ARRAYS}
# Calls that stay calls although the program passes a text, because the text names something else.
LABELLED = ("kokkosp_allocate_data", "kokkosp_deallocate_data", "roctxName")
# Arrays that are indexed by number, and the member that contains the number.
INDEXED = {"code_objects": "code_object_id", "kernel_symbols": "kernel_id", "host_functions": "host_function_id"}
NULL_AGENT = 0
ADDRESS = re.compile("0x[0-9a-f]{16}")


def name(process: dict[str, Any], record: dict[str, Any]) -> tuple[str, str]:
    kind = process["strings"]["buffer_records"][record["kind"]]
    return kind["kind"], kind["operations"][record["operation"]]


def marker_texts(process: dict[str, Any]) -> dict[int, str]:
    return {marker["key"]: marker["value"] for marker in process["strings"]["marker_api"]}


def is_text(operation: str) -> bool:
    """Whether records of the operation stand for a text that the program gave."""
    return operation.startswith(("roctxMark", "roctxRange"))


def metadata(process: dict[str, Any], agents: set[int]) -> Iterator[str]:
    config = process["metadata"]["config"]
    for array, member in (("kernel_dispatch", "kernel_trace"), ("memory_copy", "memory_copy_trace")):
        if process["buffer_records"][array] and config.get(member) is False:
            yield f"there are records of {array}, but {member} is off"
    for agent in process["agents"]:
        if "capability" in agent and sum(agent["capability"].values()) > 0 and len(agent["capability"]) != 24:
            yield f"agent {agent['id']} has other capabilities: {agent['capability']}"
        for member, parts in (("fw_version", ["uCode", "Major", "Minor", "Stepping"]), ("sdma_fw_version", ["uCodeSDMA", "uCodeRes"])):
            if member in agent and set(agent[member]) != set(parts):
                yield f"agent {agent['id']} has {member} {agent[member]}"
    for array, number in INDEXED.items():
        numbers = [entry[number] for entry in process[array]]
        if numbers != list(range(len(numbers))) or not numbers:
            yield f"{array} are not where their numbers say: {numbers}"
    for kernel in process["kernel_symbols"][1:]:
        if not kernel["kernel_name"].endswith(".kd"):
            yield f"kernel {kernel['kernel_id']} has the symbol {kernel['kernel_name']}"
        if kernel["truncated_kernel_name"] not in kernel["demangled_kernel_name"] or not kernel["truncated_kernel_name"]:
            yield f"kernel {kernel['kernel_id']} has the short name {kernel['truncated_kernel_name']}"
    for host in process["host_functions"]:
        kernel = process["kernel_symbols"][host["kernel_id"]]
        if host["kernel_id"] and host["device_function"] + ".kd" != kernel["kernel_name"]:
            yield f"host function {host['host_function_id']} is {kernel['kernel_name']}"
    for found in process["code_objects"]:
        if found["rocp_agent"]["handle"] not in agents:
            yield f"code object {found['code_object_id']} has an unknown agent"
        if found["storage_type"] == 2 and "memory_size" not in found:
            yield f"code object {found['code_object_id']} has no memory"


def summary(process: dict[str, Any]) -> Iterator[str]:
    """The sums must be those of the records."""
    texts = marker_texts(process)
    kernels = {kernel["kernel_id"]: kernel["formatted_kernel_name"] for kernel in process["kernel_symbols"][1:]}
    # Kernels that are named after ranges.
    renames = {entry["key"]: entry["value"] for entry in process["strings"]["correlation_id"]["external"]}
    expected: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for array, records in process["buffer_records"].items():
        for record in records:
            if "unfinished" in record["gputrace"] and array.endswith("_api"):
                continue
            _, operation = name(process, record)
            if array == "kernel_dispatch":
                unknown = f"(unknown kernel {record['gputrace']['kernel_object']:#x})"
                operation = kernels.get(record["dispatch_info"]["kernel_id"], unknown)
                operation = renames.get(record["correlation_id"]["external"], operation)
            elif array == "marker_api" and not operation.startswith(LABELLED):
                operation = texts.get(record["correlation_id"]["internal"], operation)
            took = record["end_timestamp"] - record["start_timestamp"]
            if array in ("kernel_dispatch", "memory_copy") and record["gputrace"]["duration"] != took:
                # A drawn span may be as long as possible, because its true length is unknown.
                if record["gputrace"]["duration"] is not None:
                    yield f"{operation} took {record['gputrace']['duration']} ns, and has a span of {took} ns"
                continue
            expected[DOMAINS[array]][operation].append(took)
    found = {entry["domain"]: entry["stats"] for entry in process["summary"]}
    if len(found) != len(process["summary"]):
        yield "the summary has a domain twice"
    for domain, names in expected.items():
        stats = found.get(domain, {"count": 0, "sum": 0, "operations": []})
        operations = {entry["key"]: entry["value"] for entry in stats["operations"]}
        sums = {key: (len(took), sum(took), min(took), max(took)) for key, took in names.items()}
        summed = {key: (one["count"], one["sum"], one["min"], one["max"]) for key, one in operations.items()}
        if sums != summed:
            yield f"the summary of {domain} has {summed}, its records {sums}"
        everything = [took for each in names.values() for took in each]
        if (stats["count"], stats["sum"]) != (len(everything), sum(everything)):
            yield f"the summary of {domain} does not add up: {stats['count']}, {stats['sum']}"
        for key, one in operations.items():
            if abs(one["mean"] - one["sum"] / one["count"]) > 1e-6 * one["mean"] + 1e-9:
                yield f"the mean of {key} is {one['mean']}"
    yield from (f"the summary of {domain} has no records" for domain in found.keys() & {*DOMAINS.values()} - expected.keys())


def problems(document: dict[str, Any], counts: Counter[str]) -> Iterator[str]:
    calls: set[int] = set()
    if list(document) != ["rocprofiler-sdk-tool"]:
        yield f"the document has {list(document)}"
    for process in document["rocprofiler-sdk-tool"]:
        pid = process.get("metadata", {}).get("pid")
        yield from (f"process {pid} has no {member}" for member in MEMBERS if member not in process)
        yield from (f"process {pid} has no {array}" for array in ARRAYS if array not in process["buffer_records"])
        agents = {agent["id"]["handle"] for agent in process["agents"]} | {NULL_AGENT}
        kernels = {kernel["kernel_id"] for kernel in process["kernel_symbols"]} | {0}
        objects = {found["code_object_id"] for found in process["code_objects"]}
        yield from (
            f"kernel {kernel['kernel_id']} is of no code object"
            for kernel in process["kernel_symbols"][1:]
            if len(objects) > 1 and kernel["code_object_id"] not in objects
        )
        texts = marker_texts(process)
        if len(texts) != len(process["strings"]["marker_api"]):
            yield f"process {pid} has markers with two texts"
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
                    # If its text could not be read, the call stays as it was, with its argument.
                    known = record["correlation_id"]["internal"] in texts or record["args"]
                    if array == "marker_api" and is_text(operation) and not known:
                        yield f"{what} has no text"
                elif array in ("memory_allocation", "scratch_memory"):
                    if array == "memory_allocation" and not ADDRESS.fullmatch(record["address"]):
                        yield f"{what} has the address {record['address']}"
                    frees = array == "memory_allocation" and operation.endswith("_FREE")
                    if record["agent_id"]["handle"] not in ({NULL_AGENT} if frees else agents):
                        yield f"{what} has an unknown agent {record['agent_id']}"
                else:
                    yield from work(record, what, agents, kernels, timed=True)
        yield from metadata(process, agents)
        yield from summary(process)
        own = process["gputrace"]
        counts["other_api"] += len(own["other_api"])
        for array, records in own["untimed"].items():
            counts[f"untimed {array}"] += len(records)
            for record in records:
                yield from work(record, f"untimed {array}", agents, kernels, timed=False)
    loss = document["rocprofiler-sdk-tool"][0]["gputrace"]["document"]["loss"]
    if loss and loss["complete"]:
        for row in loss["rows"]:
            counts["lost"] += row["lost"]
            if row["seen"] != row["written"] + row["unfinished"] + row["lost"]:
                yield f"the account does not balance: {row}"


def work(record: dict[str, Any], what: str, agents: set[int], kernels: set[int], timed: bool) -> Iterator[str]:
    notes = record["gputrace"]
    known = [value is not None for value in (record["start_timestamp"], record["end_timestamp"], notes["duration"])]
    if known != [timed] * 3:
        yield f"{what} of quality {notes['quality']} has times: {known}"
        return
    if timed and not notes["start_earliest"] <= record["start_timestamp"]:
        yield f"{what} begins before it can"
    if timed and notes["end_latest"] is not None and record["end_timestamp"] > notes["end_latest"]:
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
