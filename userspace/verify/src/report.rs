//! What came of it: rows with a verdict each, for people and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::Mode;

/// How a row came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Something could not be checked, or works less well than it could.
    Warning,
    /// Something is wrong.
    Wrong,
}

/// Name of the figure that marks a row of a program that did not run.
pub(crate) const NOT_RUN: &str = "not_run";

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// About what.
    pub name: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found; no host names, user names, paths, process ids or addresses.
    pub found: String,
    /// What that means.
    pub meaning: String,
    /// More for whoever sits at the machine: it may have paths and process ids, so no file has it.
    #[serde(skip)]
    pub detail: Option<String>,
    /// What to do, if there is anything to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Numbers behind it; names end in their unit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<&'static str, f64>,
}

impl Row {
    pub(crate) fn new(
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        Self {
            name,
            status,
            found: found.into(),
            meaning: meaning.into(),
            detail: None,
            next: None,
            figures: BTreeMap::new(),
        }
    }

    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Whether this says that the program could not use a GPU at all.
    #[must_use]
    pub fn not_run(&self) -> bool {
        self.figures.contains_key(NOT_RUN)
    }

    /// Adds a figure; one that is not a number is left out.
    pub(crate) fn figure(mut self, name: &'static str, value: f64) -> Self {
        if value.is_finite() {
            self.figures.insert(name, value);
        }
        self
    }
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Section {
    /// Title.
    pub name: &'static str,
    /// The recording's mode; `None` for what is not about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What was found.
    pub rows: Vec<Row>,
}

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing is wrong.
    Right,
    /// Something is wrong.
    Wrong,
    /// Nothing was verified: there is no GPU, no runtime or no permission.
    NotRun,
}

impl Verdict {
    /// In a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Right => {
                "What gputrace records of this GPU is true: nothing contradicts what the program and the runtime know."
            }
            Self::Wrong => {
                "Something is wrong, see above. Please open an issue with the file that --output writes: it names no \
                 host, user, path or process."
            }
            Self::NotRun => "Nothing was verified, see above.",
        }
    }
}

/// Versions of what was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// gputrace.
    pub gputrace: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Of the driver, if it has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The HSA interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsa: Option<String>,
    /// Instruction set of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gfx: Option<String>,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What this is: `gputrace verify` and the version of this structure.
    pub format: &'static str,
    /// Versions.
    pub versions: Versions,
    /// What it comes to.
    pub verdict: Verdict,
    /// All rows.
    pub sections: Vec<Section>,
}

impl Report {
    /// [`Report::format`] of this version.
    pub const FORMAT: &str = "gputrace verify 1";
}
