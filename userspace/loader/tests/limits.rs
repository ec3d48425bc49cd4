//! The maps of the call-tracing programs are those listed in docs/limits.md, and behave as
//! described there when they are full.

#![allow(clippy::disallowed_methods, reason = "tests read files of their own")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helper functions too"
)]

mod support;

use std::{collections::BTreeMap, fs};

use gputrace_loader::calls::{BackendChoice, Calls};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

/// Maps whose entries are created by gputrace instead of targets, or that have no contents.
const FIXED: [&str; 11] = [
    "BUSY",
    "CALLS_FOR_HOLD",
    "COPIED",
    "COUNTERS",
    "EMPTY_THREAD",
    "HELPERS",
    "NO_PROGRAMS",
    "STACK_PROGRAMS",
    "STEPS",
    "THREADS_HELD",
    "TRIED",
];

/// The programs, and their maps by name; `None` where BPF is not available and not required.
fn load() -> Option<(Calls, BTreeMap<String, MapHandle>)> {
    let calls = support::load(&support::options(BackendChoice::Auto, 1 << 16))?;
    let mut maps = BTreeMap::new();
    for descriptor in fs::read_dir("/proc/self/fdinfo").unwrap() {
        // The descriptor of the directory itself is closed by now.
        let text = fs::read_to_string(descriptor.unwrap().path()).unwrap_or_default();
        let id = text.lines().find_map(|line| line.strip_prefix("map_id:"));
        if let Some(id) = id {
            let map = MapHandle::from_map_id(id.trim().parse().unwrap()).unwrap();
            maps.insert(map.name().to_str().unwrap().to_owned(), map);
        }
    }
    assert!(maps.len() > 10, "{:?}", maps.keys());
    Some((calls, maps))
}

#[test]
fn each_map_has_its_row() {
    let Some((_calls, maps)) = load() else { return };
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let page = fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for name in FIXED {
        assert!(maps.contains_key(name), "no {name} among {:?}", maps.keys());
    }
    for name in maps.keys() {
        // The rings are in `RINGS`; sections of constants have names of their own.
        if name == "gputrace_ring" || name.contains('.') || FIXED.contains(&name.as_str()) {
            continue;
        }
        let row = format!("`{name}`");
        assert!(
            rows.iter().any(|line| line.contains(&row)),
            "docs/limits.md does not say what fills {name}"
        );
    }
}

/// Maps that targets can fill without end evict the least recently used entries, and accept new
/// ones.
#[test]
fn full_maps_forget_and_take_what_is_new() {
    let Some((_calls, maps)) = load() else { return };
    let forgetting: Vec<(&String, &MapHandle)> = maps
        .iter()
        .filter(|(_, map)| map.map_type() == MapType::LruHash)
        .collect();
    let names: Vec<&str> = forgetting.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "AGENTS",
            "LISTS",
            "LOADS",
            "QUEUES",
            "READ_LOADS",
            "SIGNALLING",
            "SIGNALS",
            "SITES"
        ]
    );
    for (name, map) in forgetting {
        let room = map.max_entries() as usize;
        let value = vec![0; map.value_size() as usize];
        let mut key = vec![0; map.key_size() as usize];
        for number in 0..2 * room as u32 {
            key[..4].copy_from_slice(&number.to_ne_bytes());
            map.update(&key, &value, MapFlags::ANY)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert!(
            map.lookup(&key, MapFlags::ANY).unwrap().is_some(),
            "{name}: the newest"
        );
        let left = map.keys().count();
        assert!((1..=room).contains(&left), "{name}: {left} of {room}");
    }
}
