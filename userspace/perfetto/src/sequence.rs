//! The packet sequence, through which everything is written in order.

use std::io::{self, Write};

use flate2::{Compression, write::ZlibEncoder};

use crate::{
    clock::BOOTTIME,
    intern::{Interner, Table},
    packets::Data,
    tracks::OwnTrack,
    wire::{Encoder, annotation, packet, packet_defaults, render_stage, trace, track_event},
};

/// `trusted_packet_sequence_id` of every packet. Interned numbers belong to a sequence. There is
/// only one writer, and so only one sequence.
const SEQUENCE: u32 = 1;

/// Bytes of interned text after which the tables are reset. A recording of all ROCm functions
/// interns some 100 KiB.
const INTERNED_LIMIT: usize = 4 << 20;

/// Bytes of encoded packets that are collected for one write: a file takes them without copying
/// them into a buffer of its own, and they fit into the CPU's second-level cache.
const BATCH: usize = 256 << 10;

/// Values of `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// GPU work in the form of Perfetto's native GPU events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeEvent {
    /// Unique among native events.
    pub(crate) id: u64,
    /// ns, `CLOCK_BOOTTIME`.
    pub(crate) begin: u64,
    /// ns.
    pub(crate) duration: u64,
    /// Number of the GPU.
    pub(crate) gpu: u32,
    /// Process id.
    pub(crate) pid: u32,
    /// Number of the track's name in [`Table::GpuSpecifications`].
    pub(crate) queue: u64,
    /// Number of the slice's name, there or in [`Table::ComputeStages`].
    pub(crate) stage: u64,
    /// How it was launched, if it is a kernel.
    pub(crate) launch: Option<NativeLaunch>,
}

