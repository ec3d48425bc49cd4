//! Which functions of the ROCm libraries belong to which API domain, and what their arguments are.
//!
//! [`classify`] goes by naming pattern, so a function that a newer ROCm adds is traced on the day it ships.

mod domains;

pub use domains::{
    LibraryPattern, classify, is_polling, library_domains, library_patterns, plain_name, polling_prefixes,
};
