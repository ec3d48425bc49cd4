//! Changes of placement by synthetic calls.

use super::*;
use crate::{model::values::Pointee, synthetic};

/// A successful call from 10 to 20 of a function, with what was read of it: word, whether at the
/// return, and the bytes.
fn called(name: &str, args: [u64; 6], read: &[(u8, bool, &[u8])]) -> Option<PlacementChange> {
    let mut placements = Placements::default();
    placements.function(&FunctionInfo::named(3, name, None));
    placements.call(&call(args, read))
}

fn call(args: [u64; 6], read: &[(u8, bool, &[u8])]) -> Call {
    let pointee = |(word, at_return, bytes): &(u8, bool, &[u8])| Pointee {
        word: *word,
        at_return: *at_return,
        data: PointeeData::Bytes(bytes.to_vec()),
    };
    Call {
        function: 3,
        args,
        pointees: read.iter().map(pointee).collect(),
        ..synthetic::call(1, 10, 20)
    }
}

/// What is read of an agent, up to ROCm 6.2 and later.
fn agents(node: u64, kind: u64) -> [Vec<u8>; 2] {
    let word = kind << 32 | node;
    [[word, 9, 9, 9], [0x7fff_1234_5678, 9, 9, word]].map(|words| {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(31);
        bytes
    })
}

#[test]
fn memory_exists_from_the_return_until_it_is_freed() {
    for agent in agents(1, 0) {
        let result = 0xd000_u64.to_le_bytes();
        let read = [(0, false, &agent[..]), (3, true, &result)];
        let args = [0x5000, 4096, 0, 0x7000, 0, 0];
        let change = called("hsa_amd_memory_pool_allocate", args, &read).unwrap();
        assert_eq!((change.time, change.pid), (20, 100));
        let Change::Mapped {
            address: 0xd000,
            bytes: 4096,
            whose: Whose::Owner(owners),
        } = change.what
        else {
            panic!("{change:?}");
        };
        assert!(owners.contains(&Some((1, AgentKind::Gpu))), "{owners:?}");
    }
    let freed = called("hsa_amd_memory_pool_free", [0xd000; 6], &[]).unwrap();
    assert_eq!(
        (freed.time, freed.what),
        (10, Change::Unmapped { address: 0xd000 })
    );
}

#[test]
fn results_are_taken_from_where_each_function_stores_them() {
    let result = 0xd000_u64.to_le_bytes();
    let size = 0x2000_u64.to_le_bytes();
    let what =
        |name: &str, args, read: &[(u8, bool, &[u8])]| called(name, args, read).unwrap().what;
    let args = [0xa000, 4096, 0xc000, 0xb000, 0, 0];
    let locked = |seen_at| Change::Locked {
        host: 0xa000,
        bytes: 4096,
        seen_at,
    };
    assert_eq!(
        what("hsa_amd_memory_lock", args, &[(4, true, &result)]),
        locked(Some(0xd000))
    );
    assert_eq!(
        what("hsa_amd_memory_lock_to_pool", args, &[(6, true, &result)]),
        locked(Some(0xd000))
    );
    assert_eq!(what("hsa_amd_memory_lock", args, &[]), locked(None));
    assert_eq!(what("hsa_memory_register", args, &[]), locked(None));
    let handle = [7; IPC_HANDLE_SIZE];
    assert_eq!(
        what("hsa_amd_ipc_memory_create", args, &[(2, true, &handle)]),
        Change::Shared {
            handle,
            address: 0xa000
        }
    );
    assert_eq!(
        what(
            "hsa_amd_ipc_memory_attach",
            args,
            &[(0, false, &handle), (4, true, &result)]
        ),
        Change::Attached {
            handle,
            address: 0xd000,
            bytes: 4096
        }
    );
    assert_eq!(
        what("hsa_amd_vmem_map", args, &[]),
        Change::MappedHandle {
            address: 0xa000,
            bytes: 4096,
            handle: 0xb000
        }
    );
    assert_eq!(
        what(
            "hsa_amd_interop_map_buffer",
            args,
            &[(4, true, &size), (5, true, &result)]
        ),
        Change::Mapped {
            address: 0xd000,
            bytes: 0x2000,
            whose: Whose::Unknown
        }
    );
}

#[test]
fn what_failed_or_is_unfinished_changes_nothing() {
    let mut placements = Placements::default();
    placements.function(&FunctionInfo::named(3, "hsa_amd_memory_unlock", None));
    let call = call([0xa000; 6], &[]);
    assert!(placements.call(&call).is_some());
    for how in [CallEnd::Returned(0x1001), CallEnd::ThreadExited] {
        let call = Call {
            how,
            ..call.clone()
        };
        assert_eq!(placements.call(&call), None);
    }
    let other = Call {
        function: 4,
        ..call.clone()
    };
    assert_eq!(placements.call(&other), None);
    assert_eq!(called("hsa_amd_memory_pool_allocate", [1; 6], &[]), None);
}
