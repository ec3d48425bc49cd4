//! Decides what to trace and where the probes go: processes, their ROCm libraries, ELF symbols,
//! probe sites.
//!
//! The way from a target to its probes has three steps:
//!
//! 1. **Which files?** For a running process, [`process::rocm_libraries`] finds the ROCm libraries
//!    in its memory map, and [`process::open_mapped`] opens exactly these files, whatever
//!    containers, upgrades and deletions did to their paths. For a program that has not started
//!    yet, [`candidates::find`] lists the files that its dynamic linker could choose, and
//!    [`interp`] finds the dynamic linker itself, which reports libraries that are mapped later.
//! 2. **Which functions?** [`elf`] reads the exported functions of a file, with their versions and
//!    aliases. A [`library::Selector`] says which of them are wanted.
//! 3. **Where exactly?** [`plan`] decodes the first instructions of each function and chooses the
//!    one on which a probe costs least, or says why the kernel would refuse it.
//!
//! For a program's own functions, exported or not, [`functions`] replaces the second step: it reads
//! full symbol tables and debug information, and finds the instructions that leave each function.
//!
//! The result is a [`library::LibraryPlan`]: file offsets for the kernel, together with a path that
//! means exactly the examined file ([`library::LibraryFile::attach_path`]).
//!
//! ```no_run
//! use gputrace_tracee::{library::LibraryFile, process};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! for mapped in process::rocm_libraries(4711)?.libraries {
//!     let library = process::open_mapped(4711, &mapped)?;
//!     let plan = library.plan(&gputrace_catalog::classify)?;
//!     let at = library.attach_path();
//!     // attach plan.probes at `at` …
//! #   drop((plan, at));
//! }
//! # Ok(()) }
//! ```
//!
//! [`whose`] says to whom a process belongs: user, container, pod, job.
//!
//! Files are located first and opened only if they are regular ([`gputrace_files::target`]): a
//! program can place anything under the name of a library.
//!
//! Everything read here is untrusted: ELF files of other users, memory maps with any bytes as file
//! names, the dynamic linker's cache. It is bounds-checked and limited in size, and failures are
//! typed errors that name the file or process and the next step.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

pub mod candidates;
pub mod elf;
pub mod functions;
pub mod identity;
pub mod interp;
mod ld_cache;
pub mod library;
pub mod linker_sites;
pub mod plan;
pub mod process;
pub mod whose;
