//! Where the files of a recording go.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use gputrace_export::{FileOwner, OutputDir, OutputError, output::Existing};

use crate::{
    names::{Names, constant_part},
    request::OutputRequest,
};

/// How many names are tried for a recording that has none of its own.
const ATTEMPTS: u32 = 1000;

/// A directory, and how the files in it begin.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: OutputDir,
    /// `None`: the process id.
    name: Option<String>,
    force: bool,
    /// The capture has no name: it is gone when the recording is over.
    nameless: bool,
}

impl Place {
    /// The place that `request` asks for; `None` if that is known only once the process is there. What can be found wrong
    /// before is found now.
    pub(crate) fn find(
        request: &OutputRequest,
        names: &Names,
        owner: Option<FileOwner>,
    ) -> Result<Option<Self>, OutputError> {
        if request.live.is_some() {
            let directory = OutputDir::open(&std::env::temp_dir(), owner)?;
            directory.scratch()?;
            return Ok(Some(Self {
                directory,
                name: None,
                force: false,
                nameless: true,
            }));
        }
        let Some((path, name)) = resolve(request, names) else {
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
            nameless: false,
        };
        try_out(&place.directory)?;
        if let Some(name) = place.name.as_ref().filter(|_| !place.force) {
            place.directory.must_not_have(&capture_name(name))?;
        }
        Ok(Some(place))
    }

    /// Creates the capture. With its path, and what the names of all files begin with.
    pub(crate) fn create(&self, fallback: &str) -> Result<(File, PathBuf, String), OutputError> {
        if self.nameless {
            return Ok((self.directory.scratch()?, PathBuf::new(), fallback.to_owned()));
        }
        let existing = if self.force {
            Existing::Replace
        } else {
            Existing::Keep
        };
        let at = |name: &str| self.directory.path().join(capture_name(name));
        if let Some(name) = &self.name {
            let file = self.directory.file_in_place(&capture_name(name), existing)?;
            return Ok((file, at(name), name.clone()));
        }
        // Process ids come again; the program runs already, so another name is better than none.
        let mut name = fallback.to_owned();
        for attempt in 2..ATTEMPTS {
            match self.directory.file_in_place(&capture_name(&name), existing) {
                Err(OutputError::Exists { .. }) => name = format!("{fallback}-{attempt}"),
                result => return Ok((result?, at(&name), name)),
            }
        }
        let file = self.directory.file_in_place(&capture_name(&name), existing)?;
        Ok((file, at(&name), name))
    }
}

fn capture_name(name: &str) -> String {
    format!("{name}.gtcap")
}

/// Better now than when a program has been started.
fn try_out(directory: &OutputDir) -> Result<(), OutputError> {
    directory.file(".gputrace").map(drop)
}

/// Directory and name, if all placeholders have values.
fn resolve(request: &OutputRequest, names: &Names) -> Option<(PathBuf, Option<String>)> {
    let directory = names.expand_path(&request.directory)?;
    let Some(name) = &request.name else {
        return Some((directory, None));
    };
    let name = names.expand(name)?;
    // A name with directories in it, as rocprofv3 allows.
    Some(match name.rsplit_once('/') {
        Some(("", name)) => (PathBuf::from("/"), Some(name.to_owned())),
        Some((directories, name)) => (directory.join(Path::new(directories)), Some(name.to_owned())),
        None => (directory, Some(name)),
    })
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
        let find = |asked: &OutputRequest| Place::find(asked, &names, None).map(Option::unwrap);
        let (_, path, name) = find(&asked).unwrap().create("7").unwrap();
        assert_eq!(
            (path, name.as_str()),
            (temporary.path().join("a/run.gtcap"), "run")
        );
        assert!(matches!(find(&asked), Err(OutputError::Exists { .. })));
        asked.force = true;
        find(&asked).unwrap().create("7").unwrap();
    }

    #[test]
    fn process_ids_that_come_again_get_other_names() {
        let temporary = tempfile::tempdir().unwrap();
        let names = Names::of_targets(&Targets::Node);
        let asked = request(temporary.path(), None);
        for expected in ["7", "7-2", "7-3"] {
            let place = Place::find(&asked, &names, None).unwrap().unwrap();
            assert_eq!(place.create("7").unwrap().2, expected);
        }
    }

    #[test]
    fn what_needs_the_process_is_tried_out_as_far_as_possible() {
        let temporary = tempfile::tempdir().unwrap();
        let command = vec!["app".into()];
        let names = Names::of_targets(&Targets::Launch {
            command,
            stop_on_link: true,
        });
        let asked = request(&temporary.path().join("out/%pid%"), Some("x"));
        assert!(Place::find(&asked, &names, None).unwrap().is_none());
        assert!(temporary.path().join("out").is_dir());
        let place = Place::find(&asked, &names.with_process(7), None)
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
            stop_on_link: true,
        });
        assert!(Place::find(&asked, &unknown, None).is_err());
    }
}
