//! Places of memory after changes made by hand.

use gputrace_abi::domain::Domain;
use gputrace_capture::{
    Meta,
    gpu::CodeObject,
    ledger::{Ledger, LedgerRow},
    meta::Pause,
};
use proptest::prelude::*;

use super::*;
use crate::derive::work::knowledge::Collected;

const PID: u32 = 7;

/// A CPU at node 0, GPUs at nodes 1 and 2; a code object at 0xc0_0000 found at 50; calls lost
/// between 900 and 1000; no recording between 1200 and 1300.
fn knowledge() -> Knowledge {
    let mut collected = Collected::with_two_gpus();
    collected.take(Meta::CodeObject(Box::new(CodeObject {
        pid: PID,
        time: 50,
        load_base: 0xc0_0000,
        load_size: 0x1000,
        ..CodeObject::default()
    })));
    for (time, lost) in [(900, 0), (1000, 1), (1100, 1)] {
        collected.take(Meta::Ledger(Box::new(Ledger {
            time,
            rows: vec![LedgerRow {
                domain: Domain::HsaAmdExt.id(),
                dropped: vec![0, lost],
                ..LedgerRow::default()
            }],
            ..Ledger::default()
        })));
    }
    collected.take(Meta::Pause(Pause {
        from: 1200,
        to: 1300,
    }));
    collected.finish().0
}

struct Trial {
    places: Places,
    knowledge: Knowledge,
}

impl Trial {
    fn new() -> Self {
        Self {
            places: Places::default(),
            knowledge: knowledge(),
        }
    }

    fn then(&mut self, time: u64, what: Change) {
        let pid = PID;
        self.places
            .change(&PlacementChange { time, pid, what }, &self.knowledge);
    }

    fn allocate(&mut self, time: u64, address: u64, bytes: u64, node: u32) {
        let whose = owner(node);
        self.then(
            time,
            Change::Mapped {
                address,
                bytes,
                whose,
            },
        );
    }

    fn lock(&mut self, time: u64, host: u64, seen_at: u64) {
        self.then(
            time,
            Change::Locked {
                host,
                bytes: 0x1000,
                seen_at: Some(seen_at),
            },
        );
    }

    /// The node of a byte; `Some(None)` where only the kind is known.
    fn node(&self, address: u64) -> Option<Option<u32>> {
        self.nodes(address, 1, 500)
    }

    fn nodes(&self, address: u64, bytes: u64, time: u64) -> Option<Option<u32>> {
        let found = self
            .places
            .find(PID, (address, bytes), time, &self.knowledge);
        found.map(|place| place.node)
    }
}

fn owner(node: u32) -> Whose {
    let kind = if node == 0 {
        AgentKind::Cpu
    } else {
        AgentKind::Gpu
    };
    // The other word is not an agent's.
    Whose::Owner([Some((9, AgentKind::Gpu)), Some((node, kind))])
}

#[test]
fn ranges_end_where_they_do() {
    let mut trial = Trial::new();
    trial.allocate(10, 0x1000, 0x1000, 1);
    trial.allocate(10, 0x2000, 0x1000, 2);
    trial.allocate(10, 0x3000, 0x1000, 0);
    assert_eq!(trial.node(0xfff), None);
    assert_eq!(trial.node(0x1000), Some(Some(1)));
    assert_eq!(trial.node(0x1fff), Some(Some(1)));
    assert_eq!(trial.node(0x2000), Some(Some(2)));
    assert_eq!(trial.node(0x4000), None);
    assert_eq!(trial.nodes(0x1800, 0x800, 500), Some(Some(1)));
    assert_eq!(trial.nodes(0x1800, 0x801, 500), None, "of two GPUs");
    assert_eq!(trial.nodes(0x3800, 0x801, 500), None, "more than is known");
    trial.allocate(10, 0x5000, 0x1000, 0);
    assert_eq!(trial.nodes(0x3800, 0x2000, 500), None, "a hole");
    assert_eq!(trial.nodes(u64::MAX, u64::MAX, 500), None);
    // Another process has nothing there.
    let other = trial.places.find(8, (0x1000, 1), 500, &trial.knowledge);
    assert_eq!(other, None);
}

#[test]
fn addresses_are_used_again() {
    let mut trial = Trial::new();
    trial.allocate(10, 0x1000, 0x1000, 1);
    trial.then(20, Change::Unmapped { address: 0x1000 });
    assert_eq!(trial.node(0x1000), None);
    trial.allocate(30, 0x1000, 0x800, 0);
    assert_eq!(trial.node(0x1000), Some(Some(0)));
    // A free that took long, and is told of after the memory was used again.
    trial.then(29, Change::Unmapped { address: 0x1000 });
    assert_eq!(trial.node(0x1000), Some(Some(0)));
    // Nobody saw these freed.
    trial.allocate(40, 0x1400, 0x1000, 2);
    assert_eq!(trial.node(0x13ff), Some(Some(0)));
    assert_eq!(trial.node(0x1400), Some(Some(2)));
    trial.then(
        50,
        Change::Attached {
            handle: [1; 32],
            address: 0x1000,
            bytes: 0x2000,
        },
    );
    assert_eq!(trial.node(0x1000), None, "memory of an unknown process");
    assert_eq!(trial.node(0x1400), None);
    trial.places.restart(PID, 60, &trial.knowledge);
    trial.allocate(70, 0x5000, 1, 1);
    assert_eq!(trial.node(0x1000), None);
    assert_eq!(trial.node(0x5000), Some(Some(1)));
}

