//! Strings and regions that events refer to by number.

use std::collections::HashMap;

use gputrace_timeline::gpu::Quality;

/// Attributes of events, by number: name, description, and whether it is a string.
pub(crate) const ATTRIBUTES: [(&str, &str, bool); 8] = [
    ("category", "tracing category", true),
    (
        "correlation_id",
        "the call, or the call that asked for the work",
        false,
    ),
    ("quality", "how well the times of GPU work are known", true),
    (
        "start_uncertainty",
        "largest possible error of the start, in ns",
        false,
    ),
    (
        "end_uncertainty",
        "largest possible error of the end, in ns",
        false,
    ),
    ("unfinished", "why it had not ended", true),
    (
        "kernel_class",
        "class of kernels whose mean is the duration",
        false,
    ),
    (
        "estimate_error",
        "standard error of a duration that is an estimate, in ns",
        false,
    ),
];

/// Numbers of the attributes.
pub(crate) const CATEGORY: u32 = 0;
pub(crate) const CORRELATION: u32 = 1;
pub(crate) const QUALITY: u32 = 2;
pub(crate) const START_UNCERTAINTY: u32 = 3;
pub(crate) const END_UNCERTAINTY: u32 = 4;
pub(crate) const UNFINISHED: u32 = 5;
pub(crate) const KERNEL_CLASS: u32 = 6;
pub(crate) const ESTIMATE_ERROR: u32 = 7;

/// Qualities, numbered from 1 in spans; 0 means none.
pub(crate) const QUALITIES: [Quality; 4] = [
    Quality::Submitted,
    Quality::Bounded,
    Quality::Sampled,
    Quality::Exact,
];

/// Number of a quality in spans.
pub(crate) fn quality(quality: Quality) -> u8 {
    let position = QUALITIES.iter().position(|known| *known == quality);
    position.map_or(0, |position| position as u8 + 1)
}

/// Reasons why something had not ended, numbered from 1 in spans; 0 means none.
pub(crate) const REASONS: [&str; 4] = [
    "thread_exited",
    "process_executed",
    "recording_stopped",
    "end_not_recorded",
];

/// Number of the reason `recording_stopped`.
pub(crate) const RECORDING_STOPPED: u8 = 3;

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Region {
    /// Number of its name.
    pub(crate) name: u32,
    /// Number of the category's name.
    pub(crate) category: u32,
    /// `OTF2_RegionRole`.
    pub(crate) role: u8,
}

/// All strings and regions. Memory grows with the number of functions, kernels and locations.
#[derive(Debug)]
pub(crate) struct Definitions {
    strings: Vec<String>,
    string_ids: HashMap<String, u32>,
    regions: Vec<Region>,
    region_ids: HashMap<Region, u32>,
}

impl Definitions {
    pub(crate) fn new() -> Self {
        let mut this = Self {
            strings: Vec::new(),
            string_ids: HashMap::new(),
            regions: Vec::new(),
            region_ids: HashMap::new(),
        };
        // References to no string are to number 0.
        this.string("");
        this
    }

    /// The number of a string, which is added if it is new.
    pub(crate) fn string(&mut self, text: &str) -> u32 {
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = self.strings.len() as u32;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }

    /// The number of a region, which is added if it is new.
    pub(crate) fn region(&mut self, name: &str, category: &str, role: u8) -> u32 {
        let region = Region {
            name: self.string(name),
            category: self.string(category),
            role,
        };
        *self.region_ids.entry(region).or_insert_with(|| {
            self.regions.push(region);
            self.regions.len() as u32 - 1
        })
    }

    /// Strings by number.
    pub(crate) fn strings(&self) -> &[String] {
        &self.strings
    }

    /// Regions by number.
    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }
}
