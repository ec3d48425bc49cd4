//! `gputrace topology`: the agents, their memory and caches, and the links between them.

use std::collections::BTreeMap;

use anyhow::Result;
use gputrace_kfd::topology::{Agent, AgentType, AgentValue, Cache, Link, MemBank, Node, Topology};
use gputrace_text::Page;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{
    Machine, TopologyArgs, View, notes_of, show,
    table::{
        Align::{Left, Right},
        Table, bytes, cut,
    },
};

/// Shows the topology. Exits successfully even without the driver.
pub(crate) fn run(args: &TopologyArgs) -> Result<u8> {
    let seen = Seen::read(&Machine::this(), args.verbose || args.json)?;
    show(&seen, args.json)?;
    Ok(0)
}

/// All agents.
#[derive(Debug, Serialize)]
struct Seen {
    /// KFD's counter of topology changes; absent without the driver.
    generation_id: Option<u64>,
    agents: Vec<AgentView>,
    links: Vec<LinkView>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct AgentView {
    node: u32,
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    product: String,
    pci: Option<String>,
    gpu_id: u32,
    /// The `GPU-...` id for `ROCR_VISIBLE_DEVICES`.
    uuid: Option<String>,
    compute_units: u64,
    memory_banks: Vec<MemoryView>,
    caches: Vec<CacheView>,
    /// rocprofv3's columns, in its order; empty if not asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    agent_info: Vec<(&'static str, Value)>,
}

#[derive(Debug, Serialize)]
struct MemoryView {
    heap_type: u64,
    heap: &'static str,
    size_bytes: u64,
    width_bits: u64,
    max_clock_mhz: u64,
}

/// Identical caches of a node.
#[derive(Debug, Serialize)]
struct CacheView {
    count: usize,
    level: u64,
    contents: String,
    size_kib: u64,
    line_bytes: u64,
    association: u64,
}

#[derive(Debug, Serialize)]
struct LinkView {
    from: u64,
    to: u64,
    /// Whether the link leads through other nodes.
    indirect: bool,
    #[serde(rename = "type")]
    kind: String,
    weight: u64,
    min_bandwidth_mb_s: u64,
    max_bandwidth_mb_s: u64,
    flags: Vec<&'static str>,
}

impl Seen {
    fn read(machine: &Machine, with_columns: bool) -> Result<Self> {
        let topology = Topology::read(&machine.paths)?;
        let agents = topology.agents(&machine.paths);
        let mut notes = Vec::new();
        if topology.generation_id.is_none() {
            notes.push(format!("no agents: {}", machine.why_no_kfd()));
        } else if topology.nodes.is_empty() {
            notes.push(
                "no agents: KFD hides them from this control group; run gputrace outside of the container, or give \
                 the container /dev/kfd and /dev/dri"
                    .to_owned(),
            );
        } else if topology.gpu_ids().is_empty() {
            notes.push(format!("no GPU among the agents: {}", machine.why_no_kfd()));
        }
        notes_of(&topology.problems, &mut notes);
        let links = |node: &Node| {
            let direct = node.io_links.iter().map(|link| LinkView::new(link, false));
            let indirect = node.p2p_links.iter().map(|link| LinkView::new(link, true));
            direct.chain(indirect).collect::<Vec<_>>()
        };
        Ok(Self {
            generation_id: topology.generation_id,
            links: topology.nodes.iter().flat_map(links).collect(),
            agents: agents
                .iter()
                .zip(&topology.nodes)
                .map(|(agent, node)| AgentView::new(agent, node, with_columns))
                .collect(),
            notes,
        })
    }
}

impl AgentView {
    fn new(agent: &Agent, node: &Node, with_columns: bool) -> Self {
        let value = |value| match value {
            AgentValue::Number(number) => Value::from(number),
            AgentValue::Text(text) => Value::from(text),
        };
        let columns = if with_columns {
            agent.columns()
        } else {
            Vec::new()
        };
        Self {
            node: agent.node_id,
            kind: agent.agent_type.label(),
            name: agent.name.clone(),
            product: agent.product_name.clone(),
            pci: agent.pci_address.map(|address| address.to_string()),
            gpu_id: agent.gpu_id,
            uuid: (agent.unique_id != 0).then(|| format!("GPU-{:016x}", agent.unique_id)),
            compute_units: agent.cu_count,
            memory_banks: node.mem_banks.iter().map(MemoryView::new).collect(),
            caches: CacheView::all(&node.caches),
            agent_info: columns
                .into_iter()
                .map(|(name, of)| (name, value(of)))
                .collect(),
        }
    }

