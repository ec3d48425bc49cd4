"""Reads a rocpd database with Python's sqlite3: every view must answer, with the columns that rocpd's tools use.

    rocpd_check.py DATABASE [--json]

Prints what is in it; exit status 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

# Columns that tools for rocpd, schema version 3.0.0, name in their queries.
COLUMNS = {
    "regions": "id guid category name nid pid tid start end duration event_id stack_id parent_stack_id corr_id extdata",
    "kernels": "id guid tid category region name nid pid agent_abs_index agent_log_index agent_type_index agent_type "
    "code_object_id kernel_id dispatch_id stream_id queue_id queue stream start end duration grid_x grid_y grid_z "
    "workgroup_x workgroup_y workgroup_z lds_size scratch_size vgpr_count accum_vgpr_count sgpr_count "
    "static_lds_size static_scratch_size stack_id parent_stack_id corr_id",
    "memory_copies": "id guid category nid pid tid start end duration name region_name stream_id queue_id stream_name "
    "queue_name size dst_device dst_agent_abs_index dst_agent_log_index dst_agent_type_index dst_agent_type "
    "dst_address src_device src_agent_abs_index src_agent_log_index src_agent_type_index src_agent_type src_address "
    "stack_id parent_stack_id corr_id",
    "processes": "nid machine_id system_name hostname system_release system_version guid ppid pid init start end fini "
    "command",
    "threads": "nid machine_id system_name hostname system_release system_version guid ppid pid tid start end name",
    "code_objects": "id guid nid pid agent_abs_index uri load_base load_size load_delta",
    "kernel_symbols": "id guid nid pid code_object_id kernel_name display_name kernel_object kernarg_segment_size "
    "kernarg_segment_alignment group_segment_size private_segment_size sgpr_count arch_vgpr_count accum_vgpr_count",
    "region_args": "id guid nid pid type name value",
    "events_args": "event_id category stack_id parent_stack_id correlation_id arg_position arg_type arg_name arg_value",
    "stream_args": "argument_id event_id arg_position arg_type arg_value stream_id nid pid stream_name",
    "samples": "id guid category name nid pid tid timestamp event_id",
    "sample_regions": "id guid category name nid pid tid start end duration event_id",
    "regions_and_samples": "id guid category name nid pid tid start end duration event_id",
    "pmc_info": "id guid nid pid agent_abs_index name",
    "pmc_events": "id guid pmc_id event_id category name dispatch_id start end duration counter_name counter_value",
    "counters_collection": "id guid dispatch_id kernel_id counter_name value start end",
    "memory_allocations": "id guid category nid pid tid start end duration type level address size",
    "scratch_memory": "id guid nid pid operation queue_id tid alloc_flags start end duration size address",
    "range_markers": "id guid category name start end duration",
    "single_markers": "id guid category name timestamp",
    "markers": "id guid category name start end duration operation",
    "range_marker_summary": "name calls",
    "single_marker_summary": "name calls",
    "marker_summary": "name calls",
    "top_kernels": "name total_calls total_duration average percentage total_error average_error unknown_calls",
    "busy": "agent_id type GpuTime WallTime Busy GpuTimeError UnknownWork",
    "top": "name total_calls total_duration average percentage total_error average_error unknown_calls",
}

# What the versions of the schema add: to the views, and to the tables that each version's own views read. Of 3.0.4, only
# some names of columns are known, and of 3.0.5 only those of two (ROCm/rocm-systems, versions.yml and the tests).
AGENT = "agent_id agent_abs_index agent_log_index agent_type_index agent_type"
STACK = "event_id stack_id parent_stack_id corr_id"
ADDED = {
    "3.0.0": {
        "rocpd_kernel_dispatch": "id guid nid pid tid agent_id kernel_id dispatch_id queue_id stream_id start end "
        "private_segment_size group_segment_size workgroup_size_x workgroup_size_y workgroup_size_z grid_size_x "
        "grid_size_y grid_size_z region_name_id event_id extdata",
        "rocpd_memory_copy": "id guid nid pid tid start end name_id dst_agent_id dst_address src_agent_id src_address "
        "size queue_id stream_id region_name_id event_id extdata",
        "rocpd_memory_allocate": "id guid nid pid tid agent_id type level start end address size queue_id stream_id "
        "event_id extdata",
        "rocpd_event": "id guid category_id stack_id parent_stack_id correlation_id call_stack line_info extdata",
        "rocpd_region": "id guid nid pid tid start end name_id event_id extdata",
        "rocpd_sample": "id guid track_id timestamp event_id extdata",
        "rocpd_track": "id guid nid pid tid name_id extdata",
        "rocpd_arg": "id guid event_id position type name value extdata",
        "rocpd_pmc_event": "id guid event_id pmc_id value extdata",
        "rocpd_info_pmc": "id guid nid pid agent_id target_arch event_code instance_id name symbol description "
        "long_description component units value_type block expression is_constant is_derived extdata",
        "rocpd_info_agent": "id guid nid pid type absolute_index logical_index type_index uuid name model_name "
        "vendor_name product_name user_name extdata",
        "rocpd_info_code_object": "id guid nid pid agent_id uri load_base load_size load_delta storage_type extdata",
        "rocpd_info_kernel_symbol": "id guid nid pid code_object_id kernel_name display_name kernel_object "
        "kernarg_segment_size kernarg_segment_alignment group_segment_size private_segment_size sgpr_count "
        "arch_vgpr_count accum_vgpr_count extdata",
        "rocpd_info_process": "id guid nid ppid pid init fini start end command environment extdata",
        "rocpd_info_thread": "id guid nid ppid pid tid name start end extdata",
        "rocpd_info_queue": "id guid nid pid name extdata",
        "rocpd_info_stream": "id guid nid pid name extdata",
        "rocpd_info_node": "id guid hash machine_id system_name hostname release version hardware_name domain_name",
        "rocpd_string": "id guid string",
        "rocpd_metadata": "id tag value",
    },
    "3.0.1": {},
    "3.0.2": {
        "rocpd_kernel_dispatch": "graph_exec_id graph_node_id",
        "rocpd_memory_copy": "graph_exec_id graph_node_id",
        "rocpd_graph_launch": "id guid nid pid tid agent_id queue_id start end graph_exec_id kernel_dispatch_count "
        "event_id extdata",
        "kernels": "graph_exec_id graph_node_id",
        "memory_copies": "graph_exec_id graph_node_id",
        "graph_launches": f"id guid nid pid tid {AGENT} queue_id queue name start end duration graph_exec_id "
        f"kernel_dispatch_count {STACK}",
    },
    "3.0.3": {
        "rocpd_pmc_event": "sample_id xcc shader_engine instance",
        "rocpd_info_pmc": "spm_support",
        "kernels": "event_id",
        "spm_counters": f"id guid dispatch_id kernel_id correlation_id event_id stack_id parent_stack_id pid tid {AGENT} "
        "queue_id grid_size kernel_name kernel_region workgroup_size counter_name counter_id xcc shader_engine instance "
        "value timestamp category nid extdata code_object_id",
    },
    "3.0.4": {
        "rocpd_hip_event": "id guid nid pid tid agent_id queue_id source_queue_id stream_id start end event_id extdata",
        "hip_events": "id guid pid tid agent_id queue_id source_queue_id stream_id name start end duration event_id",
    },
    "3.0.5": {"rocpd_pmc_event": "shader_array wgp"},
}


def lacking(database: sqlite3.Connection) -> Iterator[str]:
    """Each version's statements find what they name."""
    for version, added in (("3.0.0", COLUMNS), *ADDED.items()):
        for name, columns in added.items():
            # In double quotes, SQLite would take an unknown column for a text.
            listed = ", ".join(f"[{column}]" for column in columns.split())
            try:
                database.execute(f"SELECT {listed} FROM [{name}] LIMIT 0")
            except sqlite3.OperationalError as error:
                yield f"a statement of version {version} on {name} fails: {error}"


