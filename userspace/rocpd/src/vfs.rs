//! Lets SQLite write into a file that is already open.
//!
//! SQLite opens databases by path, follows symbolic links and reopens files at will. gputrace runs
//! as root and writes into directories that others can change, so a name might refer to another
//! file each time it is looked up. The file system here does not use names: its only database is
//! the handle that it was given, and SQLite's temporary files (for sorting an index) are nameless
//! files made by [`OutputDir::scratch`].
//!
//! The interface is SQLite's `sqlite3_vfs`, see <https://www.sqlite.org/c3ref/vfs.html>.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    fs::File,
    io,
    os::unix::fs::FileExt,
    ptr, slice,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use gputrace_export::OutputDir;
use rusqlite::ffi;

/// The database's name in SQLite; it is only passed back to [`full_path_name`] and [`open`].
pub(crate) const DATABASE: &str = "rocpd";

/// Numbers the file systems of a process, which SQLite finds by name.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file system with one database in it, registered with SQLite until it is dropped.
#[derive(Debug)]
pub(crate) struct Vfs {
    /// SQLite has pointers into this, so it never moves, and outlives its registration.
    registered: *mut Registered,
    name: CString,
}

/// The data that SQLite refers to while the file system is registered.
struct Registered {
    vfs: ffi::sqlite3_vfs,
    shared: Shared,
}

struct Shared {
    /// The database until SQLite opens it.
    database: Mutex<Option<File>>,
    directory: OutputDir,
    /// The first error, because SQLite only says `disk I/O error`.
    error: Mutex<Option<io::Error>>,
    /// SQLite's own file system, used for its clock and random numbers.
    system: *mut ffi::sqlite3_vfs,
}

impl Shared {
    fn failed(&self, error: io::Error) {
        let mut slot = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(error);
    }
}

impl Vfs {
    /// Registers `database` with SQLite. Temporary files go to `directory`.
    ///
    /// # Errors
    /// When SQLite cannot be initialised.
    pub(crate) fn new(database: File, directory: OutputDir) -> io::Result<Self> {
        let name = format!("gputrace-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name)?;
        // SAFETY: the default file system may be looked up by any thread at any time.
        let system = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        if system.is_null() {
            return Err(io::Error::other("SQLite has no file system"));
        }
        let registered = Box::into_raw(Box::new(Registered {
            vfs: ffi::sqlite3_vfs {
                iVersion: 1,
                szOsFile: size_of::<Handle>() as c_int,
                mxPathname: 64,
                pNext: ptr::null_mut(),
                zName: name.as_ptr(),
                pAppData: ptr::null_mut(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xAccess: Some(access),
                xFullPathname: Some(full_path_name),
                xDlOpen: None,
                xDlError: None,
                xDlSym: None,
                xDlClose: None,
                xRandomness: Some(randomness),
                xSleep: Some(sleep),
                xCurrentTime: Some(current_time),
                xGetLastError: None,
                xCurrentTimeInt64: None,
                xSetSystemCall: None,
                xGetSystemCall: None,
                xNextSystemCall: None,
            },
            shared: Shared {
                database: Mutex::new(Some(database)),
                directory,
                error: Mutex::new(None),
                system,
            },
        }));
        // SAFETY: `registered` has just been created from a box; only its address is taken.
        let shared = unsafe { &raw mut (*registered).shared };
        // SAFETY: as above; there are no other references to it yet.
        let vfs = unsafe { &mut (*registered).vfs };
        vfs.pAppData = shared.cast();
        let vfs = ptr::from_mut(vfs);
        // SAFETY: the structure and its name do not move until `Drop` has unregistered them.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        let this = Self { registered, name };
        if code == ffi::SQLITE_OK {
            Ok(this)
        } else {
            Err(io::Error::other("SQLite refused a file system"))
        }
    }

    /// The name of the file system in SQLite.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Removes and returns the error of the first operation that failed, if any.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        // SAFETY: `registered` lives as long as `self`, and `shared` is only ever accessed through
        // shared references.
        let shared = unsafe { &(*self.registered).shared };
        let mut slot = shared.error.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }
}

impl Drop for Vfs {
    /// The owner must close the connection first.
    fn drop(&mut self) {
        // SAFETY: the pointer is the one that was registered.
        let vfs = unsafe { &raw mut (*self.registered).vfs };
        // SAFETY: as above; unregistering a file system that is not registered does nothing.
        unsafe { ffi::sqlite3_vfs_unregister(vfs) };
        // SAFETY: it was created from a box, and neither SQLite nor an open file refers to it any
        // more.
        drop(unsafe { Box::from_raw(self.registered) });
    }
}

/// The structure that SQLite allocates for each open file.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    /// Owned: created from a box.
    state: *mut State,
}

