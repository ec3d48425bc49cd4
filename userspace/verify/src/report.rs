//! The result: rows with a verdict each, for people and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::Mode;

/// Result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything is as it should be.
    Ok,
    /// Something could not be checked, or works less well than it could.
    Warning,
    /// Something is wrong.
    Wrong,
}

/// Name of the figure that marks a row as that of a program that did not run.
pub(crate) const NOT_RUN: &str = "not_run";

/// One row with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was checked.
    pub name: &'static str,
    /// Result of the check.
    pub status: Status,
    /// What was found; contains no host names, user names, paths, process ids or addresses.
    pub found: String,
    /// What the finding means.
    pub meaning: String,
    /// Details for the user at the machine. They may contain paths and process ids, so they are in
    /// no file.
    #[serde(skip)]
    pub detail: Option<String>,
    /// What to do, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The numbers behind the finding; names end in the unit.
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

    /// Whether the program could not use a GPU at all.
    #[must_use]
    pub fn not_run(&self) -> bool {
        self.figures.contains_key(NOT_RUN)
    }

    /// Adds a figure; values that are not finite are left out.
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
    /// The recording's mode; `None` if the section is not about a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The overall result.
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
    /// The verdict as a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Right => {
                "gputrace records this GPU correctly: nothing contradicts what the program and the \
                 runtime know."
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
    /// Version of gputrace.
    pub gputrace: String,
    /// Release of the Linux kernel.
    pub kernel: String,
    /// Version of the driver, if it has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of the HSA interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsa: Option<String>,
    /// Instruction set of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gfx: Option<String>,
}

/// The complete result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Identifies the format: `gputrace verify` and the version of this structure.
    pub format: &'static str,
    /// Versions.
    pub versions: Versions,
    /// The overall result.
    pub verdict: Verdict,
    /// All rows.
    pub sections: Vec<Section>,
}

impl Report {
    /// [`Report::format`] of this version.
    pub const FORMAT: &str = "gputrace verify 1";
}
