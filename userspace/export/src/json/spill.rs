//! Sorts mixed records into separate arrays in bounded memory.
//!
//! A JSON document has one array after the other, while events of all kinds come mixed. So each
//! array has its own buffer for its records. Full buffers go to one nameless file in the output
//! directory, from which each array is assembled at the end. For a while, this file takes as much
//! space as the output.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
};

use serde::Serialize;

use crate::output::{OutputDir, OutputError};

/// Size in bytes at which a buffer is written to the file.
const BLOCK: usize = 64 << 10;

/// Maximum total size of all buffers in bytes. With very many arrays it is exceeded before single
/// buffers are full; then all of them are written to the file.
const BUFFERED: usize = 32 << 20;

/// An array under construction.
#[derive(Debug, Default)]
struct Array {
    /// JSON text; each record but the first follows a comma.
    buffer: Vec<u8>,
    /// Offset and length in the file of the parts before `buffer`.
    blocks: Vec<(u64, u64)>,
    is_begun: bool,
}

/// Arrays under construction, by `K`.
#[derive(Debug)]
pub(crate) struct Spill<K> {
    file: File,
    end: u64,
    buffered: usize,
    arrays: BTreeMap<K, Array>,
}

impl<K: Ord + Clone> Spill<K> {
    /// Starts without arrays.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be created.
    pub(crate) fn new(directory: &OutputDir) -> Result<Self, OutputError> {
        Ok(Self {
            file: directory.scratch()?,
            end: 0,
            buffered: 0,
            arrays: BTreeMap::new(),
        })
    }

    /// Appends a record to an array.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn push(&mut self, key: K, record: &impl Serialize) -> io::Result<()> {
        let array = self.arrays.entry(key).or_default();
        let before = array.buffer.len();
        if std::mem::replace(&mut array.is_begun, true) {
            array.buffer.extend(b",\n");
        }
        serde_json::to_writer(&mut array.buffer, record)?;
        self.buffered += array.buffer.len() - before;
        if array.buffer.len() >= BLOCK {
            self.buffered -= array.buffer.len();
            store(&self.file, &mut self.end, array)?;
        }
        if self.buffered >= BUFFERED {
            for array in self.arrays.values_mut() {
                store(&self.file, &mut self.end, array)?;
                array.buffer.shrink_to_fit();
            }
            self.buffered = 0;
        }
        Ok(())
    }

    /// Keys of the arrays that have records.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.arrays.keys()
    }

    /// Writes an array with its brackets. An array without records is written as empty.
    ///
    /// # Errors
    /// When `out` cannot be written or the file cannot be read.
    pub(crate) fn write(&self, key: &K, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"[")?;
        if let Some(array) = self.arrays.get(key) {
            out.write_all(b"\n")?;
            let mut part = Vec::new();
            for (offset, length) in &array.blocks {
                part.resize(usize::try_from(*length).map_err(io::Error::other)?, 0);
                self.file.read_exact_at(&mut part, *offset)?;
                out.write_all(&part)?;
            }
            out.write_all(&array.buffer)?;
            out.write_all(b"\n")?;
        }
        out.write_all(b"]")
    }
}

fn store(file: &File, end: &mut u64, array: &mut Array) -> io::Result<()> {
    if array.buffer.is_empty() {
        return Ok(());
    }
    file.write_all_at(&array.buffer, *end)?;
    let length = array.buffer.len() as u64;
    match array.blocks.last_mut() {
        // When only one array is being written, its blocks are joined into one.
        Some((offset, known)) if *offset + *known == *end && *known < 1 << 20 => *known += length,
        _ => array.blocks.push((*end, length)),
    }
    *end += length;
    array.buffer.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_out_as_they_went_in() {
        let directory = tempfile::tempdir().unwrap();
        let out = OutputDir::open(directory.path(), None).unwrap();
        let mut spill = Spill::new(&out).unwrap();
        let mut expected: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for number in 0..60_000_u64 {
            // Arrays of very different sizes.
            let key = number.trailing_zeros().into();
            let record = format!("record {number} {}", "x".repeat(number as usize % 50));
            spill.push(key, &record).unwrap();
            expected.entry(key).or_default().push(record);
        }
        assert!(spill.end > BLOCK as u64);
        assert!(fs_is_empty(directory.path()));
        for (key, records) in &expected {
            let mut text = Vec::new();
            spill.write(key, &mut text).unwrap();
            assert_eq!(
                &serde_json::from_slice::<Vec<String>>(&text).unwrap(),
                records
            );
        }
        assert!(spill.keys().eq(expected.keys()));
        let mut text = Vec::new();
        spill.write(&1_000, &mut text).unwrap();
        assert_eq!(text, b"[]");
    }

    fn fs_is_empty(directory: &std::path::Path) -> bool {
        std::fs::read_dir(directory).unwrap().next().is_none()
    }
}
