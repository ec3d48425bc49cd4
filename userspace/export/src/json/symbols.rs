//! Code objects, kernels and host functions of processes. Their arrays are indexed by number, as in
//! rocprofv3's document, with an empty entry 0. Numbers count per process, from 1, because
//! rocprofv3 writes a document for each process.
//!
//! A host function is the function whose address is passed to `hipLaunchKernel`; the program
//! registers it for a kernel by `__hipRegisterFunction`. It is known if that call was recorded
//! (`--hip-compiler-trace`), and is in the array only if its kernel is known: libraries register
//! very many kernels that are never launched.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
};

use gputrace_timeline::{
    args::{self, ArgValue},
    event::{Call, FunctionInfo},
    gpu::{CodeObjectInfo, KernelInfo},
};
use serde_json::{Value, json};

use crate::{
    gpu::Gpus,
    json::metadata::{code_object, host_function, kernel},
};

/// The function that registers host functions.
const REGISTER: &str = "__hipRegisterFunction";

/// A host function that a program has registered for a kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered {
    /// Address that is passed to `hipLaunchKernel`.
    pub(crate) host_function: u64,
    /// Address of the modules.
    pub(crate) modules: u64,
    /// Maximum number of work-items in a workgroup; 2^32 - 1 means no limit.
    pub(crate) thread_limit: u32,
    /// A hash of the kernel's mangled name, because the name would take much more memory.
    kernel: u64,
}

#[derive(Debug, Default)]
struct OfProcess {
    code_objects: Vec<CodeObjectInfo>,
    kernels: Vec<KernelInfo>,
    registered: Vec<Registered>,
    /// Names of ranges after which kernels are named, by number of the range's text.
    renames: BTreeMap<u32, String>,
}

/// Code objects, kernels and host functions by process.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    processes: BTreeMap<u32, OfProcess>,
    /// Number within the process by number in the timeline.
    code_objects: HashMap<u32, usize>,
    kernels: HashMap<u32, usize>,
    /// The node that was seen executing a kernel, by code object.
    executed_on: HashMap<u32, u32>,
    /// Hashes kernel names.
    hasher: RandomState,
}

/// Puts the object with this timeline number into its process's list, replacing an earlier version
/// of it.
fn put<T>(list: &mut Vec<T>, numbers: &mut HashMap<u32, usize>, id: u32, info: T) {
    let number = *numbers.entry(id).or_insert(list.len() + 1);
    match list.get_mut(number - 1) {
        Some(known) => *known = info,
        None => list.push(info),
    }
}

impl Symbols {
    /// Learns of a code object.
    pub(crate) fn code_object(&mut self, info: &CodeObjectInfo) {
        let process = self.processes.entry(info.code_object.pid).or_default();
        put(
            &mut process.code_objects,
            &mut self.code_objects,
            info.id,
            info.clone(),
        );
    }

    /// Learns of a kernel, before any dispatch of it.
    pub(crate) fn kernel(&mut self, info: &KernelInfo) {
        let process = self.processes.entry(info.pid).or_default();
        if let Some(renamed) = info.renamed {
            let name = process.renames.entry(renamed.range);
            name.or_insert_with(|| info.shown.clone());
            return;
        }
        put(
            &mut process.kernels,
            &mut self.kernels,
            info.id,
            info.clone(),
        );
    }

    /// Notes that a node has executed a kernel of this code object.
    pub(crate) fn executed(&mut self, code_object: u32, node: u32) {
        self.executed_on.insert(code_object, node);
    }

    /// Learns of host functions from a call.
    pub(crate) fn call(&mut self, info: &FunctionInfo, call: &Call) {
        if info.function.name != REGISTER {
            return;
        }
        let mut registered = Registered::default();
        for (name, value) in args::decoded(info, call) {
            match (name, value) {
                ("hostFunction", ArgValue::Hex(address)) => registered.host_function = address,
                ("modules", ArgValue::Hex(address)) => registered.modules = address,
                ("deviceName", ArgValue::Text { text, cut: false }) => {
                    registered.kernel = self.hasher.hash_one(text);
                }
                ("threadLimit", ArgValue::Unsigned(limit)) => {
                    registered.thread_limit = u32::try_from(limit).unwrap_or(u32::MAX);
                }
                _ => {}
            }
        }
        let process = self.processes.entry(call.pid).or_default();
        process.registered.push(registered);
    }

    /// The number of a kernel within its process; 0 for none.
    pub(crate) fn kernel_id(&self, kernel: Option<u32>) -> usize {
        let number = kernel.and_then(|kernel| self.kernels.get(&kernel));
        number.copied().unwrap_or(0)
    }

    /// The ranges after which a process's kernels are named, by external correlation id of their
    /// dispatches.
    pub(crate) fn renames(&self, pid: u32) -> Vec<Value> {
        let renames = self.processes.get(&pid).map(|process| &process.renames);
        let entry = |(range, name)| json!({"key": range, "value": name});
        renames.into_iter().flatten().map(entry).collect()
    }

