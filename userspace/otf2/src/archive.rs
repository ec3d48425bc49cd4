//! Safe wrappers of the library's functions for writing an archive.

use std::{
    ffi::CString,
    io,
    path::Path,
    ptr::{self, NonNull},
    sync::MutexGuard,
};

use crate::api::{
    Api, BASE_DECIMAL, COMPRESSION_NONE, Code, FILEMODE_WRITE, FlushCallbacks, METRIC_ASYNCHRONOUS,
    METRIC_OTHER, Opaque, RECORDER_UNKNOWN, SUBSTRATE_POSIX, TYPE_DOUBLE, pre_flush,
};

/// Sizes in bytes of a location's buffer and of a buffer of definitions, as in rocprofv3.
const EVENT_CHUNK: u64 = 2 << 20;
const DEFINITION_CHUNK: u64 = 8 << 20;

/// The library requires that this is never changed and never freed.
static FLUSH_CALLBACKS: FlushCallbacks = FlushCallbacks {
    pre_flush: Some(pre_flush),
    post_flush: None,
};

/// Why the library failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// A system error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// An error of the library itself.
    #[error("{function} failed: {reason}")]
    Library {
        /// The function that was called.
        function: &'static str,
        /// The library's description.
        reason: String,
    },
}

type Result<T> = std::result::Result<T, ArchiveError>;

/// An archive that is being written. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Archive<'a> {
    api: &'a Api,
    archive: NonNull<Opaque>,
    attributes: NonNull<Opaque>,
    _exclusive: MutexGuard<'static, ()>,
}

/// A C string for the library, without NUL bytes inside.
fn text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

fn check(api: &Api, function: &'static str, code: Code) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    match api.failure(code) {
        (_, Some(system)) => Err(ArchiveError::System(system)),
        (reason, None) => Err(ArchiveError::Library { function, reason }),
    }
}

fn object(api: &Api, function: &'static str, pointer: *mut Opaque) -> Result<NonNull<Opaque>> {
    NonNull::new(pointer).ok_or_else(|| match api.failure(Api::reported()) {
        (_, Some(system)) => ArchiveError::System(system),
        (reason, None) => ArchiveError::Library { function, reason },
    })
}

/// Calls a function of the library with valid objects.
macro_rules! call {
    ($self:expr, $function:ident($($argument:expr),*)) => {{
        // SAFETY: objects come from the library and are closed only by their owners; texts end with
        // a NUL byte and are copied; other arguments are numbers.
        let code = unsafe { ($self.api.$function)($($argument),*) };
        check($self.api, stringify!($function), code)
    }};
}

impl<'a> Archive<'a> {
    /// Begins the archive `name` in `directory`.
    pub(crate) fn create(api: &'a Api, directory: &Path, name: &str) -> Result<Self> {
        let exclusive = Api::exclusively();
        let path = text(&directory.to_string_lossy());
        let name = text(name);
        let (mode, substrate, compression) = (FILEMODE_WRITE, SUBSTRATE_POSIX, COMPRESSION_NONE);
        // SAFETY: the texts end with a NUL byte and are copied.
        let archive = unsafe {
            (api.archive_open)(
                path.as_ptr(),
                name.as_ptr(),
                mode,
                EVENT_CHUNK,
                DEFINITION_CHUNK,
                substrate,
                compression,
            )
        };
        let archive = object(api, "archive_open", archive)?;
        // SAFETY: it has no arguments.
        let attributes = unsafe { (api.attributes_new)() };
        let attributes = object(api, "attributes_new", attributes)?;
        let this = Self {
            api,
            archive,
            attributes,
            _exclusive: exclusive,
        };
        let raw = archive.as_ptr();
        call!(
            this,
            archive_set_flush_callbacks(raw, &raw const FLUSH_CALLBACKS, ptr::null_mut())
        )?;
        call!(this, archive_set_serial(raw))?;
        call!(this, archive_open_events(raw))?;
        Ok(this)
    }

    /// Sets the archive's creator and machine.
    pub(crate) fn describe(&self, creator: &str, machine: &str) -> Result<()> {
        let raw = self.archive.as_ptr();
        let (creator, machine) = (text(creator), text(machine));
        call!(self, archive_set_creator(raw, creator.as_ptr()))?;
        call!(self, archive_set_machine(raw, machine.as_ptr()))
    }

    /// Sets a property, a text that readers can query. Names consist of letters, digits, `_` and
    /// `::`.
    pub(crate) fn property(&self, name: &str, value: &str) -> Result<()> {
        let (name, value) = (text(name), text(value));
        call!(
            self,
            archive_set_property(self.archive.as_ptr(), name.as_ptr(), value.as_ptr(), true)
        )
    }

