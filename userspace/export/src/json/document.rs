//! The document itself: the order of its members, and where what was waiting stands.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use gputrace_capture::ledger::Ledger;
use gputrace_timeline::event::FunctionInfo;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    ARRAYS, CLASSES, COLLECTION, COUNTERS, DURATIONS, JsonExporter, MARKERS, OBSERVATIONS, OTHER,
    UNTIMED, loss,
    metadata::{agent, metadata},
    records::KINDS,
    spill::Spill,
};

impl JsonExporter {
    /// Writes the document from the waiting records.
    pub(super) fn document(&mut self) -> io::Result<()> {
        let pids: BTreeSet<u32> = self.records.keys().map(|(pid, _)| *pid).collect();
        for pid in pids {
            self.process(pid);
        }
        if self.processes.is_empty() {
            // Data about the recording needs a process to be put into.
            self.process(0);
        }
        let strings = self.strings();
        let finished = self.summaries.finish(&self.functions);
        let agents: Vec<Value> = self.gpus.agents().iter().map(agent).collect();
        let document = self.about();
        let Self {
            file,
            config,
            records,
            processes,
            symbols,
            summaries,
            recording,
            gpus,
            counter_ids,
            ..
        } = self;
        file.write_all(b"{\"rocprofiler-sdk-tool\": [")?;
        for (index, (pid, process)) in processes.iter().enumerate() {
            file.write_all(if index == 0 { b"\n{" } else { b",\n{" })?;
            let stopped = self.end.as_ref().map(|end| end.time);
            member(
                file,
                "metadata",
                &metadata(recording, &process.info, process.end.or(stopped), config),
            )?;
            member(file, "agents", &agents)?;
            member(file, "counters", &counter_ids.of(*pid))?;
            file.write_all(b"\"strings\": {")?;
            for (name, value) in &strings {
                member(file, name, value)?;
            }
            member(
                file,
                "correlation_id",
                &json!({"external": symbols.renames(*pid)}),
            )?;
            file.write_all(b"\"marker_api\": ")?;
            records.write(&(*pid, MARKERS), file)?;
            file.write_all(b"},\n")?;
            for (name, entries) in symbols.arrays(*pid, gpus) {
                member(file, name, &entries)?;
            }
            member(file, "summary", finished.get(pid).unwrap_or(&Vec::new()))?;
            file.write_all(b"\"callback_records\": ")?;
            arrays_of(file, records, *pid, [(COLLECTION, COLLECTION)].into_iter())?;
            file.write_all(b",\n")?;
            file.write_all(b"\"buffer_records\": ")?;
            arrays_of(
                file,
                records,
                *pid,
                ARRAYS.iter().map(|name| (*name, *name)),
            )?;
            file.write_all(b",\n\"gputrace\": {")?;
            if index == 0 {
                member(file, "document", &document)?;
            }
            member(file, "name", &process.info.name)?;
            member(file, "threads", &process.threads)?;
            file.write_all(b"\"other_api\": ")?;
            records.write(&(*pid, OTHER), file)?;
            file.write_all(b",\n\"observations\": ")?;
            records.write(&(*pid, OBSERVATIONS), file)?;
            file.write_all(b",\n\"counters\": ")?;
            records.write(&(*pid, COUNTERS), file)?;
            file.write_all(b",\n\"kernel_classes\": ")?;
            records.write(&(*pid, CLASSES), file)?;
            file.write_all(b",\n")?;
            for (name, domain) in DURATIONS {
                member(file, name, &summaries.durations(*pid, domain))?;
            }
            file.write_all(b"\"untimed\": ")?;
            arrays_of(file, records, *pid, UNTIMED.iter().copied())?;
            file.write_all(b"}}")?;
        }
        file.write_all(b"\n]}\n")
    }

    /// Members of `strings` that are the same for all processes: names by number.
    fn strings(&self) -> [(&'static str, Value); 7] {
        let kinds = KINDS.iter().zip(&self.operations);
        let names: Vec<Value> = kinds
            .map(|(kind, operations)| json!({"kind": kind, "operations": operations}))
            .collect();
        [
            ("callback_records", json!([])),
            ("buffer_records", names.into()),
            ("counters", json!({"dimension_ids": []})),
            ("pc_sample_instructions", json!([])),
            ("pc_sample_comments", json!([])),
            ("att_filenames", json!([])),
            ("code_object_snapshot_filenames", json!([])),
        ]
    }

    /// Data that belongs to no process.
    fn about(&self) -> Value {
        let loss = self.ledger.as_ref().map(loss);
        let mut functions: Vec<&FunctionInfo> = self.functions.iter().collect();
        functions.sort_by_key(|info| info.function.id);
        let functions: Vec<Value> = functions
            .into_iter()
            .map(|info| {
                json!({
                    "name": info.function.name,
                    "kind": Ledger::domain_name(info.function.domain),
                    "library": info.library,
                    "build_id": info.build_id,
                })
            })
            .collect();
        json!({
            "format_version": 2,
            "recording": self.recording,
            "clocks": self.clocks,
            "functions": functions,
            "notices": self.notices,
            "loss": loss,
            "cost_of_tracing": self.costs.bill(),
            "end": self.end,
        })
    }
}

/// Writes a member that another one follows.
fn member(out: &mut impl Write, name: &str, value: &impl Serialize) -> io::Result<()> {
    write!(out, "\"{name}\": ")?;
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b",\n")
}

/// Writes an object of arrays, given by name and key.
fn arrays_of(
    out: &mut impl Write,
    records: &Spill<(u32, &'static str)>,
    pid: u32,
    names: impl Iterator<Item = (&'static str, &'static str)>,
) -> io::Result<()> {
    out.write_all(b"{")?;
    for (index, (name, waiting)) in names.enumerate() {
        out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        write!(out, "\"{name}\": ")?;
        records.write(&(pid, waiting), out)?;
    }
    out.write_all(b"\n}")
}
