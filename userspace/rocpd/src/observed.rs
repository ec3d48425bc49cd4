//! Writes observations of the kernel, and counter readings.
//!
//! rocpd has tables for counter samples, which are used; but its views show only those of kernels
//! and threads, so gputrace adds a view of all, `gputrace_counter`. Readings made while a kernel
//! ran are also values of the kernel's event, so that `pmc_events` and `counters_collection` show
//! them. For observations of the kernel, rocpd has no tables at all.

use std::{collections::HashMap, sync::Arc};

use gputrace_abi::domain::Domain;
use gputrace_capture::{counter::Counter, ledger::Ledger};
use gputrace_export::ExportError;
use gputrace_timeline::{
    event::CounterSample,
    gpu::Reading,
    observation::{FieldValue, Observation},
};
use rusqlite::params;
use serde_json::{Map, Value, json};

use crate::{
    exporter::{Context, int},
    schema::Identity,
};

/// Writes observations and samples. Memory grows with the number of counters.
#[derive(Debug)]
pub(crate) struct Observed {
    observation_sql: String,
    counter_sql: String,
    track_sql: String,
    sample_sql: String,
    value_sql: String,
    /// Row of each counter, which is also the row of its track.
    counters: HashMap<Arc<Counter>, i64>,
}

impl Observed {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self {
            observation_sql: identity.fill(
                "INSERT INTO gputrace_observation{uuid} (domain, name, pid, tid, gpu_id, start, \"end\", unfinished, fields) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ),
            counter_sql: identity.fill(
                "INSERT INTO rocpd_info_pmc{uuid} (id, nid, pid, agent_id, target_arch, name, symbol, units, value_type, \
                 is_constant, is_derived, spm_support, extdata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?)",
            ),
            track_sql: identity
                .fill("INSERT INTO rocpd_track{uuid} (id, nid, pid, name_id, extdata) VALUES (?, ?, ?, ?, ?)"),
            sample_sql: identity
                .fill("INSERT INTO rocpd_sample{uuid} (track_id, timestamp, event_id) VALUES (?, ?, ?)"),
            value_sql: identity
                .fill("INSERT INTO rocpd_pmc_event{uuid} (event_id, pmc_id, value) VALUES (?, ?, ?)"),
            counters: HashMap::new(),
        }
    }

    pub(crate) fn observation(
        &self,
        context: &Context,
        one: &Observation,
    ) -> Result<(), ExportError> {
        let fields: Map<String, Value> = one
            .fields
            .iter()
            .map(|field| {
                let value = match &field.value {
                    FieldValue::Number(number) => (*number).into(),
                    FieldValue::Signed(number) => (*number).into(),
                    FieldValue::Missing => Value::Null,
                    other => other.to_string().into(),
                };
                (field.name.clone().into_owned(), value)
            })
            .collect();
        let values = params![
            Ledger::domain_name(one.domain),
            one.name,
            one.whose.pid,
            one.whose.tid,
            one.whose.gpu_id,
            int(one.begin),
            int(one.end),
            one.is_open,
            Value::Object(fields).to_string(),
        ];
        context.database.insert(&self.observation_sql, values)
    }

    pub(crate) fn sample(
        &mut self,
        context: &mut Context,
        sample: &CounterSample,
    ) -> Result<(), ExportError> {
        let counter = self.row(context, &sample.counter)?;
        let event = context.event(Domain::Counter.name(), (0, 0), "{}")?;
        let values = params![counter, int(sample.time), event];
        context.database.insert(&self.sample_sql, values)?;
        let values = params![event, counter, sample.value];
        context.database.insert(&self.value_sql, values)
    }

    /// Writes the counters that were read while the dispatch of this event ran.
    pub(crate) fn readings(
        &mut self,
        context: &mut Context,
        event: i64,
        readings: &[Reading],
    ) -> Result<(), ExportError> {
        for reading in readings {
            let counter = self.row(context, &reading.counter)?;
            let values = params![event, counter, reading.value];
            context.database.insert(&self.value_sql, values)?;
        }
        Ok(())
    }

    /// The row of a counter.
    fn row(&mut self, context: &mut Context, counter: &Arc<Counter>) -> Result<i64, ExportError> {
        match self.counters.get(counter) {
            Some(row) => Ok(*row),
            None => self.counter(context, counter),
        }
    }

    fn counter(
        &mut self,
        context: &mut Context,
        counter: &Arc<Counter>,
    ) -> Result<i64, ExportError> {
        let row = self.counters.len() as i64 + 1;
        // What belongs to no process is given to the main one, like agents.
        let pid = if counter.pid == 0 {
            context.main
        } else {
            counter.pid
        };
        context.who.process(pid);
        let agent = counter
            .node_id
            .filter(|node| context.gpus.agent(*node).is_some());
        let kind = if counter.cumulative { "ACCUM" } else { "ABS" };
        let extdata = json!({"pid": counter.pid, "gpu_id": counter.gpu_id}).to_string();
        let values = params![
            row,
            context.node,
            pid,
            agent,
            agent.map(|_| "GPU"),
            counter.name,
            counter.name,
            counter.unit,
            kind,
            extdata,
        ];
        context.database.insert(&self.counter_sql, values)?;
        let name = context.strings.id(&context.database, &counter.name)?;
        let values = params![row, context.node, pid, name, extdata];
        context.database.insert(&self.track_sql, values)?;
        self.counters.insert(Arc::clone(counter), row);
        Ok(row)
    }
}
