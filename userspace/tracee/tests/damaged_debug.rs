//! Programs with damaged symbols and debug information: the results may be wrong, but reading ends,
//! and finds nothing outside of the program.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod common;

use std::{ops::Range, path::Path, sync::OnceLock};

use common::compile;
use gputrace_tracee::{functions, library::LibraryFile};
use object::{Object as _, ObjectSection as _};
use proptest::{collection::vec, prelude::*, sample::Index};

const PROGRAM: &str = r#"
struct shape { int sides; const char *name; };
static inline int add(int a, int b) { return a + b; }
__attribute__((noinline)) int area(struct shape *shape, int side) { return add(shape->sides, side) * side; }
int main(int argc, char **argv) { struct shape shape = { argc, argv[0] }; return area(&shape, argc) - argc; }
"#;

/// A program, and the places of its sections with symbols and debug information.
struct Built {
    bytes: Vec<u8>,
    sections: Vec<Range<usize>>,
}

/// Built once, with both DWARF versions that compilers write: gcc takes longer than all cases
/// together.
fn built() -> &'static [Built] {
    static BUILT: OnceLock<Vec<Built>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = |version: &&str| {
            let directory = tempfile::tempdir().unwrap();
            let path = compile(
                directory.path(),
                "program",
                PROGRAM,
                &["-O1", "-g", version],
            )?;
            let bytes = std::fs::read(path).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            let wanted =
                |name: &str| name.starts_with(".debug_") || matches!(name, ".symtab" | ".strtab");
            let sections = file
                .sections()
                .filter(|section| section.name().is_ok_and(wanted));
            let ranges = sections.filter_map(|section| section.file_range());
            let sections: Vec<_> = ranges
                .map(|(at, size)| at as usize..(at + size) as usize)
                .filter(|range| !range.is_empty())
                .collect();
            assert!(sections.len() >= 6, "no debug information: {sections:?}");
            Some(Built { bytes, sections })
        };
        ["-gdwarf-4", "-gdwarf-5"]
            .iter()
            .filter_map(build)
            .collect()
    })
}

fn listed(directory: &Path, bytes: &[u8]) -> Option<functions::Functions> {
    let path = directory.join("damaged");
    std::fs::write(&path, bytes).unwrap();
    let file = LibraryFile::open(&path).ok()?;
    Some(functions::list(&file, directory))
}

#[test]
fn undamaged_programs_have_their_functions() {
    let directory = tempfile::tempdir().unwrap();
    for program in built() {
        let functions = listed(directory.path(), &program.bytes).unwrap();
        let area = functions
            .list
            .iter()
            .find(|function| function.names.contains(&"area".to_owned()));
        assert!(
            area.is_some_and(|area| area.address != 0),
            "{:?}",
            functions.remarks
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn damaged_anywhere(
        which in any::<Index>(),
        changes in vec((any::<Index>(), any::<Index>(), any::<u8>()), 1..12),
        cut in proptest::option::weighted(0.1, any::<Index>()),
    ) {
        let programs = built();
        if programs.is_empty() {
            return Ok(());
        }
        let program = &programs[which.index(programs.len())];
        let mut bytes = program.bytes.clone();
        for (section, at, value) in changes {
            let range = &program.sections[section.index(program.sections.len())];
            bytes[range.start + at.index(range.len())] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let directory = tempfile::tempdir().unwrap();
        if let Some(functions) = listed(directory.path(), &bytes) {
            // At most as many as entries fit into the file.
            prop_assert!(functions.list.len() <= bytes.len());
            prop_assert!(functions.remarks.len() < 100);
        }
    }
}
