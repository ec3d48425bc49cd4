//! Ranges of code as the tables for unwinding give them. A file that was stripped still has these.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection as _};

use super::{Functions, sections::Sections};

/// Maximum number of ranges. The largest libraries of ROCm have a tenth of that.
const MAX_RANGES: usize = 1 << 21;

/// The ranges in a file's `.eh_frame`, in order of address; those before the first that cannot be
/// parsed.
pub(super) fn ranges(sections: &Sections<'_>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let Some((address, bytes)) = sections.placed(".eh_frame") else {
        return found;
    };
    let bases = BaseAddresses::default().set_eh_frame(address);
    let table = EhFrame::new(&bytes, LittleEndian);
    let mut entries = table.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else {
            break;
        };
        let begin = entry.initial_address();
        if let Some(end) = begin.checked_add(entry.len()).filter(|end| *end > begin) {
            found.push(begin..end);
        }
        if found.len() >= MAX_RANGES {
            break;
        }
    }
    found.sort_by_key(|range| range.start);
    // Those of one file do not overlap, unless somebody has made them up.
    found.dedup_by(|next, before| next.start < before.end);
    found
}

/// Completes the functions of a stripped file: sizes that its symbols lack, and unnamed code.
pub(super) fn complete(ranges: &[Range<u64>], functions: &mut Functions) {
    for range in ranges {
        let at = functions
            .list
            .binary_search_by_key(&range.start, |function| function.address);
        match at.ok().and_then(|at| functions.list.get_mut(at)) {
            Some(function) if function.size == 0 => function.size = range.end - range.start,
            Some(_) => {}
            None => functions.unnamed.push(range.clone()),
        }
    }
}
