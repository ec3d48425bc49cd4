//! Counter readings: lowest, average, highest.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    sync::Arc,
};

use gputrace_capture::counter::Counter;
use gputrace_text::Page;
use gputrace_timeline::event::CounterSample;

use gputrace_text::tables::{
    Align::{Left, Right},
    count, table,
};

/// Maximum number of counters listed.
const LISTED: usize = 60;

/// The course of a counter's values.
#[derive(Clone, Copy, Debug)]
struct Course {
    first: (u64, f64),
    last: (u64, f64),
    least: f64,
    most: f64,
    /// Integral of the value over time in ns.
    area: f64,
}

/// The courses of all counters.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<Arc<Counter>, Course>);

impl Counters {
    pub(super) fn sample(&mut self, sample: &CounterSample) {
        let now = (sample.time, sample.value);
        let course = self.0.entry(Arc::clone(&sample.counter)).or_insert(Course {
            first: now,
            last: now,
            least: sample.value,
            most: sample.value,
            area: 0.0,
        });
        course.area += sample.time.saturating_sub(course.last.0) as f64 * course.last.1;
        course.last = now;
        course.least = course.least.min(sample.value);
        course.most = course.most.max(sample.value);
    }

    /// Whether there is anything to show.
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn render(&self, out: &mut Page<impl Write>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut counters: Vec<_> = self.0.iter().collect();
        counters.sort_by_key(|(counter, _)| (counter.pid, counter.gpu_id, &counter.name));
        let (moving, constant): (Vec<_>, Vec<_>) = counters
            .into_iter()
            .partition(|(_, course)| course.least < course.most);
        out.paragraph(format_args!("Counters"))?;
        if !moving.is_empty() {
            let heading = [
                "GPU", "Process", "Counter", "Unit", "Lowest", "Average", "Highest",
            ];
            let mut rows = vec![heading.map(str::to_owned).to_vec()];
            for (counter, course) in moving.iter().take(LISTED) {
                rows.push(row(counter, course));
            }
            table(out, &[Right, Right, Left, Left, Right, Right, Right], &rows)?;
        }
        if let more @ 1.. = moving.len().saturating_sub(LISTED) {
            out.line(format_args!("  and {}", count(more as u64, "more counter")))?;
        }
        if !constant.is_empty() {
            out.line(format_args!(
                "  {} did not change",
                count(constant.len() as u64, "counter")
            ))?;
        }
        Ok(())
    }
}

fn row(counter: &Counter, course: &Course) -> Vec<String> {
    let id = |id: u32| {
        if id == 0 {
            String::new()
        } else {
            id.to_string()
        }
    };
    let lasted = course.last.0.saturating_sub(course.first.0) as f64;
    // For a cumulative counter: the growth, and the growth per second.
    let (unit, values) = if counter.cumulative {
        let grown = course.last.1 - course.first.1;
        let rate = if lasted > 0.0 {
            grown / lasted * 1e9
        } else {
            0.0
        };
        (
            format!("{}/s", counter.unit),
            [
                String::new(),
                number(rate),
                format!("({} in all)", number(grown)),
            ],
        )
    } else {
        let average = if lasted > 0.0 {
            course.area / lasted
        } else {
            course.last.1
        };
        (
            counter.unit.clone(),
            [course.least, average, course.most].map(number),
        )
    };
    let mut row = vec![
        id(counter.gpu_id),
        id(counter.pid),
        counter.name.clone(),
        unit,
    ];
    row.extend(values);
    row
}

/// Formats without decimals where that is precise enough.
fn number(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_time_and_sums_are_rates() {
        let counter = |name: &str, cumulative| {
            Arc::new(Counter {
                name: name.to_owned(),
                unit: "W".to_owned(),
                cumulative,
                gpu_id: 51234,
                ..Counter::default()
            })
        };
        let (power, energy, still) = (
            counter("power", false),
            counter("energy", true),
            counter("still", false),
        );
        let mut counters = Counters::default();
        for (counter, time, value) in [
            (&power, 0, 100.0),
            (&power, 1_000_000_000, 400.0),
            (&power, 4_000_000_000, 0.0),
            (&energy, 0, 7.0),
            (&energy, 4_000_000_000, 1007.0),
            (&still, 0, 3.0),
        ] {
            counters.sample(&CounterSample {
                counter: Arc::clone(counter),
                time,
                value,
            });
        }
        let mut page = Page::new(String::new());
        counters.render(&mut page).unwrap();
        let text = page.into_inner();
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(
            words.contains(&vec![
                "51234", "energy", "W/s", "250", "(1000", "in", "all)"
            ]),
            "{text}"
        );
        assert!(
            words.contains(&vec!["51234", "power", "W", "0", "325", "400"]),
            "{text}"
        );
        assert!(text.contains("1 counter did not change"), "{text}");
    }
}
