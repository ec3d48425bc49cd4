//! Work of GPUs that outputs do not draw, because nothing tells how long it took
//! ([`GpuTime::is_drawn`]). Totals lack it, so every output says how much there is.

use gputrace_text::tables::plural;

use crate::model::{event::Event, gpu::GpuTime};

/// How many there are, and how many of them are not drawn.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u64,
    undrawn: u64,
}

impl Count {
    fn add(&mut self, time: &GpuTime) {
        self.all += 1;
        self.undrawn += u64::from(!time.is_drawn());
    }
}

/// Counts dispatches and copies that are not drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undrawn {
    kernels: Count,
    copies: Count,
}

impl Undrawn {
    /// Learns from an event that is shown.
    pub(crate) fn seen(&mut self, event: &Event) {
        match event {
            Event::Dispatch(dispatch) => self.kernels.add(&dispatch.time),
            Event::Copy(copy) => self.copies.add(&copy.time),
            _ => {}
        }
    }

    /// Remarks for readers of the recording, once all has been read.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        let kinds = [
            (self.kernels, "kernel", "kernels", "kernel", "dispatch"),
            (self.copies, "copy", "copies", "memory_copy", "copy"),
        ];
        let missing = kinds.into_iter().filter(|(count, ..)| count.undrawn > 0);
        missing.map(|(count, one, many, csv, line)| {
            let Count { all, undrawn } = count;
            format!(
                "How long {undrawn} of {} took is not known, only bounds. Such {many} are not \
                 drawn, are in no total, and are not in rocprofv3's tables; their bounds are in \
                 *_{csv}_trace_quality.csv, *_{many}.parquet, gputrace_{line} (SQL), and lines of \
                 type {line} (NDJSON).",
                plural(all, one, many),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::{Dispatch, Estimate, Quality, Window};

    /// Sampled times: it began and ended within `slack` ns of these.
    fn sampled(begin: u64, end: u64, slack: u64) -> GpuTime {
        let window = |time: u64| Window {
            earliest: time - slack,
            latest: Some(time + slack),
        };
        GpuTime {
            quality: Quality::Sampled,
            begin,
            end,
            begin_window: window(begin),
            end_window: window(end),
            ..GpuTime::default()
        }
    }

    #[test]
    fn only_what_has_a_known_length_is_drawn() {
        let close = sampled(1_000, 2_000, 20);
        let wide = sampled(1_000, 2_000, 400);
        let estimate = Some(Estimate { class: 0, error: 9 });
        let cases = [
            ("within 10 %", close, true),
            ("from a look to the next begin", wide, false),
            ("a window", sampled(1_000, 2_000, 1_000), false),
            ("with a mean", GpuTime { estimate, ..wide }, true),
            (
                "exact",
                GpuTime {
                    quality: Quality::Exact,
                    ..wide
                },
                true,
            ),
            (
                "bounded",
                GpuTime {
                    quality: Quality::Bounded,
                    ..close
                },
                false,
            ),
            (
                "unfinished",
                GpuTime {
                    unfinished: true,
                    ..close
                },
                false,
            ),
            ("submitted", GpuTime::default(), false),
        ];
        for (what, time, is_drawn) in cases {
            assert_eq!(time.is_drawn(), is_drawn, "{what}");
            let drawn = is_drawn.then_some((time.begin, time.end));
            assert_eq!(time.drawn_begin().zip(time.drawn_end()), drawn, "{what}");
        }
        assert_eq!(close.proven_length(), Some((960, 1_040)));
    }

    #[test]
    fn what_is_not_drawn_is_told() {
        let mut undrawn = Undrawn::default();
        assert_eq!(undrawn.remarks().count(), 0);
        for time in [
            sampled(1_000, 2_000, 20),
            sampled(1_000, 2_000, 400),
            sampled(1_000, 2_000, 1_000),
        ] {
            undrawn.seen(&Event::Dispatch(Box::new(Dispatch {
                time,
                ..Dispatch::default()
            })));
        }
        undrawn.seen(&Event::Copy(Box::default()));
        let remarks: Vec<String> = undrawn.remarks().collect();
        let [kernels, copies] = &remarks[..] else {
            unreachable!("{remarks:?}")
        };
        assert!(kernels.starts_with("How long 2 of 3 kernels took is not known"));
        assert!(copies.starts_with("How long 1 of 1 copy took is not known"));
        assert!(
            copies.contains("*_memory_copy_trace_quality.csv, *_copies.parquet, gputrace_copy")
        );
    }
}
