-- The views that tools and people query. Names and columns are rocpd's, in its order.

CREATE VIEW code_objects AS
SELECT o.id, o.guid, o.nid, p.pid, a.absolute_index AS agent_abs_index, o.uri, o.load_base, o.load_size, o.load_delta,
       o.storage_type AS storage_type_str,
       json_extract(o.extdata, '$.size') AS code_object_size,
       json_extract(o.extdata, '$.storage_type') AS storage_type,
       json_extract(o.extdata, '$.memory_base') AS memory_base,
       json_extract(o.extdata, '$.memory_size') AS memory_size
FROM rocpd_info_code_object AS o
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (o.agent_id, o.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (o.pid, o.guid);

CREATE VIEW kernel_symbols AS
SELECT k.id, k.guid, k.nid, p.pid, k.code_object_id, k.kernel_name, k.display_name, k.kernel_object,
       k.kernarg_segment_size, k.kernarg_segment_alignment, k.group_segment_size, k.private_segment_size,
       k.sgpr_count, k.arch_vgpr_count, k.accum_vgpr_count,
       json_extract(k.extdata, '$.size') AS kernel_symbol_size,
       json_extract(k.extdata, '$.kernel_id') AS kernel_id,
       json_extract(k.extdata, '$.kernel_code_entry_byte_offset') AS kernel_code_entry_byte_offset,
       json_extract(k.extdata, '$.formatted_kernel_name') AS formatted_kernel_name,
       json_extract(k.extdata, '$.demangled_kernel_name') AS demangled_kernel_name,
       json_extract(k.extdata, '$.truncated_kernel_name') AS truncated_kernel_name,
       json_extract(k.extdata, '$.kernel_address.handle') AS kernel_address
FROM rocpd_info_kernel_symbol AS k
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (k.pid, k.guid);

CREATE VIEW processes AS
SELECT n.id AS nid, n.machine_id, n.system_name, n.hostname, n.release AS system_release, n.version AS system_version,
       p.guid, p.ppid, p.pid, p.init, p.start, p."end", p.fini, p.command
FROM rocpd_info_process AS p
JOIN rocpd_info_node AS n ON (n.id, n.guid) = (p.nid, p.guid);

CREATE VIEW threads AS
SELECT n.id AS nid, n.machine_id, n.system_name, n.hostname, n.release AS system_release, n.version AS system_version,
       p.guid, p.ppid, p.pid, t.tid, t.start, t."end", t.name
FROM rocpd_info_thread AS t
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (t.pid, t.guid)
JOIN rocpd_info_node AS n ON (n.id, n.guid) = (t.nid, t.guid);

CREATE VIEW regions AS
SELECT r.id, r.guid,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       s.string AS name, r.nid, p.pid, t.tid, r.start, r."end", r."end" - r.start AS duration, r.event_id,
       e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id, e.extdata, e.call_stack, e.line_info
FROM rocpd_region AS r
JOIN rocpd_event AS e ON (e.id, e.guid) = (r.event_id, r.guid)
JOIN rocpd_string AS s ON (s.id, s.guid) = (r.name_id, r.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (r.pid, r.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (r.tid, r.guid);

CREATE VIEW region_args AS
SELECT r.id, r.guid, r.nid, p.pid, a.type, a.name, a.value
FROM rocpd_region AS r
JOIN rocpd_event AS e ON (e.id, e.guid) = (r.event_id, r.guid)
JOIN rocpd_arg AS a ON (a.event_id, a.guid) = (e.id, r.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (r.pid, r.guid);

CREATE VIEW samples AS
SELECT m.id, m.guid,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (k.name_id, k.guid)) AS name,
       k.nid, p.pid, t.tid, m.timestamp, m.event_id,
       e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id, e.extdata, e.call_stack, e.line_info
FROM rocpd_sample AS m
JOIN rocpd_track AS k ON (k.id, k.guid) = (m.track_id, m.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (k.pid, k.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (k.tid, k.guid);

CREATE VIEW sample_regions AS
SELECT id, guid, category, name, nid, pid, tid, timestamp AS start, timestamp AS "end", 0 AS duration, event_id,
       stack_id, parent_stack_id, corr_id, extdata, call_stack, line_info
FROM samples;

CREATE VIEW regions_and_samples AS
SELECT * FROM regions
UNION ALL
SELECT * FROM sample_regions;

CREATE VIEW kernels AS
SELECT d.id, d.guid, t.tid,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       r.string AS region, k.display_name AS name, d.nid, p.pid,
       a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index, a.type_index AS agent_type_index,
       a.type AS agent_type, k.code_object_id, d.kernel_id, d.dispatch_id, d.stream_id, d.queue_id,
       d.graph_exec_id, d.graph_node_id, q.name AS queue, s.name AS stream, d.start, d."end", d."end" - d.start AS duration,
       d.grid_size_x AS grid_x, d.grid_size_y AS grid_y, d.grid_size_z AS grid_z,
       d.workgroup_size_x AS workgroup_x, d.workgroup_size_y AS workgroup_y, d.workgroup_size_z AS workgroup_z,
       d.group_segment_size AS lds_size, d.private_segment_size AS scratch_size,
       k.arch_vgpr_count AS vgpr_count, k.accum_vgpr_count, k.sgpr_count,
       k.group_segment_size AS static_lds_size, k.private_segment_size AS static_scratch_size,
       d.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_kernel_dispatch AS d
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (d.agent_id, d.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (d.event_id, d.guid)
JOIN rocpd_string AS r ON (r.id, r.guid) = (d.region_name_id, d.guid)
JOIN rocpd_info_kernel_symbol AS k ON (k.id, k.guid) = (d.kernel_id, d.guid)
JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (d.queue_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (q.pid, q.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (d.tid, d.guid)
LEFT JOIN rocpd_info_stream AS s ON (s.id, s.guid) = (d.stream_id, d.guid);

CREATE VIEW pmc_info AS
SELECT i.id, i.guid, i.nid, p.pid, a.absolute_index AS agent_abs_index, i.is_constant, i.is_derived, i.name,
       i.description, i.block, i.expression
FROM rocpd_info_pmc AS i
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (i.agent_id, i.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (i.pid, i.guid);

CREATE VIEW pmc_events AS
SELECT v.id, v.guid, v.pmc_id, e.id AS event_id,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       (SELECT k.display_name FROM rocpd_info_kernel_symbol AS k WHERE (k.id, k.guid) = (d.kernel_id, d.guid)) AS name,
       d.nid, p.pid, d.dispatch_id, d.start, d."end", d."end" - d.start AS duration,
       i.name AS counter_name, v.value AS counter_value
FROM rocpd_pmc_event AS v
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (v.event_id, v.guid)
JOIN rocpd_kernel_dispatch AS d ON (d.event_id, d.guid) = (v.event_id, v.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid);

CREATE VIEW events_args AS
SELECT e.id AS event_id,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       e.stack_id, e.parent_stack_id, e.correlation_id,
       a.position AS arg_position, a.type AS arg_type, a.name AS arg_name, a.value AS arg_value,
       e.call_stack, e.line_info, a.extdata
FROM rocpd_event AS e
JOIN rocpd_arg AS a ON (a.event_id, a.guid) = (e.id, e.guid);

CREATE VIEW stream_args AS
SELECT a.id AS argument_id, a.event_id, a.position AS arg_position, a.type AS arg_type, a.value AS arg_value,
       json_extract(a.extdata, '$.stream_id') AS stream_id, s.nid, p.pid, s.name AS stream_name, s.extdata
FROM rocpd_arg AS a
JOIN rocpd_info_stream AS s ON s.id = json_extract(a.extdata, '$.stream_id') AND s.guid = a.guid
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (s.pid, s.guid)
WHERE a.name = 'stream';

CREATE VIEW memory_copies AS
SELECT m.id, m.guid,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       m.nid, p.pid, t.tid, m.start, m."end", m."end" - m.start AS duration, n.string AS name, r.string AS region_name,
       m.stream_id, m.queue_id, m.graph_exec_id, m.graph_node_id, s.name AS stream_name, q.name AS queue_name, m.size,
       dst.name AS dst_device, dst.absolute_index AS dst_agent_abs_index, dst.logical_index AS dst_agent_log_index,
       dst.type_index AS dst_agent_type_index, dst.type AS dst_agent_type, m.dst_address,
       src.name AS src_device, src.absolute_index AS src_agent_abs_index, src.logical_index AS src_agent_log_index,
       src.type_index AS src_agent_type_index, src.type AS src_agent_type, m.src_address,
       e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_memory_copy AS m
JOIN rocpd_string AS n ON (n.id, n.guid) = (m.name_id, m.guid)
JOIN rocpd_info_agent AS dst ON (dst.id, dst.guid) = (m.dst_agent_id, m.guid)
JOIN rocpd_info_agent AS src ON (src.id, src.guid) = (m.src_agent_id, m.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (m.pid, m.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (m.tid, m.guid)
LEFT JOIN rocpd_string AS r ON (r.id, r.guid) = (m.region_name_id, m.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (m.queue_id, m.guid)
LEFT JOIN rocpd_info_stream AS s ON (s.id, s.guid) = (m.stream_id, m.guid);

CREATE VIEW graph_launches AS
SELECT g.id, g.guid, g.nid, p.pid, t.tid, g.agent_id, a.absolute_index AS agent_abs_index,
       a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type,
       g.queue_id, q.name AS queue, 'Graph Execution' AS name, g.start, g."end", g."end" - g.start AS duration,
       g.graph_exec_id, g.kernel_dispatch_count, g.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_graph_launch AS g
JOIN rocpd_event AS e ON (e.id, e.guid) = (g.event_id, g.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (g.pid, g.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (g.tid, g.guid)
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (g.agent_id, g.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (g.queue_id, g.guid);

CREATE VIEW hip_events AS
SELECT h.id, h.guid, h.nid, p.pid, t.tid, h.agent_id, a.absolute_index AS agent_abs_index,
       a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type,
       h.queue_id, h.source_queue_id, h.stream_id, h.hip_event_handle, n.string AS name,
       h.start, h."end", h."end" - h.start AS duration, h.event_id,
       e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_hip_event AS h
JOIN rocpd_string AS n ON (n.id, n.guid) = (h.name_id, h.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (h.event_id, h.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (h.pid, h.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (h.tid, h.guid)
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (h.agent_id, h.guid);

CREATE VIEW memory_allocations AS
SELECT m.id, m.guid,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       m.nid, p.pid, t.tid, m.start, m."end", m."end" - m.start AS duration, m.type, m.level,
       a.name AS agent_name, a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index,
       a.type_index AS agent_type_index, a.type AS agent_type, m.address, m.size,
       m.queue_id, q.name AS queue_name, m.stream_id, s.name AS stream_name,
       e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_memory_allocate AS m
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (m.pid, m.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (m.tid, m.guid)
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (m.agent_id, m.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (m.queue_id, m.guid)
LEFT JOIN rocpd_info_stream AS s ON (s.id, s.guid) = (m.stream_id, m.guid);

CREATE VIEW scratch_memory AS
SELECT m.id, m.guid, m.nid, p.pid, m.type AS operation, a.name AS agent_name,
       a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index, a.type_index AS agent_type_index,
       a.type AS agent_type, m.queue_id, t.tid, json_extract(m.extdata, '$.flags') AS alloc_flags,
       m.start, m."end", m."end" - m.start AS duration, m.size, m.address,
       e.correlation_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       e.extdata AS event_extdata
FROM rocpd_memory_allocate AS m
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (m.pid, m.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (m.tid, m.guid)
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (m.agent_id, m.guid)
WHERE m.level = 'SCRATCH'
ORDER BY m.start;

CREATE VIEW counters_collection AS
SELECT min(v.id) AS id, v.guid, d.dispatch_id, d.kernel_id, e.id AS event_id, e.correlation_id, e.stack_id,
       e.parent_stack_id, p.pid, t.tid, d.agent_id, a.absolute_index AS agent_abs_index,
       a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, d.queue_id,
       d.grid_size_x, d.grid_size_y, d.grid_size_z, d.grid_size_x * d.grid_size_y * d.grid_size_z AS grid_size,
       k.display_name AS kernel_name,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (d.region_name_id, d.guid)) AS kernel_region,
       d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
       d.workgroup_size_x * d.workgroup_size_y * d.workgroup_size_z AS workgroup_size,
       d.group_segment_size AS lds_block_size, d.private_segment_size AS scratch_size,
       k.arch_vgpr_count AS vgpr_count, k.accum_vgpr_count, k.sgpr_count,
       i.name AS counter_name, i.symbol AS counter_symbol, i.component, i.description, i.block, i.expression,
       i.value_type, i.id AS counter_id, sum(v.value) AS value, d.start, d."end", i.is_constant, i.is_derived,
       d."end" - d.start AS duration,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       d.nid, e.extdata, k.code_object_id
FROM rocpd_pmc_event AS v
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (v.event_id, v.guid)
JOIN rocpd_kernel_dispatch AS d ON (d.event_id, d.guid) = (v.event_id, v.guid)
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (d.agent_id, d.guid)
JOIN rocpd_info_kernel_symbol AS k ON (k.id, k.guid) = (d.kernel_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (d.tid, d.guid)
WHERE v.sample_id IS NULL
GROUP BY v.guid, d.dispatch_id, i.name, d.agent_id;

-- SPM: without rows.

CREATE VIEW spm_counters AS
SELECT v.id, v.guid, d.dispatch_id, d.kernel_id, e.id AS event_id, e.correlation_id, e.stack_id,
       e.parent_stack_id, p.pid, t.tid, d.agent_id, a.absolute_index AS agent_abs_index,
       a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, d.queue_id,
       d.grid_size_x, d.grid_size_y, d.grid_size_z, d.grid_size_x * d.grid_size_y * d.grid_size_z AS grid_size,
       k.display_name AS kernel_name,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (d.region_name_id, d.guid)) AS kernel_region,
       d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
       d.workgroup_size_x * d.workgroup_size_y * d.workgroup_size_z AS workgroup_size,
       d.group_segment_size AS lds_block_size, d.private_segment_size AS scratch_size,
       k.arch_vgpr_count AS vgpr_count, k.accum_vgpr_count, k.sgpr_count,
       i.name AS counter_name, i.symbol AS counter_symbol, i.component, i.description, i.block, i.expression,
       i.value_type, i.id AS counter_id, v.xcc, v.shader_engine, v.shader_array, v.wgp, v.instance, v.value, m.timestamp,
       i.is_constant, i.is_derived,
       (SELECT c.string FROM rocpd_string AS c WHERE (c.id, c.guid) = (e.category_id, e.guid)) AS category,
       d.nid, e.extdata, k.code_object_id
FROM rocpd_pmc_event AS v
JOIN rocpd_sample AS m ON (m.id, m.guid) = (v.sample_id, v.guid)
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (v.event_id, v.guid)
JOIN rocpd_kernel_dispatch AS d ON (d.event_id, d.guid) = (v.event_id, v.guid)
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (d.agent_id, d.guid)
JOIN rocpd_info_kernel_symbol AS k ON (k.id, k.guid) = (d.kernel_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (d.tid, d.guid);

-- Markers

CREATE VIEW range_markers AS
SELECT e.id, e.guid, c.string AS category, json_extract(e.extdata, '$.message') AS name, r.start, r."end",
       r."end" - r.start AS duration, e.stack_id, e.parent_stack_id, e.correlation_id, e.call_stack, e.line_info,
       r.pid, r.tid, r.nid, o.string AS operation
FROM rocpd_event AS e
JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_region AS r ON (r.event_id, r.guid) = (e.id, e.guid)
JOIN rocpd_string AS o ON (o.id, o.guid) = (r.name_id, r.guid)
WHERE c.string LIKE '%MARKER%' AND json_valid(e.extdata);

CREATE VIEW single_markers AS
SELECT e.id, e.guid, c.string AS category, json_extract(e.extdata, '$.message') AS name, m.timestamp,
       e.stack_id, e.parent_stack_id, e.correlation_id, e.call_stack, e.line_info, k.pid, k.tid, k.nid
FROM rocpd_event AS e
JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_sample AS m ON (m.event_id, m.guid) = (e.id, e.guid)
JOIN rocpd_track AS k ON (k.id, k.guid) = (m.track_id, m.guid)
WHERE c.string LIKE '%MARKER%';

CREATE VIEW markers AS
SELECT * FROM range_markers
UNION
SELECT id, guid, category, name, timestamp AS start, timestamp AS "end", 0 AS duration, stack_id, parent_stack_id,
       correlation_id, call_stack, line_info, pid, tid, nid, 'roctxMarkA' AS operation
FROM single_markers;

CREATE VIEW range_marker_summary AS
WITH each_name AS (
    SELECT name, count(*) AS calls, sum(duration) AS total, avg(duration) AS mean, min(duration) AS least,
           max(duration) AS most, avg(1.0 * duration * duration) AS mean_square
    FROM range_markers
    GROUP BY name
)
SELECT name, calls, total AS "DURATION (nsec)", mean AS "AVERAGE (nsec)",
       100.0 * total / (SELECT sum(total) FROM each_name) AS "PERCENT (INC)",
       least AS "MIN (nsec)", most AS "MAX (nsec)", sqrt(max(mean_square - mean * mean, 0)) AS "STD_DEV"
FROM each_name;

CREATE VIEW single_marker_summary AS
SELECT name, count(*) AS calls
FROM single_markers
GROUP BY name;

CREATE VIEW marker_summary AS
WITH each_marker AS (
    SELECT name, duration FROM range_markers
    UNION ALL
    SELECT name, 0 FROM single_markers
), each_name AS (
    SELECT name, count(*) AS calls, sum(duration) AS total, sum(1.0 * duration * duration) AS squares,
           avg(duration) AS mean, min(duration) AS least, max(duration) AS most
    FROM each_marker
    GROUP BY name
)
SELECT name, calls, total AS "DURATION (nsec)", squares AS "SQR (nsec)", mean AS "AVERAGE (nsec)",
       100.0 * total / nullif((SELECT sum(total) FROM each_name), 0) AS "PERCENT (INC)",
       least AS "MIN (nsec)", most AS "MAX (nsec)", max(squares / calls - mean * mean, 0) AS "VARIANCE",
       sqrt(max(squares / calls - mean * mean, 0)) AS "STD_DEV"
FROM each_name;

-- Summaries. Durations are µs. What took a time that is not known counts as a call, and not in times; errors are standard
-- errors. rocpd's own views have the columns up to percentage and Busy. Busy is the sum of durations as a part of the
-- time; BusyLeast and BusyMost are what that can be: two errors less and more. Busy and BusyMost are NULL where some took a
-- time that is not known.

CREATE VIEW top_kernels AS
WITH of_class AS (
    SELECT k.display_name AS name, count(*) AS calls, count(d.duration) AS known, sum(d.duration) AS total,
           sum(d.duration_error) AS error
    FROM gputrace_dispatch AS d
    JOIN rocpd_info_kernel_symbol AS k ON (k.id, k.guid) = (d.kernel_id, d.guid)
    GROUP BY k.display_name, d.guid, d.kernel_class
)
SELECT name, sum(calls) AS total_calls, sum(total) / 1000.0 AS total_duration,
       sum(total) / sum(known) / 1000.0 AS average,
       sum(total) * 100.0 / (SELECT sum(total) FROM of_class) AS percentage,
       sqrt(sum(1.0 * error * error)) / 1000.0 AS total_error,
       sqrt(sum(1.0 * error * error)) / sum(known) / 1000.0 AS average_error,
       sum(calls) - sum(known) AS unknown_calls
FROM of_class
GROUP BY name
ORDER BY total_duration DESC, total_calls DESC, name;

CREATE VIEW busy AS
WITH work AS (
    SELECT agent_id, guid, kernel_class, duration, duration_error FROM gputrace_dispatch
    UNION ALL
    SELECT dst_agent_id, guid, NULL, duration, duration_error FROM gputrace_copy
), of_class AS (
    SELECT agent_id, guid, sum(duration) AS total, sum(duration_error) AS error, count(*) - count(duration) AS unknown
    FROM work
    GROUP BY agent_id, guid, kernel_class
), of_agent AS (
    SELECT agent_id, guid, sum(total) AS GpuTime, sqrt(sum(1.0 * error * error)) AS GpuTimeError, sum(unknown) AS UnknownWork
    FROM of_class
    GROUP BY agent_id, guid
), wall AS (
    SELECT max("end") - min(start) AS WallTime
    FROM (SELECT start, "end" FROM rocpd_kernel_dispatch UNION ALL SELECT start, "end" FROM rocpd_memory_copy)
), partly AS (
    SELECT DISTINCT guid FROM gputrace_gpu_use WHERE missing
)
SELECT w.agent_id, a.type, w.GpuTime, wall.WallTime,
       CASE WHEN w.UnknownWork = 0 AND w.guid NOT IN partly
            THEN w.GpuTime * 1.0 / wall.WallTime END AS Busy,
       w.GpuTimeError, w.UnknownWork,
       max(ifnull(w.GpuTime, 0) - 2 * ifnull(w.GpuTimeError, 0), 0) * 1.0 / wall.WallTime AS BusyLeast,
       CASE WHEN w.UnknownWork = 0 AND w.guid NOT IN partly
            THEN (w.GpuTime + 2 * w.GpuTimeError) * 1.0 / wall.WallTime END AS BusyMost
FROM of_agent AS w
CROSS JOIN wall
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (w.agent_id, w.guid);

CREATE VIEW top AS
WITH operations AS (
    SELECT k.display_name AS name, d.guid, d.kernel_class, d.duration, d.duration_error
    FROM gputrace_dispatch AS d
    JOIN rocpd_info_kernel_symbol AS k ON (k.id, k.guid) = (d.kernel_id, d.guid)
    UNION ALL
    SELECT direction, guid, NULL, duration, duration_error FROM gputrace_copy
    UNION ALL
    SELECT s.string, r.guid, NULL, r."end" - r.start, 0
    FROM rocpd_region AS r
    JOIN rocpd_string AS s ON (s.id, s.guid) = (r.name_id, r.guid)
), of_class AS (
    SELECT name, count(*) AS calls, count(duration) AS known, sum(duration) AS total, sum(duration_error) AS error
    FROM operations
    GROUP BY name, guid, kernel_class
)
SELECT name, sum(calls) AS total_calls, sum(total) / 1000.0 AS total_duration,
       sum(total) / sum(known) / 1000.0 AS average,
       sum(total) * 100.0 / (SELECT sum(total) FROM of_class) AS percentage,
       sqrt(sum(1.0 * error * error)) / 1000.0 AS total_error,
       sqrt(sum(1.0 * error * error)) / sum(known) / 1000.0 AS average_error,
       sum(calls) - sum(known) AS unknown_calls
FROM of_class
GROUP BY name
ORDER BY total_duration DESC, total_calls DESC, name;

-- gputrace's own

CREATE VIEW gputrace_counter AS
SELECT m.id, m.guid, i.name, i.units AS unit, i.value_type, i.agent_id,
       json_extract(i.extdata, '$.gpu_id') AS gpu_id, json_extract(i.extdata, '$.pid') AS pid, m.timestamp, v.value
FROM rocpd_sample AS m
JOIN rocpd_pmc_event AS v ON (v.event_id, v.guid) = (m.event_id, m.guid)
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid);
