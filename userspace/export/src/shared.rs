//! A memory buffer through which an exporter hands text to another owner.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// Text written to any of its clones, kept in memory.
///
/// An exporter takes one clone as its output; the owner of another clone takes the text when the
/// exporter is done.
#[derive(Clone, Debug, Default)]
pub struct SharedText(Arc<Mutex<Vec<u8>>>);

impl SharedText {
    /// Removes and returns all text written so far. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

impl Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_another_takes_once() {
        let text = SharedText::default();
        let mut other = text.clone();
        other.write_all(b"one \xff").unwrap();
        assert_eq!(text.take(), "one \u{fffd}");
        assert_eq!(other.take(), "");
    }
}
