//! The part of OTF2's C library that gputrace uses, loaded on demand.
//!
//! Signatures and numbers are those of OTF2 3.0's headers (`otf2/OTF2_Archive.h`,
//! `OTF2_EvtWriter.h`, `OTF2_GlobalDefWriter.h`, `OTF2_AttributeList.h`, `OTF2_Definitions.h`,
//! `OTF2_GeneralDefinitions.h`), whose library has version 10.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use libloading::Library;

/// Names of the library: upstream's and Debian's.
pub(crate) const NAMES: [&str; 2] = ["libotf2.so.10", "libopen-trace-format2.so.10"];

/// Held while an archive is written: archives are not thread-safe, and the library has global
/// state.
static IN_USE: Mutex<()> = Mutex::new(());

/// The first error that the library reported since [`Api::exclusively`], and the system's error at
/// that time; 0 is none. Some functions report an error and then return success, e.g. closing a
/// file that could not be written.
static REPORTED: AtomicI32 = AtomicI32::new(0);
static REPORTED_SYSTEM: AtomicI32 = AtomicI32::new(0);

/// An object whose content only the library knows.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Opaque {
    private: [u8; 0],
}

/// `OTF2_FlushCallbacks`.
#[repr(C)]
pub(crate) struct FlushCallbacks {
    pub(crate) pre_flush:
        Option<unsafe extern "C" fn(*mut c_void, u8, u64, *mut c_void, bool) -> u8>,
    pub(crate) post_flush: Option<unsafe extern "C" fn(*mut c_void, u8, u64) -> u64>,
}

/// `OTF2_FILEMODE_WRITE`.
pub(crate) const FILEMODE_WRITE: u8 = 0;
/// `OTF2_SUBSTRATE_POSIX`.
pub(crate) const SUBSTRATE_POSIX: u8 = 1;
/// `OTF2_COMPRESSION_NONE`.
pub(crate) const COMPRESSION_NONE: u8 = 1;
/// `OTF2_FLUSH`.
const FLUSH: u8 = 1;
/// `OTF2_TYPE_UINT64`.
pub(crate) const TYPE_UINT64: u8 = 4;
/// `OTF2_TYPE_DOUBLE`.
pub(crate) const TYPE_DOUBLE: u8 = 10;
/// `OTF2_TYPE_STRING`.
pub(crate) const TYPE_STRING: u8 = 11;
/// `OTF2_PARADIGM_HIP`.
pub(crate) const PARADIGM_HIP: u8 = 23;
/// `OTF2_REGION_ROLE_FUNCTION`.
pub(crate) const ROLE_FUNCTION: u8 = 1;
/// `OTF2_REGION_ROLE_DATA_TRANSFER`.
pub(crate) const ROLE_DATA_TRANSFER: u8 = 30;
/// `OTF2_LOCATION_GROUP_TYPE_PROCESS`.
pub(crate) const GROUP_PROCESS: u8 = 1;
/// `OTF2_LOCATION_GROUP_TYPE_ACCELERATOR`.
pub(crate) const GROUP_ACCELERATOR: u8 = 2;
/// `OTF2_LOCATION_TYPE_CPU_THREAD`.
pub(crate) const LOCATION_CPU_THREAD: u8 = 1;
/// `OTF2_LOCATION_TYPE_ACCELERATOR_STREAM`.
pub(crate) const LOCATION_ACCELERATOR_STREAM: u8 = 2;
/// `OTF2_LOCATION_TYPE_METRIC`.
pub(crate) const LOCATION_METRIC: u8 = 3;
/// `OTF2_METRIC_TYPE_OTHER`.
pub(crate) const METRIC_OTHER: u8 = 0;
/// `OTF2_METRIC_ACCUMULATED_POINT`: a sum at the time of the event.
pub(crate) const METRIC_SUM: u8 = 0x10;
/// `OTF2_METRIC_ABSOLUTE_NEXT`: a value that holds until the next one.
pub(crate) const METRIC_VALUE: u8 = 0x31;
/// `OTF2_BASE_DECIMAL`.
pub(crate) const BASE_DECIMAL: u8 = 1;
/// `OTF2_METRIC_ASYNCHRONOUS`: not bound to the begin or end of a region.
pub(crate) const METRIC_ASYNCHRONOUS: u8 = 2;
/// `OTF2_RECORDER_KIND_UNKNOWN`.
pub(crate) const RECORDER_UNKNOWN: u8 = 0;
/// `OTF2_UNDEFINED_SYSTEM_TREE_NODE`, `OTF2_UNDEFINED_LOCATION_GROUP`.
pub(crate) const UNDEFINED: u32 = u32::MAX;

