//! Counters in the document: values read while kernels ran, and all values.

use std::{collections::HashMap, sync::Arc};

use gputrace_capture::counter::Counter;
use gputrace_timeline::gpu::{Dispatch, Reading};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    gpu::Gpus,
    json::records::{Correlation, DispatchInfo, Handle, agent_id},
};

/// Size in bytes of rocprofiler-sdk's `rocprofiler_dispatch_counting_service_data_t`.
const DISPATCH_DATA_SIZE: u64 = 112;

/// Ids of the counters that records refer to, from 1. Memory grows with the number of counters.
#[derive(Debug, Default)]
pub(crate) struct CounterIds {
    ids: HashMap<Arc<Counter>, u64>,
    /// In order of their ids.
    counters: Vec<Arc<Counter>>,
}

impl CounterIds {
    fn id(&mut self, counter: &Arc<Counter>) -> u64 {
        if let Some(id) = self.ids.get(counter) {
            return *id;
        }
        self.counters.push(Arc::clone(counter));
        let id = self.counters.len() as u64;
        self.ids.insert(Arc::clone(counter), id);
        id
    }

    /// The document's `counters` for a process: those of GPUs and its own.
    pub(crate) fn of(&self, pid: u32) -> Vec<Value> {
        let counters = self.counters.iter().zip(1_u64..);
        counters
            .filter(|(counter, _)| counter.pid == 0 || counter.pid == pid)
            .map(|(counter, id)| {
                json!({
                    "agent_id": agent_id(counter.node_id),
                    "id": Handle { handle: id },
                    "is_constant": 0,
                    "is_derived": 0,
                    "name": counter.name,
                    "description": description(counter),
                    "block": "",
                    "expression": "",
                    "dimension_ids": [],
                })
            })
            .collect()
    }
}

/// A description of the value for people.
fn description(counter: &Counter) -> String {
    let what = if counter.cumulative {
        "growth from the first to the last reading while the kernel ran"
    } else {
        "mean of the readings while the kernel ran"
    };
    let whose = if counter.pid == 0 {
        "of the whole GPU"
    } else {
        "of the process on the GPU"
    };
    match counter.unit.as_str() {
        "" => format!("Driver's counter {whose}: {what}"),
        unit => format!("Driver's counter {whose}, in {unit}: {what}"),
    }
}

#[derive(Debug, Serialize)]
struct DispatchData {
    size: u64,
    correlation_id: Correlation,
    start_timestamp: u64,
    end_timestamp: u64,
    dispatch_info: DispatchInfo,
}

/// The value of a counter.
#[derive(Debug, Serialize)]
struct Counted {
    counter_id: Handle,
    value: f64,
    gputrace: CountedNotes,
}

#[derive(Debug, Serialize)]
struct CountedNotes {
    /// Number of readings behind the value.
    readings: u64,
}

/// Counters read while a kernel ran.
#[derive(Debug, Serialize)]
pub(crate) struct CollectionRecord {
    dispatch_data: DispatchData,
    records: Vec<Counted>,
    thread_id: u32,
    arch_vgpr_count: u32,
    accum_vgpr_count: u32,
    sgpr_count: u32,
    lds_block_size_v: u64,
}

impl CollectionRecord {
    /// `None` if nothing was read while the dispatch ran.
    pub(crate) fn new(
        dispatch: &Dispatch,
        info: DispatchInfo,
        gpus: &Gpus,
        ids: &mut CounterIds,
    ) -> Option<Self> {
        if dispatch.readings.is_empty() {
            return None;
        }
        let counted = |reading: &Reading| Counted {
            counter_id: Handle {
                handle: ids.id(&reading.counter),
            },
            value: reading.value,
            gputrace: CountedNotes {
                readings: reading.readings,
            },
        };
        let kernel = gpus.kernel(dispatch).map(|info| &info.kernel);
        Some(Self {
            dispatch_data: DispatchData {
                size: DISPATCH_DATA_SIZE,
                correlation_id: Correlation::of_dispatch(dispatch, gpus),
                start_timestamp: dispatch.time.begin,
                end_timestamp: dispatch.time.end,
                dispatch_info: info,
            },
            records: dispatch.readings.iter().map(counted).collect(),
            thread_id: dispatch.origin.tid,
            arch_vgpr_count: kernel.map_or(0, |kernel| kernel.arch_vgpr_count),
            accum_vgpr_count: kernel.map_or(0, |kernel| kernel.accum_vgpr_count),
            sgpr_count: kernel.map_or(0, |kernel| kernel.sgpr_count),
            lds_block_size_v: gpus.lds_block_size(dispatch),
        })
    }
}
