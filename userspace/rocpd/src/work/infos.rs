//! What work refers to, in the tables `rocpd_info_*`: queues, streams, code objects and agents.

use gputrace_capture::gpu::AgentKind;
use gputrace_export::{ExportError, gpu::queue_id};
use gputrace_timeline::gpu::AgentInfo;
use rusqlite::params;
use serde_json::{Map, Value, json};

use super::{UNKNOWN_AGENT, Work};
use crate::exporter::{Context, int};

impl Work {
    pub(super) fn write_queues(&self, context: &mut Context) -> Result<(), ExportError> {
        let sql = "INSERT INTO rocpd_info_queue{uuid} (id, nid, pid, name, extdata) VALUES (?, ?, ?, ?, ?)";
        let sql = context.database.identity.fill(sql);
        let (node, main) = (context.node, context.main);
        let default = params![0, node, main, "Default Queue", "{}"];
        context.database.insert(&sql, default)?;
        for (number, (pid, info)) in &self.queues {
            context.who.process(*pid);
            let extdata = info.map_or_else(
                || json!({}),
                |info| json!({"hsa_queue_id": info.id, "node_id": info.node_id, "packets": info.packets, "kfd_queue_id": info.kfd_id}),
            );
            let id = int(queue_id(*number));
            let values = params![id, node, pid, format!("Queue {id}"), extdata.to_string()];
            context.database.insert(&sql, values)?;
        }
        Ok(())
    }

