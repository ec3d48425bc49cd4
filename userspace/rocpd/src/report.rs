//! Writes data about the recording and its processes, and what was lost.

use gputrace_abi::counters::DropReason;
use gputrace_capture::{
    ledger::{Ledger, Looks},
    meta::{ClockSnapshot, End, EndReason, Mode, Notice, Recording},
};
use gputrace_export::{ExportError, node::node_hash};
use gputrace_timeline::event::FunctionInfo;
use rusqlite::params;
use serde_json::{Map, Value, json};

use crate::{
    exporter::{Context, int},
    referenced::{Process, Thread},
    schema::VERSION,
};

/// How the recording ended, as far as its events tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) time: Option<u64>,
    pub(crate) ledger: bool,
    /// Latest end of a call, ns `CLOCK_BOOTTIME`.
    pub(crate) last_call: u64,
}

impl Ending {
    /// When the recording stopped, or else the latest known time, ns `CLOCK_BOOTTIME`.
    pub(crate) fn stopped(&self) -> u64 {
        self.time.unwrap_or(self.last_call)
    }
}

/// Writes metadata, the node, and how the recording was made.
pub(crate) fn recording(context: &mut Context, recording: &Recording) -> Result<(), ExportError> {
    let identity = context.database.identity.clone();
    let metadata = identity.fill("INSERT INTO rocpd_metadata{uuid} (tag, value) VALUES (?, ?)");
    let [major, minor, patch] = VERSION;
    for (tag, value) in [
        ("schema_version", VERSION.join(".").as_str()),
        ("schema_version_major", major),
        ("schema_version_minor", minor),
        ("schema_version_patch", patch),
        ("uuid", &identity.suffix),
        ("guid", &identity.guid),
    ] {
        context.database.insert(&metadata, params![tag, value])?;
    }
    let node = identity.fill(
        "INSERT INTO rocpd_info_node{uuid} (id, hash, machine_id, system_name, hostname, release, version, hardware_name, \
         domain_name) VALUES (?1, ?2, ?3, 'Linux', ?3, ?4, ?5, ?6, '(none)')",
    );
    let values = params![
        context.node,
        node_hash(recording),
        recording.hostname,
        recording.kernel_release,
        recording.kernel_version,
        recording.machine,
    ];
    context.database.insert(&node, values)?;
    let (mode, targets) = match &recording.mode {
        Mode::Launch { command } => ("launch", command.clone()),
        Mode::Attach { pids } => ("attach", pids.iter().map(u32::to_string).collect()),
        Mode::Node => ("node", Vec::new()),
        Mode::Merged { .. } => ("merged", Vec::new()),
    };
    for (tag, value) in [
        ("tool_version", recording.tool_version.clone()),
        ("abi_version", recording.abi_version.to_string()),
        ("command", recording.command.join(" ")),
        ("mode", mode.to_owned()),
        ("targets", targets.join(" ")),
        ("domains", recording.domains.join(",")),
        ("backend", recording.backend.clone()),
        ("cpus", recording.cpus.to_string()),
    ] {
        tag_value(context, tag, &value)?;
    }
    clocks(context, &recording.clocks)
}

fn tag_value(context: &Context, tag: &str, value: &str) -> Result<(), ExportError> {
    let sql = "INSERT INTO gputrace_recording{uuid} (tag, value) VALUES (?, ?)";
    let sql = context.database.identity.fill(sql);
    context.database.insert(&sql, params![tag, value])
}

pub(crate) fn clocks(context: &Context, clocks: &ClockSnapshot) -> Result<(), ExportError> {
    let sql = "INSERT INTO gputrace_clock{uuid} (boottime, monotonic, monotonic_raw, realtime, uncertainty) \
               VALUES (?, ?, ?, ?, ?)";
    let sql = context.database.identity.fill(sql);
    let values = params![
        int(clocks.boottime),
        int(clocks.monotonic),
        int(clocks.monotonic_raw),
        int(clocks.realtime),
        int(clocks.uncertainty)
    ];
    context.database.insert(&sql, values)
}

pub(crate) fn function(context: &Context, info: &FunctionInfo) -> Result<(), ExportError> {
    let sql = "INSERT OR REPLACE INTO gputrace_function{uuid} (id, name, domain, library, build_id) VALUES (?, ?, ?, ?, ?)";
    let sql = context.database.identity.fill(sql);
    let domain = Ledger::domain_name(info.function.domain);
    let values = params![
        info.function.id,
        info.function.name,
        domain,
        info.library,
        info.build_id
    ];
    context.database.insert(&sql, values)
}

