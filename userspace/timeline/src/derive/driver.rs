//! Pairs begin and end events of the driver.

use std::collections::BTreeMap;

use gputrace_abi::domain::Domain;
use gputrace_capture::gpu::KfdEvent;
use gputrace_kfd::smi::{self, Part, SmiEvent, SmiValue};

use crate::model::observation::{FieldValue, Observation, ObservedField, Whose};

/// Maximum number of open events of one kind per process and GPU. Beyond it, the oldest is emitted
/// as a moment.
const MOST_OPEN: usize = 4096;

/// What identifies an open event: number of the event that ends it, process, GPU, address.
type Key = (u32, u32, u32, Option<u64>);

/// Events that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct DriverEvents {
    open: BTreeMap<Key, Observation>,
}

impl DriverEvents {
    /// Takes a line of the driver and returns the observations that it completes.
    pub(crate) fn take(&mut self, line: &KfdEvent) -> Vec<Observation> {
        self.add(line, None, &[])
    }

    /// Takes a call of one of the driver's functions that report events; `None` if it is another
    /// tracepoint or function. `gpu_id` is set if there is only one GPU.
    pub(crate) fn called(
        &mut self,
        one: &Observation,
        gpu_id: Option<u32>,
    ) -> Option<Vec<Observation>> {
        let (line, unknown) = line_of(one, gpu_id.unwrap_or(0))?;
        let node = match one.get("node") {
            Some(FieldValue::Hex(node)) => *node,
            _ => 0,
        };
        let event = KfdEvent {
            gpu_id: gpu_id.unwrap_or(0),
            time: one.begin,
            line,
        };
        Some(self.add(&event, Some(node), unknown))
    }

    /// `node` identifies the GPU where its number is unknown; `unknown` names fields of the line
    /// that carry no information.
    fn add(&mut self, line: &KfdEvent, node: Option<u64>, unknown: &[&str]) -> Vec<Observation> {
        let Some(mut event) = smi::parse(&line.line) else {
            return Vec::new();
        };
        event.fields.retain(|(name, _)| !unknown.contains(name));
        let one = observation(&event, line);
        // Distinct kernel structures lie further apart than this.
        let gpu = node.map_or(one.whose.gpu_id, |node| (node >> 6) as u32);
        let key = |ends| {
            let address = match event.get("address") {
                Some(SmiValue::Hex(address)) => Some(*address),
                _ => None,
            };
            (ends, one.whose.pid, gpu, address)
        };
        match event.part {
            Part::Begins(ends) => {
                let mut known: Vec<Observation> = self
                    .open
                    .insert(key(ends), one.clone())
                    .into_iter()
                    .collect();
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

    /// Emits what is still open at the end, which is `time`.
    pub(crate) fn finish(&mut self, time: u64) -> impl Iterator<Item = Observation> {
        std::mem::take(&mut self.open)
            .into_values()
            .map(move |mut one| {
                one.end = time.max(one.begin);
                one.is_open = true;
                one.name = title(one.name.as_ref()).into();
                one
            })
    }
}

/// Maximum process id (`PID_MAX_LIMIT` of the kernel). A larger value is the pointer that newer
/// kernels pass in its place.
const MOST_PID: u64 = 1 << 22;

/// The line that the driver would have written for a call of one of its functions
/// (`amdkfd/kfd_smi_events.c`), and the names of its fields that are unknown.
fn line_of(one: &Observation, gpu: u32) -> Option<(String, &'static [&'static str])> {
    let function = one.name.strip_prefix("kfd_smi_event_")?;
    let number = |name| match one.get(name) {
        Some(FieldValue::Number(value) | FieldValue::Hex(value)) => *value,
        _ => 0,
    };
    let is = |name| one.get(name) == Some(&FieldValue::Text("true".into()));
    let (time, address) = (one.begin, number("address"));
    let pid = Some(number("pid"))
        .filter(|pid| *pid <= MOST_PID)
        .unwrap_or(0);
    let fault = |number, what| format!("{number} {time} -{pid} @{address:x}({gpu:x}) {what}");
    let whole: &[&str] = &[];
    Some(match function {
        "queue_eviction" => (
            format!("9 {time} -{pid} {gpu:x} {}", number("trigger") as u32),
            whole,
        ),
        "queue_restore" => (format!("a {time} -{pid} {gpu:x}"), &["rescheduled"]),
        "page_fault_start" => (fault(7, if is("write") { 'W' } else { 'R' }), whole),
        "page_fault_end" => (fault(8, if is("migrated") { 'M' } else { 'U' }), whole),
        "unmap_from_gpu" => {
            let pages = number("last").wrapping_sub(address).wrapping_add(1);
            let trigger = number("trigger") as u32;
            (
                format!("b {time} -{pid} @{address:x}({pages:x}) {gpu:x} {trigger}"),
                whole,
            )
        }
        "update_gpu_reset" => (
            format!("{} 0", if is("after") { 4 } else { 3 }),
            &["sequence"],
        ),
        "update_thermal_throttling" => (format!("2 {:x}:0", number("mask")), &["count"]),
        _ => return None,
    })
}

/// Name of the period that an event begins.
fn title(begins: &str) -> &'static str {
    match begins {
        "QUEUE_EVICTION" => EVICTED,
        "MIGRATE_START" => "migration",
        "PAGE_FAULT_START" => "page fault",
        "GPU_PRE_RESET" => "GPU reset",
        _ => "driver event",
    }
}

/// Name of periods in which a process's queues were off a GPU.
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
        // Another process, and another GPU of the same process.
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

