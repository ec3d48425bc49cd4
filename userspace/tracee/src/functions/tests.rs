use std::{ops::Range, sync::OnceLock};

use proptest::prelude::*;

use super::{sections::Sections, *};
use crate::plan::Unprobeable;

#[test]
fn parts_of_functions() {
    for name in ["main.cold", "_Z3fibl.cold.1", "f.part.0.cold"] {
        assert!(is_cold(name), "{name}");
    }
    for name in [
        "cold",
        "main",
        "f.part.0",
        "_Z3fibl.constprop.0",
        ".coldest",
    ] {
        assert!(!is_cold(name), "{name}");
    }
}

/// Code at address 0x1000, with functions and parts given by the test.
struct Bytes<'a> {
    code: &'a [u8],
    functions: &'a [u64],
    cold: Range<u64>,
}

const BASE: u64 = 0x1000;

impl Code for Bytes<'_> {
    fn bytes(&self, address: u64, size: u64) -> Vec<u8> {
        let from = address
            .checked_sub(BASE)
            .and_then(|at| self.code.get(at as usize..));
        let from = from.unwrap_or_default();
        from[..from.len().min(size as usize)].to_vec()
    }

    fn is_function(&self, address: u64) -> bool {
        self.functions.contains(&address)
    }

    fn cold_part(&self, address: u64) -> Option<Range<u64>> {
        self.cold.contains(&address).then(|| self.cold.clone())
    }
}

fn find(code: &[u8], size: u64) -> Result<Vec<(u64, ExitKind)>, Unprobeable> {
    let bytes = Bytes {
        code,
        functions: &[BASE, BASE + 0x40],
        cold: BASE + 0x20..BASE + 0x22,
    };
    let found = find_exits(&bytes, BASE, size)?;
    Ok(found
        .exits
        .iter()
        .map(|exit| (exit.address - BASE, exit.kind))
        .collect())
}

/// Uses bytes from an assembler.
#[test]
fn ways_out() {
    use ExitKind::{Return, TailCall};
    // push rbx; pop rbx; ret
    assert_eq!(find(&[0x53, 0x5b, 0xc3], 3), Ok(vec![(2, Return)]));
    // rep ret; ret 8
    assert_eq!(
        find(&[0xf3, 0xc3, 0xc2, 8, 0], 5),
        Ok(vec![(0, Return), (2, Return)])
    );
    // jmp to another function
    assert_eq!(find(&[0x53, 0x5b, 0xeb, 0x3c], 4), Ok(vec![(2, TailCall)]));
    // jmp to its own beginning: a loop, or a tail call of itself
    assert_eq!(find(&[0x90, 0xeb, 0xfd], 3), Err(Unprobeable::Loop));
    // jmp [rip+0] and jmp [rax+8]; jmp [rax*8] uses a jump table
    assert_eq!(
        find(&[0x90, 0xff, 0x25, 0, 0, 0, 0], 7),
        Ok(vec![(1, TailCall)])
    );
    assert_eq!(find(&[0x90, 0xff, 0x60, 8], 4), Ok(vec![(1, TailCall)]));
    assert_eq!(
        find(&[0x90, 0xff, 0x24, 0xc5, 0, 0, 0, 0], 8),
        Err(Unprobeable::NoReturn)
    );
    // mov rax, [rdi]; jmp rax
    assert_eq!(
        find(&[0x48, 0x8b, 7, 0xff, 0xe0], 5),
        Ok(vec![(3, TailCall)])
    );
    // movsxd rax, [rdx+rax*4]; add rax, rdx; jmp rax; ret: a table
    assert_eq!(
        find(&[0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0, 0xc3], 10),
        Ok(vec![(9, Return)])
    );
    // je to a part elsewhere, which returns
    let mut parts = vec![0x90; 0x40];
    parts[..3].copy_from_slice(&[0x74, 0x1e, 0xc3]);
    parts[0x21] = 0xc3;
    assert_eq!(find(&parts, 3), Ok(vec![(2, Return), (0x21, Return)]));
    // je into the middle of an instruction: linear decoding fails
    assert_eq!(
        find(&[0x74, 1, 0x48, 0x89, 0xc3, 0xc3], 6),
        Err(Unprobeable::Undecodable)
    );
    assert_eq!(find(&[0xc3], 0), Err(Unprobeable::UnknownSize));
    assert_eq!(find(&[0xc3], 2), Err(Unprobeable::NotCode));
    assert_eq!(find(&[0x90, 0x06], 2), Err(Unprobeable::Undecodable));
}

