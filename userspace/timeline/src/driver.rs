//! Events of the driver: what begins and what ends put together.

use std::collections::BTreeMap;

use gputrace_abi::domain::Domain;
use gputrace_capture::gpu::KfdEvent;
use gputrace_kfd::smi::{self, Part, SmiEvent, SmiValue};

use crate::observation::{FieldValue, Observation, ObservedField, Whose};

/// Things of one kind that may be open at once in a process and on a GPU; an older one is given up as a moment.
const MOST_OPEN: usize = 4096;

/// What tells two things of one kind apart: number of the event that ends it, process, GPU, address.
type Key = (u32, u32, u32, Option<u64>);

/// What has begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct DriverEvents {
    open: BTreeMap<Key, Observation>,
}

impl DriverEvents {
    /// Takes a line of the driver; what is known in full by it comes back.
    pub(crate) fn take(&mut self, line: &KfdEvent) -> Vec<Observation> {
        let Some(event) = smi::parse(&line.line) else {
            return Vec::new();
        };
        let one = observation(&event, line);
        let key = |ends| {
            let address = match event.get("address") {
                Some(SmiValue::Hex(address)) => Some(*address),
                _ => None,
            };
            (ends, one.whose.pid, one.whose.gpu_id, address)
        };
        match event.part {
            Part::Begins(ends) => {
                let mut known: Vec<Observation> =
                    self.open.insert(key(ends), one.clone()).into_iter().collect();
                if self.open.len() > MOST_OPEN {
                    known.extend(self.open.pop_first().map(|(_, oldest)| oldest));
                }
                known
            }
            Part::Ends(_) => match self.open.remove(&key(event.number)) {
                Some(mut begun) => {
                    begun.end = one.begin.max(begun.begin);
                    begun.name = title(begun.name.as_ref()).into();
                    for field in one.fields {
                        if begun.get(&field.name).is_none() {
                            begun.fields.push(field);
                        }
                    }
                    vec![begun]
                }
                // It began before the recording did.
                None => vec![one],
            },
            Part::Moment => vec![one],
        }
    }

    /// What is still open at the end, which is `time`.
    pub(crate) fn finish(&mut self, time: u64) -> impl Iterator<Item = Observation> {
        std::mem::take(&mut self.open).into_values().map(move |mut one| {
            one.end = time.max(one.begin);
            one.is_open = true;
            one.name = title(one.name.as_ref()).into();
            one
        })
    }
}

/// Name of what an event begins.
fn title(begins: &str) -> &'static str {
    match begins {
        "QUEUE_EVICTION" => EVICTED,
        "MIGRATE_START" => "migration",
        "PAGE_FAULT_START" => "page fault",
        "GPU_PRE_RESET" => "GPU reset",
        _ => "driver event",
    }
}

/// Name of the time for which a process's queues were taken off a GPU.
pub const EVICTED: &str = "queues evicted";

fn observation(event: &SmiEvent, line: &KfdEvent) -> Observation {
    let time = event.time.unwrap_or(line.time);
    let fields = event.fields.iter().map(|(name, value)| ObservedField {
        name: (*name).into(),
        value: match value {
            SmiValue::Number(value) => FieldValue::Number(*value),
            SmiValue::Signed(value) => FieldValue::Signed(*value),
            SmiValue::Hex(value) => FieldValue::Hex(*value),
            other => FieldValue::Text(other.to_string().into()),
        },
    });
    Observation {
        domain: Domain::KfdEvent.id(),
        name: event.name.into(),
        whose: Whose {
            pid: event.pid.unwrap_or(0),
            tid: 0,
            gpu_id: event.gpu_id.unwrap_or(line.gpu_id),
        },
        begin: time,
        end: time,
        is_open: false,
        fields: fields.collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(events: &mut DriverEvents, line: &str) -> Vec<Observation> {
        events.take(&KfdEvent {
            gpu_id: 51234,
            time: 7,
            line: line.to_owned(),
        })
    }

    #[test]
    fn an_eviction_lasts_until_its_restore() {
        let mut events = DriverEvents::default();
        assert_eq!(take(&mut events, "9 100 -47 c822 2"), []);
        // Another process, and another GPU of the same one.
        assert_eq!(take(&mut events, "9 110 -48 c822 0"), []);
        assert_eq!(take(&mut events, "9 120 -47 c823 2"), []);
        let done = take(&mut events, "a 900 -47 c822 R");
        let [one] = &done[..] else { panic!("{done:?}") };
        assert_eq!(
            (one.name.as_ref(), one.begin, one.end, one.is_open),
            (EVICTED, 100, 900, false)
        );
        assert_eq!((one.whose.pid, one.whose.gpu_id), (47, 51234));
        assert_eq!(one.get("trigger").unwrap().to_string(), "TTM");
        assert_eq!(one.get("rescheduled").unwrap().to_string(), "true");
        let open: Vec<_> = events
            .finish(1000)
            .map(|one| (one.whose.pid, one.begin, one.end, one.is_open))
            .collect();
        assert_eq!(
            open,
            [(47, 120, 1000, true), (48, 110, 1000, true)].map(|one| one)
        );
    }

    #[test]
    fn ends_without_a_beginning_and_moments_are_moments() {
        let mut events = DriverEvents::default();
        let done = take(&mut events, "a 900 -47 c822");
        assert_eq!(
            (done[0].name.as_ref(), done[0].begin, done[0].end),
            ("QUEUE_RESTORE", 900, 900)
        );
        let done = take(&mut events, "2 40:3");
        assert_eq!(
            (done[0].name.as_ref(), done[0].begin, done[0].whose.gpu_id),
            ("THERMAL_THROTTLE", 7, 51234)
        );
        assert_eq!(take(&mut events, "nonsense"), []);
    }

    proptest! {
        #[test]
        fn any_lines_are_taken(lines in proptest::collection::vec("[0-9a-e] [0-9]{1,5} -[0-9]{1,2} @?[0-9a-f]{1,2}.{0,20}|.*", 0..50)) {
            let mut events = DriverEvents::default();
            let mut count = 0;
            for line in &lines {
                count += take(&mut events, line).len();
            }
            prop_assert!(count + events.finish(9).count() <= lines.len());
        }
    }
}
