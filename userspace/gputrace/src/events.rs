//! The stream of events.

use std::{
    io::{Read, Seek},
    ops::ControlFlow,
};

use gputrace_capture::{Truncation, meta::Recording};
use gputrace_timeline::{Timeline, event::Event, tally::Tally};

use crate::{Error, Index};

/// The events of a capture or a session, in the order that [`Event`] describes.
///
/// An error is returned once, and ends the stream. A capture that ends too early is no error: a
/// [`Event::Notice`] says so, and [`Events::truncation`] where.
#[derive(Debug)]
pub struct Events<R>(Timeline<R>);

impl<R: Read + Seek> Events<R> {
    pub(crate) fn new(timeline: Timeline<R>) -> Self {
        Self(timeline)
    }

    /// Where and how the recording was made.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        self.0.recording()
    }

    /// Counts of what has been read so far; complete when the stream has ended.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.0.tally()
    }

    /// Where and why the capture ends before its end; known when the stream has ended.
    #[must_use]
    pub fn truncation(&self) -> Option<Truncation> {
        self.0.truncation()
    }

    /// Calls `take` with each event and with what is known by then of functions, kernels and so on,
    /// until there are no more or `take` breaks. This is the fastest way: memory of events is used
    /// again.
    ///
    /// If `take` panics, the stream stays as it is, and can be continued.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if the capture cannot be read on.
    pub fn each(
        &mut self,
        mut take: impl FnMut(&Event, &Index) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let mut index = Index::default();
        while let Some(event) = self.0.next() {
            let event = event?;
            index.learn(&event);
            let go_on = take(&event, &index);
            if let Event::Dispatch(dispatch) = event {
                self.0.take_back(dispatch);
            }
            if go_on.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<R: Read + Seek> Iterator for Events<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map_err(Error::from))
    }
}