def problems(database: sqlite3.Connection, counts: dict[str, int]) -> Iterator[str]:
    for (verdict,) in database.execute("PRAGMA integrity_check"):
        if verdict != "ok":
            yield f"integrity: {verdict}"
    for table, row, parent, _ in database.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to nothing in {parent}"
    (journal,) = database.execute("PRAGMA journal_mode").fetchone()
    if journal == "wal":
        yield "the database still has a write-ahead log"
    names = dict(database.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
    tags = dict(database.execute("SELECT tag, value FROM rocpd_metadata"))
    version = tags.get("schema_version", "")
    parts = [tags.get(f"schema_version_{part}") for part in ("major", "minor", "patch")]
    if version not in ADDED or version.split(".") != parts:
        yield f"schema version {version!r} of {parts}"
    for name, kind in names.items():
        if kind == "table" and not name.startswith("sqlite_") and not name.endswith(tags["uuid"]):
            yield f"table {name} has not the suffix {tags['uuid']}"
        if kind == "view":
            counts[name] = len(database.execute(f'SELECT * FROM "{name}"').fetchall())
    yield from lacking(database)
    # Nobody sees a row that an inner join leaves out.
    for view, table in (
        ("regions", "rocpd_region"),
        ("kernels", "rocpd_kernel_dispatch"),
        ("memory_copies", "rocpd_memory_copy"),
        ("graph_launches", "rocpd_graph_launch"),
        ("region_args", "rocpd_arg"),
        ("threads", "rocpd_info_thread"),
        ("processes", "rocpd_info_process"),
        ("code_objects", "rocpd_info_code_object"),
        ("kernel_symbols", "rocpd_info_kernel_symbol"),
    ):
        if counts.get(view) != counts.get(table):
            yield f"{counts.get(table)} rows in {table}, but {counts.get(view)} in the view {view}"
    yield from quality(database, tags["guid"])


def quality(database: sqlite3.Connection, guid: str) -> Iterator[str]:
    """Rows with times are the well-known part of gputrace's own tables."""
    for own, shown in (("gputrace_dispatch", "rocpd_kernel_dispatch"), ("gputrace_copy", "rocpd_memory_copy")):
        for row in database.execute(
            f"SELECT o.id FROM {own} AS o LEFT JOIN {shown} AS s USING (id)"
            " WHERE (o.duration IS NOT NULL) != (s.id IS NOT NULL)"
            ' OR s.id IS NOT NULL AND (o.start, o."end", o.event_id) != (s.start, s."end", s.event_id)'
            " OR s.id IS NOT NULL AND json_extract(s.extdata, '$.quality') != o.quality"
        ):
            yield f"{own} {row[0]} and {shown} disagree"
        for row in database.execute(
            f'SELECT id FROM {own} WHERE start > "end" OR start < start_earliest OR "end" > end_latest'
            ' OR duration != "end" - start OR (duration IS NULL) != (duration_error IS NULL)'
            ' OR (duration IS NULL) != (start IS NULL) OR (duration IS NULL) != ("end" IS NULL)'
            " OR (quality = 'exact' AND NOT unfinished) > (duration IS NOT NULL)"
        ):
            yield f"{own} {row[0]} is outside its windows"
        for row in database.execute(f"SELECT count(*) FROM {own} WHERE guid != ?", (guid,)):
            if row[0]:
                yield f"{row[0]} rows of {own} have another guid"
    for domain, seen in database.execute(
        "SELECT domain, seen FROM gputrace_loss WHERE complete AND seen != written + unfinished + lost"
    ):
        yield f"the account of {domain} does not balance: {seen} seen"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("--json", action="store_true", help="print the number of rows of each view as JSON")
    options = parser.parse_args()
    database = sqlite3.connect(f"{options.database.resolve().as_uri()}?mode=ro", uri=True)
    counts: dict[str, int] = {}
    found = list(problems(database, counts))
    for problem in found:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(counts))
    else:
        for name, count in sorted(counts.items()):
            print(f"{count:10} {name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