pub(crate) fn notice(context: &Context, notice: &Notice) -> Result<(), ExportError> {
    let sql = "INSERT INTO gputrace_notice{uuid} (time, text) VALUES (?, ?)";
    let sql = context.database.identity.fill(sql);
    let values = params![int(notice.time), notice.text];
    context.database.insert(&sql, values)
}

/// Writes the account of losses.
pub(crate) fn ledger(context: &Context, ledger: &Ledger) -> Result<(), ExportError> {
    let sql = "INSERT INTO gputrace_loss{uuid} (domain, cpu, seen, written, unfinished, lost, unaccounted, dropped, complete) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let sql = context.database.identity.fill(sql);
    for row in &ledger.rows {
        let dropped: Map<String, Value> = DropReason::ALL
            .iter()
            .map(|reason| (reason.name().to_owned(), row.dropped_for(*reason).into()))
            .collect();
        let values = params![
            Ledger::domain_name(row.domain),
            row.cpu,
            int(row.seen),
            int(row.written),
            int(row.unfinished),
            int(row.lost()),
            row.imbalance(),
            Value::Object(dropped).to_string(),
            ledger.complete,
        ];
        context.database.insert(&sql, values)?;
    }
    for (tag, count) in [
        ("unmatched_returns", ledger.unmatched_returns),
        ("unreadable_args", ledger.unreadable_args),
        ("task_events", ledger.task_events),
        ("task_events_lost", ledger.task_events_lost),
        ("untraced_processes", ledger.untraced_processes),
        ("late_processes", ledger.late_processes),
    ] {
        tag_value(context, tag, &count.to_string())?;
    }
    for (tag, count) in ledger.looks.iter().flat_map(Looks::named) {
        tag_value(context, tag, &count.to_string())?;
    }
    Ok(())
}

pub(crate) fn end(context: &Context, end: &End) -> Result<(), ExportError> {
    let reason = match &end.reason {
        EndReason::Interrupted => "interrupted",
        EndReason::DurationOver => "duration_over",
        EndReason::LimitReached => "limit_reached",
        EndReason::TargetsGone => "targets_gone",
        EndReason::Dumped => "dumped",
        EndReason::Continued => "continued",
        EndReason::Failed(error) => error,
    };
    tag_value(context, "end_time", &end.time.to_string())?;
    tag_value(context, "end_reason", reason)
}

/// Writes the processes and threads, and notes what is missing in the capture.
pub(crate) fn finish(context: &mut Context, ending: &Ending) -> Result<(), ExportError> {
    if !ending.ledger {
        tag_value(
            context,
            "loss",
            "unknown: the capture ends before the first account",
        )?;
    }
    if ending.time.is_none() {
        tag_value(context, "end_reason", "the capture was cut off")?;
    }
    // It owns the null stream and the agents.
    context.who.process(context.main);
    let identity = &context.database.identity;
    let process_sql = identity.fill(
        "INSERT INTO rocpd_info_process{uuid} (id, nid, ppid, pid, init, fini, start, \"end\", command, extdata) \
         VALUES (?1, ?2, ?3, ?1, ?4, ?5, ?4, ?5, ?6, ?7)",
    );
    let thread_sql = identity.fill(
        "INSERT INTO rocpd_info_thread{uuid} (id, nid, ppid, pid, tid, name, start, \"end\") \
         VALUES (?1, ?2, ?3, ?4, ?1, ?5, ?6, ?7)",
    );
    for (pid, Process { info, life }) in &context.who.processes {
        let command = if info.command.is_empty() {
            info.executable.clone()
        } else {
            info.command.join(" ")
        };
        let mut extdata = json!({"name": info.name, "executable": info.executable});
        if let (Value::Object(members), false) = (&mut extdata, info.identity.is_empty()) {
            members.insert("identity".to_owned(), json!(info.identity));
        }
        let values = params![
            pid,
            context.node,
            info.parent,
            life.start.map(int),
            life.end.map(int),
            command,
            extdata.to_string(),
        ];
        context.database.insert(&process_sql, values)?;
    }
    for (tid, Thread { pid, name, life }) in &context.who.threads {
        let parent = context
            .who
            .processes
            .get(pid)
            .map_or(0, |process| process.info.parent);
        let (start, end) = (life.start.map(int), life.end.map(int));
        let values = params![tid, context.node, parent, pid, name, start, end];
        context.database.insert(&thread_sql, values)?;
    }
    Ok(())
}
