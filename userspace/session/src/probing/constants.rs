//! Faults in the constants of a launched program while it is held.
//!
//! eBPF programs can read only resident pages. The text of a marker is usually a constant in a page
//! of the program's file that has not been touched yet. The collector reads such texts from outside
//! a moment later, which is too late for a program that ends at once. So the constants of a
//! launched program are read from outside while it is held: after exec, and after it has mapped a
//! library of interest.

use gputrace_tracee::process::maps::{self, Mapping};

/// Maximum number of pages touched: 4 MiB, which takes a millisecond or two.
const MOST: usize = 1024;

const PAGE: u64 = 4096;

/// Touches the constants of the program that a process executes. The collector later reads whatever
/// could not be read here.
pub(crate) fn bring_in(pid: u32) {
    let Ok(mappings) = maps::of_process(pid) else {
        return;
    };
    let pages = pages(&mappings);
    if let Err(error) = gputrace_reader::places::<1>(pid, &pages) {
        tracing::debug!("constants of process {pid}: {error}");
    }
}

/// Addresses of the pages of all file mappings that are neither writable nor executable.
fn pages(mappings: &[Mapping]) -> Vec<u64> {
    let constant = mappings
        .iter()
        .filter(|mapping| !mapping.writable && !mapping.executable);
    constant
        .flat_map(|mapping| {
            (0..(mapping.end - mapping.start) / PAGE).map(|page| mapping.start + page * PAGE)
        })
        .take(MOST)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_what_can_only_be_read() {
        let mapping = |line: &str| Mapping::parse(line.as_bytes()).unwrap();
        let mappings = [
            mapping("1000-3000 r--p 0 00:01 9 /a"),
            mapping("3000-4000 r-xp 0 00:01 9 /a"),
            mapping("4000-5000 rw-p 0 00:01 9 /a"),
            mapping("10000-100000000 r--p 0 00:01 10 /large"),
        ];
        let pages = pages(&mappings);
        assert_eq!(pages[..3], [0x1000, 0x2000, 0x10000]);
        assert_eq!(pages.len(), MOST);
    }
}