    /// Begins the events of a location, which must come in order of time.
    pub(crate) fn events(&self, location: u64) -> Result<Events<'_>> {
        // SAFETY: the archive is open.
        let writer = unsafe { (self.api.archive_event_writer)(self.archive.as_ptr(), location) };
        Ok(Events {
            archive: self,
            writer: object(self.api, "archive_event_writer", writer)?,
            count: 0,
        })
    }

    /// Completes the events and begins the definitions. `locations` must contain all locations.
    pub(crate) fn definitions(&self, locations: impl Iterator<Item = u64>) -> Result<Global<'_>> {
        let raw = self.archive.as_ptr();
        call!(self, archive_close_events(raw))?;
        call!(self, archive_open_definitions(raw))?;
        for location in locations {
            // SAFETY: the archive is open.
            let writer = unsafe { (self.api.archive_definition_writer)(raw, location) };
            let writer = object(self.api, "archive_definition_writer", writer)?;
            call!(self, archive_close_definition_writer(raw, writer.as_ptr()))?;
        }
        call!(self, archive_close_definitions(raw))?;
        // SAFETY: the archive is open; it owns the writer.
        let writer = unsafe { (self.api.archive_global_writer)(raw) };
        Ok(Global {
            api: self.api,
            writer: object(self.api, "archive_global_writer", writer)?,
            _archive: self,
        })
    }

    /// Completes the archive.
    pub(crate) fn close(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        let result = this
            .release()
            .and_then(|()| check(this.api, "archive_close", Api::reported()));
        // SAFETY: the value is not used again, and its other fields need no dropping.
        let exclusive = unsafe { ptr::read(&raw const this._exclusive) };
        drop(exclusive);
        result
    }

    fn release(&self) -> Result<()> {
        // SAFETY: the list belongs to `self` and is not used again.
        unsafe { (self.api.attributes_delete)(self.attributes.as_ptr()) };
        call!(self, archive_close(self.archive.as_ptr()))
    }
}

impl Drop for Archive<'_> {
    fn drop(&mut self) {
        // The archive is no longer wanted.
        let _ = self.release();
    }
}

/// Value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Number of a string.
    Text(u32),
    Number(u64),
}

/// Writes the events of a location.
#[derive(Debug)]
pub(crate) struct Events<'a> {
    archive: &'a Archive<'a>,
    writer: NonNull<Opaque>,
    count: u64,
}

impl Events<'_> {
    /// Begins a region.
    pub(crate) fn enter(
        &mut self,
        time: u64,
        region: u32,
        attributes: impl Iterator<Item = (u32, Value)>,
    ) -> Result<()> {
        let list = self.archive.attributes.as_ptr();
        for (attribute, value) in attributes {
            match value {
                Value::Text(string) => {
                    call!(self.archive, attributes_string(list, attribute, string))?;
                }
                Value::Number(number) => {
                    call!(self.archive, attributes_u64(list, attribute, number))?;
                }
            }
        }
        self.count += 1;
        // This call empties the list.
        call!(
            self.archive,
            enter(self.writer.as_ptr(), list, time, region)
        )
    }

    /// Ends a region.
    pub(crate) fn leave(&mut self, time: u64, region: u32) -> Result<()> {
        self.count += 1;
        call!(
            self.archive,
            leave(self.writer.as_ptr(), ptr::null_mut(), time, region)
        )
    }

    /// Sets the value of a metric.
    pub(crate) fn metric(&mut self, time: u64, metric: u32, value: f64) -> Result<()> {
        self.count += 1;
        // One value: its type, and the eight bytes of the union.
        let (kind, value) = (TYPE_DOUBLE, value.to_bits());
        call!(
            self.archive,
            metric(
                self.writer.as_ptr(),
                ptr::null_mut(),
                time,
                metric,
                1,
                &raw const kind,
                &raw const value
            )
        )
    }

    /// Completes the location and returns the number of its events.
    pub(crate) fn finish(self) -> Result<u64> {
        let archive = self.archive;
        call!(
            archive,
            archive_close_event_writer(archive.archive.as_ptr(), self.writer.as_ptr())
        )?;
        Ok(self.count)
    }
}

/// Writes the definitions.
#[derive(Debug)]
pub(crate) struct Global<'a> {
    api: &'a Api,
    writer: NonNull<Opaque>,
    _archive: &'a Archive<'a>,
}

impl Global<'_> {
    /// Sets the clock: times are ns from `offset`, which was `realtime` ns after the Unix epoch.
    pub(crate) fn clock(&self, offset: u64, length: u64, realtime: u64) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(
            self,
            write_clock(writer, 1_000_000_000, offset, length, realtime)
        )
    }

    pub(crate) fn string(&self, id: u32, value: &str) -> Result<()> {
        let value = text(value);
        call!(self, write_string(self.writer.as_ptr(), id, value.as_ptr()))
    }

    pub(crate) fn attribute(&self, id: u32, name: u32, description: u32, kind: u8) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(self, write_attribute(writer, id, name, description, kind))
    }

    pub(crate) fn region(&self, id: u32, name: u32, role: u8, paradigm: u8) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(
            self,
            write_region(writer, id, name, name, 0, role, paradigm, 0, 0, 0, 0)
        )
    }

    /// Defines a metric of one number, with the same id. `mode` is `METRIC_VALUE` or `METRIC_SUM`.
    pub(crate) fn metric(&self, id: u32, name: u32, unit: u32, mode: u8) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(
            self,
            write_metric_member(
                writer,
                id,
                name,
                name,
                METRIC_OTHER,
                mode,
                TYPE_DOUBLE,
                BASE_DECIMAL,
                0,
                unit
            )
        )?;
        call!(
            self,
            write_metric_class(
                writer,
                id,
                1,
                &raw const id,
                METRIC_ASYNCHRONOUS,
                RECORDER_UNKNOWN
            )
        )
    }

    pub(crate) fn node(&self, id: u32, name: u32, class: u32, parent: u32) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(self, write_node(writer, id, name, class, parent))
    }

    pub(crate) fn group(
        &self,
        id: u32,
        name: u32,
        kind: u8,
        node: u32,
        creator: u32,
    ) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(self, write_group(writer, id, name, kind, node, creator))
    }

    pub(crate) fn location(
        &self,
        id: u64,
        name: u32,
        kind: u8,
        events: u64,
        group: u32,
    ) -> Result<()> {
        let writer = self.writer.as_ptr();
        call!(self, write_location(writer, id, name, kind, events, group))
    }
}
