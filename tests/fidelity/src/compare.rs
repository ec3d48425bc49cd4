//! Compares one recording with the truth.

use gputrace_abi::{counters::DropReason, domain::Domain};
use gputrace_e2e::Trace;
use gputrace_timeline::{
    event::Call,
    gpu::{GpuTime, Quality, Window},
};

use crate::{
    copies,
    cut::Cut,
    dispatches,
    figures::{Figures, Flaw, Work},
    means, parents,
    truth::Truth,
};

/// The files and facts that a run left behind.
#[derive(Debug)]
pub struct Evidence {
    /// What happened.
    pub truth: Truth,
    /// The recording made by gputrace.
    pub trace: Trace,
    /// The state of the program when gputrace attached; `None` if gputrace started it.
    pub cut: Option<Cut>,
    /// Whether the program launches from a single thread, so that its log has the order of its
    /// launches.
    pub one_thread: bool,
    /// Number of dispatches of each `hipGraphLaunch`.
    pub graph_nodes: usize,
    /// Whether the program logs its launches. If not, the number of kernels of each call and their
    /// order are unknown.
    pub says: bool,
    /// gputrace's summary tables, if means and GPU use are to be compared.
    pub summary: Option<String>,
}

impl Evidence {
    /// Number of packets and doorbells that the recording says could not be read.
    pub(crate) fn unreadable(&self) -> u64 {
        let rows = self.trace.ledger.iter().flat_map(|ledger| &ledger.rows);
        let packets = [Domain::KernelDispatch.id(), Domain::QueuePacket.id()];
        rows.filter(|row| packets.contains(&row.domain))
            .map(|row| row.dropped_for(DropReason::MemoryUnreadable))
            .sum()
    }
}

/// Compares a recording with the truth.
#[must_use]
pub fn compare(evidence: &Evidence) -> Figures {
    let mut figures = Figures {
        runs: 1,
        ..Figures::default()
    };
    let unknown = &evidence.truth.unknown;
    let checked = match evidence.says {
        true => evidence.truth.check().map_err(|error| error.to_string()),
        false if unknown.is_empty() => Ok(()),
        false => Err(format!("the software GPU met {unknown:?}")),
    };
    if let Err(error) = checked {
        figures.flaw(Flaw::NotRun, || error);
    }
    let matched = dispatches::compare(evidence, &mut figures);
    copies::compare(evidence, &mut figures);
    // No calls are recorded for programs whose means are compared.
    if evidence.summary.is_none() {
        parents::compare(evidence, &matched, &mut figures);
    }
    means::compare(evidence, &matched, &mut figures);
    accounts(&evidence.trace, &mut figures);
    figures
}

/// True times, in ns of `CLOCK_BOOTTIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Really {
    pub(crate) begin: u64,
    /// `None` if it never ended.
    pub(crate) end: Option<u64>,
    /// Whether the GPU wrote both times into the completion signal.
    pub(crate) stamped: bool,
}

/// Whether a true time lies in a window. An event that never happened is in every window without an
/// end.
fn is_in(window: Window, really: Option<u64>) -> bool {
    match really {
        Some(time) => window.earliest <= time && window.latest.is_none_or(|latest| time <= latest),
        None => window.latest.is_none(),
    }
}