/// How a kernel was launched (`GpuRenderStageEvent.ComputeKernelLaunch`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeLaunch {
    /// Grid in workgroups.
    pub(crate) grid: [u32; 3],
    /// Size of a workgroup in work-items.
    pub(crate) workgroup: [u32; 3],
    /// Size of the grid in work-items.
    pub(crate) threads: u64,
    /// Registers and bytes by Perfetto's names, if the kernel is known.
    pub(crate) resources: Option<[(&'static str, u64); 3]>,
}

impl NativeLaunch {
    fn encode(&self, encoder: &mut Encoder) {
        for (field, sizes) in [
            (render_stage::GRID_SIZE, self.grid),
            (render_stage::WORKGROUP_SIZE, self.workgroup),
        ] {
            encoder.message(field, |encoder| {
                // Fields x, y and z.
                for (axis, size) in (1..).zip(sizes) {
                    encoder.uint(axis, size.into());
                }
            });
        }
        let resources = self.resources.iter().flatten().copied();
        for (name, value) in resources.chain([("thread_count", self.threads)]) {
            encoder.message(render_stage::LAUNCH_ARGS, |encoder| {
                encoder.bytes(render_stage::ARG_NAME, name.as_bytes());
                encoder.uint(render_stage::ARG_UINT_VALUE, value);
            });
        }
    }
}

/// Writes packets. Holds at most one batch of them.
#[derive(Debug)]
pub(crate) struct Sequence<W> {
    output: W,
    batch: Encoder,
    interner: Interner,
    limit: usize,
    /// The last uuid given to a track.
    tracks: u64,
    /// If packets are compressed, the packet that holds the last compressed batch.
    compressed: Option<Encoder>,
}

impl<W: Write> Sequence<W> {
    /// Starts the sequence.
    pub(crate) fn new(output: W) -> io::Result<Self> {
        Self::with_limit(output, INTERNED_LIMIT)
    }

    /// As [`Sequence::new`], with another limit of interned text in bytes.
    pub(crate) fn with_limit(output: W, limit: usize) -> io::Result<Self> {
        let mut sequence = Self {
            output,
            batch: Encoder::default(),
            interner: Interner::new(),
            limit,
            tracks: OwnTrack::LAST,
            compressed: None,
        };
        sequence.clear_state(true)?;
        Ok(sequence)
    }

    /// Compresses packets from here on.
    pub(crate) fn compress(&mut self) {
        self.compressed = Some(Encoder::default());
    }

    /// The uuid of a new track.
    pub(crate) fn new_track(&mut self) -> u64 {
        self.tracks += 1;
        self.tracks
    }

    /// Must be called before interned numbers are obtained for new events: resets the tables if
    /// they have grown too large, which makes all numbers invalid.
    pub(crate) fn bound_interning(&mut self) -> io::Result<()> {
        if self.interner.size() > self.limit {
            self.interner.clear();
            self.clear_state(false)?;
        }
        Ok(())
    }

    /// The interned strings.
    pub(crate) fn interner(&mut self) -> &mut Interner {
        &mut self.interner
    }

    /// Tells readers to reset all interned strings, and that times are `CLOCK_BOOTTIME` from here
    /// on.
    fn clear_state(&mut self, first: bool) -> io::Result<()> {
        self.batch.message(trace::PACKET, |encoder| {
            encoder.uint(packet::SEQUENCE_FLAGS, packet::INCREMENTAL_STATE_CLEARED);
            encoder.message(packet::TRACE_PACKET_DEFAULTS, |defaults| {
                defaults.uint(packet_defaults::TIMESTAMP_CLOCK_ID, BOOTTIME.into());
            });
            if first {
                encoder.uint(packet::FIRST_PACKET_ON_SEQUENCE, 1);
            }
            encoder.uint(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE.into());
        });
        self.drain(BATCH)
    }

    /// Appends a rare packet.
    pub(crate) fn packet(&mut self, data: &impl Data) -> io::Result<()> {
        self.batch.message(trace::PACKET, |encoder| {
            if let Some(time) = data.time() {
                encoder.uint(packet::TIMESTAMP, time);
            }
            encoder.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE);
            data.encode(encoder);
            encoder.uint(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE.into());
        });
        self.drain(BATCH)
    }

    /// Appends a `TrackEvent` at `time` (ns, `CLOCK_BOOTTIME`) on the track `track`, with the
    /// content that `content` adds.
    #[inline]
    pub(crate) fn event(
        &mut self,
        time: u64,
        event_type: EventType,
        track: u64,
        content: impl FnOnce(&mut EventContent<'_>),
    ) -> io::Result<()> {
        let event = |encoder: &mut Encoder, interner: &mut Interner| {
            encoder.uint(track_event::TYPE, event_type as u64);
            encoder.uint(track_event::TRACK_UUID, track);
            content(&mut EventContent { encoder, interner });
        };
        // Only begins have annotations that fill more than 127 bytes.
        match event_type {
            EventType::SliceBegin => self.timed::<true>(time, packet::TRACK_EVENT, event),
            _ => self.timed::<false>(time, packet::TRACK_EVENT, event),
        }
    }

    /// Appends a `GpuRenderStageEvent`.
    pub(crate) fn native(&mut self, event: &NativeEvent) -> io::Result<()> {
        self.timed::<true>(
            event.begin,
            packet::GPU_RENDER_STAGE_EVENT,
            |encoder, interner| {
                encoder.uint(render_stage::EVENT_ID, event.id);
                encoder.uint(render_stage::DURATION, event.duration);
                encoder.uint(render_stage::CONTEXT, interner.context(event.pid));
                encoder.int32(render_stage::GPU_ID, event.gpu);
                encoder.uint(render_stage::HW_QUEUE_IID, event.queue);
                encoder.uint(render_stage::STAGE_IID, event.stage);
                if let Some(launch) = &event.launch {
                    encoder.long_message(render_stage::LAUNCH, |encoder| launch.encode(encoder));
                }
            },
        )
    }

    /// Appends a packet with a time, whose field `data` has the content that `content` writes.
    /// `LONG` tells whether it usually has 128 bytes or more.
    #[inline(always)]
    fn timed<const LONG: bool>(
        &mut self,
        time: u64,
        data: u32,
        content: impl FnOnce(&mut Encoder, &mut Interner),
    ) -> io::Result<()> {
        let Self {
            batch, interner, ..
        } = self;
        let packet = |encoder: &mut Encoder| {
            encoder.uint(packet::TIMESTAMP, time);
            encoder.uint(packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE.into());
            encoder.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE);
            if LONG {
                encoder.long_message(data, |encoder| content(encoder, interner));
            } else {
                encoder.message(data, |encoder| content(encoder, interner));
            }
            // Readers process a packet's interned strings before its event, wherever they are in
            // it.
            interner.take_pending(|entries| encoder.bytes(packet::INTERNED_DATA, entries));
        };
        if LONG {
            batch.long_message(trace::PACKET, packet);
        } else {
            batch.message(trace::PACKET, packet);
        }
        self.drain(BATCH)
    }

    /// Writes out everything and returns the output.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.drain(0)?;
        Ok(self.output)
    }

    /// Writes the batch to the output if it is longer than `threshold` bytes.
    #[inline]
    fn drain(&mut self, threshold: usize) -> io::Result<()> {
        if self.batch.as_bytes().len() <= threshold {
            return Ok(());
        }
        self.drain_all()
    }

    #[cold]
    fn drain_all(&mut self) -> io::Result<()> {
        let packets = self.batch.as_bytes();
        match &mut self.compressed {
            None => self.output.write_all(packets)?,
            Some(packet) => {
                // The content of a compressed packet is itself a trace: a series of packets.
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(packets)?;
                let bytes = encoder.finish()?;
                packet.clear();
                packet.message(trace::PACKET, |packet| {
                    packet.bytes(packet::COMPRESSED_PACKETS, &bytes);
                });
                self.output.write_all(packet.as_bytes())?;
            }
        }
        self.batch.clear();
        Ok(())
    }
}

