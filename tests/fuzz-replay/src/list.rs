//! Follows lists of code objects in arbitrary memory. Words are small, so that many of them are
//! addresses of other words.

use gputrace_codeobj::{
    chain::Chain,
    memory::{Memory, MemoryError},
};

struct Fake(Vec<u8>);

impl Memory for Fake {
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, MemoryError> {
        let begin = usize::try_from(address).unwrap_or(usize::MAX);
        let there = self.0.get(begin..).unwrap_or_default();
        let size = there.len().min(buffer.len());
        buffer[..size].copy_from_slice(&there[..size]);
        Ok(size)
    }
}

/// Runs the decoder over one input.
pub fn run(bytes: &[u8]) {
    let words = bytes.iter().flat_map(|byte| (u64::from(*byte) * 8).to_le_bytes());
    let memory = Fake(words.collect());
    let mut chain = Chain::new(0);
    // State from the first pass guides the later ones.
    for _ in 0..3 {
        if let Ok(changes) = chain.look(&memory, |listed| listed.entry % 3 != 0) {
            assert!(changes.added.len() <= bytes.len() * 8 + changes.removed.len());
        }
    }
}