/// Code that jumps to ever more parts of itself, as no compiler makes it.
struct Sprawling;

impl Code for Sprawling {
    fn bytes(&self, address: u64, size: u64) -> Vec<u8> {
        // je, far behind this part; then one-byte nops
        let mut code = vec![0x90; size as usize];
        let jumps = if address == BASE { 5000 } else { 1 };
        for jump in code.chunks_exact_mut(6).take(jumps) {
            jump.copy_from_slice(&[0x0f, 0x84, 0, 0, 1, 0]);
        }
        code
    }

    fn is_function(&self, _: u64) -> bool {
        false
    }

    fn cold_part(&self, address: u64) -> Option<Range<u64>> {
        Some(address..address + 6)
    }
}

#[test]
fn functions_with_too_many_parts_are_refused() {
    let found = find_exits(&Sprawling, BASE, 30_000);
    assert_eq!(found, Err(Unprobeable::UnknownSize));
}

/// Bytes of a small program with symbols and debug information.
fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        // A small file, so that every change matters.
        let directory = tempfile::tempdir().unwrap();
        let (source, object) = (directory.path().join("x.c"), directory.path().join("x.so"));
        std::fs::write(
            &source,
            "static inline int two(int a){return a*2;} static __attribute__((noinline)) int one(int a){return two(a)+1;} \
             int f(int a){return one(a)*3;}",
        )
        .unwrap();
        let built = std::process::Command::new("gcc")
            .args(["-O2", "-g", "-shared", "-fPIC", "-Wl,--build-id", "-o"])
            .args([&object, &source])
            .status()
            .unwrap();
        assert!(built.success());
        std::fs::read(object).unwrap()
    })
}

fn read_all(bytes: &[u8]) -> (usize, debug::Information) {
    let sections = Sections::of(bytes);
    let mut symbols = 0;
    sections.symbols(&mut |_, _, _| symbols += 1);
    let _ = (sections.build_id(), sections.debug_link());
    for range in unwind::ranges(&sections) {
        assert!(range.start < range.end);
    }
    (symbols, debug::read(&sections, &mut Vec::new()))
}

#[test]
fn an_unchanged_file_has_everything() {
    let (symbols, information) = read_all(program());
    assert!(symbols >= 2);
    let names: Vec<_> = information
        .subprograms
        .iter()
        .filter_map(|subprogram| subprogram.name.as_deref())
        .collect();
    assert!(names.contains(&"one") && names.contains(&"f"), "{names:?}");
    assert!(information.inlined.contains("two"));
}

#[test]
fn ranges_for_unwinding_are_those_of_the_symbols() {
    let sections = Sections::of(program());
    let ranges = unwind::ranges(&sections);
    let mut found = 0;
    sections.symbols(&mut |name, address, size| {
        if matches!(name, "one" | "f") {
            let range = address..address + size;
            assert!(ranges.contains(&range), "{name}: {range:x?} of {ranges:x?}");
            found += 1;
        }
    });
    assert_eq!(found, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_code(code in proptest::collection::vec(any::<u8>(), 0..200), size in 0_u64..220) {
        if let Ok(exits) = find(&code, size) {
            prop_assert!(!exits.is_empty());
            for (at, _) in exits {
                prop_assert!((at as usize) < code.len());
            }
        }
    }

    #[test]
    fn damaged_files(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = program().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_all(&bytes);
    }

    #[test]
    fn damaged_debug_information(
        section in prop::sample::select(vec![
            ".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".eh_frame",
        ]),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = program().to_vec();
        let range = {
            let sections = Sections::of(program());
            let part = sections.bytes(section).unwrap();
            let start = part.as_ptr() as usize - program().as_ptr() as usize;
            start..start + part.len()
        };
        for (at, value) in changes {
            let at = range.start + at.index(range.len());
            bytes[at] = value;
        }
        read_all(&bytes);
    }
}
