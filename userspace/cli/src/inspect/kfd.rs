//! `gputrace kfd PID`: what a process holds in the driver, and how fast that changes.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use gputrace_files::kernel;
use gputrace_kfd::{
    FileError,
    processes::{self, Detail, DrmClient, GpuUse, Process, Queue, queue_type_name},
};
use gputrace_text::Page;
use gputrace_tracee::process;
use serde::Serialize;

use super::{
    KfdArgs, Machine, View, more_rights, notes_of,
    owner::Owner,
    ps::Agents,
    show,
    table::{
        Align::{Left, Right},
        Table, bytes, or_dash, time,
    },
};
use crate::{exit, say};

/// Shows what a process holds.
pub(crate) fn run(args: &KfdArgs) -> Result<u8> {
    let machine = Machine::this();
    // KFD has the host's ids, /proc those of gputrace's pid namespace.
    if machine.has_host_pids() {
        process::check_is_process(args.pid)?;
    }
    let Some(before) = Reading::take(&machine, args.pid)? else {
        say(&why_none(&machine, args.pid));
        let exists = kernel::exists(machine.paths.proc.join(args.pid.to_string()));
        return Ok(if exists {
            exit::FAILURE
        } else {
            exit::NO_TARGET
        });
    };
    std::thread::sleep(args.interval);
    let Some(after) = Reading::take(&machine, args.pid)? else {
        say(&format!(
            "process {} ended, or closed /dev/kfd, between the two readings",
            args.pid
        ));
        return Ok(exit::NO_TARGET);
    };
    let seen = Seen::new(&machine, &before, after);
    show(&seen, args.json)?;
    Ok(0)
}

fn why_none(machine: &Machine, pid: u32) -> String {
    if !machine.has("sys/class/kfd/kfd") {
        return format!("the driver lists no processes: {}", machine.why_no_kfd());
    }
    if kernel::exists(machine.paths.proc.join(pid.to_string())) {
        format!(
            "process {pid} has not opened /dev/kfd, so it holds nothing there; `gputrace ps` lists those that have"
        )
    } else {
        format!("there is no process {pid}; `gputrace ps` lists those that use KFD")
    }
}

/// All data of a process at one time.
struct Reading {
    at: Instant,
    process: Process,
    clients: Result<Vec<DrmClient>, FileError>,
}

impl Reading {
    /// `None` if KFD does not list the process.
    fn take(machine: &Machine, pid: u32) -> Result<Option<Self>> {
        let Some(process) = processes::process(&machine.paths, pid, Detail::All)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            at: Instant::now(),
            process,
            clients: processes::drm_clients(&machine.paths, pid),
        }))
    }
}