    fn is_gpu(&self) -> bool {
        self.kind == AgentType::Gpu.label()
    }

    fn memory_bytes(&self) -> u64 {
        // System memory and VRAM; the other heaps are on the chip.
        let sizes = self.memory_banks.iter().filter(|bank| bank.heap_type <= 2);
        sizes.fold(0, |sum, bank| sum.saturating_add(bank.size_bytes))
    }
}

/// Serializes an object whose keys keep their order.
fn as_map<S: Serializer>(
    columns: &[(&'static str, Value)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(columns.iter().map(|(name, value)| (name, value)))
}

impl MemoryView {
    fn new(bank: &MemBank) -> Self {
        Self {
            heap_type: bank.heap_type,
            // `HSA_MEM_HEAP_TYPE` of the kernel's kfd_sysfs.h.
            heap: match bank.heap_type {
                0 => "system memory",
                1 => "VRAM, all visible to the CPU",
                2 => "VRAM, not visible to the CPU",
                3 => "GDS",
                4 => "LDS",
                5 => "scratch",
                _ => "unknown",
            },
            size_bytes: bank.size_in_bytes,
            width_bits: bank.width,
            max_clock_mhz: bank.mem_clk_max,
        }
    }
}

impl CacheView {
    /// Groups identical caches, by level: a GPU has hundreds of caches.
    fn all(caches: &[Cache]) -> Vec<Self> {
        let mut counts: BTreeMap<(u64, u64, u64, u64, u64), usize> = BTreeMap::new();
        for cache in caches {
            let alike = (
                cache.level,
                cache.kind,
                cache.size,
                cache.cache_line_size,
                cache.association,
            );
            *counts.entry(alike).or_default() += 1;
        }
        let view = |((level, kind, size_kib, line_bytes, association), count)| Self {
            count,
            level,
            contents: contents(kind),
            size_kib,
            line_bytes,
            association,
        };
        counts.into_iter().map(view).collect()
    }
}

/// What a cache contains, from `HSA_CACHE_TYPE` bits of the kernel's kfd_sysfs.h.
fn contents(kind: u64) -> String {
    match kind & 3 {
        1 => "data",
        2 => "instructions",
        3 => "data, instructions",
        _ => "unknown",
    }
    .to_owned()
}

impl LinkView {
    fn new(link: &Link, indirect: bool) -> Self {
        // `HSA_LINKPROPERTY` bits of the kernel's kfd_sysfs.h.
        const FLAGS: [(u64, &str); 5] = [
            (0, "override"),
            (1, "not coherent"),
            (2, "no 32-bit atomics"),
            (3, "no 64-bit atomics"),
            (4, "no peer DMA"),
        ];
        let has = |bit: u64| link.flags >> bit & 1 == 1;
        Self {
            from: link.node_from,
            to: link.node_to,
            indirect,
            kind: link_kind(link.kind),
            weight: link.weight,
            min_bandwidth_mb_s: link.min_bandwidth,
            max_bandwidth_mb_s: link.max_bandwidth,
            // Bit 0 only means that the other bits are valid.
            flags: FLAGS
                .into_iter()
                .filter(|(bit, _)| *bit > 0 && has(*bit))
                .map(|(_, name)| name)
                .collect(),
        }
    }

    fn bandwidth(&self) -> String {
        match (self.min_bandwidth_mb_s, self.max_bandwidth_mb_s) {
            (0, 0) => "-".to_owned(),
            (0, most) => format!("{most} MB/s"),
            (least, most) if least == most => format!("{most} MB/s"),
            (least, most) => format!("{least} to {most} MB/s"),
        }
    }
}

/// `HSA_IOLINKTYPE` of the kernel's kfd_crat.h (`CRAT_IOLINK_TYPE_*`).
fn link_kind(kind: u64) -> String {
    match kind {
        1 => "HyperTransport",
        2 => "PCIe",
        3 => "AMBA",
        4 => "MIPI",
        5 => "QPI",
        8 => "RapidIO",
        9 => "InfiniBand",
        11 => "XGMI",
        12 => "XGOP",
        13 => "GZ",
        14 => "Ethernet RDMA",
        15 => "RDMA",
        other => return format!("type {other}"),
    }
    .to_owned()
}

impl Seen {
    /// One row an agent.
    fn table_of_agents(&self) -> Table {
        let mut agents = Table::new(&[
            ("NODE", Right),
            ("TYPE", Left),
            ("NAME", Left),
            ("PRODUCT", Left),
            ("PCI", Left),
            ("CUS", Right),
            ("MEMORY", Right),
            ("GPU ID", Right),
        ]);
        for agent in &self.agents {
            // For a CPU, the model is both its name and its product.
            let (name, product) = if agent.is_gpu() {
                (agent.name.clone(), cut(&agent.product, 30))
            } else {
                ("-".to_owned(), cut(&agent.product, 30))
            };
            agents.row([
                agent.node.to_string(),
                agent.kind.to_owned(),
                name,
                product,
                agent.pci.clone().unwrap_or_else(|| "-".to_owned()),
                agent.compute_units.to_string(),
                match agent.memory_bytes() {
                    0 => "-".to_owned(),
                    size => bytes(size),
                },
                positive(agent.gpu_id.into(), ""),
            ]);
        }
        agents
    }

    /// One row a bank of memory.
    fn table_of_memory(&self) -> Table {
        let mut memory = Table::new(&[
            ("NODE", Right),
            ("HEAP", Left),
            ("SIZE", Right),
            ("WIDTH", Right),
            ("MAX CLOCK", Right),
        ]);
        for agent in &self.agents {
            for bank in &agent.memory_banks {
                memory.row([
                    agent.node.to_string(),
                    bank.heap.to_owned(),
                    bytes(bank.size_bytes),
                    positive(bank.width_bits, " bit"),
                    positive(bank.max_clock_mhz, " MHz"),
                ]);
            }
        }
        memory
    }

    /// One row a kind of cache.
    fn table_of_caches(&self) -> Table {
        let mut caches = Table::new(&[
            ("NODE", Right),
            ("LEVEL", Left),
            ("CONTENTS", Left),
            ("COUNT", Right),
            ("SIZE EACH", Right),
            ("LINE", Right),
            ("WAYS", Right),
        ]);
        for agent in &self.agents {
            for cache in &agent.caches {
                caches.row([
                    agent.node.to_string(),
                    format!("L{}", cache.level),
                    cache.contents.clone(),
                    cache.count.to_string(),
                    bytes(cache.size_kib.saturating_mul(1024)),
                    positive(cache.line_bytes, " B"),
                    positive(cache.association, ""),
                ]);
            }
        }
        caches
    }

    /// One row a link.
    fn table_of_links(&self) -> Table {
        let mut links = Table::new(&[
            ("FROM", Right),
            ("TO", Right),
            ("TYPE", Left),
            ("WEIGHT", Right),
            ("BANDWIDTH", Right),
            ("REMARKS", Left),
        ]);
        for link in &self.links {
            let mut remarks = link.flags.clone();
            if link.indirect {
                remarks.insert(0, "through other nodes");
            }
            links.row([
                link.from.to_string(),
                link.to.to_string(),
                link.kind.clone(),
                positive(link.weight, ""),
                link.bandwidth(),
                remarks.join(", "),
            ]);
        }
        links
    }
}

/// A number with its unit, or a dash for 0.
fn positive(number: u64, unit: &str) -> String {
    match number {
        0 => "-".to_owned(),
        _ => format!("{number}{unit}"),
    }
}

impl View for Seen {
    fn text(&self) -> String {
        let mut out = Page::new(String::new());
        let agents = self.table_of_agents();
        if !agents.is_empty() {
            agents.render(&mut out);
        }
        self.table_of_memory().section(&mut out, "Memory");
        self.table_of_caches().section(&mut out, "Caches");
        self.table_of_links()
            .section(&mut out, "Links between nodes");
        for agent in self
            .agents
            .iter()
            .filter(|agent| !agent.agent_info.is_empty())
        {
            let _ = out.paragraph(format_args!(
                "Agent {}, as rocprofv3's agent_info has it",
                agent.node
            ));
            for (name, value) in &agent.agent_info {
                let value = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let _ = out.line(format_args!("  {name:<27} {value}"));
            }
        }
        out.into_inner()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{table::WIDTH, tree};

    #[test]
    fn a_node_with_two_gpus() {
        let directory = tree::two_gpus();
        let machine = Machine::under(directory.path());
        let seen = Seen::read(&machine, false).unwrap();
        assert!(seen.notes.is_empty(), "{:?}", seen.notes);
        let text = seen.text();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for expected in [
            "0 CPU - Made-up CPU - 64 - -",
            "1 GPU gfx90a AMD Instinct MI210 0001:83:00.0 104 64.0 GiB 10321",
            "1 VRAM, all visible to the CPU 64.0 GiB 4096 bit 1600 MHz",
            "1 L1 data 2 16.0 KiB - -",
            "1 0 PCIe 20 -",
            "1 2 XGMI 15 50000 to 200000 MB/s through other nodes, not coherent",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected} is not in\n{text}"
            );
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(!text.contains("Cu_Count"), "{text}");
    }

    #[test]
    fn all_columns_in_their_order() {
        let directory = tree::two_gpus();
        let seen = Seen::read(&Machine::under(directory.path()), true).unwrap();
        let text = seen.text();
        let (node, model) = (text.find("Node_Id"), text.rfind("Model_Name"));
        assert!(node.is_some() && node < model, "{text}");
        let json: Value = serde_json::from_str(&serde_json::to_string(&seen).unwrap()).unwrap();
        assert_eq!(json["agents"][1]["agent_info"]["Cu_Count"], 104);
        assert_eq!(json["agents"][1]["uuid"], "GPU-00000000000004d2");
        assert_eq!(
            json["agents"][1]["memory_banks"][0]["size_bytes"],
            68_702_699_520_u64
        );
        assert_eq!(json["links"][1]["type"], "XGMI");
    }

    #[test]
    fn without_the_driver_there_is_one_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let seen = Seen::read(&Machine::under(directory.path()), false).unwrap();
        assert_eq!(seen.text(), "");
        assert_eq!(seen.notes.len(), 1);
        assert!(seen.notes[0].contains("no AMD GPU"), "{:?}", seen.notes);
    }

    #[test]
    fn a_hidden_or_lying_tree_is_said() {
        let directory = tempfile::tempdir().unwrap();
        tree::write(
            directory.path(),
            "sys/class/kfd/kfd/topology/generation_id",
            "1\n",
        );
        let machine = Machine::under(directory.path());
        let seen = Seen::read(&machine, false).unwrap();
        assert!(seen.notes[0].contains("control group"), "{:?}", seen.notes);
        tree::write(
            directory.path(),
            "sys/class/kfd/kfd/topology/nodes/0/properties",
            "cpu_cores_count 2\n",
        );
        tree::write(
            directory.path(),
            "sys/class/kfd/kfd/topology/nodes/0/mem_banks/0/properties",
            "heap_type many\n",
        );
        let seen = Seen::read(&machine, false).unwrap();
        assert_eq!(seen.agents.len(), 1);
        assert!(
            seen.notes.iter().any(|note| note.contains("no GPU among")),
            "{:?}",
            seen.notes
        );
    }
}
