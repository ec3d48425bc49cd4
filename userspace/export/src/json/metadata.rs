//! The objects that records refer to, in rocprofiler-sdk's format: processes, agents, code objects,
//! kernels.

use std::collections::BTreeMap;

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    gpu::{Agent, AgentKind},
    meta::Recording,
};
use gputrace_timeline::{
    event::ProcessInfo,
    gpu::{AgentInfo, CodeObjectInfo, KernelInfo},
};
use serde_json::{Map, Value, json};

use crate::{
    gpu::Gpus,
    json::records::agent_id,
    json::symbols::Registered,
    node::{node_hash, node_number},
};

/// The `metadata` of a process that was known until `end`. `outputs` are members of `config` about
/// the making of outputs.
pub(crate) fn metadata(
    recording: &Recording,
    info: &ProcessInfo,
    end: Option<u64>,
    outputs: &Map<String, Value>,
) -> Value {
    let is_on = |domain: Domain| recording.domains.iter().any(|name| name == domain.name());
    let mut config = traces(is_on);
    config.extend(outputs.clone());
    let mut metadata = json!({
        "node": {
            "id": node_number(recording),
            "hash": node_hash(recording),
            "machine_id": recording.hostname,
            "system_name": "Linux",
            "hostname": recording.hostname,
            "release": recording.kernel_release,
            "version": recording.kernel_version,
            "hardware_name": recording.machine,
            "domain_name": "(none)",
        },
        "pid": info.pid,
        "init_time": if info.start == 0 { recording.clocks.boottime } else { info.start },
        "fini_time": end.unwrap_or(0),
        "command": info.command,
        "config": config,
    });
    if let (Value::Object(members), false) = (&mut metadata, info.identity.is_empty()) {
        members.insert("gputrace".to_owned(), json!({"identity": info.identity}));
    }
    metadata
}

/// Members of rocprofv3's configuration about what was recorded.
pub fn traces(is_on: impl Fn(Domain) -> bool) -> Map<String, Value> {
    let all = Domain::ALL.iter();
    all.filter_map(|domain| Some((domain.config()?.to_owned(), is_on(*domain).into())))
        .collect()
}

/// The fields of `HSA_CAPABILITY` (`hsakmttypes.h`) with their widths in bits, from the lowest.
const CAPABILITIES: [(&str, u32); 24] = [
    ("HotPluggable", 1),
    ("HSAMMUPresent", 1),
    ("SharedWithGraphics", 1),
    ("QueueSizePowerOfTwo", 1),
    ("QueueSize32bit", 1),
    ("QueueIdleEvent", 1),
    ("VALimit", 1),
    ("WatchPointsSupported", 1),
    ("WatchPointsTotalBits", 4),
    ("DoorbellType", 2),
    ("AQLQueueDoubleMap", 1),
    ("DebugTrapSupported", 1),
    ("WaveLaunchTrapOverrideSupported", 1),
    ("WaveLaunchModeSupported", 1),
    ("PreciseMemoryOperationsSupported", 1),
    ("DEPRECATED_SRAM_EDCSupport", 1),
    ("Mem_EDCSupport", 1),
    ("RASEventNotify", 1),
    ("ASICRevision", 4),
    ("SRAM_EDCSupport", 1),
    ("SVMAPISupported", 1),
    ("CoherentHostAccess", 1),
    ("DebugSupportedFirmware", 1),
    ("Reserved", 2),
];

fn capability(bits: u64) -> Value {
    let mut rest = bits;
    let members = CAPABILITIES.map(|(name, width)| {
        let value = rest & ((1 << width) - 1);
        rest >>= width;
        (name.to_owned(), value.into())
    });
    Value::Object(members.into_iter().collect())
}