#[derive(Debug, Serialize)]
struct Seen {
    pid: u32,
    #[serde(flatten)]
    owner: Owner,
    pasid: Option<u64>,
    /// Time between the readings.
    interval_ns: u64,
    queues: Vec<QueueView>,
    gpus: Vec<GpuView>,
    drm_clients: Vec<ClientView>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct QueueView {
    id: u32,
    #[serde(rename = "type")]
    kind: Option<u64>,
    type_name: Option<&'static str>,
    ring_bytes: Option<u64>,
    gpu_id: Option<u64>,
    agent: Option<String>,
}

/// What a process has on a GPU at the second reading, and the change per second since the first.
#[derive(Debug, Serialize)]
struct GpuView {
    gpu_id: u32,
    agent: String,
    vram_bytes: Option<u64>,
    /// Growth, bytes per second; negative if memory was freed.
    vram_bytes_per_s: Option<f64>,
    sdma_us: Option<u64>,
    /// Share of the time in which SDMA engines worked for it, percent; more than 100 with several
    /// engines.
    sdma_percent: Option<f64>,
    evicted_ms: Option<u64>,
    evicted_percent: Option<f64>,
    cu_occupancy: Option<u64>,
    faults: Option<u64>,
    faults_per_s: Option<f64>,
    page_in: Option<u64>,
    page_in_per_s: Option<f64>,
    page_out: Option<u64>,
    page_out_per_s: Option<f64>,
}

/// An open render node.
#[derive(Debug, Serialize)]
struct ClientView {
    descriptor: u32,
    driver: String,
    device: Option<String>,
    client_id: Option<u64>,
    memory_bytes: BTreeMap<String, u64>,
    /// Share of the time in which an engine worked for it, percent, by key.
    engine_percent: BTreeMap<String, f64>,
}

impl Seen {
    fn new(machine: &Machine, before: &Reading, after: Reading) -> Self {
        let interval = after.at.duration_since(before.at);
        let mut notes = Vec::new();
        let agents = Agents::read(machine, &mut notes);
        notes_of(&after.process.problems, &mut notes);
        let clients = after.clients.unwrap_or_else(|error| {
            notes.push(format!(
                "render nodes of the process are not shown: {error}; to see them: {}",
                more_rights("kfd PID")
            ));
            Vec::new()
        });
        let none = Vec::new();
        let earlier = before.clients.as_ref().unwrap_or(&none);
        let process = &after.process;
        Self {
            pid: process.pid,
            owner: if machine.has_host_pids() {
                Owner::read(&machine.paths, process.pid)
            } else {
                Owner::default()
            },
            pasid: process.pasid,
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            queues: process
                .queues
                .iter()
                .map(|queue| QueueView::new(queue, &agents))
                .collect(),
            gpus: process
                .gpus
                .iter()
                .map(|(gpu_id, now)| {
                    let then = before.process.gpus.get(gpu_id);
                    GpuView::new(*gpu_id, &agents, then, now, interval)
                })
                .collect(),
            drm_clients: clients
                .into_iter()
                .map(|client| ClientView::new(client, earlier, interval))
                .collect(),
            notes,
        }
    }
}

impl QueueView {
    fn new(queue: &Queue, agents: &Agents) -> Self {
        let gpu_id = queue.gpu_id.and_then(|id| u32::try_from(id).ok());
        Self {
            id: queue.id,
            kind: queue.kind,
            type_name: queue.kind.and_then(queue_type_name),
            ring_bytes: queue.size,
            gpu_id: queue.gpu_id,
            agent: gpu_id.map(|id| agents.label(id)),
        }
    }
}

/// Change per second; `None` if either value is missing.
fn rate(then: Option<u64>, now: Option<u64>, interval: Duration) -> Option<f64> {
    let change = now? as f64 - then? as f64;
    let seconds = interval.as_secs_f64();
    (seconds > 0.0).then(|| change / seconds)
}

impl GpuView {
    fn new(
        gpu_id: u32,
        agents: &Agents,
        then: Option<&GpuUse>,
        now: &GpuUse,
        interval: Duration,
    ) -> Self {
        let rate_of = |of: fn(&GpuUse) -> Option<u64>| rate(then.and_then(of), of(now), interval);
        // Converts µs or ms per second to percent.
        let percent =
            |per_second: Option<f64>, full: f64| per_second.map(|used| used * 100.0 / full);
        Self {
            gpu_id,
            agent: agents.label(gpu_id),
            vram_bytes: now.vram_bytes,
            vram_bytes_per_s: rate_of(|gpu| gpu.vram_bytes),
            sdma_us: now.sdma_us,
            sdma_percent: percent(rate_of(|gpu| gpu.sdma_us), 1e6),
            evicted_ms: now.evicted_ms,
            evicted_percent: percent(rate_of(|gpu| gpu.evicted_ms), 1e3),
            cu_occupancy: now.cu_occupancy,
            faults: now.faults,
            faults_per_s: rate_of(|gpu| gpu.faults),
            page_in: now.page_in,
            page_in_per_s: rate_of(|gpu| gpu.page_in),
            page_out: now.page_out,
            page_out_per_s: rate_of(|gpu| gpu.page_out),
        }
    }
}

impl ClientView {
    fn new(client: DrmClient, earlier: &[DrmClient], interval: Duration) -> Self {
        let then = earlier
            .iter()
            .find(|then| (&then.device, then.client_id) == (&client.device, client.client_id));
        let percent = |key: &str, now: u64| {
            let then = then.and_then(|then| then.engine_ns.get(key)).copied();
            rate(then, Some(now), interval).map(|ns| ns / 1e7)
        };
        Self {
            engine_percent: client
                .engine_ns
                .iter()
                .filter_map(|(key, ns)| Some((key.clone(), percent(key, *ns)?)))
                .collect(),
            descriptor: client.descriptor,
            driver: client.driver,
            device: client.device,
            client_id: client.client_id,
            memory_bytes: client.memory_bytes,
        }
    }
}

impl Seen {
    /// Whose process it is, and over which time rates are.
    fn title(&self, out: &mut Page<String>) {
        let owner = &self.owner;
        let name = owner.title().unwrap_or("process");
        let _ = out.part(format_args!("{name}, pid {}", self.pid));
        if let Some(user) = &owner.user {
            let _ = out.part(format_args!(", user {user}"));
        }
        if let Some(container) = &owner.identity.container {
            let _ = out.part(format_args!(", container {}", container.label()));
        }
        let _ = out.line(format_args!("; rates over {}", time(self.interval_ns)));
    }