#[test]
fn pinned_memory_is_the_hosts_until_the_last_unlock() {
    let mut trial = Trial::new();
    trial.lock(10, 0x1000, 0x9000);
    trial.lock(11, 0x1000, 0x9000);
    trial.lock(12, 0x2000, 0x2000);
    for address in [0x1000, 0x9fff, 0x2000] {
        assert_eq!(trial.node(address), Some(None), "{address:#x}");
    }
    trial.then(20, Change::Unlocked { host: 0x1000 });
    assert_eq!(trial.node(0x9000), Some(None));
    trial.then(21, Change::Unlocked { host: 0x1000 });
    assert_eq!(trial.node(0x1000), None);
    assert_eq!(trial.node(0x9000), None);
    assert_eq!(trial.node(0x2000), Some(None));
    // What is allocated already stays where it is.
    trial.allocate(30, 0x1000, 0x1000, 1);
    trial.lock(31, 0x1000, 0x1000);
    trial.then(32, Change::Unlocked { host: 0x1000 });
    assert_eq!(trial.node(0x1000), Some(Some(1)));
}

#[test]
fn mappings_have_the_place_of_their_handle() {
    let mut trial = Trial::new();
    let map = |address, handle| Change::MappedHandle {
        address,
        bytes: 0x1000,
        handle,
    };
    for (handle, whose) in [(1, owner(1)), (2, owner(0)), (3, Whose::Unknown)] {
        trial.then(10, Change::Handle { handle, whose });
    }
    for handle in 1..5 {
        trial.then(20, map(handle << 12, handle));
    }
    let nodes = [0x1000, 0x2000, 0x3000, 0x4000].map(|address| trial.node(address));
    assert_eq!(nodes, [Some(Some(1)), Some(Some(0)), None, None]);
    let (handle, address) = (5, 0x1800);
    trial.then(30, Change::HandleOf { handle, address });
    trial.then(31, map(0x7000, 5));
    assert_eq!(trial.node(0x7000), Some(Some(1)));
    // A part of two mappings is unmapped.
    let (address, bytes) = (0x1800, 0x1000);
    trial.then(40, Change::Cleared { address, bytes });
    let nodes = [0x17ff, 0x1800, 0x27ff, 0x2800].map(|address| trial.node(address));
    assert_eq!(nodes, [Some(Some(1)), None, None, Some(Some(0))]);
}

#[test]
fn what_processes_share_is_where_it_was_shared() {
    let mut trial = Trial::new();
    trial.allocate(10, 0x1000, 0x1000, 2);
    let handle = [5; 32];
    let address = 0x1000;
    trial.then(20, Change::Shared { handle, address });
    let what = Change::Attached {
        handle,
        address: 0x6000,
        bytes: 0x1000,
    };
    let (pid, time) = (8, 30);
    trial
        .places
        .change(&PlacementChange { time, pid, what }, &trial.knowledge);
    let found = trial.places.find(8, (0x6000, 16), 40, &trial.knowledge);
    assert_eq!(found.and_then(|place| place.node), Some(2));
}

#[test]
fn code_objects_are_on_a_gpu_until_some_are_unloaded() {
    let mut trial = Trial::new();
    assert_eq!(trial.node(0xc0_0fff), Some(None));
    assert_eq!(trial.node(0xc0_1000), None);
    trial.then(60, Change::Unloaded);
    assert_eq!(trial.node(0xc0_0000), None);
    // Those of another program.
    let mut trial = Trial::new();
    trial.places.restart(PID, 40, &trial.knowledge);
    assert_eq!(trial.node(0xc0_0000), Some(None));
    trial.places.restart(PID, 60, &trial.knowledge);
    assert_eq!(trial.node(0xc0_0000), None);
}

#[test]
fn after_lost_calls_nothing_older_is_certain() {
    let mut trial = Trial::new();
    trial.allocate(10, 0x1000, 0x1000, 1);
    trial.allocate(1050, 0x2000, 0x1000, 1);
    assert_eq!(trial.nodes(0x1000, 1, 899), Some(Some(1)));
    assert_eq!(trial.nodes(0x1000, 1, 950), None);
    assert_eq!(trial.nodes(0x1000, 1, 2000), None);
    assert_eq!(trial.nodes(0x2000, 1, 1150), Some(Some(1)));
    // Nor after a time without recording.
    assert_eq!(trial.nodes(0x2000, 1, 1400), None);
    trial.allocate(1350, 0x2000, 0x1000, 2);
    assert_eq!(trial.nodes(0x2000, 1, 1400), Some(Some(2)));
}

proptest! {
    /// Of each byte, the last change that concerned it counts.
    #[test]
    fn each_byte_is_where_it_was_put_last(
        changes in proptest::collection::vec((0..60_u64, 0..30_u64, 0..4_u32), 0..40),
    ) {
        let mut trial = Trial::new();
        let mut bytes = [None; 100];
        for (address, length, node) in changes {
            let touched = match node {
                3 => {
                    trial.then(10, Change::Cleared { address, bytes: length });
                    length
                }
                _ => {
                    trial.allocate(10, address, length, node);
                    length.max(1)
                }
            };
            for byte in address..address + touched {
                bytes[byte as usize] = (node < 3).then_some(Some(node));
            }
        }
        for (address, node) in (0..).zip(bytes) {
            prop_assert_eq!(trial.node(address), node);
        }
    }
}