/// An agent. Firmware versions have the ten bits that rocprofiler-sdk keeps.
pub(crate) fn agent(info: &AgentInfo) -> Value {
    let agent = &info.agent;
    let mut members = Map::new();
    members.insert("size".to_owned(), 0.into());
    members.insert("id".to_owned(), json!(agent_id(Some(agent.node_id))));
    // `rocprofiler_agent_type_t`.
    let kind = match agent.kind {
        AgentKind::Cpu => 1,
        AgentKind::Gpu => 2,
    };
    members.insert("type".to_owned(), kind.into());
    let mut dims: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (name, value) in &agent.info {
        let name = name.to_lowercase();
        // Three columns in CSV, one object here.
        let dim = ["workgroup_max_dim", "grid_max_dim"]
            .into_iter()
            .find_map(|dim| Some((dim, name.strip_prefix(dim)?.strip_prefix('_')?)));
        if let Some((dim, axis)) = dim {
            let axes = dims.entry(dim).or_default();
            axes.insert(axis.to_owned(), (*value).into());
            continue;
        }
        let value = match name.as_str() {
            "capability" => capability(*value),
            "fw_version" => json!({"uCode": value, "Major": 0, "Minor": 0, "Stepping": 0}),
            "sdma_fw_version" => json!({"uCodeSDMA": value, "uCodeRes": 0}),
            _ => (*value).into(),
        };
        members.insert(name, value);
    }
    members.extend(
        dims.into_iter()
            .map(|(dim, axes)| (dim.to_owned(), axes.into())),
    );
    let rest = json!({
        "gpu_id": agent.gpu_id,
        "name": agent.name,
        "vendor_name": agent.vendor_name,
        "product_name": agent.product_name,
        "model_name": agent.model_name,
        "node_id": agent.node_id,
        "logical_node_id": info.absolute_index,
        "logical_node_type_id": info.type_index,
        "gpu_index": if agent.kind == AgentKind::Gpu { i64::from(info.type_index) } else { -1 },
    });
    if let Value::Object(rest) = rest {
        members.extend(rest);
    }
    Value::Object(members)
}

/// A code object with its number; `node` is the agent that was seen executing a kernel of it. If
/// that is unknown, the agent is the only GPU of the object's target, or null. The program's own
/// handle of the agent is unknown: 0.
pub(crate) fn code_object(
    info: &CodeObjectInfo,
    id: usize,
    node: Option<u32>,
    gpus: &Gpus,
) -> Value {
    let agent = agent_id(node.or_else(|| only_gpu(gpus, &info.code_object.target)));
    let object = &info.code_object;
    // `rocprofiler_code_object_storage_type_t`.
    let storage = match object.uri.split_once("://") {
        Some(("file", _)) => 1,
        Some(("memory", _)) => 2,
        _ => 0,
    };
    let mut members = json!({
        "size": 0,
        "code_object_id": id,
        // Its name since ROCm 7.
        "agent_id": agent,
        "rocp_agent": agent,
        "hsa_agent": {"handle": 0},
        "uri": object.uri,
        "load_base": object.load_base,
        "load_size": object.load_size,
        "load_delta": object.load_delta,
        "storage_type": storage,
        "gputrace": {"target": object.target, "load_time": object.time},
    });
    if let (2, Some((base, size)), Value::Object(members)) =
        (storage, range(&object.uri), &mut members)
    {
        members.insert("memory_base".to_owned(), base.into());
        members.insert("memory_size".to_owned(), size.into());
    }
    members
}

/// The node of the only GPU of a target, such as `amdgcn-amd-amdhsa--gfx90a:xnack-`.
fn only_gpu(gpus: &Gpus, target: &str) -> Option<u32> {
    let kind = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    let wanted = kind(target.rsplit_once("--")?.1);
    let is_one = |agent: &&Agent| agent.kind == AgentKind::Gpu && kind(&agent.name) == wanted;
    let mut found = gpus.agents().iter().map(|info| &info.agent).filter(is_one);
    let only = found.next()?;
    found.next().is_none().then_some(only.node_id)
}

/// Offset and size in a URI such as `memory://1234#offset=0x7f00&size=4096`.
fn range(uri: &str) -> Option<(u64, u64)> {
    let (_, fragment) = uri.split_once(['#', '?'])?;
    let number = |name: &str| {
        let mut parts = fragment.split('&').filter_map(|part| part.split_once('='));
        let (_, value) = parts.find(|(known, _)| *known == name)?;
        match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        }
    };
    Some((number("offset")?, number("size")?))
}

