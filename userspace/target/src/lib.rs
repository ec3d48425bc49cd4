//! Placeholder.
pub mod elf;
pub mod library;
pub mod plan;
pub mod process;
