//! Finds out which AMD GPU code another process has loaded, and which kernel a `kernel_object`
//! handle stands for.
//!
//! A dispatch packet names its kernel only by an address, `kernel_object`. At that address is the
//! kernel's *descriptor*, which the runtime's loader put there with the rest of a *code object*: an
//! ELF file with the kernels of a program for one kind of GPU. So naming a kernel takes the list of
//! loaded code objects, the difference between file and memory addresses of each, and its symbols.
//!
//! All of this is found from outside, at any time in the life of the process, without changing
//! anything in it:
//!
//! 1. [`registry`] finds the runtime's list, which is kept for debuggers, and the place for a probe
//!    that reports changes. [`chain`] follows the list, at a cost that does not grow with its
//!    length.
//! 2. [`uri`] parses the origin of a code object according to the loader: a part of a file or of
//!    memory. The bytes are read from there, as the process sees it (its root directory, its
//!    mappings), and compared with the loaded image. If the two differ, or only the image is left,
//!    the image counts.
//! 3. [`container`] unpacks bundles of code objects for several kinds of GPU, compressed or not.
//!    Loaded code objects are normally named directly; this is for files on disk.
//! 4. [`Contents`] are the contents of a code object: its target ([`isa`]) and its kernels, each
//!    with the descriptor that the hardware reads ([`descriptor`]) and the metadata that the
//!    compiler wrote ([`metadata`]), compared with each other. Identical bytes are parsed only once
//!    ([`Cache`]).
//! 5. [`CodeObjects`] combines all of this for a process and answers the question.
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
//! Everything read here comes from other users' processes and is treated as hostile: circular
//! lists, sizes beyond all memory, URIs of devices, truncated files. All of it is limited and
//! checked, with typed errors; property tests and fuzz targets (`tests/fuzz`) feed it invalid data.
//!
//! Two kinds of kernels cannot be named: those that the runtime makes without its own loader
//! (ROCr's internal copy kernels), and those of a code object that was unloaded before it was read.

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
mod hash;
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
pub use contents::{Contents, Disagreement, Field, Kernel};
pub use elf::{ElfError, Layout};
pub use hash::ContentHash;
pub use process::{Cause, CodeObject, CodeObjects, Problem, Storage, Update};
pub use source::{MAX_CODE_OBJECT, SourceError};
