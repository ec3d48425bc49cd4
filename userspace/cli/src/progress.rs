//! Progress of an export.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use gputrace_export::Progress;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::say;

/// Shows the progress of an export: a bar on a terminal; elsewhere an occasional line, for logs of
/// services.
#[derive(Clone)]
pub(crate) struct ProgressView {
    bar: ProgressBar,
    /// Set if there is no terminal.
    lines: Option<Arc<Mutex<ProgressLines>>>,
}

impl ProgressView {
    pub(crate) fn new() -> Self {
        // Drawn on stderr, and only if that is a terminal.
        let bar = ProgressBar::new(0);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {msg} {eta}")
        {
            bar.set_style(style);
        }
        let lines = bar.is_hidden().then(Arc::default);
        Self { bar, lines }
    }

    pub(crate) fn show(&self, progress: Progress) {
        if let Some(lines) = &self.lines {
            // After a panic in another thread, the time it left is as good as any.
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = lines.due(progress, Instant::now()) {
                say(&line);
            }
            return;
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.bytes);
        self.bar.set_message(format!("{} events", progress.events));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress lines of a long export, for outputs other than terminals.
#[derive(Default)]
struct ProgressLines {
    /// When the last line was printed, or the export began.
    said: Option<Instant>,
}

impl ProgressLines {
    /// Interval between lines. Short exports print none.
    const EVERY: Duration = Duration::from_secs(10);

    /// The line to print now, if any.
    fn due(&mut self, progress: Progress, now: Instant) -> Option<String> {
        let said = *self.said.get_or_insert(now);
        if now.duration_since(said) < Self::EVERY {
            return None;
        }
        self.said = Some(now);
        let Progress {
            bytes,
            total,
            events,
        } = progress;
        let percent = bytes.saturating_mul(100).checked_div(total).unwrap_or(0);
        Some(format!(
            "exporting: {percent} % of {} read, {events} events",
            HumanBytes(total)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_exports_say_now_and_then_how_far_they_are() {
        let begin = Instant::now();
        let mut lines = ProgressLines::default();
        let mut due = |second, bytes| {
            let progress = Progress {
                bytes,
                total: 4 << 20,
                events: 7,
            };
            lines.due(progress, begin + Duration::from_secs(second))
        };
        assert_eq!(due(0, 0), None);
        assert_eq!(due(9, 1 << 20), None, "short ones say nothing");
        let line = due(10, 1 << 20).unwrap();
        assert_eq!(line, "exporting: 25 % of 4.00 MiB read, 7 events");
        assert_eq!(due(19, 2 << 20), None);
        assert!(due(25, 3 << 20).unwrap().contains("75 %"));
        assert_eq!(due(34, 4 << 20), None);
        let empty = Progress {
            bytes: 0,
            total: 0,
            events: 0,
        };
        assert!(
            lines
                .due(empty, begin + Duration::from_secs(60))
                .unwrap()
                .contains("0 %")
        );
    }
}