/// Compares the times of a dispatch or copy with the truth. Returns what is wrong with them.
pub(crate) fn times(time: &GpuTime, really: Really, work: &mut Work) -> Option<String> {
    work.count(time.quality);
    work.stamped += u64::from(really.stamped);
    work.stamped_found += u64::from(really.stamped && time.quality == Quality::Exact);
    if time.quality == Quality::Exact {
        work.begin_errors.push(time.begin.abs_diff(really.begin));
        if let Some(end) = really.end {
            work.end_errors.push(time.end.abs_diff(end));
        }
    } else if let Some(latest) = time.end_window.latest {
        work.widths
            .push(latest.saturating_sub(time.begin_window.earliest));
    }
    let begin = is_in(time.begin_window, Some(really.begin));
    let end = is_in(time.end_window, really.end);
    let unfinished = !time.unfinished || really.end.is_none();
    (!begin || !end || !unfinished).then(|| {
        let off = |window: Window, really: u64| {
            let early = window.earliest.saturating_sub(really);
            let late = window
                .latest
                .map_or(0, |latest| really.saturating_sub(latest));
            (early, late)
        };
        format!(
            "{}: began {:?} ns before/after its window, ended {:?}{}",
            time.quality.name(),
            off(time.begin_window, really.begin),
            really.end.map(|end| off(time.end_window, end)),
            if unfinished {
                ""
            } else {
                ", said to be unfinished"
            }
        )
    })
}

/// Checks the ledger: seen = written + lost, and the capture contains as much as was written.
fn accounts(trace: &Trace, figures: &mut Figures) {
    if let Some(truncation) = &trace.truncation {
        figures.flaw(Flaw::Accounts, || {
            format!("the capture is damaged: {truncation:?}")
        });
    }
    let Some(ledger) = trace.ledger.as_ref().filter(|ledger| ledger.complete) else {
        figures.flaw(Flaw::Accounts, || "there is no final account".to_owned());
        return;
    };
    for row in ledger.rows.iter().filter(|row| row.imbalance() != 0) {
        figures.flaw(Flaw::Accounts, || format!("{row:?}"));
    }
    for row in ledger.by_domain() {
        figures.lost += row.lost();
        // Memory that the kernel is just moving cannot be read. Such losses are reported and cause
        // no errors.
        if row.lost() > row.dropped_for(DropReason::MemoryUnreadable) {
            let name = gputrace_capture::ledger::Ledger::domain_name(row.domain);
            figures.flaw(Flaw::Lost, || {
                format!("{name}: {} of {}", row.lost(), row.seen)
            });
        }
        let held = match Domain::from_id(row.domain) {
            Some(domain) if domain.is_api() => {
                let here = |call: &&Call| call.domain == row.domain;
                trace.calls.iter().filter(here).count()
            }
            Some(Domain::MemoryCopy) => trace.gpu.copies.len(),
            // Several records may concern one packet, and several readings one signal.
            _ => continue,
        };
        if row.written + row.unfinished != held as u64 {
            figures.flaw(Flaw::Accounts, || {
                format!("{row:?}, but the capture holds {held}")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        earliest: 100,
        latest: Some(200),
    };

    #[test]
    fn windows_have_no_tolerance() {
        for (time, inside) in [(99, false), (100, true), (200, true), (201, false)] {
            assert_eq!(is_in(WINDOW, Some(time)), inside, "{time}");
        }
        assert!(!is_in(WINDOW, None), "it never happened");
        let open = Window {
            latest: None,
            ..WINDOW
        };
        assert!(is_in(open, None) && is_in(open, Some(1 << 60)));
    }

    #[test]
    fn errors_are_those_of_exact_times() {
        let mut time = GpuTime {
            quality: Quality::Exact,
            begin: 150,
            end: 190,
            begin_window: WINDOW,
            end_window: WINDOW,
            unfinished: false,
            estimate: None,
        };
        let really = Really {
            begin: 160,
            end: Some(185),
            stamped: true,
        };
        let mut work = Work::default();
        assert_eq!(times(&time, really, &mut work), None);
        assert_eq!(
            (&*work.begin_errors, &*work.end_errors),
            (&[10][..], &[5][..])
        );
        time.quality = Quality::Sampled;
        let late = Really {
            end: Some(201),
            ..really
        };
        assert!(times(&time, late, &mut work).is_some());
        assert_eq!(work.widths, [100]);
        assert_eq!(work.quality, [0, 0, 1, 1]);
        assert_eq!((work.stamped, work.stamped_found), (2, 1));
    }
}
