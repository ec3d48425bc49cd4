//! Shared code of line formats, which go to a stream during a recording, or to a file.

/// Implements [`Exporter`](crate::Exporter) for the writer of a line format, which has a field
/// `out` and writes to a stream that is never finished, and for its exporter, which has such a
/// writer in its field `lines` and writes a file.
macro_rules! line_exporters {
    ($writer:ident, $exporter:ident, $format:expr, $content:literal) => {
        impl<W: std::io::Write> $crate::Exporter for $writer<W> {
            fn format(&self) -> &'static str {
                $format
            }

            fn event(
                &mut self,
                event: &gputrace_timeline::event::Event,
            ) -> Result<(), $crate::ExportError> {
                Ok(Self::event(self, event)?)
            }

            fn finish(mut self: Box<Self>) -> Result<Vec<$crate::Output>, $crate::ExportError> {
                self.out.flush()?;
                Ok(Vec::new())
            }
        }

        impl $crate::Exporter for $exporter {
            fn format(&self) -> &'static str {
                $format
            }

            fn event(
                &mut self,
                event: &gputrace_timeline::event::Event,
            ) -> Result<(), $crate::ExportError> {
                Ok(self.lines.event(event)?)
            }

            fn finish(self: Box<Self>) -> Result<Vec<$crate::Output>, $crate::ExportError> {
                let file = self.lines.into_inner();
                Ok(vec![file.finish($content)?])
            }
        }
    };
}
pub(crate) use line_exporters;
