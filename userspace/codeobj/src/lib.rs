//! Which AMD GPU code another process has loaded, and which kernel a `kernel_object` handle is.
//!
//! A dispatch packet names its kernel by an address, `kernel_object`, and nothing else. What is at that
//! address is the kernel's *descriptor*, which the runtime's loader put there with the rest of a *code
//! object*: an ELF file with the kernels of a program for one kind of GPU. So to name a kernel it takes the
//! list of loaded code objects, the difference between file and memory addresses of each, and its symbols.
//!
//! All of this is found from outside, at any time in the life of the process, and nothing is changed in it:
//!
//! 1. [`registry`] finds the runtime's list, which is kept for debuggers, and says where to put a probe that
//!    tells of changes; [`chain`] follows it, at a cost that does not grow with the list.
//! 2. [`uri`] takes apart where the loader says that a code object came from: a part of a file or of memory.
//!    The bytes are read from there, through the eyes of the process (its root directory, its mappings),
//!    and compared with what was loaded: where the two differ, or there is only the loaded image left, that counts.
//! 3. [`container`] unpacks bundles of code objects for several kinds of GPU, compressed or not. Loaded code
//!    objects are normally named directly; this is for files on disk.
//! 4. [`Contents`] is what a code object has in it: its target ([`isa`]) and its kernels, each with what the
//!    hardware reads ([`descriptor`]) and what the compiler wrote down ([`metadata`]), compared with each
//!    other. The same bytes are parsed once ([`Cache`]).
//! 5. [`CodeObjects`] puts it together for a process and answers the question.
//!
//! ```no_run
//! use std::sync::Arc;
//! use gputrace_codeobj::{Cache, CodeObjects};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Arc::<Cache>::default();
//! let mut objects = CodeObjects::open(4711, cache)?;
//! for registry in objects.registries() {
//!     let head = registry.head(objects.memory())?;
//!     // a probe at `registry.notification(&head)` of `registry.library` tells when to update again …
//! #   let _ = head;
//! }
//! let update = objects.update()?;
//! // `update.added`, `update.removed`, `update.problems` …
//! # drop(update);
//! if let Some((object, kernel)) = objects.kernel(0x7f00_0000_1040) {
//!     println!("{} of {}", gputrace_demangle::truncate(&kernel.demangled()), object.uri);
//! }
//! # Ok(()) }
//! ```
//!
//! Everything read here comes from processes of other users and is taken for hostile: lists that go in
//! circles, sizes beyond all memory, URIs of devices, files that end early. All of it is bounded, checked and
//! answered with typed errors; property tests and fuzz targets (`tests/fuzz`) feed it nonsense.
//!
//! What it cannot know: kernels that the runtime makes without its own loader (ROCr's internal copy
//! kernels); a code object that was unloaded before it was read.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod cache;
pub mod chain;
pub mod container;
mod contents;
pub mod descriptor;
mod elf;
mod image;
pub mod isa;
pub mod memory;
pub mod metadata;
mod process;
pub mod registry;
mod source;
#[cfg(test)]
mod testing;
pub mod uri;

pub use cache::Cache;
pub use contents::{ContentHash, Contents, Disagreement, Field, Kernel};
pub use elf::{ElfError, Layout};
pub use process::{Cause, CodeObject, CodeObjects, Problem, Storage, Update};
pub use source::{MAX_CODE_OBJECT, SourceError};
