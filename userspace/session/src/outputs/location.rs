//! Where the files of a recording go.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use gputrace_export::{FileOwner, OutputDir, OutputError, output::Existing};

use super::{
    artifacts,
    placeholders::{Names, constant_part},
};
use crate::request::OutputRequest;

/// Maximum number of names tried for a recording without a name of its own.
const ATTEMPTS: u32 = 1000;

/// The directory for outputs, and the first part of their file names.
#[derive(Debug)]
pub(crate) struct OutputLocation {
    pub(crate) directory: OutputDir,
    /// First part of the file names; `None`: the process id.
    name: Option<String>,
    force: bool,
    /// Name of the file for summaries.
    summary_file: Option<String>,
    /// Whether the capture is an unnamed file that disappears when the recording is over.
    nameless: bool,
}

impl OutputLocation {
    /// Determines the location that `request` asks for; `None` if it depends on the process and
    /// that does not exist yet. Errors that do not depend on the process are reported in either
    /// case.
    pub(crate) fn find(
        request: &OutputRequest,
        names: &Names,
        owner: Option<FileOwner>,
    ) -> Result<Option<Self>, OutputError> {
        if request.live.is_some() || request.unkept {
            let directory = OutputDir::open(&std::env::temp_dir(), owner)?;
            directory.scratch()?;
            return Ok(Some(Self {
                directory,
                name: None,
                force: false,
                summary_file: None,
                nameless: true,
            }));
        }
        // Checked even while placeholders have no values yet.
        if let Some(name) = &request.name {
            split(&request.directory, name)?;
        }
        let Some((path, name)) = resolve(request, names)? else {
            let path = match &request.name {
                Some(name) => request.directory.join(name),
                None => request.directory.join("."),
            };
            let known = constant_part(path.parent().unwrap_or(&path));
            try_out(&OutputDir::open(&known, owner)?)?;
            return Ok(None);
        };
        let place = Self {
            directory: OutputDir::open(&path, owner)?,
            name,
            force: request.force,
            summary_file: request.formats.summary_file.clone(),
            nameless: request.flight.is_some(),
        };
        try_out(&place.directory)?;
        if let Some(name) = place
            .name
            .as_ref()
            .filter(|_| !place.force && !place.nameless)
        {
            place.must_be_free(name)?;
        }
        Ok(Some(place))
    }

    /// Creates the capture. Returns its file, its path, and the first part of the names of all
    /// files.
    pub(crate) fn create(&self, fallback: &str) -> Result<(File, PathBuf, String), OutputError> {
        if self.nameless {
            let name = self.name.as_deref().unwrap_or(fallback).to_owned();
            return Ok((self.directory.scratch()?, PathBuf::new(), name));
        }
        if let Some(name) = &self.name {
            return self.create_as(name);
        }
        // Process ids are reused. The program is running already, so a different name is better
        // than none.
        let mut name = fallback.to_owned();
        for attempt in 2..ATTEMPTS {
            match self.create_as(&name) {
                Err(OutputError::Exists { .. }) => name = format!("{fallback}-{attempt}"),
                result => return result,
            }
        }
        self.create_as(&name)
    }

    fn create_as(&self, name: &str) -> Result<(File, PathBuf, String), OutputError> {
        let file = artifacts::capture(name);
        let path = self.directory.path().join(&file);
        let capture = if self.force {
            let capture = self.directory.file_in_place(&file, Existing::Replace)?;
            artifacts::remove(&self.directory, name, self.summary_file.as_deref())?;
            capture
        } else {
            self.must_be_free(name)?;
            self.directory.file_in_place(&file, Existing::Keep)?
        };
        Ok((capture, path, name.to_owned()))
    }

    fn must_be_free(&self, name: &str) -> Result<(), OutputError> {
        artifacts::must_not_be(&self.directory, name, self.summary_file.as_deref())
    }
}

/// Checks that a file can be created, before a program is started.
fn try_out(directory: &OutputDir) -> Result<(), OutputError> {
    directory.file(".gputrace").map(drop)
}

/// Resolves directory and name, if all placeholders have values.
fn resolve(
    request: &OutputRequest,
    names: &Names,
) -> Result<Option<(PathBuf, Option<String>)>, OutputError> {
    let Some(directory) = names.expand_path(&request.directory) else {
        return Ok(None);
    };
    let Some(name) = &request.name else {
        return Ok(Some((directory, None)));
    };
    let Some(name) = names.expand(name) else {
        return Ok(None);
    };
    let (directory, name) = split(&directory, &name)?;
    Ok(Some((directory, Some(name))))
}

