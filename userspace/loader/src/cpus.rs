//! CPUs of the machine.

use gputrace_files::kernel;

/// Number of possible CPUs: one more than the highest number that a CPU can have.
#[must_use]
pub fn possible_cpus() -> u32 {
    let list = kernel::read_text("/sys/devices/system/cpu/possible").ok();
    let highest = list.and_then(|text| parse_list(text.trim())?.into_iter().max());
    // CPU numbers may have gaps, so the number of CPUs could be too small.
    let count = || {
        libbpf_rs::num_possible_cpus()
            .ok()
            .and_then(|n| u32::try_from(n).ok())
    };
    highest
        .map(|cpu| cpu + 1)
        .or_else(count)
        .unwrap_or(1)
        .max(1)
}

/// Numbers of the CPUs that are present; all possible ones if that is unknown.
#[must_use]
pub fn present_cpus() -> Vec<u32> {
    kernel::read_text("/sys/devices/system/cpu/present")
        .ok()
        .and_then(|text| parse_list(text.trim()))
        .unwrap_or_else(|| (0..possible_cpus()).collect())
}

/// Parses the kernel's list format, e.g. `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0"), Some(vec![0]));
        assert_eq!(parse_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_list("0-4294967295"), None);
        assert_eq!(parse_list("a-b"), None);
        assert_eq!(parse_list(""), None);
    }

    #[test]
    fn present_are_possible() {
        let possible = possible_cpus();
        let present = present_cpus();
        assert!(!present.is_empty());
        assert!(present.iter().all(|cpu| *cpu < possible));
    }
}