    /// One row a queue.
    fn table_of_queues(&self) -> Table {
        let mut queues = Table::new(&[
            ("QUEUE", Right),
            ("TYPE", Left),
            ("RING", Right),
            ("AGENT", Left),
        ]);
        for queue in &self.queues {
            queues.row([
                queue.id.to_string(),
                queue.type_name.map_or_else(
                    || or_dash(queue.kind, |kind| format!("type {kind}")),
                    str::to_owned,
                ),
                or_dash(queue.ring_bytes, bytes),
                or_dash(queue.agent.clone(), |agent| agent),
            ]);
        }
        queues
    }

    /// One row a GPU that the process uses.
    fn table_of_gpus(&self) -> Table {
        let mut gpus = Table::new(&[
            ("AGENT", Left),
            ("VRAM", Right),
            ("GROWTH", Right),
            ("SDMA", Right),
            ("BUSY", Right),
            ("EVICTED", Right),
            ("SHARE", Right),
            ("BUSY CUS", Right),
        ]);
        let percent = |value: Option<f64>| or_dash(value, |value| format!("{value:.1} %"));
        for gpu in &self.gpus {
            gpus.row([
                gpu.agent.clone(),
                or_dash(gpu.vram_bytes, bytes),
                or_dash(gpu.vram_bytes_per_s, growth),
                or_dash(gpu.sdma_us, |us| time(us.saturating_mul(1_000))),
                percent(gpu.sdma_percent),
                or_dash(gpu.evicted_ms, |ms| time(ms.saturating_mul(1_000_000))),
                percent(gpu.evicted_percent),
                or_dash(gpu.cu_occupancy, |units| units.to_string()),
            ]);
        }
        gpus
    }

    /// One row a GPU on which pages were missing or moved.
    fn table_of_paging(&self) -> Table {
        let mut paging = Table::new(&[
            ("AGENT", Left),
            ("FAULTS", Right),
            ("PER SECOND", Right),
            ("PAGES IN", Right),
            ("PER SECOND", Right),
            ("PAGES OUT", Right),
            ("PER SECOND", Right),
        ]);
        let per_second = |value: Option<f64>| or_dash(value, |value| format!("{value:.0}"));
        for gpu in &self.gpus {
            if gpu.faults.or(gpu.page_in).or(gpu.page_out).is_some() {
                let number = |value: Option<u64>| or_dash(value, |number| number.to_string());
                paging.row([
                    gpu.agent.clone(),
                    number(gpu.faults),
                    per_second(gpu.faults_per_s),
                    number(gpu.page_in),
                    per_second(gpu.page_in_per_s),
                    number(gpu.page_out),
                    per_second(gpu.page_out_per_s),
                ]);
            }
        }
        paging
    }

