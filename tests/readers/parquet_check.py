#!/usr/bin/env python3
"""Reads gputrace's Parquet files with Apache Arrow: columns and their types, the account of losses, spans by kind.

    parquet_check.py PREFIX [--json]

PREFIX is the path up to `_calls.parquet`. Prints what is in the files; exit status 1 if a rule is broken, 77 without
pyarrow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

try:
    import pyarrow as arrow
    import pyarrow.parquet as parquet
except ImportError as error:
    print(f"pyarrow is missing: {error}", file=sys.stderr)
    sys.exit(77)

NUMBER, SIGNED, TEXT, FLAG = arrow.uint64(), arrow.int64(), arrow.string(), arrow.bool_()
# Columns that scripts name in their queries. There are more.
COLUMNS = {
    "calls": {"category": TEXT, "name": TEXT, "pid": NUMBER, "tid": NUMBER, "start": NUMBER, "end": NUMBER,
              "duration": NUMBER, "stack_id": NUMBER, "parent_stack_id": NUMBER, "corr_id": NUMBER, "args": TEXT,
              "result": TEXT, "unfinished": TEXT},
    "kernels": {"name": TEXT, "pid": NUMBER, "tid": NUMBER, "agent_abs_index": NUMBER, "dispatch_id": NUMBER,
                "stream_id": NUMBER, "queue_id": NUMBER, "start": NUMBER, "end": NUMBER, "duration": NUMBER,
                "grid_x": NUMBER, "workgroup_x": NUMBER, "quality": TEXT, "unfinished": FLAG,
                "start_latest": NUMBER, "end_latest": NUMBER, "estimate_error": NUMBER},
    "copies": {"name": TEXT, "size": NUMBER, "start": NUMBER, "end": NUMBER, "duration": NUMBER, "quality": TEXT,
               "dst_agent_abs_index": NUMBER, "src_agent_abs_index": NUMBER, "stream_id": NUMBER},
    "events": {"category": TEXT, "name": TEXT, "pid": NUMBER, "start": NUMBER, "end": NUMBER, "fields": TEXT},
    "losses": {"domain": TEXT, "seen": NUMBER, "written": NUMBER, "unfinished": NUMBER, "lost": NUMBER,
               "unaccounted": SIGNED, "complete": FLAG},
}


def check(prefix: str) -> dict[str, object]:
    """What is in the files; raises ValueError if a rule is broken."""
    tables = {}
    for name, columns in COLUMNS.items():
        table = tables[name] = parquet.read_table(f"{prefix}_{name}.parquet")
        for column, kind in columns.items():
            if table.schema.field(column).type != kind:
                raise ValueError(f"{name}.{column} is {table.schema.field(column).type}, not {kind}")
    for row in tables["losses"].to_pylist():
        dropped = sum(count for column, count in row.items() if column.startswith("dropped_"))
        if row["lost"] != dropped or row["seen"] != row["written"] + row["unfinished"] + dropped + row["unaccounted"]:
            raise ValueError(f"the account does not balance: {row}")
        if row["complete"] and row["unaccounted"] != 0:
            raise ValueError(f"what was seen is neither written nor lost: {row}")
    for name in ("calls", "kernels", "copies", "events"):
        for row in tables[name].select(["start", "end", "duration"]).to_pylist():
            if len({value is None for value in row.values()}) > 1:
                raise ValueError(f"{name}: only a part of the times is known: {row}")
            if row["start"] is not None and row["end"] < row["start"]:
                raise ValueError(f"{name}: a span ends before it begins: {row}")
    streams = [["kernel", row["dispatch_id"], row["stream_id"]] for row in timed(tables["kernels"])]
    streams += [["memory_copy", [row["start"], row["end"]], row["stream_id"]] for row in timed(tables["copies"])]
    return {
        "calls": Counter(tables["calls"]["category"].to_pylist()),
        "kernels": [len(timed(tables["kernels"])), tables["kernels"].num_rows],
        "copies": [len(timed(tables["copies"])), tables["copies"].num_rows],
        "events": Counter(tables["events"]["category"].to_pylist()),
        "losses": tables["losses"].num_rows,
        "kernel_ns": sum(row["end"] - row["start"] for row in timed(tables["kernels"])),
        "streams": streams,
    }


def timed(table: arrow.Table) -> list[dict[str, object]]:
    """The rows whose times are known."""
    return [row for row in table.to_pylist() if row["duration"] is not None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--json", action="store_true", help="print for programs")
    arguments = parser.parse_args()
    try:
        found = check(str(arguments.prefix))
    except (ValueError, KeyError, OSError, arrow.ArrowException) as error:
        print(f"{arguments.prefix}: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(found))
    else:
        del found["streams"]
        for name, count in found.items():
            print(f"{name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
