//! A capture as typed events.

pub mod event;