    /// One row a figure of a render node.
    fn table_of_clients(&self) -> Table {
        let mut clients = Table::new(&[
            ("FD", Right),
            ("DEVICE", Left),
            ("WHAT", Left),
            ("VALUE", Right),
        ]);
        for client in &self.drm_clients {
            let mut who = [
                client.descriptor.to_string(),
                client
                    .device
                    .clone()
                    .unwrap_or_else(|| client.driver.clone()),
            ];
            let memory = client
                .memory_bytes
                .iter()
                .map(|(key, size)| (key, bytes(*size)));
            let engines = client
                .engine_percent
                .iter()
                .map(|(key, part)| (key, format!("{part:.1} %")));
            for (key, value) in memory.chain(engines) {
                let [descriptor, device] = std::mem::take(&mut who);
                clients.row([descriptor, device, key.clone(), value]);
            }
        }
        clients
    }
}

impl View for Seen {
    fn text(&self) -> String {
        let mut out = Page::new(String::new());
        self.title(&mut out);
        self.table_of_queues().section(&mut out, "Queues");
        self.table_of_gpus().section(&mut out, "On each GPU");
        self.table_of_paging()
            .section(&mut out, "GPU page faults and migrations");
        self.table_of_clients().section(
            &mut out,
            "Render nodes (as DRM reports them; it does not count compute queues as engines)",
        );
        out.into_inner()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Bytes per second with a sign.
fn growth(per_second: f64) -> String {
    let sign = if per_second < 0.0 { "-" } else { "+" };
    match per_second.abs().round() as u64 {
        0 => "0".to_owned(),
        size => format!("{sign}{}/s", bytes(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{table::WIDTH, tree};

    #[test]
    fn rates_are_made_from_two_readings() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        let before = Reading::take(&machine, 4711).unwrap().unwrap();
        let write = |path: &str, text: &str| {
            tree::write(
                directory.path(),
                &format!("sys/class/kfd/kfd/proc/4711/{path}"),
                text,
            );
        };
        write("sdma_10321", "501500\n");
        write("stats_10321/evicted_ms", "262\n");
        write("vram_10321", "34359738368\n");
        write("counters_10321/faults", "2003\n");
        tree::write(
            directory.path(),
            "proc/4711/fdinfo/5",
            &tree::RENDER_NODE.replace("drm-engine-dec:\t0 ns", "drm-engine-dec:\t100000000 ns"),
        );
        let mut after = Reading::take(&machine, 4711).unwrap().unwrap();
        after.at = before.at + Duration::from_secs(2);
        let seen = Seen::new(&machine, &before, after);
        assert!(seen.notes.is_empty(), "{:?}", seen.notes);
        let gpu = &seen.gpus[0];
        assert_eq!(
            (gpu.gpu_id, gpu.sdma_percent, gpu.evicted_percent),
            (10_321, Some(25.0), Some(12.5))
        );
        assert_eq!(gpu.faults_per_s, Some(1000.0));
        assert_eq!(seen.drm_clients[0].engine_percent["drm-engine-dec"], 5.0);
        let text = seen.text();
        for expected in [
            "pid 4711",
            "rates over 2.0 s",
            "COMPUTE",
            "1.0 MiB",
            "-16.0 GiB/s",
            "25.0 %",
            "drm-memory-vram",
            "0001:83:00.0",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        let json = serde_json::to_value(&seen).unwrap();
        assert_eq!(json["queues"][1]["type_name"], "COMPUTE");
    }

    #[test]
    fn why_a_process_is_not_there() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        assert!(Reading::take(&machine, 99).unwrap().is_none());
        assert!(why_none(&machine, 99).contains("no process 99"));
        tree::write(directory.path(), "proc/99/comm", "idle\n");
        assert!(why_none(&machine, 99).contains("has not opened /dev/kfd"));
        let nothing = tempfile::tempdir().unwrap();
        assert!(why_none(&Machine::under(nothing.path()), 99).contains("no AMD GPU"));
    }
}