/// A kernel with its number and that of its code object.
pub(crate) fn kernel(info: &KernelInfo, id: usize, code_object: usize) -> Value {
    let kernel = &info.kernel;
    let demangled = info.demangled_symbol();
    json!({
        "size": 0,
        "kernel_id": id,
        "code_object_id": code_object,
        "kernel_name": info.symbol(),
        "kernel_object": kernel.object,
        "kernarg_segment_size": kernel.kernarg_size,
        "kernarg_segment_alignment": kernel.kernarg_alignment,
        "group_segment_size": kernel.group_size,
        "private_segment_size": kernel.private_size,
        "sgpr_count": kernel.sgpr_count,
        "arch_vgpr_count": kernel.arch_vgpr_count,
        "accum_vgpr_count": kernel.accum_vgpr_count,
        "formatted_kernel_name": info.shown_name(),
        "demangled_kernel_name": demangled,
        "truncated_kernel_name": gputrace_demangle::truncate(&demangled),
    })
}

/// A host function with its number, for a kernel with the kernel's number and that of its code
/// object. The addresses for the launch's indices are not kept, because the runtime does not use
/// them.
pub(crate) fn host_function(
    one: &Registered,
    id: usize,
    info: &KernelInfo,
    kernel: usize,
    code_object: usize,
) -> Value {
    let device = &info.kernel.name;
    // Follows the kernel's shown name: the user may have asked for mangled or truncated names.
    let shown = if info.shown == info.symbol() {
        device
    } else {
        &info.shown
    };
    json!({
        "size": 0,
        "host_function_id": id,
        "kernel_id": kernel,
        "code_object_id": code_object,
        "host_function": {"handle": one.host_function},
        "modules": {"handle": one.modules},
        "device_function": device,
        "thread_limit": one.thread_limit,
        "formatted_host_function_name": shown,
        "demangled_host_function_name": info.demangled,
        "truncated_host_function_name": gputrace_demangle::truncate(&info.demangled),
    })
}

#[cfg(test)]
mod tests {
    use gputrace_capture::gpu::CodeObject;
    use gputrace_timeline::event::Event;

    use super::*;

    #[test]
    fn capabilities_are_all_bits() {
        assert_eq!(CAPABILITIES.iter().map(|(_, width)| width).sum::<u32>(), 32);
        // The value of a gfx90a.
        let shown = capability(0x4899_a280);
        for (name, value) in [
            ("WatchPointsSupported", 1),
            ("WatchPointsTotalBits", 2),
            ("DoorbellType", 2),
            ("DebugTrapSupported", 1),
            ("WaveLaunchTrapOverrideSupported", 1),
            ("ASICRevision", 2),
            ("SVMAPISupported", 1),
            ("DebugSupportedFirmware", 0),
            ("Reserved", 1),
        ] {
            assert_eq!(shown[name], value, "{name} in {shown}");
        }
    }

    #[test]
    fn whose_a_process_is() {
        let recording = Recording::default();
        let mut info = ProcessInfo::default();
        let of = |info: &ProcessInfo| metadata(&recording, info, None, &Map::new());
        assert_eq!(of(&info).get("gputrace"), None);
        info.identity.uid = Some(7);
        assert_eq!(of(&info)["gputrace"], json!({"identity": {"uid": 7}}));
    }

    #[test]
    fn the_agent_of_a_code_object_is_not_guessed() {
        let mut gpus = Gpus::default();
        let object = CodeObjectInfo {
            id: 1,
            code_object: CodeObject {
                uri: "memory://71#offset=0x7f00&size=4096".to_owned(),
                target: "amdgcn-amd-amdhsa--gfx90a:xnack-".to_owned(),
                ..CodeObject::default()
            },
        };
        let of = |gpus: &Gpus, node| code_object(&object, 1, node, gpus)["rocp_agent"].clone();
        let agent = |node| json!(agent_id(node));
        assert_eq!(of(&gpus, None), json!({"handle": 0}));
        for (node_id, seen) in [(4, Some(4)), (5, None)] {
            gpus.learn(&Event::Agent(Box::new(AgentInfo {
                agent: Agent {
                    node_id,
                    kind: AgentKind::Gpu,
                    name: "gfx90a".to_owned(),
                    ..Agent::default()
                },
                ..AgentInfo::default()
            })));
            assert_eq!(of(&gpus, None), agent(seen));
        }
        assert_eq!(of(&gpus, Some(5)), agent(Some(5)));
        let shown = code_object(&object, 1, None, &gpus);
        assert_eq!(
            (&shown["memory_base"], &shown["memory_size"]),
            (&0x7f00.into(), &4096.into())
        );
        assert_eq!(range("memory://71#offset=x&size=1"), None);
        assert_eq!(range("file:///a.out#offset=12&size=0x10"), Some((12, 16)));
    }
}