    /// The arrays of a process, by name.
    pub(crate) fn arrays(&self, pid: u32, gpus: &Gpus) -> [(&'static str, Vec<Value>); 3] {
        let none = OfProcess::default();
        let process = self.processes.get(&pid).unwrap_or(&none);
        let object_id = |id: u32| self.code_objects.get(&id).copied().unwrap_or(0);
        let objects = (1..).zip(&process.code_objects).map(|(id, info)| {
            let node = self.executed_on.get(&info.id).copied();
            code_object(info, id, node, gpus)
        });
        let kernels = (1..).zip(&process.kernels);
        let mut by_name: HashMap<u64, (usize, &KernelInfo)> = HashMap::new();
        for (id, info) in kernels.clone() {
            // If kernels share a name, as in code objects for several GPUs, the first counts.
            let name = self.hasher.hash_one(info.kernel.name.as_str());
            by_name.entry(name).or_insert((id, info));
        }
        let kernels = kernels.map(|(id, info)| kernel(info, id, object_id(info.code_object)));
        let registered = process.registered.iter();
        let known = registered.filter_map(|one| Some((one, *by_name.get(&one.kernel)?)));
        let hosts = (1..).zip(known).map(|(id, (one, (kernel, info)))| {
            host_function(one, id, info, kernel, object_id(info.code_object))
        });
        // The empty entry 0, without an agent.
        let no_object = code_object(&CodeObjectInfo::default(), 0, None, &Gpus::default());
        let no_kernel = kernel(&KernelInfo::default(), 0, 0);
        let no_host = host_function(&Registered::default(), 0, &KernelInfo::default(), 0, 0);
        [
            ("code_objects", indexed(no_object, objects)),
            ("kernel_symbols", indexed(no_kernel, kernels)),
            ("host_functions", indexed(no_host, hosts)),
        ]
    }
}

/// An array with an empty entry 0.
fn indexed(none: Value, entries: impl Iterator<Item = Value>) -> Vec<Value> {
    std::iter::once(none).chain(entries).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_abi::domain::Domain;
    use gputrace_capture::{
        gpu::Kernel,
        meta::{ArgSlot, Function, Parameter, ValueKind},
    };
    use gputrace_timeline::{
        synthetic,
        values::{Pointee, PointeeData},
    };

    use super::*;

    /// Calls the function that registers a host function at `address` for a kernel.
    fn register(symbols: &mut Symbols, address: u64, kernel: &str) {
        let parameter = |register, name: &str, kind| Parameter {
            name: name.to_owned(),
            kind,
            at: ArgSlot::Register(register),
            ..Parameter::default()
        };
        let info = FunctionInfo {
            function: Function {
                name: REGISTER.to_owned(),
                parameters: Some(vec![
                    parameter(0, "modules", ValueKind::Pointer),
                    parameter(1, "hostFunction", ValueKind::Pointer),
                    parameter(3, "deviceName", ValueKind::CString),
                    parameter(4, "threadLimit", ValueKind::Unsigned(4)),
                ]),
                ..Function::default()
            },
            domain: Some(Domain::HipCompiler),
            library: String::new(),
            build_id: String::new(),
            range: None,
        };
        let mut call = synthetic::call(1, 10, 20);
        call.args = [0x10, address, 0, 0x30, 1024, 0];
        call.pointees = vec![Pointee {
            word: 3,
            at_return: false,
            data: PointeeData::Text {
                text: kernel.to_owned(),
                cut: false,
            },
        }];
        symbols.call(&info, &call);
    }

    #[test]
    fn host_functions_are_those_of_kernels_that_are_known() {
        let mut symbols = Symbols::default();
        for (address, kernel) in [
            (0x100, "_Z4lostv"),
            (0x200, "_Z5scalePf"),
            (0x300, "_Z5scalePf"),
        ] {
            register(&mut symbols, address, kernel);
        }
        symbols.kernel(&KernelInfo {
            id: 7,
            pid: 100,
            kernel: Kernel {
                name: "_Z5scalePf".to_owned(),
                ..Kernel::default()
            },
            demangled: "scale(float*)".to_owned(),
            shown: "scale(float*)".to_owned(),
            ..KernelInfo::default()
        });
        let [_, (_, kernels), (name, hosts)] = symbols.arrays(100, &Gpus::default());
        assert_eq!((name, hosts.len()), ("host_functions", 3));
        for (number, host) in hosts.iter().enumerate() {
            assert_eq!(host["host_function_id"], number);
        }
        for (host, address) in hosts[1..].iter().zip([0x200, 0x300]) {
            assert_eq!(host["host_function"]["handle"], address);
            assert_eq!(host["modules"]["handle"], 0x10);
            assert_eq!(host["thread_limit"], 1024);
            assert_eq!(host["kernel_id"], 1);
            assert_eq!(host["truncated_host_function_name"], "scale");
            assert_eq!(kernels[1]["kernel_name"], "_Z5scalePf.kd");
        }
        // Not those of other processes.
        let [_, _, (_, hosts)] = symbols.arrays(101, &Gpus::default());
        assert_eq!(hosts.len(), 1);
    }
}
