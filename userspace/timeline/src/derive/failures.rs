//! Calls that returned an error: a program without a GPU, or one that ignores errors, makes a
//! recording that looks like any other.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use gputrace_abi::domain::Domain;
use gputrace_capture::meta::ValueKind;
use gputrace_text::tables::count;

use crate::{
    derive::args::{self, ArgValue},
    model::event::{Call, CallEnd, Event, FunctionInfo},
};

/// How the remark on calls that failed begins.
pub const FAILED_CALLS: &str = "Failed calls:";

/// Functions that tell the error of an earlier call, or of work that has failed since.
const TELL_EARLIER: [&str; 3] = [
    "hipExtGetLastError",
    "hipGetLastError",
    "hipPeekAtLastError",
];

/// Functions that programs call to find out what there is.
const ASK: [&str; 4] = [
    "hipPointerGetAttribute",
    "hipPointerGetAttributes",
    "hsa_agent_get_info",
    "hsa_system_get_info",
];

/// `hipErrorNotReady`, `hipErrorPeerAccessAlreadyEnabled`, `hipErrorPeerAccessNotEnabled` and
/// `hipErrorHostMemoryAlreadyRegistered`: answers that programs expect, not errors.
const HIP_ANSWERS: [u32; 4] = [600, 704, 705, 712];

/// `HSA_STATUS_INFO_BREAK` and `HSA_STATUS_CU_MASK_REDUCED`: information, not errors.
const HSA_INFORMATION: [u32; 2] = [1, 44];

/// `ncclInProgress`: not an error.
const NCCL_IN_PROGRESS: u32 = 7;

/// Calls of an API that return a status.
#[derive(Debug, Default)]
struct Calls {
    returned: u64,
    failed: u64,
    /// The first that failed, and its error.
    first: Option<(String, String)>,
}

/// Counts calls that returned an error.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Functions that return a status.
    functions: HashMap<u32, FunctionInfo, RandomState>,
    /// By the stem of the API's table, e.g. `hip_api`.
    apis: BTreeMap<&'static str, Calls>,
}

impl Failures {
    /// Learns from an event that is shown.
    pub(crate) fn seen(&mut self, event: &Event) {
        match event {
            Event::Function(info) if is_counted(info) && args::status_of(info, 0).is_some() => {
                self.functions.insert(info.function.id, (**info).clone());
            }
            Event::Call(call) => {
                let CallEnd::Returned(word) = call.how else {
                    return;
                };
                let Some(info) = self.functions.get(&call.function) else {
                    return;
                };
                let stem = info.domain.map_or("other_api", Domain::csv_stem);
                let calls = self.apis.entry(stem).or_default();
                calls.returned += 1;
                if args::status_of(info, word).is_some_and(|code| is_error(info, code)) {
                    calls.failed += 1;
                    calls.first.get_or_insert_with(|| {
                        let error = match args::returned(info, call) {
                            Some(
                                ArgValue::Status {
                                    name: Some(name), ..
                                }
                                | ArgValue::Enumerator { name, .. },
                            ) => name.to_owned(),
                            other => other.map(|other| other.to_string()).unwrap_or_default(),
                        };
                        (info.function.name.clone(), error)
                    });
                }
            }
            _ => {}
        }
    }

    /// A remark for each API of which calls failed.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        self.apis.iter().filter_map(|(stem, calls)| {
            let (function, error) = calls.first.as_ref()?;
            let api = stem.trim_end_matches("_api").to_uppercase();
            Some(format!(
                "{FAILED_CALLS} {} of {} returned an error; the first was {error}, by {function}.",
                calls.failed,
                count(calls.returned, &format!("{api} call"))
            ))
        })
    }
}

/// Whether a call returned an error: neither an answer that programs expect, nor the error of an
/// earlier call.
#[must_use]
pub fn has_failed(info: &FunctionInfo, call: &Call) -> bool {
    is_counted(info) && tells_error(info, call)
}

/// Whether a call returned an error, its own or an earlier one: not an answer that programs expect.
#[must_use]
pub fn tells_error(info: &FunctionInfo, call: &Call) -> bool {
    let CallEnd::Returned(word) = call.how else {
        return false;
    };
    !ASK.contains(&info.function.name.as_str())
        && args::status_of(info, word).is_some_and(|code| is_error(info, code))
}

/// Whether the status of a function is about the call.
fn is_counted(info: &FunctionInfo) -> bool {
    let name = info.function.name.as_str();
    !TELL_EARLIER.contains(&name) && !ASK.contains(&name)
}

/// Whether a status that a function returned says that the call failed.
fn is_error(info: &FunctionInfo, code: u32) -> bool {
    code != 0
        && match info.function.returns {
            ValueKind::HipError => !HIP_ANSWERS.contains(&code),
            ValueKind::HsaStatus => !HSA_INFORMATION.contains(&code),
            _ => (info.domain, code) != (Some(Domain::Rccl), NCCL_IN_PROGRESS),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn function(id: u32, name: &str, domain: Domain, returns: ValueKind) -> Event {
        let mut info = FunctionInfo::named(id, name, Some(domain));
        info.function.returns = returns;
        Event::Function(Box::new(info))
    }

    fn said(calls: &[(u32, u64)]) -> Vec<String> {
        let mut failures = Failures::default();
        let hip = |id, name| function(id, name, Domain::HipRuntime, ValueKind::HipError);
        for function in [
            hip(0, "hipMalloc"),
            hip(1, "hipEventQuery"),
            hip(2, "hipGetLastError"),
            function(3, "hsa_init", Domain::HsaCore, ValueKind::HsaStatus),
            function(4, "ncclSend", Domain::Rccl, ValueKind::Unsigned(4)),
            function(5, "hipApiName", Domain::HipRuntime, ValueKind::CString),
        ] {
            failures.seen(&function);
        }
        for (number, (function, status)) in calls.iter().enumerate() {
            let mut call = synthetic::call(number as u64 + 1, 10, 20);
            call.function = *function;
            call.how = CallEnd::Returned(*status);
            failures.seen(&Event::Call(call));
        }
        failures.remarks().collect()
    }

    #[test]
    fn errors_are_counted_by_api() {
        assert_eq!(
            said(&[(0, 100), (0, 0), (1, 100), (3, 0x1008), (5, 7)]),
            [
                "Failed calls: 2 of 3 HIP calls returned an error; the first was \
                 hipErrorNoDevice, by hipMalloc.",
                "Failed calls: 1 of 1 HSA call returned an error; the first was \
                 HSA_STATUS_ERROR_OUT_OF_RESOURCES, by hsa_init.",
            ]
        );
    }

    #[test]
    fn answers_and_repetitions_are_no_errors() {
        let none: [String; 0] = [];
        assert_eq!(said(&[(1, 600), (2, 100), (3, 1), (4, 7)]), none);
        // The upper half of a register is not part of the status.
        assert_eq!(said(&[(0, 0xffff_0000_0000_0000)]), none);
        assert_eq!(said(&[(4, 1)]).len(), 1);
    }
}
