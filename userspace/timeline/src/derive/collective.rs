//! Bytes that RCCL's collectives transfer, from the number and type of elements in their arguments.

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{ArgSlot, Parameter};

use crate::model::event::{Call, FunctionInfo};

/// Names of the parameter with the number of elements that this rank sends, or else receives.
const COUNTS: [&str; 3] = ["count", "sendcount", "recvcount"];

/// C type of the parameter with the element type.
const TYPE: &str = "ncclDataType_t";

/// Size in bytes of an element of the type with this number (`ncclDataType_t` of `rccl.h`, up to
/// RCCL 2.22).
fn size(data_type: u32) -> Option<u64> {
    // ncclInt8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16,
    // Float8e4m3, Float8e5m2.
    const SIZES: [u64; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
    SIZES.get(usize::try_from(data_type).ok()?).copied()
}

/// Whether calls of a function may have [`bytes`].
pub(crate) fn is_collective(info: &FunctionInfo) -> bool {
    let parameters = info.function.parameters.as_deref().unwrap_or_default();
    info.domain == Some(Domain::Rccl) && parameters.iter().any(|parameter| parameter.c_type == TYPE)
}

/// Bytes that a call transfers, by one rank's count; `None` if it is no collective or its element
/// type is unknown.
pub(crate) fn bytes(info: &FunctionInfo, call: &Call) -> Option<u64> {
    if info.domain != Some(Domain::Rccl) {
        return None;
    }
    let parameters = info.function.parameters.as_deref()?;
    let word = |parameter: &Parameter| match parameter.at {
        ArgSlot::Register(word) => call.args.get(usize::from(word)).copied(),
        ArgSlot::Stack(_) | ArgSlot::Unrecorded => None,
    };
    let find = |is: &dyn Fn(&Parameter) -> bool| parameters.iter().find(|parameter| is(parameter));
    let count = word(find(&|parameter| {
        COUNTS.contains(&parameter.name.as_str())
    })?)?;
    let data_type = word(find(&|parameter| parameter.c_type == TYPE)?)?;
    count.checked_mul(size(data_type as u32)?)
}

#[cfg(test)]
mod tests {
    use gputrace_catalog::signature;

    use super::*;
    use crate::synthetic::call;

    #[test]
    fn bytes_are_elements_by_their_size() {
        let bytes = |name: &str, args: [u64; 6]| {
            let mut info = FunctionInfo::named(1, name, Some(Domain::Rccl));
            info.function.parameters = Some(signature(name).unwrap().parameters());
            let mut call = call(1, 10, 20);
            call.args = args;
            bytes(&info, &call)
        };
        // (sendbuff, recvbuff, count, datatype, op, comm)
        assert_eq!(bytes("ncclAllReduce", [1, 2, 64, 7, 0, 5]), Some(256));
        // The upper half of the register is garbage.
        assert_eq!(
            bytes("ncclAllReduce", [1, 2, 64, 0xffff_ffff_0000_0009, 0, 5]),
            Some(128)
        );
        assert_eq!(bytes("ncclAllGather", [1, 2, 3, 8, 5, 0]), Some(24));
        assert_eq!(bytes("ncclReduceScatter", [1, 2, 3, 5, 0, 5]), Some(24));
        assert_eq!(bytes("ncclSend", [1, 10, 0, 1, 5, 0]), Some(10));
        assert_eq!(bytes("ncclAllReduce", [1, 2, 64, 99, 0, 5]), None);
        assert_eq!(bytes("ncclAllReduce", [1, 2, u64::MAX, 8, 0, 5]), None);
        // Not a collective: it has no element type.
        assert_eq!(bytes("ncclCommCount", [1, 2, 3, 4, 5, 6]), None);
    }
}
