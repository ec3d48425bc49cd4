#!/usr/bin/env python3
"""Counts the spans in all outputs of one recording, each by a reader of its own, and compares the counts.

Every format that is there is read; the other scripts here check each for itself. Kernels and copies count by
whether they are drawn, because how long they took is known; calls by the file or category in which rocprofv3 would
have them. The formats that number streams must give each kernel and copy the same number. Exit status 1 if two
formats differ, 2 if there is nothing to compare.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
# Files of calls that rocprofv3 does not have; JSON has them in one array.
OTHERS = ("kfd_ioctl", "library_api", "function", "external_correlation_api", "unknown_api")
CALLS = ("hip_api", "hsa_api", "marker_api", "rccl_api", "rocdecode_api", "rocjpeg_api", "rocshmem_api", "hipfile_api",
         "other_api")
WORK = ("kernel_dispatch", "memory_copy")
MEMORY = ("memory_allocation", "scratch_memory")
# The kinds that are compared. Formats may contain more, such as driver events, each in its own way.
KINDS = {*CALLS, *WORK, *MEMORY, *(f"untimed {kind}" for kind in WORK), "untimed"}
# rocpd and Perfetto name domains; CSV and OTF2 name the files that contain them.
PREFIXES = {"HIP": "hip_api", "HSA": "hsa_api", "MARKER": "marker_api", "RCCL": "rccl_api", "ROCDECODE": "rocdecode_api",
            "ROCJPEG": "rocjpeg_api", "ROCSHMEM": "rocshmem_api", "HIPFILE": "hipfile_api"}


def group(domain: str) -> str:
    """The file in which a domain's calls stand."""
    return PREFIXES.get(domain.split("_")[0], "other_api")


