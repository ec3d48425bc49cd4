use std::cell::RefCell;

use proptest::prelude::*;

use super::*;
use crate::testing::{Fake, List};

fn look(chain: &mut Chain, memory: &Fake) -> Changes {
    chain.look(memory, |_| true).unwrap()
}

fn uris(listed: &[Listed]) -> Vec<&str> {
    let text = |listed: &Listed| std::str::from_utf8(&listed.uri).map(str::len);
    assert!(listed.iter().all(|listed| text(listed).is_ok()));
    let uris = listed.iter().map(|listed| std::str::from_utf8(&listed.uri));
    uris.map(Result::unwrap).collect()
}

#[test]
fn a_list() {
    let mut list = List::of(&["file:///a", "memory://1#offset=0x10&size=4", ""]);
    let mut chain = Chain::new(List::HEAD);
    let first = look(&mut chain, &list.memory);
    assert!(first.settled && first.damage.is_none() && first.removed.is_empty());
    assert_eq!(
        uris(&first.added),
        ["file:///a", "memory://1#offset=0x10&size=4"]
    );
    assert_eq!(first.added[1].load_delta, 0x1000);
    assert_eq!(first.added[0].entry, list.entries[0]);
    assert!(chain.has(&first.added[0]));
    // Unchanged; then with one more entry.
    let second = look(&mut chain, &list.memory);
    assert!(second.settled && second.added.is_empty() && second.removed.is_empty());
    list.add("file:///b");
    let third = look(&mut chain, &list.memory);
    assert_eq!(
        (uris(&third.added), third.removed.len()),
        (vec!["file:///b"], 0)
    );
}

#[test]
fn an_empty_list() {
    let list = List::of(&[]);
    let changes = look(&mut Chain::new(List::HEAD), &list.memory);
    assert!(changes.settled && changes.added.is_empty());
    assert!(Chain::new(7).look(&list.memory, |_| true).is_err());
}

#[test]
fn entries_that_are_gone_are_forgotten_wherever_they_were() {
    for place in 0..5 {
        let mut list = List::of(&[
            "file:///0",
            "file:///1",
            "file:///2",
            "file:///3",
            "file:///4",
        ]);
        let mut chain = Chain::new(List::HEAD);
        let all = look(&mut chain, &list.memory).added;
        list.remove(place);
        // One look checks this many entries.
        let changes = look(&mut chain, &list.memory);
        assert_eq!(uris(&changes.removed), uris(&all[place..=place]));
        assert!(changes.added.is_empty() && !chain.has(&all[place]));
        list.add("file:///new");
        let changes = look(&mut chain, &list.memory);
        assert_eq!(
            (uris(&changes.added), changes.removed.len()),
            (vec!["file:///new"], 0)
        );
    }
}

#[test]
fn the_whole_end_may_go_at_once() {
    let mut list = List::of(&["file:///0", "file:///1", "file:///2"]);
    let mut chain = Chain::new(List::HEAD);
    look(&mut chain, &list.memory);
    for place in (0..3).rev() {
        list.remove(place);
    }
    list.add("file:///new");
    let changes = look(&mut chain, &list.memory);
    assert_eq!(
        uris(&changes.removed),
        ["file:///2", "file:///1", "file:///0"]
    );
    assert_eq!(uris(&changes.added), ["file:///new"]);
}

/// An allocator reuses the most recently freed memory for the next entry.
#[test]
fn memory_that_is_used_again_is_another_entry() {
    for place in 0..3 {
        let mut list = List::of(&["file:///0", "file:///1", "file:///2"]);
        let mut chain = Chain::new(List::HEAD);
        let all = look(&mut chain, &list.memory).added;
        list.remove(place);
        let again = list.add_at(list.entries[place], "file:///new");
        let changes = look(&mut chain, &list.memory);
        assert_eq!(uris(&changes.removed), uris(&all[place..=place]));
        assert_eq!(uris(&changes.added), ["file:///new"]);
        assert_eq!(changes.added[0].entry, again);
        // The entries after it were not taken for new ones.
        assert!(look(&mut chain, &list.memory).added.is_empty());
    }
}

/// The words are the same; only the loaded code object shows that the entry is a different one.
#[test]
fn an_entry_that_stands_for_something_else_is_new() {
    let list = List::of(&["file:///0", "file:///1", "file:///2"]);
    for place in 0..3 {
        let mut chain = Chain::new(List::HEAD);
        let all = look(&mut chain, &list.memory).added;
        let is_same = |listed: &Listed| *listed != all[place];
        let changes = chain.look(&list.memory, is_same).unwrap();
        assert_eq!(changes.removed, all[place..=place]);
        assert_eq!(changes.added, all[place..=place]);
        let changes = look(&mut chain, &list.memory);
        assert!(changes.added.is_empty() && changes.removed.is_empty());
    }
}

/// The cost of a look depends on the changes, not on the number of entries.
#[test]
fn thousands_of_entries_are_not_read_again() {
    let mut list = List::of(&["file:///first"]);
    let mut chain = Chain::new(List::HEAD);
    look(&mut chain, &list.memory);
    let mut costs = Vec::new();
    let asked = RefCell::new(0);
    for number in 0..5_000 {
        list.add(&format!("memory://1#offset={number}&size=8"));
        // Some entries are removed again.
        if number % 3 == 0 {
            list.remove(number / 2);
        }
        list.memory.reads.set(0);
        asked.replace(0);
        let changes = chain.look(&list.memory, |_| {
            *asked.borrow_mut() += 1;
            true
        });
        let changes = changes.unwrap();
        assert_eq!((changes.added.len(), changes.settled), (1, true));
        costs.push(list.memory.reads.get() + *asked.borrow());
    }
    let most = |costs: &[usize]| costs.iter().copied().max().unwrap();
    assert!(most(&costs) <= 60, "{}", most(&costs));
    assert!(most(&costs[4_900..]) <= most(&costs[..100]));
    // All removals are noticed eventually.
    for _ in 0..5_000 / CHECKED_MORE + 1 {
        look(&mut chain, &list.memory);
    }
    assert_eq!(chain.links.len(), list.len());
}