/// Splits an output name into directory and name. As in rocprofv3, `name` may contain directories;
/// they are appended to `directory`.
///
/// # Errors
///
/// [`OutputError::Name`] if no file name can begin with it.
pub fn split(directory: &Path, name: &str) -> Result<(PathBuf, String), OutputError> {
    let (directory, last) = match name.rsplit_once('/') {
        Some(("", name)) => (PathBuf::from("/"), name),
        Some((directories, name)) => (directory.join(directories), name),
        None => (directory.to_owned(), name),
    };
    if ["", ".", ".."].contains(&last) || last.contains('\0') {
        return Err(OutputError::Name {
            name: name.to_owned(),
        });
    }
    Ok((directory, last.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Targets;

    fn request(directory: &Path, name: Option<&str>) -> OutputRequest {
        OutputRequest::new(directory.to_owned(), name.map(str::to_owned))
    }

    #[test]
    fn recordings_are_not_replaced_unless_asked() {
        let temporary = tempfile::tempdir().unwrap();
        let names = Names::of_targets(&Targets::Node);
        let mut asked = request(temporary.path(), Some("a/run"));
        let find =
            |asked: &OutputRequest| OutputLocation::find(asked, &names, None).map(Option::unwrap);
        let (_, path, name) = find(&asked).unwrap().create("7").unwrap();
        assert_eq!(
            (path, name.as_str()),
            (temporary.path().join("a/run.gtcap"), "run")
        );
        assert!(matches!(find(&asked), Err(OutputError::Exists { .. })));
        fs::write(temporary.path().join("a/run_results.json"), "old").unwrap();
        asked.force = true;
        find(&asked).unwrap().create("7").unwrap();
        let left: Vec<_> = fs::read_dir(temporary.path().join("a")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn files_of_other_tools_are_not_replaced_unless_asked() {
        let temporary = tempfile::tempdir().unwrap();
        let names = Names::of_targets(&Targets::Node);
        let file = temporary.path().join("run_results.db");
        fs::write(&file, "of rocprofv3").unwrap();
        let found = OutputLocation::find(&request(temporary.path(), Some("run")), &names, None);
        assert!(
            matches!(&found, Err(OutputError::Exists { path }) if *path == file),
            "{found:?}"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "of rocprofv3");
    }

    #[test]
    fn names_that_no_file_can_begin_with_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let names = Names::of_targets(&Targets::Node);
        for name in ["", ".", "..", "a/", "a/.", "/", "%pid%/"] {
            let found = OutputLocation::find(&request(temporary.path(), Some(name)), &names, None);
            assert!(
                matches!(found, Err(OutputError::Name { .. })),
                "{name}: {found:?}"
            );
        }
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
        let parts = |name| split(Path::new("d"), name).unwrap();
        assert_eq!(parts("a/b"), (PathBuf::from("d/a"), "b".to_owned()));
        assert_eq!(parts("/a/b"), (PathBuf::from("/a"), "b".to_owned()));
        assert_eq!(parts("/b"), (PathBuf::from("/"), "b".to_owned()));
        assert_eq!(parts(".b"), (PathBuf::from("d"), ".b".to_owned()));
    }

    #[test]
    fn process_ids_that_come_again_get_other_names() {
        let temporary = tempfile::tempdir().unwrap();
        let names = Names::of_targets(&Targets::Node);
        let asked = request(temporary.path(), None);
        for expected in ["7", "7-2", "7-3"] {
            let place = OutputLocation::find(&asked, &names, None).unwrap().unwrap();
            assert_eq!(place.create("7").unwrap().2, expected);
        }
    }

    #[test]
    fn what_needs_the_process_is_tried_out_as_far_as_possible() {
        let temporary = tempfile::tempdir().unwrap();
        let command = vec!["app".into()];
        let names = Names::of_targets(&Targets::Launch {
            command,
            hold: true,
        });
        let asked = request(&temporary.path().join("out/%pid%"), Some("x"));
        assert!(
            OutputLocation::find(&asked, &names, None)
                .unwrap()
                .is_none()
        );
        assert!(temporary.path().join("out").is_dir());
        let place = OutputLocation::find(&asked, &names.with_process(7), None)
            .unwrap()
            .unwrap();
        assert_eq!(
            place.create("7").unwrap().1,
            temporary.path().join("out/7/x.gtcap")
        );
        fs::write(temporary.path().join("file"), "").unwrap();
        let asked = request(&temporary.path().join("file/%pid%"), None);
        let unknown = Names::of_targets(&Targets::Launch {
            command: vec!["app".into()],
            hold: true,
        });
        assert!(OutputLocation::find(&asked, &unknown, None).is_err());
    }
}
