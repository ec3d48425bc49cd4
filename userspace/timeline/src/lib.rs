//! A capture as typed events.

pub mod args;
pub mod event;
pub mod status;