    fn called(name: &'static str, time: u64, fields: &[(&'static str, FieldValue)]) -> Observation {
        let fields = fields.iter().map(|(name, value)| ObservedField {
            name: (*name).into(),
            value: value.clone(),
        });
        Observation {
            domain: Domain::Tracepoint.id(),
            name: name.into(),
            whose: Whose::default(),
            begin: time,
            end: time,
            is_open: false,
            fields: fields.collect(),
        }
    }

    #[test]
    fn calls_of_the_drivers_functions_tell_the_same() {
        let mut events = DriverEvents::default();
        let evict = |node, pid| {
            let fields = [
                ("node", FieldValue::Hex(node)),
                ("pid", FieldValue::Number(pid)),
                ("trigger", FieldValue::Number(1)),
            ];
            called("kfd_smi_event_queue_eviction", 100, &fields)
        };
        let restore = |node, time| {
            let fields = [
                ("node", FieldValue::Hex(node)),
                ("pid", FieldValue::Number(47)),
            ];
            called("kfd_smi_event_queue_restore", time, &fields)
        };
        // Two GPUs whose numbers are unknown.
        let (first, second) = (0xffff_8880_0010_0000, 0xffff_8880_0020_0000);
        assert_eq!(events.called(&evict(first, 47), None), Some(vec![]));
        assert_eq!(events.called(&evict(second, 47), None), Some(vec![]));
        let done = events.called(&restore(second, 300), None).unwrap();
        let [one] = &done[..] else { panic!("{done:?}") };
        assert_eq!((one.name.as_ref(), one.begin, one.end), (EVICTED, 100, 300));
        assert_eq!(one.domain, Domain::KfdEvent.id());
        assert_eq!((one.whose.pid, one.whose.gpu_id), (47, 0));
        assert_eq!(one.get("trigger").unwrap().to_string(), "USERPTR");
        assert_eq!(one.get("rescheduled"), None);
        assert_eq!(events.finish(900).count(), 1);
        // A pointer in place of the process id, on a machine with one GPU.
        events
            .called(&evict(first, 0xffff_8881_0000_1234), Some(7))
            .unwrap();
        let open: Vec<_> = events.finish(900).map(|one| one.whose).collect();
        assert_eq!((open[0].pid, open[0].gpu_id), (0, 7));

        let reset = called(
            "kfd_smi_event_update_gpu_reset",
            5,
            &[("after", FieldValue::Text("true".into()))],
        );
        let done = events.called(&reset, Some(7)).unwrap();
        assert_eq!(
            (done[0].name.as_ref(), done[0].fields.len()),
            ("GPU_POST_RESET", 0)
        );
        let unmap = called(
            "kfd_smi_event_unmap_from_gpu",
            5,
            &[
                ("pid", FieldValue::Number(3)),
                ("address", FieldValue::Number(0x10)),
                ("last", FieldValue::Number(0x11)),
                ("trigger", FieldValue::Number(2)),
            ],
        );
        let done = events.called(&unmap, Some(7)).unwrap();
        assert_eq!(done[0].get("bytes"), Some(&FieldValue::Number(8192)));
        assert_eq!(events.called(&called("amdgpu_iv", 5, &[]), None), None);
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