    /// Writes how busy each GPU was in a recording from `began` to `stopped`, ns `CLOCK_BOOTTIME`.
    pub(crate) fn write_use(
        &mut self,
        context: &Context,
        began: u64,
        stopped: u64,
    ) -> Result<(), ExportError> {
        let sql = context.database.identity.fill(
            "INSERT INTO gputrace_gpu_use{uuid} \
             (agent_id, kernels, unknown_kernels, recorded, busy, busy_least, busy_most, \
             active, active_error, gaps, whole_gaps, gap_p50, gap_p95, gap_p99, missing, longest_gap_least, longest_gap_most) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        );
        let recorded = stopped.saturating_sub(began);
        self.agents.finish(stopped);
        let figures: Vec<_> = self.agents.figures(recorded).collect();
        for (node, figures) in figures {
            let percentiles = figures.gap_percentiles.map(|all| all.map(int));
            let [p50, p95, p99] = percentiles.map_or([None; 3], |all| all.map(Some));
            let values = params![
                self.agent(context, node),
                int(figures.kernels),
                int(figures.untimed),
                int(recorded),
                figures.busy.map(int),
                int(figures.busy_range.0),
                int(figures.busy_range.1),
                figures.active.map(|active| int(active.value)),
                figures.active.map(|active| int(active.error)),
                int(figures.gaps),
                int(figures.whole_gaps),
                p50,
                p95,
                p99,
                figures.missing,
                int(figures.longest_gap_range.0),
                int(figures.longest_gap_range.1),
            ];
            context.database.insert(&sql, values)?;
        }
        Ok(())
    }

    pub(super) fn write_code_objects(&mut self, context: &mut Context) -> Result<(), ExportError> {
        let sql = "INSERT OR REPLACE INTO rocpd_info_code_object{uuid} \
                   (id, nid, pid, agent_id, uri, load_base, load_size, load_delta, storage_type, extdata) \
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let sql = context.database.identity.fill(sql);
        for info in std::mem::take(&mut self.code_objects) {
            let object = &info.code_object;
            context.who.process(object.pid);
            self.referred.remove(&info.id.into());
            let node = self.nodes.get(&info.id).copied();
            let node = node.or_else(|| node_of_target(context, &object.target));
            let agent = self.agent(context, node);
            let (storage, number) = match object.uri.split_once("://") {
                Some(("file", _)) => (Some("FILE"), Some(1)),
                Some(("memory", _)) => (Some("MEMORY"), Some(2)),
                _ => (None, None),
            };
            let extdata = json!({
                "code_object_id": info.id,
                "storage_type": number,
                "target": object.target,
                "load_time": object.time,
            });
            let values = params![
                info.id,
                context.node,
                object.pid,
                agent,
                object.uri,
                int(object.load_base),
                int(object.load_size),
                object.load_delta,
                storage,
                extdata.to_string(),
            ];
            context.database.insert(&sql, values)?;
        }
        // Objects without an event.
        let none = None::<i64>;
        for (id, pid) in std::mem::take(&mut self.referred) {
            context.who.process(pid);
            let agent = self.agent(context, None);
            let extdata = "{\"unknown\":true}";
            let values = params![
                id,
                context.node,
                pid,
                agent,
                none,
                none,
                none,
                none,
                none,
                extdata
            ];
            context.database.insert(&sql, values)?;
        }
        Ok(())
    }

    pub(super) fn write_agents(&self, context: &mut Context) -> Result<(), ExportError> {
        let sql = "INSERT INTO rocpd_info_agent{uuid} (id, nid, pid, type, absolute_index, logical_index, type_index, uuid, \
                   name, model_name, vendor_name, product_name, user_name, extdata) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12)";
        let sql = context.database.identity.fill(sql);
        let (node, main) = (context.node, context.main);
        let none = None::<i64>;
        for info in context.gpus.agents() {
            let agent = &info.agent;
            let kind = match agent.kind {
                AgentKind::Cpu => "CPU",
                AgentKind::Gpu => "GPU",
            };
            let mut extdata: Map<String, Value> = Map::new();
            extdata.insert("node_id".to_owned(), agent.node_id.into());
            extdata.insert("gpu_id".to_owned(), agent.gpu_id.into());
            extdata.extend(
                agent
                    .info
                    .iter()
                    .map(|(name, value)| (name.to_lowercase(), (*value).into())),
            );
            let values = params![
                agent.node_id,
                node,
                main,
                kind,
                info.absolute_index,
                info.type_index,
                agent.gpu_id,
                agent.name,
                agent.model_name,
                agent.vendor_name,
                agent.product_name,
                Value::Object(extdata).to_string(),
            ];
            context.database.insert(&sql, values)?;
        }
        if self.unknown_agent {
            let name = "unknown agent";
            let values = params![
                UNKNOWN_AGENT,
                node,
                main,
                None::<&str>,
                UNKNOWN_AGENT,
                UNKNOWN_AGENT,
                none,
                name,
                name,
                "",
                "",
                "{\"unknown\":true}",
            ];
            context.database.insert(&sql, values)?;
        }
        Ok(())
    }
}

pub(super) fn write_streams(context: &mut Context) -> Result<(), ExportError> {
    let sql =
        "INSERT INTO rocpd_info_stream{uuid} (id, nid, pid, name, extdata) VALUES (?, ?, ?, ?, ?)";
    let sql = context.database.identity.fill(sql);
    let (node, main) = (context.node, context.main);
    let default = params![0, node, main, "Default Stream", "{}"];
    context.database.insert(&sql, default)?;
    for stream in &context.streams {
        let id = stream.number;
        context.who.process(stream.pid);
        let extdata = json!({"handle": stream.key.handle}).to_string();
        let values = params![id, node, stream.pid, format!("Stream {id}"), extdata];
        context.database.insert(&sql, values)?;
    }
    Ok(())
}

/// The first GPU of the kind that a code object was compiled for, found by its target, such as
/// `--gfx90a:xnack-`.
fn node_of_target(context: &Context, target: &str) -> Option<u32> {
    let kind = target.rsplit_once("--").map_or(target, |(_, kind)| kind);
    let kind = kind.split(':').next().unwrap_or_default();
    let fits = |info: &&AgentInfo| {
        info.agent.kind == AgentKind::Gpu && info.agent.name.split(':').next() == Some(kind)
    };
    let agent = context.gpus.agents().iter().find(fits)?;
    Some(agent.agent.node_id)
}
