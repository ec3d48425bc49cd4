-- Which work launches of graphs submitted, and its place among the work of its launch.
CREATE TEMP TABLE graph_work AS
SELECT w.kind, w.id, g.graph_exec_id AS exec,
       row_number() OVER (PARTITION BY g.id ORDER BY w.submit, w.kind, w.id) - 1 AS node
FROM (
    SELECT 1 AS kind, id, submit, caller_stack_id FROM gputrace_dispatch{uuid}
    UNION ALL
    SELECT 2, id, submit, caller_stack_id FROM gputrace_copy{uuid}
) AS w
JOIN rocpd_graph_launch{uuid} AS g ON g.id = w.caller_stack_id;

UPDATE gputrace_dispatch{uuid} AS d SET graph_exec_id = w.exec, graph_node_id = w.node
FROM graph_work AS w WHERE w.kind = 1 AND w.id = d.id;

UPDATE rocpd_kernel_dispatch{uuid} AS d SET graph_exec_id = w.exec, graph_node_id = w.node
FROM graph_work AS w WHERE w.kind = 1 AND w.id = d.id;

UPDATE gputrace_copy{uuid} AS m SET graph_exec_id = w.exec, graph_node_id = w.node
FROM graph_work AS w WHERE w.kind = 2 AND w.id = m.id;

UPDATE rocpd_memory_copy{uuid} AS m SET graph_exec_id = w.exec, graph_node_id = w.node
FROM graph_work AS w WHERE w.kind = 2 AND w.id = m.id;

UPDATE rocpd_graph_launch{uuid} AS g SET kernel_dispatch_count = w.count, agent_id = w.agent
FROM (
    SELECT caller_stack_id, count(*) AS count,
           CASE WHEN min(agent_id) = max(agent_id) AND min(agent_id) >= 0 THEN min(agent_id) END AS agent
    FROM gputrace_dispatch{uuid}
    WHERE graph_exec_id > 0
    GROUP BY caller_stack_id
) AS w
WHERE w.caller_stack_id = g.id;

DROP TABLE graph_work;