/// A value of an annotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Bool(bool),
    Uint(u64),
    Int(i64),
    Real(f64),
    /// A pointer, shown in hex.
    Pointer(u64),
    /// Number in [`Table::AnnotationStrings`].
    Interned(u64),
    Text(&'a str),
}

/// The part of a `TrackEvent` that differs from event to event.
pub(crate) struct EventContent<'a> {
    encoder: &'a mut Encoder,
    interner: &'a mut Interner,
}

impl EventContent<'_> {
    /// Sets category and name by their interned numbers.
    pub(crate) fn title(&mut self, category: u64, name: u64) {
        self.encoder.uint(track_event::CATEGORY_IIDS, category);
        self.encoder.uint(track_event::NAME_IID, name);
    }

    /// Sets a category that is part of this program, and a name by its interned number.
    #[inline(always)]
    pub(crate) fn title_in(&mut self, category: &'static str, name: u64) {
        let category = self.interner.fixed(Table::Categories, category);
        self.title(category, name);
    }

    /// Sets a category, and a name that rarely recurs.
    pub(crate) fn rare_title(&mut self, category: &str, name: &str) {
        let category = self.interner.number(Table::Categories, category);
        self.encoder.uint(track_event::CATEGORY_IIDS, category);
        self.encoder.bytes(track_event::NAME, name.as_bytes());
    }

    /// [`EventContent::title`] by the texts.
    pub(crate) fn named_title(&mut self, category: &str, name: &str) {
        let category = self.interner.number(Table::Categories, category);
        let name = self.interner.number(Table::EventNames, name);
        self.title(category, name);
    }

    /// Connects the event with the others that have the flow `id`, in order of their times. 0 means
    /// no flow.
    pub(crate) fn flow(&mut self, id: u64) {
        if id != 0 {
            self.encoder.fixed(track_event::FLOW_IDS, id);
        }
    }

    /// Sets the value of a counter.
    pub(crate) fn counter(&mut self, value: i64) {
        self.encoder
            .uint(track_event::COUNTER_VALUE, value.cast_unsigned());
    }

    /// Sets the value of a counter as a floating-point number.
    pub(crate) fn real_counter(&mut self, value: f64) {
        self.encoder
            .fixed(track_event::DOUBLE_COUNTER_VALUE, value.to_bits());
    }

    /// The event's annotations; they appear as `debug.NAME` in queries.
    pub(crate) fn annotations(&mut self) -> Annotations<'_> {
        Annotations {
            encoder: self.encoder,
            interner: self.interner,
            field: track_event::DEBUG_ANNOTATIONS,
        }
    }
}

/// Annotations of an event, or entries of a dictionary among them.
pub(crate) struct Annotations<'a> {
    encoder: &'a mut Encoder,
    interner: &'a mut Interner,
    /// Number of the field that holds them in the enclosing message.
    field: u32,
}

