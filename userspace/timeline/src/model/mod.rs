//! The parts of a recording as events. Nothing here reads records or draws conclusions.

pub mod event;
pub mod extent;
pub mod gpu;
pub(crate) mod item;
pub mod observation;
pub(crate) mod raw;
pub mod request;
pub mod stream;
pub mod tally;
pub(crate) mod value;
pub mod values;
