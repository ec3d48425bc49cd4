//! Captures in files.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use gputrace_capture::{Block, CaptureReader, Meta, ReadError, meta::Recording};
use gputrace_timeline::Timeline;

use crate::{Error, Events};

/// A capture in a file (`.gtcap`).
#[derive(Clone, Debug)]
pub struct Capture {
    path: PathBuf,
    recording: Recording,
}

impl Capture {
    /// Opens a capture. Also one that is not complete: [`Events::truncation`] then says what is
    /// missing.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if the file cannot be opened, is no capture, or is of a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        // A timeline would read the whole capture once.
        match CaptureReader::open(&path)?.next_block()? {
            Some(Block::Meta(Meta::Recording(recording))) => Ok(Self {
                path,
                recording: *recording,
            }),
            _ => Err(ReadError::NoRecording.into()),
        }
    }

    /// Where and how the recording was made.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Its events, from the beginning. Can be called again.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if the file can no longer be read.
    pub fn events(&self) -> Result<Events<BufReader<File>>, Error> {
        Ok(Events::new(Timeline::open(&self.path)?))
    }
}