struct State {
    file: File,
    shared: *const Shared,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The state of an open file.
///
/// # Safety
/// `file` must be a handle that [`open`] has filled and [`close`] has not closed yet.
unsafe fn state<'a>(file: *mut ffi::sqlite3_file) -> &'a State {
    let handle = file.cast::<Handle>();
    // SAFETY: the caller passes a handle that `open` has filled.
    let state = unsafe { (*handle).state };
    // SAFETY: `open` created it from a box, which only `close` takes back.
    unsafe { &*state }
}

/// Runs an operation on a file and translates the result.
///
/// # Safety
/// As [`state`].
unsafe fn attempt(
    file: *mut ffi::sqlite3_file,
    code: c_int,
    operation: impl FnOnce(&File) -> io::Result<()>,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let state = unsafe { state(file) };
    match operation(&state.file) {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) => {
            // SAFETY: the file system outlives its open files, see `Vfs::drop`.
            unsafe { &*state.shared }.failed(error);
            code
        }
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the structure that `Vfs::new` registered.
    let shared = unsafe { (*vfs).pAppData }.cast::<Shared>().cast_const();
    // SAFETY: `Vfs::new` stored a pointer that stays valid until the file system is unregistered.
    let place = unsafe { &*shared };
    let handle = file.cast::<Handle>();
    // SAFETY: SQLite passes `szOsFile` bytes. Without methods, it does not close a file that could
    // not be opened.
    unsafe { (*handle).base.pMethods = ptr::null() };
    let opened = if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
        let mut database = place
            .database
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        database
            .take()
            .ok_or_else(|| io::Error::other("the database is open already"))
    } else if name.is_null() {
        place.directory.scratch().map_err(io::Error::other)
    } else {
        // A journal or a log, which is not needed: an incomplete file is removed.
        Err(io::Error::other("SQLite asked for a journal"))
    };
    match opened {
        Ok(opened) => {
            let state = Box::into_raw(Box::new(State {
                file: opened,
                shared,
            }));
            // SAFETY: as above, `handle` is this function's to fill.
            unsafe { (*handle).state = state };
            // SAFETY: as above.
            unsafe { (*handle).base.pMethods = &METHODS };
            if !out_flags.is_null() {
                // SAFETY: SQLite passes a valid pointer or null.
                unsafe { *out_flags = flags };
            }
            ffi::SQLITE_OK
        }
        Err(error) => {
            place.failed(error);
            ffi::SQLITE_CANTOPEN
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let handle = file.cast::<Handle>();
    // SAFETY: SQLite closes a file once, after `open` has filled the handle.
    let state = unsafe { (*handle).state };
    // SAFETY: `open` created it from a box.
    drop(unsafe { Box::from_raw(state) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let (Ok(amount), Ok(offset)) = (usize::try_from(amount), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_READ;
    };
    // SAFETY: SQLite passes a buffer of `amount` bytes that nothing else uses meanwhile.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), amount) };
    let mut done = 0;
    let fill = |file: &File| {
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // The interface requires zeros for what lies beyond the end.
        buffer.iter_mut().skip(done).for_each(|byte| *byte = 0);
        Ok(())
    };
    // SAFETY: SQLite passes an open file.
    match unsafe { attempt(file, ffi::SQLITE_IOERR_READ, fill) } {
        ffi::SQLITE_OK if done < amount => ffi::SQLITE_IOERR_SHORT_READ,
        code => code,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    buffer: *const c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let (Ok(amount), Ok(offset)) = (usize::try_from(amount), u64::try_from(offset)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite passes a buffer of `amount` bytes that does not change meanwhile.
    let buffer = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), amount) };
    // SAFETY: SQLite passes an open file.
    unsafe {
        attempt(file, ffi::SQLITE_FULL, |file| {
            file.write_all_at(buffer, offset)
        })
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: SQLite passes an open file.
    unsafe {
        attempt(file, ffi::SQLITE_IOERR_TRUNCATE, |file| {
            file.set_len(size.max(0) as u64)
        })
    }
}

unsafe extern "C" fn sync(_file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // The file gets its name only when it is complete, so a crash before that loses nothing that
    // was promised.
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    let ask = |file: &File| {
        let length = file.metadata()?.len();
        // SAFETY: SQLite passes a valid pointer.
        unsafe { *size = length as ffi::sqlite3_int64 };
        Ok(())
    };
    // SAFETY: SQLite passes an open file.
    unsafe { attempt(file, ffi::SQLITE_IOERR_FSTAT, ask) }
}

unsafe extern "C" fn lock(_file: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    // Nobody else can open the file: it has a temporary name.
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(
    _file: *mut ffi::sqlite3_file,
    reserved: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes a valid pointer.
    unsafe { *reserved = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    _file: *mut ffi::sqlite3_file,
    _op: c_int,
    _arg: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    _name: *const c_char,
    _sync: c_int,
) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(
    _vfs: *mut ffi::sqlite3_vfs,
    _name: *const c_char,
    _flags: c_int,
    result: *mut c_int,
) -> c_int {
    // There are no other files, in particular no journals of an earlier run.
    // SAFETY: SQLite passes a valid pointer.
    unsafe { *result = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path_name(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a string that ends with a NUL byte.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if usize::try_from(size).is_ok_and(|size| name.len() <= size) {
        // SAFETY: `out` has `size` bytes, which is enough, and does not overlap the name.
        unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
        ffi::SQLITE_OK
    } else {
        ffi::SQLITE_CANTOPEN
    }
}

/// SQLite's own file system.
///
/// # Safety
/// `vfs` must be what [`Vfs::new`] registered.
unsafe fn system(vfs: *mut ffi::sqlite3_vfs) -> *mut ffi::sqlite3_vfs {
    // SAFETY: guaranteed by the caller.
    let shared = unsafe { (*vfs).pAppData }.cast::<Shared>();
    // SAFETY: `Vfs::new` stored a pointer that stays valid until the file system is unregistered.
    unsafe { (*shared).system }
}

unsafe extern "C" fn randomness(
    vfs: *mut ffi::sqlite3_vfs,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes the structure that `Vfs::new` registered.
    let system = unsafe { system(vfs) };
    // SAFETY: SQLite's own file system exists for the life of the process.
    match unsafe { (*system).xRandomness } {
        // SAFETY: the arguments are passed on unchanged.
        Some(randomness) => unsafe { randomness(system, size, out) },
        None => 0,
    }
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: SQLite passes the structure that `Vfs::new` registered.
    let system = unsafe { system(vfs) };
    // SAFETY: SQLite's own file system exists for the life of the process.
    match unsafe { (*system).xSleep } {
        // SAFETY: the arguments are passed on unchanged.
        Some(sleep) => unsafe { sleep(system, microseconds) },
        None => 0,
    }
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite passes the structure that `Vfs::new` registered.
    let system = unsafe { system(vfs) };
    // SAFETY: SQLite's own file system exists for the life of the process.
    match unsafe { (*system).xCurrentTime } {
        // SAFETY: the arguments are passed on unchanged.
        Some(current_time) => unsafe { current_time(system, out) },
        None => ffi::SQLITE_ERROR,
    }
}
