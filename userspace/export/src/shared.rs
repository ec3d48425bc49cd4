//! Text that an exporter writes and somebody else reads.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// What was written to any of its clones, kept in memory.
///
/// An exporter takes one clone as its output; whoever keeps another one takes the text when the exporter is done.
#[derive(Clone, Debug, Default)]
pub struct SharedText(Arc<Mutex<Vec<u8>>>);

impl SharedText {
    /// Takes out all that has been written. Bytes that are not UTF-8 are replaced.
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
