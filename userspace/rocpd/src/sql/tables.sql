-- The tables of rocpd, schema version 3.0.3, and what is known of later ones. {uuid} is the suffix of every name, {guid} what
-- identifies the recording.

CREATE TABLE rocpd_metadata{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    tag TEXT NOT NULL,
    value TEXT NOT NULL
);

CREATE TABLE rocpd_string{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    string TEXT NOT NULL UNIQUE
);

CREATE TABLE rocpd_info_node{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    hash BIGINT NOT NULL UNIQUE,
    machine_id TEXT NOT NULL UNIQUE,
    system_name TEXT,
    hostname TEXT,
    release TEXT,
    version TEXT,
    hardware_name TEXT,
    domain_name TEXT
);

CREATE TABLE rocpd_info_process{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    ppid INTEGER,
    pid INTEGER NOT NULL,
    init BIGINT,
    fini BIGINT,
    start BIGINT,
    "end" BIGINT,
    command TEXT,
    environment JSONB NOT NULL DEFAULT '{}',
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_thread{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    ppid INTEGER,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER NOT NULL,
    name TEXT,
    start BIGINT,
    "end" BIGINT,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_agent{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    type TEXT CHECK (type IN ('CPU', 'GPU', 'NIC')),
    absolute_index INTEGER,
    logical_index INTEGER,
    type_index INTEGER,
    uuid INTEGER,
    name TEXT,
    model_name TEXT,
    vendor_name TEXT,
    product_name TEXT,
    user_name TEXT,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_queue{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    name TEXT,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_stream{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    name TEXT,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_pmc{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    target_arch TEXT CHECK (target_arch IN ('CPU', 'GPU', 'NIC')),
    event_code INT,
    instance_id INTEGER,
    name TEXT NOT NULL,
    symbol TEXT NOT NULL,
    description TEXT,
    long_description TEXT DEFAULT '',
    component TEXT,
    units TEXT DEFAULT '',
    value_type TEXT CHECK (value_type IN ('ABS', 'ACCUM', 'RELATIVE')),
    block TEXT,
    expression TEXT,
    is_constant INTEGER,
    is_derived INTEGER,
    spm_support INTEGER,                        -- from 3.0.3
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_code_object{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    uri TEXT,
    load_base BIGINT,
    load_size BIGINT,
    load_delta BIGINT,
    storage_type TEXT CHECK (storage_type IN ('FILE', 'MEMORY')),
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_info_kernel_symbol{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    code_object_id INTEGER NOT NULL REFERENCES rocpd_info_code_object{uuid} (id) ON UPDATE CASCADE,
    kernel_name TEXT,
    display_name TEXT,
    kernel_object INTEGER,
    kernarg_segment_size INTEGER,
    kernarg_segment_alignment INTEGER,
    group_segment_size INTEGER,
    private_segment_size INTEGER,
    sgpr_count INTEGER,
    arch_vgpr_count INTEGER,
    accum_vgpr_count INTEGER,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_track{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    name_id INTEGER REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_event{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    category_id INTEGER REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    stack_id INTEGER,
    parent_stack_id INTEGER,
    correlation_id INTEGER,
    call_stack JSONB NOT NULL DEFAULT '{}',
    line_info JSONB NOT NULL DEFAULT '{}',
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_arg{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    event_id INTEGER NOT NULL REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    position INTEGER NOT NULL,
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_pmc_event{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    sample_id INTEGER REFERENCES rocpd_sample{uuid} (id) ON UPDATE CASCADE, -- this and the others without values: of SPM
    pmc_id INTEGER NOT NULL REFERENCES rocpd_info_pmc{uuid} (id) ON UPDATE CASCADE,
    value REAL DEFAULT 0.0,
    xcc INTEGER,
    shader_engine INTEGER,
    shader_array INTEGER,                       -- from 3.0.5, as wgp
    wgp INTEGER,
    instance INTEGER,
    extdata JSONB DEFAULT '{}'
);

CREATE TABLE rocpd_region{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER NOT NULL REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    name_id INTEGER NOT NULL REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_sample{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    track_id INTEGER NOT NULL REFERENCES rocpd_track{uuid} (id) ON UPDATE CASCADE,
    timestamp BIGINT NOT NULL,
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_kernel_dispatch{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    agent_id INTEGER NOT NULL REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    kernel_id INTEGER NOT NULL REFERENCES rocpd_info_kernel_symbol{uuid} (id) ON UPDATE CASCADE,
    dispatch_id INTEGER NOT NULL,
    queue_id INTEGER NOT NULL REFERENCES rocpd_info_queue{uuid} (id) ON UPDATE CASCADE,
    stream_id INTEGER NOT NULL REFERENCES rocpd_info_stream{uuid} (id) ON UPDATE CASCADE,
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    private_segment_size INTEGER,
    group_segment_size INTEGER,
    workgroup_size_x INTEGER NOT NULL,
    workgroup_size_y INTEGER NOT NULL,
    workgroup_size_z INTEGER NOT NULL,
    grid_size_x INTEGER NOT NULL,
    grid_size_y INTEGER NOT NULL,
    grid_size_z INTEGER NOT NULL,
    graph_exec_id INTEGER,                      -- from 3.0.2; 0: not launched by a graph; NULL: not known
    graph_node_id INTEGER,                      -- place among the work of the graph's launch, from 0
    region_name_id INTEGER REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_memory_copy{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    name_id INTEGER NOT NULL REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    dst_agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    dst_address INTEGER,
    src_agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    src_address INTEGER,
    size INTEGER NOT NULL,
    queue_id INTEGER REFERENCES rocpd_info_queue{uuid} (id) ON UPDATE CASCADE,
    stream_id INTEGER REFERENCES rocpd_info_stream{uuid} (id) ON UPDATE CASCADE,
    graph_exec_id INTEGER,                      -- as in rocpd_kernel_dispatch
    graph_node_id INTEGER,
    region_name_id INTEGER REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

CREATE TABLE rocpd_memory_allocate{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    type TEXT CHECK (type IN ('ALLOC', 'FREE', 'REALLOC', 'RECLAIM')),
    level TEXT CHECK (level IN ('REAL', 'VIRTUAL', 'SCRATCH')),
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    address INTEGER,
    size INTEGER NOT NULL,
    queue_id INTEGER REFERENCES rocpd_info_queue{uuid} (id) ON UPDATE CASCADE,
    stream_id INTEGER REFERENCES rocpd_info_stream{uuid} (id) ON UPDATE CASCADE,
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

-- Launches of graphs, from 3.0.2. The id is the correlation id of the call.
CREATE TABLE rocpd_graph_launch{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    queue_id INTEGER REFERENCES rocpd_info_queue{uuid} (id) ON UPDATE CASCADE,
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    graph_exec_id INTEGER NOT NULL,
    kernel_dispatch_count INTEGER NOT NULL DEFAULT 0, -- kernels that are known to be of this launch
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

-- When the GPU was at barriers for events of HIP, from 3.0.4. Without rows: the times of barriers are not recorded.
CREATE TABLE rocpd_hip_event{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    nid INTEGER NOT NULL REFERENCES rocpd_info_node{uuid} (id) ON UPDATE CASCADE,
    pid INTEGER NOT NULL REFERENCES rocpd_info_process{uuid} (id) ON UPDATE CASCADE,
    tid INTEGER REFERENCES rocpd_info_thread{uuid} (id) ON UPDATE CASCADE,
    agent_id INTEGER REFERENCES rocpd_info_agent{uuid} (id) ON UPDATE CASCADE,
    queue_id INTEGER REFERENCES rocpd_info_queue{uuid} (id) ON UPDATE CASCADE,
    source_queue_id INTEGER REFERENCES rocpd_info_queue{uuid} (id) ON UPDATE CASCADE,
    stream_id INTEGER REFERENCES rocpd_info_stream{uuid} (id) ON UPDATE CASCADE,
    hip_event_handle INTEGER,
    name_id INTEGER NOT NULL REFERENCES rocpd_string{uuid} (id) ON UPDATE CASCADE,
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    event_id INTEGER REFERENCES rocpd_event{uuid} (id) ON UPDATE CASCADE,
    extdata JSONB NOT NULL DEFAULT '{}'
);

-- What rocpd has no place for. Times are ns of CLOCK_BOOTTIME; addresses above 2^63 are negative.

-- How the recording was made, as tags and values.
CREATE TABLE gputrace_recording{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    tag TEXT NOT NULL,
    value TEXT NOT NULL
);

-- Every dispatch, also those that are not in rocpd_kernel_dispatch, because how long they took is not known.
CREATE TABLE gputrace_dispatch{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,            -- dispatch_id
    guid TEXT NOT NULL DEFAULT '{guid}',
    event_id INTEGER,                           -- rocpd_event of its row in rocpd_kernel_dispatch; NULL if it has none
    quality TEXT NOT NULL,                      -- exact, sampled, bounded, submitted
    unfinished INTEGER NOT NULL,                -- 1: known not to have ended when the recording stopped
    pid INTEGER NOT NULL,
    tid INTEGER NOT NULL,
    agent_id INTEGER NOT NULL,
    queue_id INTEGER NOT NULL,
    stream_id INTEGER NOT NULL,
    stream_handle INTEGER,                      -- hipStream_t; NULL if not known
    kernel_id INTEGER NOT NULL,
    kernel_object INTEGER NOT NULL,
    packet_index INTEGER NOT NULL,
    stack_id INTEGER NOT NULL,                  -- stack_id of the innermost call that submitted it, 0 if none is recorded
    caller_stack_id INTEGER NOT NULL,           -- of the innermost one that is not HSA's
    outermost_stack_id INTEGER NOT NULL,
    submit BIGINT NOT NULL,
    start BIGINT,                               -- NULL, as "end" and duration, if how long it took is not known
    "end" BIGINT,
    start_earliest BIGINT NOT NULL,
    start_latest BIGINT,                        -- NULL if nothing proves that it began
    end_earliest BIGINT NOT NULL,
    end_latest BIGINT,                          -- NULL if nothing proves that it ended
    kernarg_address INTEGER NOT NULL,
    completion_signal INTEGER NOT NULL,
    barrier INTEGER NOT NULL,
    read_later INTEGER NOT NULL,                -- 1: the packet was read after its doorbell
    kernel_class INTEGER,                       -- of which its duration is the mean; NULL: it is not an estimate of a class
    estimate_error INTEGER,                     -- standard error of an estimated duration, ns; NULL: exact or not known
    duration BIGINT,                            -- ns, exact or estimated; NULL if not known
    duration_error BIGINT,                      -- its standard error, ns; those of dispatches with one kernel_class (or none)
                                                -- add up, those of different ones are independent
    graph_exec_id INTEGER,                      -- as in rocpd_kernel_dispatch
    graph_node_id INTEGER
);

-- Classes of dispatches that are expected to take about the same time; none if all times of kernels are exact.
CREATE TABLE gputrace_kernel_class{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,            -- kernel_class of dispatches
    guid TEXT NOT NULL DEFAULT '{guid}',
    pid INTEGER NOT NULL,
    agent_id INTEGER,                           -- NULL if not known
    kernel_id INTEGER,                          -- NULL if the kernel was not found
    name TEXT NOT NULL,
    kernel_object INTEGER NOT NULL,
    workgroup_size_x INTEGER NOT NULL,
    workgroup_size_y INTEGER NOT NULL,
    workgroup_size_z INTEGER NOT NULL,
    grid_size_x INTEGER NOT NULL,
    grid_size_y INTEGER NOT NULL,
    grid_size_z INTEGER NOT NULL,
    dispatches INTEGER NOT NULL,
    told TEXT NOT NULL,                         -- apart: there is a mean; mixed, unseen: why there is none
    mean REAL,                                  -- duration of a dispatch, ns
    mean_error REAL,                            -- its standard error, ns
    shorter REAL,                               -- of a class with two lengths, ns
    longer REAL,                                -- likewise
    longer_share REAL                           -- how many of its dispatches are longer, 0 to 1
);

-- Every copy, likewise.
CREATE TABLE gputrace_copy{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,            -- as rocpd_memory_copy.id
    guid TEXT NOT NULL DEFAULT '{guid}',
    event_id INTEGER,
    quality TEXT NOT NULL,
    unfinished INTEGER NOT NULL,
    direction TEXT NOT NULL,
    pid INTEGER NOT NULL,
    tid INTEGER NOT NULL,
    dst_agent_id INTEGER NOT NULL,
    dst_address INTEGER NOT NULL,
    src_agent_id INTEGER NOT NULL,
    src_address INTEGER NOT NULL,
    size INTEGER NOT NULL,
    stream_id INTEGER NOT NULL,
    stream_handle INTEGER,
    engine_mask INTEGER NOT NULL,               -- 0 if the runtime chose
    stack_id INTEGER NOT NULL,
    caller_stack_id INTEGER NOT NULL,
    outermost_stack_id INTEGER NOT NULL,
    submit BIGINT NOT NULL,
    start BIGINT,
    "end" BIGINT,
    start_earliest BIGINT NOT NULL,
    start_latest BIGINT,
    end_earliest BIGINT NOT NULL,
    end_latest BIGINT,
    completion_signal INTEGER NOT NULL,
    duration BIGINT,                            -- as in gputrace_dispatch
    duration_error BIGINT,
    direction_by TEXT,                          -- memory, agents (that the call names); NULL if unknown
    graph_exec_id INTEGER,
    graph_node_id INTEGER
);

-- How busy each GPU was with kernels, as in the summary. Times are ns; NULL where nothing tells.
CREATE TABLE gputrace_gpu_use{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    agent_id INTEGER NOT NULL,
    kernels INTEGER NOT NULL,
    unknown_kernels INTEGER NOT NULL,           -- of which nothing tells how long they took
    recorded BIGINT NOT NULL,                   -- how long the recording took
    busy BIGINT,                                -- time with at least one kernel; NULL if only the range is known
    busy_least BIGINT NOT NULL,
    busy_most BIGINT NOT NULL,
    active BIGINT,                              -- at work for any process, by its status register; NULL if that tells nothing
    active_error BIGINT,                        -- standard error
    gaps INTEGER NOT NULL,                      -- times without a kernel; if kernels are unknown, at least this many
    whole_gaps INTEGER NOT NULL,                -- of which the length is known
    gap_p50 BIGINT,                             -- of whole gaps
    gap_p95 BIGINT,
    gap_p99 BIGINT,
    missing INTEGER NOT NULL,                   -- whether kernels were not seen, or are not shown
    longest_gap_least BIGINT NOT NULL,
    longest_gap_most BIGINT NOT NULL
);

-- Calls that had not returned; "end" of their rows in rocpd_region is the moment up to which they were open. Also calls
-- whose end is not recorded (end_not_recorded); "end" of their rows is "start".
CREATE TABLE gputrace_unfinished_call{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,            -- rocpd_region.id
    guid TEXT NOT NULL DEFAULT '{guid}',
    reason TEXT NOT NULL                        -- thread_exited, process_executed, recording_stopped, end_not_recorded
);

-- What the kernel did to threads, processes and GPUs. Ids that are not known are 0.
CREATE TABLE gputrace_observation{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    domain TEXT NOT NULL,
    name TEXT NOT NULL,
    pid INTEGER NOT NULL,
    tid INTEGER NOT NULL,
    gpu_id INTEGER NOT NULL,                    -- KFD's id of the GPU
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,                      -- as start for what takes no time
    unfinished INTEGER NOT NULL,                -- 1: not over when the recording stopped
    fields JSONB NOT NULL DEFAULT '{}'          -- values by name
);

-- The account of losses: seen = written + unfinished + lost + unaccounted.
CREATE TABLE gputrace_loss{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    domain TEXT NOT NULL,
    cpu INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    written INTEGER NOT NULL,
    unfinished INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    unaccounted INTEGER NOT NULL,
    dropped JSONB NOT NULL DEFAULT '{}',        -- numbers by reason
    complete INTEGER NOT NULL                   -- 0: the recorder was killed, this is its last account
);

-- Remarks of the recorder.
CREATE TABLE gputrace_notice{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    time BIGINT NOT NULL,
    text TEXT NOT NULL
);

-- The same moments on several clocks, ns.
CREATE TABLE gputrace_clock{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    boottime BIGINT NOT NULL,
    monotonic BIGINT NOT NULL,
    monotonic_raw BIGINT NOT NULL,
    realtime BIGINT NOT NULL,
    uncertainty BIGINT NOT NULL
);

-- The functions that had a probe.
CREATE TABLE gputrace_function{uuid} (
    id INTEGER NOT NULL PRIMARY KEY,
    guid TEXT NOT NULL DEFAULT '{guid}',
    name TEXT NOT NULL,
    domain TEXT NOT NULL,
    library TEXT NOT NULL,
    build_id TEXT NOT NULL
);
