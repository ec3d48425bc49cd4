//! Counters: numbers that the recorder reads from time to time.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use gputrace_capture::counter::{Counter, CounterValues};

use crate::{
    derive::readings::Readings,
    model::{
        event::{CounterSample, Event},
        gpu::Dispatch,
    },
};

/// The counters of a capture by number.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    known: HashMap<u32, Arc<Counter>>,
    readings: Readings,
}

impl Counters {
    pub(crate) fn learn(&mut self, counter: Counter) {
        let counter = Arc::new(counter);
        self.readings.learn(&counter);
        self.known.insert(counter.number, counter);
    }

    /// Takes the values read at one time. Returns how many belong to counters that the capture does
    /// not describe, or are not finite numbers.
    pub(crate) fn take(&mut self, read: &CounterValues, ready: &mut VecDeque<Event>) -> u64 {
        self.readings.take(read);
        let mut wrong = 0;
        for (number, value) in &read.values {
            match self.known.get(number) {
                Some(counter) if value.is_finite() => {
                    ready.push_back(Event::Counter(CounterSample {
                        counter: Arc::clone(counter),
                        time: read.time,
                        value: *value,
                    }));
                }
                _ => wrong += 1,
            }
        }
        wrong
    }

    /// Attaches what was read while a dispatch ran; `node` is that of its agent.
    pub(crate) fn annotate(&mut self, dispatch: &mut Dispatch, node: Option<u32>) {
        self.readings.annotate(dispatch, node);
    }

    /// Remarks for readers of the recording.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.readings.remarks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_known_counters() {
        let mut counters = Counters::default();
        counters.learn(Counter {
            number: 4,
            name: "gpu_busy_percent".to_owned(),
            ..Counter::default()
        });
        let mut ready = VecDeque::new();
        let read = CounterValues {
            time: 9,
            values: vec![(4, 97.0), (5, 1.0), (4, f64::NAN)],
            ..CounterValues::default()
        };
        assert_eq!(counters.take(&read, &mut ready), 2);
        let [Event::Counter(sample)] = ready.make_contiguous() else {
            panic!("{ready:?}")
        };
        assert_eq!(
            (sample.counter.name.as_str(), sample.time, sample.value),
            ("gpu_busy_percent", 9, 97.0)
        );
    }
}
