//! Memory that a run of the workload shares with the test: `struct shared` of
//! `tests/workloads/chaos/shared.h`.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// Number of words before the text.
const WORDS: u64 = 7;
/// Size of the text in bytes.
const TEXT: u64 = 1 << 20;

/// The file that a run maps. It may be read during the run and after the run's end, however it
/// ended.
#[derive(Debug)]
pub struct Shared {
    path: PathBuf,
    file: File,
}

impl Shared {
    /// Creates the file for a run that has not begun yet.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn create(path: &Path) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let file = file.expect("the shared file");
        file.set_len(8 * WORDS + TEXT)
            .expect("room for the shared file");
        Self {
            path: path.to_owned(),
            file,
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn word(&self, number: u64) -> u64 {
        let mut word = [0; 8];
        self.file
            .read_exact_at(&mut word, 8 * number)
            .expect("the shared file");
        u64::from_ne_bytes(word)
    }

    /// Id of the first process; 0 before it has started.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.word(0) as u32
    }

    /// Number of calls of HIP functions that were begun.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.word(1)
    }

    /// Number of those calls that returned.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.word(2)
    }

    /// Number of actions done so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.word(3)
    }

    /// Makes the current pass the last one.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn stop(&self) {
        self.file
            .write_all_at(&1u64.to_ne_bytes(), 8 * 5)
            .expect("the shared file");
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It is in the test's own directory, which is removed in the end anyway.
        drop(fs::remove_file(&self.path));
    }
}