impl Annotations<'_> {
    /// Adds annotations that [`Annotations::encode`] has encoded.
    #[inline]
    pub(crate) fn encoded(&mut self, encoded: &[u8]) {
        self.encoder.fields(encoded);
    }

    /// Encodes annotations for [`Annotations::encoded`]; valid while [`Interner::epoch`] stays the
    /// same.
    pub(crate) fn encode(&mut self, content: impl FnOnce(&mut Annotations<'_>)) -> Box<[u8]> {
        let mut encoder = Encoder::default();
        content(&mut Annotations {
            encoder: &mut encoder,
            interner: self.interner,
            field: self.field,
        });
        encoder.as_bytes().into()
    }

    /// The current [`Interner::epoch`].
    pub(crate) fn epoch(&self) -> u32 {
        self.interner.epoch()
    }

    /// Adds an annotation whose name has the interned number `name`.
    #[inline(always)]
    pub(crate) fn put(&mut self, name: u64, value: Value<'_>) {
        let (field, value) = match value {
            Value::Bool(value) => (annotation::BOOL_VALUE, value.into()),
            Value::Uint(value) => (annotation::UINT_VALUE, value),
            Value::Int(value) => (annotation::INT_VALUE, value.cast_unsigned()),
            Value::Pointer(value) => (annotation::POINTER_VALUE, value),
            Value::Interned(value) => (annotation::STRING_VALUE_IID, value),
            Value::Real(_) | Value::Text(_) => return self.put_long(name, value),
        };
        self.encoder
            .pair(self.field, (annotation::NAME_IID, name), (field, value));
    }

    fn put_long(&mut self, name: u64, value: Value<'_>) {
        self.encoder.message(self.field, |encoder| {
            encoder.uint(annotation::NAME_IID, name);
            match value {
                Value::Real(value) => encoder.fixed(annotation::DOUBLE_VALUE, value.to_bits()),
                Value::Text(value) => encoder.bytes(annotation::STRING_VALUE, value.as_bytes()),
                // The others are numbers, see `put`.
                _ => {}
            }
        });
    }

    /// Adds a dictionary whose name has the interned number `name`; its entries appear as
    /// `debug.NAME.ENTRY` in queries.
    #[inline(always)]
    pub(crate) fn dictionary(&mut self, name: u64, content: impl FnOnce(&mut Annotations<'_>)) {
        let Self {
            encoder,
            interner,
            field,
        } = self;
        encoder.message(*field, |encoder| {
            encoder.uint(annotation::NAME_IID, name);
            content(&mut Annotations {
                encoder,
                interner,
                field: annotation::DICT_ENTRIES,
            });
        });
    }

    /// The number of `text` for [`Value::Interned`].
    pub(crate) fn number_of_text(&mut self, text: &str) -> u64 {
        self.interner.number(Table::AnnotationStrings, text)
    }

    /// [`Annotations::put`] by name.
    #[inline(always)]
    pub(crate) fn named(&mut self, name: &'static str, value: Value<'_>) {
        let name = self.interner.fixed(Table::AnnotationNames, name);
        self.put(name, value);
    }

    /// [`Annotations::put`] with a text that recurs, by name.
    #[inline(always)]
    pub(crate) fn named_text(&mut self, name: &'static str, text: &'static str) {
        let text = self.interner.fixed(Table::AnnotationStrings, text);
        self.named(name, Value::Interned(text));
    }

    /// [`Annotations::put`] by a name that is not part of this program.
    pub(crate) fn put_by_name(&mut self, name: &str, value: Value<'_>) {
        let name = self.interner.number(Table::AnnotationNames, name);
        self.put(name, value);
    }

    /// [`Annotations::dictionary`] by name.
    #[inline]
    pub(crate) fn named_dictionary(
        &mut self,
        name: &'static str,
        content: impl FnOnce(&mut Annotations<'_>),
    ) {
        let name = self.interner.fixed(Table::AnnotationNames, name);
        self.dictionary(name, content);
    }

    /// Adds an array of dictionaries, one for each of `items`; they appear as
    /// `debug.NAME[INDEX].ENTRY`.
    pub(crate) fn named_array<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut content: impl FnMut(T, &mut Annotations<'_>),
    ) {
        let name = self.interner.number(Table::AnnotationNames, name);
        let Self {
            encoder,
            interner,
            field,
        } = self;
        encoder.message(*field, |encoder| {
            encoder.uint(annotation::NAME_IID, name);
            for item in items {
                encoder.message(annotation::ARRAY_VALUES, |encoder| {
                    let mut entries = Annotations {
                        encoder,
                        interner,
                        field: annotation::DICT_ENTRIES,
                    };
                    content(item, &mut entries);
                });
            }
        });
    }
}