def other_script(script: str, path: Path, python: str = sys.executable) -> dict[str, object] | None:
    """What another script here counts; None if it cannot run here."""
    done = subprocess.run([python, HERE / script, path, "--json"], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        print(f"left out: {script}: {done.stderr.strip()}", file=sys.stderr)
        return None
    if done.returncode != 0:
        raise SystemExit(f"{script} {path}:\n{done.stderr or done.stdout}")
    return json.loads(done.stdout)


# For each kernel (by its dispatch id) and each copy (by its times), the number of its stream.
Streams = Counter[tuple[str, object, int]]


def streams_of_csv(directory: Path, name: str) -> Streams | None:
    streams: Streams = Counter()
    found = False
    for kind, key in (("kernel", "Dispatch_Id"), ("memory_copy", None)):
        path = directory / f"{name}_{kind}_trace.csv"
        if path.exists():
            found = True
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    what = int(row[key]) if key else (int(row["Start_Timestamp"]), int(row["End_Timestamp"]))
                    streams[kind, what, int(row["Stream_Id"])] += 1
    return streams if found else None


def streams_of_json(path: Path) -> Streams:
    streams: Streams = Counter()
    with path.open(encoding="utf-8") as file:
        document = json.load(file)
    for process in document["rocprofiler-sdk-tool"]:
        records = process["buffer_records"]
        for record in records["kernel_dispatch"]:
            streams["kernel", record["dispatch_info"]["dispatch_id"], record["stream_id"]["handle"]] += 1
        for record in records["memory_copy"]:
            times = record["start_timestamp"], record["end_timestamp"]
            streams["memory_copy", times, record["stream_id"]["handle"]] += 1
    return streams


def streams_of_rocpd(path: Path) -> Streams:
    import sqlite3

    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    streams: Streams = Counter()
    for dispatch, stream in database.execute("SELECT dispatch_id, stream_id FROM kernels"):
        streams["kernel", dispatch, stream] += 1
    for start, end, stream in database.execute('SELECT start, "end", stream_id FROM memory_copies'):
        streams["memory_copy", (start, end), stream] += 1
    return streams


def kernel_time_of_rocpd(path: Path) -> int:
    import sqlite3

    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    (time,) = database.execute("SELECT coalesce(sum(duration), 0) FROM kernels").fetchone()
    return time


def of_csv(directory: Path, name: str) -> Counter[str] | None:
    counts: Counter[str] = Counter()
    found = False
    for kind in (*CALLS, *OTHERS, *MEMORY):
        path = directory / f"{name}_{kind}_trace.csv"
        if path.exists():
            found = True
            with path.open(newline="") as file:
                counts["other_api" if kind in OTHERS else kind] += sum(1 for _ in csv.DictReader(file))
    for kind, key in (("kernel", "kernel_dispatch"), ("memory_copy", "memory_copy")):
        path = directory / f"{name}_{kind}_trace_quality.csv"
        if path.exists():
            found = True
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    counts[key if row["Start_Timestamp"] else f"untimed {key}"] += 1
    return counts if found else None


def of_ndjson(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    with path.open() as file:
        for line in file:
            event = json.loads(line)
            match event["type"]:
                case "call":
                    counts[group(event["domain"])] += 1
                case "dispatch" | "copy":
                    key = "kernel_dispatch" if event["type"] == "dispatch" else "memory_copy"
                    counts[key if event["duration"] is not None else f"untimed {key}"] += 1
                case "observation" if event["domain"].lower() in MEMORY:
                    counts[event["domain"].lower()] += 1
    return counts


def of_pftrace(path: Path) -> Counter[str]:
    found = other_script("perfetto_check.py", path) or {}
    counts: Counter[str] = Counter()
    for domain, count in found["domains"].items():
        counts[group(domain)] += count
    for kind in MEMORY:
        counts[kind] = found["observed"].get(kind, 0)
    for what, count in found.get("gpu", {}).items():
        if what.removeprefix("untimed ") in WORK:
            counts[what] += count
    return counts


def of_rocpd(path: Path) -> Counter[str]:
    import sqlite3

    other_script("rocpd_check.py", path)
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    counts: Counter[str] = Counter()
    for category, count in database.execute("SELECT category, count(*) FROM regions GROUP BY category"):
        counts[group(category)] += count
    for view, table, key in (("kernels", "gputrace_dispatch", "kernel_dispatch"), ("memory_copies", "gputrace_copy", "memory_copy")):
        (timed,) = database.execute(f"SELECT count(*) FROM {view}").fetchone()
        (every,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        counts[key] = timed
        counts[f"untimed {key}"] = every - timed
    # The first view includes the rows of the second one.
    for view, key in (("memory_allocations WHERE level <> 'SCRATCH'", "memory_allocation"), ("scratch_memory", "scratch_memory")):
        (counts[key],) = database.execute(f"SELECT count(*) FROM {view}").fetchone()
    return counts


def of_json(path: Path) -> Counter[str]:
    found = other_script("json_check.py", path) or {}
    keys = (*CALLS, *MEMORY, "kernel_dispatch", "memory_copy", "untimed kernel_dispatch", "untimed memory_copy")
    return Counter({key: found.get(key, 0) for key in keys})


def of_parquet(prefix: Path) -> tuple[Counter[str], Streams, int] | None:
    found = other_script("parquet_check.py", prefix)
    if found is None:
        return None
    counts: Counter[str] = Counter()
    for category, count in found["calls"].items():
        counts[group(category)] += count
    for table, key in (("kernels", "kernel_dispatch"), ("copies", "memory_copy")):
        timed, every = found[table]
        counts[key] = timed
        counts[f"untimed {key}"] = every - timed
    for category, count in found["events"].items():
        if category.lower() in MEMORY:
            counts[category.lower()] += count
    streams = ((kind, tuple(what) if isinstance(what, list) else what, stream) for kind, what, stream in found["streams"])
    return counts, Counter(streams), found["kernel_ns"]


def of_otf2(path: Path) -> Counter[str] | None:
    # The module is installed for the system's Python.
    found = other_script("otf2_check.py", path, "/usr/bin/python3")
    if found is None:
        return None
    counts = Counter(found)
    counts["other_api"] += sum(counts.pop(kind, 0) for kind in OTHERS)
    counts["marker_api"] += counts.pop("mark", 0)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("name", help="first part of the files' names")
    arguments = parser.parse_args()
    directory, name = arguments.directory, arguments.name
    found = {"csv": of_csv(directory, name)}
    readers = {"ndjson": of_ndjson, "pftrace": of_pftrace, "db": of_rocpd, "json": of_json, "otf2": of_otf2}
    for extension, read in readers.items():
        path = directory / f"{name}_results.{extension}"
        if path.exists():
            found[extension] = read(path)
    parquet = of_parquet(directory / name) if (directory / f"{name}_calls.parquet").exists() else None
    if parquet is not None:
        found["parquet"] = parquet[0]
    formats = {extension: counts for extension, counts in found.items() if counts is not None}
    if len(formats) < 2:
        print("there are no two formats to compare", file=sys.stderr)
        return 2
    # For work without times, OTF2 only tells how much there is.
    for counts in formats.values():
        counts.setdefault("untimed", counts["untimed kernel_dispatch"] + counts["untimed memory_copy"])
    kinds = sorted({kind for counts in formats.values() for kind, count in counts.items() if count and kind in KINDS})
    wrong = 0
    for kind in kinds:
        counts = {
            extension: counts[kind]
            for extension, counts in formats.items()
            if not (extension == "otf2" and kind.startswith("untimed "))
        }
        if len(set(counts.values())) > 1:
            wrong += 1
            print(f"{kind}: {counts}", file=sys.stderr)
    streams = {"csv": streams_of_csv(directory, name)}
    for extension, read_streams in (("json", streams_of_json), ("db", streams_of_rocpd)):
        path = directory / f"{name}_results.{extension}"
        streams[extension] = read_streams(path) if path.exists() else None
    streams["parquet"] = parquet[1] if parquet is not None else None
    known = {extension: found for extension, found in streams.items() if found is not None}
    first = next(iter(known), None)
    for extension, found in known.items():
        if found != known[first]:
            wrong += 1
            differ = sorted(map(str, (found - known[first]) + (known[first] - found)))
            print(f"streams differ in {first} and {extension}: {differ[:10]}", file=sys.stderr)
    database = directory / f"{name}_results.db"
    if parquet is not None and database.exists() and (time := kernel_time_of_rocpd(database)) != parquet[2]:
        wrong += 1
        print(f"kernels took {time} ns in db, {parquet[2]} ns in parquet", file=sys.stderr)
    numbers = sorted({stream for _, _, stream in known[first]}) if known else []
    spans = next(iter(formats.values()))
    counted = {kind: spans[kind] for kind in kinds}
    print(json.dumps({"formats": list(formats), **counted, "streams of": list(known), "streams": numbers}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