/// `OTF2_ErrorCode`; 0 is success.
pub(crate) type Code = c_int;

macro_rules! api {
    ($($field:ident = $symbol:literal: fn($($type:ty),*) -> $result:ty;)*) => {
        /// The library's functions. The library stays loaded as long as this exists.
        pub(crate) struct Api {
            $(pub(crate) $field: unsafe extern "C" fn($($type),*) -> $result,)*
            _library: Library,
        }

        impl Api {
            fn from(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is that of the function in the headers of this version
                        // of the library.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($type),*) -> $result>($symbol) };
                        *symbol?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

api! {
    archive_open = b"OTF2_Archive_Open\0": fn(*const c_char, *const c_char, u8, u64, u64, u8, u8) -> *mut Opaque;
    archive_set_flush_callbacks = b"OTF2_Archive_SetFlushCallbacks\0":
        fn(*mut Opaque, *const FlushCallbacks, *mut c_void) -> Code;
    archive_set_serial = b"OTF2_Archive_SetSerialCollectiveCallbacks\0": fn(*mut Opaque) -> Code;
    archive_set_creator = b"OTF2_Archive_SetCreator\0": fn(*mut Opaque, *const c_char) -> Code;
    archive_set_machine = b"OTF2_Archive_SetMachineName\0": fn(*mut Opaque, *const c_char) -> Code;
    archive_set_property = b"OTF2_Archive_SetProperty\0":
        fn(*mut Opaque, *const c_char, *const c_char, bool) -> Code;
    archive_open_events = b"OTF2_Archive_OpenEvtFiles\0": fn(*mut Opaque) -> Code;
    archive_close_events = b"OTF2_Archive_CloseEvtFiles\0": fn(*mut Opaque) -> Code;
    archive_event_writer = b"OTF2_Archive_GetEvtWriter\0": fn(*mut Opaque, u64) -> *mut Opaque;
    archive_close_event_writer = b"OTF2_Archive_CloseEvtWriter\0": fn(*mut Opaque, *mut Opaque) -> Code;
    archive_open_definitions = b"OTF2_Archive_OpenDefFiles\0": fn(*mut Opaque) -> Code;
    archive_close_definitions = b"OTF2_Archive_CloseDefFiles\0": fn(*mut Opaque) -> Code;
    archive_definition_writer = b"OTF2_Archive_GetDefWriter\0": fn(*mut Opaque, u64) -> *mut Opaque;
    archive_close_definition_writer = b"OTF2_Archive_CloseDefWriter\0": fn(*mut Opaque, *mut Opaque) -> Code;
    archive_global_writer = b"OTF2_Archive_GetGlobalDefWriter\0": fn(*mut Opaque) -> *mut Opaque;
    archive_close = b"OTF2_Archive_Close\0": fn(*mut Opaque) -> Code;
    enter = b"OTF2_EvtWriter_Enter\0": fn(*mut Opaque, *mut Opaque, u64, u32) -> Code;
    leave = b"OTF2_EvtWriter_Leave\0": fn(*mut Opaque, *mut Opaque, u64, u32) -> Code;
    metric = b"OTF2_EvtWriter_Metric\0":
        fn(*mut Opaque, *mut Opaque, u64, u32, u8, *const u8, *const u64) -> Code;
    attributes_new = b"OTF2_AttributeList_New\0": fn() -> *mut Opaque;
    attributes_delete = b"OTF2_AttributeList_Delete\0": fn(*mut Opaque) -> Code;
    attributes_string = b"OTF2_AttributeList_AddStringRef\0": fn(*mut Opaque, u32, u32) -> Code;
    attributes_u64 = b"OTF2_AttributeList_AddUint64\0": fn(*mut Opaque, u32, u64) -> Code;
    write_clock = b"OTF2_GlobalDefWriter_WriteClockProperties\0": fn(*mut Opaque, u64, u64, u64, u64) -> Code;
    write_string = b"OTF2_GlobalDefWriter_WriteString\0": fn(*mut Opaque, u32, *const c_char) -> Code;
    write_attribute = b"OTF2_GlobalDefWriter_WriteAttribute\0": fn(*mut Opaque, u32, u32, u32, u8) -> Code;
    write_region = b"OTF2_GlobalDefWriter_WriteRegion\0":
        fn(*mut Opaque, u32, u32, u32, u32, u8, u8, u32, u32, u32, u32) -> Code;
    write_metric_member = b"OTF2_GlobalDefWriter_WriteMetricMember\0":
        fn(*mut Opaque, u32, u32, u32, u8, u8, u8, u8, i64, u32) -> Code;
    write_metric_class = b"OTF2_GlobalDefWriter_WriteMetricClass\0":
        fn(*mut Opaque, u32, u8, *const u32, u8, u8) -> Code;
    write_node = b"OTF2_GlobalDefWriter_WriteSystemTreeNode\0": fn(*mut Opaque, u32, u32, u32, u32) -> Code;
    write_group = b"OTF2_GlobalDefWriter_WriteLocationGroup\0": fn(*mut Opaque, u32, u32, u8, u32, u32) -> Code;
    write_location = b"OTF2_GlobalDefWriter_WriteLocation\0": fn(*mut Opaque, u64, u32, u8, u64, u32) -> Code;
    error_name = b"OTF2_Error_GetName\0": fn(Code) -> *const c_char;
    error_description = b"OTF2_Error_GetDescription\0": fn(Code) -> *const c_char;
    error_callback = b"OTF2_Error_RegisterCallback\0": fn(Option<ErrorCallback>, *mut c_void) -> Option<ErrorCallback>;
}

/// `OTF2_ErrorCallback`; the last argument is a `va_list`, which is not used.
type ErrorCallback = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    u64,
    *const c_char,
    Code,
    *const c_char,
    *mut c_void,
) -> Code;

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}

impl Api {
    /// Loads the library.
    ///
    /// # Errors
    /// The dynamic linker's error for the last name tried.
    pub(crate) fn load() -> Result<Self, libloading::Error> {
        Self::load_from(&NAMES)
    }

    pub(crate) fn load_from(names: &[&str]) -> Result<Self, libloading::Error> {
        let mut found = Err(libloading::Error::DlOpenUnknown);
        for name in names {
            // SAFETY: OTF2's library runs no code when it is loaded. The name is searched in the
            // system's library directories.
            found = unsafe { Library::new(*name) };
            if found.is_ok() {
                break;
            }
        }
        let api = Self::from(found?)?;
        // SAFETY: the callback is a static function. Without a callback, the library prints its
        // errors.
        unsafe { (api.error_callback)(Some(remember), std::ptr::null_mut()) };
        Ok(api)
    }

    /// Waits until no other thread writes an archive, and keeps others from doing so.
    pub(crate) fn exclusively() -> MutexGuard<'static, ()> {
        let guard = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        REPORTED.store(0, Ordering::Relaxed);
        REPORTED_SYSTEM.store(0, Ordering::Relaxed);
        guard
    }

    /// The first error that the library reported, even if no function returned it.
    pub(crate) fn reported() -> Code {
        REPORTED.load(Ordering::Relaxed)
    }

    /// The library's name and description of an error, and the system's error if there is no space
    /// left.
    pub(crate) fn failure(&self, code: Code) -> (String, Option<io::Error>) {
        let system = io::Error::from_raw_os_error(REPORTED_SYSTEM.load(Ordering::Relaxed));
        // SAFETY: the library has a text for every number.
        let name = unsafe { (self.error_name)(code) };
        // SAFETY: as above.
        let description = unsafe { (self.error_description)(code) };
        let text = format!("{}: {}", text(name), text(description));
        let no_space = matches!(
            system.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        (text, no_space.then_some(system))
    }
}

/// Converts a text of the library, which is a constant.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: the library's texts are constants that end with a NUL byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_string_lossy().into_owned()
}

/// Stores the error. Without a callback, the library would print it.
unsafe extern "C" fn remember(
    _data: *mut c_void,
    _file: *const c_char,
    _line: u64,
    _function: *const c_char,
    code: Code,
    _format: *const c_char,
    _arguments: *mut c_void,
) -> Code {
    let system = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if REPORTED
        .compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
    {
        REPORTED_SYSTEM.store(system, Ordering::Relaxed);
    }
    code
}

/// Called by the library to ask whether a full buffer may be written to the file.
pub(crate) unsafe extern "C" fn pre_flush(
    _data: *mut c_void,
    _kind: u8,
    _location: u64,
    _caller: *mut c_void,
    _last: bool,
) -> u8 {
    FLUSH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error() {
        assert!(Api::load_from(&["libotf2-that-is-not-there.so.10"]).is_err());
        // This library has none of the functions.
        assert!(Api::load_from(&["libc.so.6"]).is_err());
    }
}