#[test]
fn a_circle() {
    let mut list = List::of(&["file:///a", "file:///b"]);
    list.set(list.entries[1] + 24, list.entries[0]);
    let mut chain = Chain::new(List::HEAD);
    for added in [2, 0] {
        let changes = look(&mut chain, &list.memory);
        assert_eq!((changes.added.len(), changes.settled), (added, false));
        let at = list.entries[0];
        assert!(matches!(changes.damage, Some(Damage::Circle(place)) if place == at));
        assert!(changes.removed.is_empty());
    }
}

#[test]
fn a_list_that_leads_nowhere() {
    let mut list = List::of(&["file:///a", "file:///b"]);
    list.set(list.entries[0] + 24, 0xdead_beef);
    let mut chain = Chain::new(List::HEAD);
    let changes = look(&mut chain, &list.memory);
    assert_eq!(changes.added.len(), 1);
    assert!(matches!(changes.damage, Some(Damage::Memory(_))));
    list.set(list.entries[0] + 8, 0xdead_beef);
    assert!(
        look(&mut Chain::new(List::HEAD), &list.memory)
            .added
            .is_empty()
    );
}

#[test]
fn a_list_that_is_changing() {
    let mut list = List::of(&["file:///a"]);
    list.set(List::HEAD + 24, 1);
    let changes = look(&mut Chain::new(List::HEAD), &list.memory);
    assert_eq!((changes.added.len(), changes.settled), (1, false));
}

#[test]
fn a_name_without_end() {
    let mut list = List::of(&["file:///a"]);
    let name = list.put(&vec![b'x'; MAX_URI + 10]);
    list.set(list.entries[0] + 8, name);
    let changes = look(&mut Chain::new(List::HEAD), &list.memory);
    assert!(matches!(
        changes.damage,
        Some(Damage::Memory(MemoryError::Unterminated { .. }))
    ));
}

/// A runtime that does not set `l_prev` is followed as well.
#[test]
fn entries_that_do_not_lead_back() {
    let mut list = List::of(&["file:///a", "file:///b"]);
    let mut chain = Chain::new(List::HEAD);
    list.set(list.entries[1] + 32, 0);
    assert_eq!(look(&mut chain, &list.memory).added.len(), 2);
    let new = list.add("file:///c");
    list.set(new + 32, 0);
    let changes = look(&mut chain, &list.memory);
    assert_eq!(
        (uris(&changes.added), changes.removed.len()),
        (vec!["file:///c"], 0)
    );
}

proptest! {
    #[test]
    fn any_memory(bytes in proptest::collection::vec(any::<u8>(), 40..400)) {
        let memory = Fake { parts: vec![(List::HEAD, bytes)], ..Fake::default() };
        let mut chain = Chain::new(List::HEAD);
        for _ in 0..2 {
            let _ = chain.look(&memory, |_| true);
        }
    }

    /// Words that look like addresses make the reader go everywhere.
    #[test]
    fn any_addresses(words in proptest::collection::vec(0..0x200_u64, 5..64)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| {
            (if *word < 4 { 0 } else { List::HEAD + word }).to_le_bytes()
        }).collect();
        let memory = Fake { parts: vec![(List::HEAD, bytes)], ..Fake::default() };
        let mut chain = Chain::new(List::HEAD);
        for _ in 0..3 {
            let changes = chain.look(&memory, |_| true).unwrap();
            prop_assert!(changes.added.len() <= 64 * 8);
        }
        prop_assert!(memory.reads.get() < 300_000);
    }

    /// After any sequence of changes, exactly the existing entries are known.
    #[test]
    fn any_course(steps in proptest::collection::vec((0..3_u8, any::<prop::sample::Index>()), 1..60)) {
        let mut list = List::of(&["file:///first"]);
        let mut chain = Chain::new(List::HEAD);
        let mut known: HashSet<(u64, Vec<u8>)> = HashSet::new();
        for (number, (step, index)) in steps.iter().enumerate() {
            match step {
                0 => { list.add(&format!("file:///{number}")); }
                1 if list.len() > 0 => list.remove_nth(index.index(list.len())),
                _ => {
                    if let Some(free) = list.free.pop() {
                        list.add_at(free, &format!("file:///again/{number}"));
                    }
                }
            }
            if number % 2 == 0 {
                let changes = look(&mut chain, &list.memory);
                for gone in changes.removed {
                    prop_assert!(known.remove(&(gone.entry, gone.uri)));
                }
                for new in changes.added {
                    prop_assert!(known.insert((new.entry, new.uri)));
                }
            }
        }
        for _ in 0..4 {
            let changes = look(&mut chain, &list.memory);
            for gone in changes.removed {
                prop_assert!(known.remove(&(gone.entry, gone.uri)));
            }
            known.extend(changes.added.into_iter().map(|new| (new.entry, new.uri)));
        }
        prop_assert_eq!(known, list.there());
    }
}
