//! The capture file.

pub mod ledger;
pub mod meta;
