//! Draws observations in rows below the thread, process or GPU that they concern.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use gputrace_abi::domain::Domain;
use gputrace_timeline::observation::{FieldValue, Observation, Whose};

use crate::{
    packets::Track,
    sequence::{EventType, Sequence, Value},
    tracks::Tracks,
};

/// A row: its owner and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    /// Track of the thread or process; 0 if it belongs to neither.
    parent: u64,
    domain: u8,
    gpu_id: u32,
}

/// Draws observations. Memory grows with the number of rows.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    /// The tracks of each row, with the end of the last slice on each. Overlapping slices are on
    /// several tracks.
    rows: HashMap<Row, Vec<(u64, u64)>>,
}

impl Observations {
    /// Draws a slice, or an instant for an observation that takes no time.
    pub(crate) fn draw<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        tracks: &mut Tracks,
        one: &Observation,
    ) -> io::Result<()> {
        let Whose { pid, tid, gpu_id } = one.whose;
        let parent = match (pid, tid) {
            (0, _) => 0,
            (pid, 0) => tracks.process_track(out, pid)?,
            (pid, tid) => tracks.thread(out, pid, tid)?.track(),
        };
        let row = Row {
            parent,
            domain: one.domain,
            gpu_id,
        };
        let track = self.track(out, row, one)?;
        let category = Domain::from_id(one.domain).map_or("kernel", Domain::csv_stem);
        out.bound_interning()?;
        let begins = if one.end > one.begin || one.is_open {
            EventType::SliceBegin
        } else {
            EventType::Instant
        };
        out.event(one.begin, begins, track, |event| {
            event.named_title(category, &one.name);
            let mut annotations = event.annotations();
            for field in &one.fields {
                let value = match &field.value {
                    FieldValue::Number(value) => Value::Uint(*value),
                    FieldValue::Signed(value) => Value::Int(*value),
                    FieldValue::Hex(value) => Value::Pointer(*value),
                    FieldValue::Text(text) => Value::Text(text),
                    FieldValue::Missing => Value::Text("(not recorded)"),
                };
                annotations.put_by_name(&field.name, value);
            }
            if gpu_id != 0 {
                annotations.named("gpu_id", Value::Uint(gpu_id.into()));
            }
            if one.is_open {
                annotations.named("unfinished", Value::Text("the recording stopped"));
            }
        })?;
        if begins == EventType::SliceBegin {
            out.event(one.end, EventType::SliceEnd, track, |_| ())?;
        }
        Ok(())
    }

    /// A track of the row that is free at this time.
    fn track<W: Write>(
        &mut self,
        out: &mut Sequence<W>,
        row: Row,
        one: &Observation,
    ) -> io::Result<u64> {
        let lanes = self.rows.entry(row).or_default();
        if let Some((track, end)) = lanes.iter_mut().find(|(_, end)| *end <= one.begin) {
            *end = one.end;
            return Ok(*track);
        }
        let track = out.new_track();
        lanes.push((track, one.end));
        out.packet(&Track {
            uuid: track,
            parent: row.parent,
            name: &title(row),
            ..Track::default()
        })?;
        Ok(track)
    }
}

/// The title of a row.
fn title(row: Row) -> String {
    let what = match Domain::from_id(row.domain) {
        Some(Domain::Sched) => "scheduling",
        Some(Domain::MemoryAllocation) => "memory",
        Some(Domain::HipMemory) => "HIP memory",
        Some(Domain::ScratchMemory) => "scratch memory",
        _ => "driver",
    };
    match row.gpu_id {
        0 => what.to_owned(),
        gpu => format!("{what}, GPU {gpu}"),
    }
}
