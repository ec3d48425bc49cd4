//! Code shared by the caches of releases and kernels.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

use crate::progress;

/// Locks the directory, so that no other run fills it, until the result is dropped.
///
/// # Errors
///
/// When the directory cannot be written.
pub(crate) fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if file.try_lock().is_err() {
        progress::note(format_args!(
            "another run works in {}; waiting ...",
            directory.display()
        ));
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Adds to an error what could not be done, and the next step.
pub(crate) fn remedied<T>(result: Result<T>, what: &str, remedy: &str) -> Result<T> {
    result.map_err(|error| anyhow!("{what}: {error:#}\n-> {remedy}"))
}

/// Removes a directory with its contents, if it exists.
///
/// # Errors
///
/// When something in it cannot be removed.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}
