//! The libc functions that the preloaded library replaces.
//!
//! Each one asks [`paths`](crate::paths), or examines the request, and calls the real function for
//! everything that does not concern the GPU. None of the paths and requests that this crate itself
//! uses are intercepted, so the standard library may be used inside.
//!
//! `open` and similar functions are variadic in C. On x86-64, a variadic argument is passed in the
//! same place as a fixed one, so they are defined with all their arguments; an argument that the
//! caller did not pass is an unused register.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::io::Errno;

use crate::paths::{self, Target};
use crate::{ioctl, kfd, register};

/// `_IOC_TYPE` of all KFD ioctls.
const KFD_TYPE: u8 = b'K';

/// `_IOC_TYPE` of all DRM ioctls, and the number of `DRM_IOCTL_AMDGPU_INFO`.
const DRM_TYPE: u8 = b'd';
const AMDGPU_INFO: u8 = 0x45;

/// The next definition of a symbol after ours, looked up once.
struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: looks up a symbol by a valid name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            kfd::give_up(&format!(
                "libc has no function {}",
                self.name.to_string_lossy()
            ));
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the real function of this name and type.
macro_rules! real {
    ($name:literal, fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        static REAL: Real = Real::new($name);
        // SAFETY: libc's function of this name has this type, according to its header.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(REAL.get())
        };
        // SAFETY: the arguments are the caller's own, or a path that is alive during the call.
        unsafe { function($($argument),*) }
    }};
}

/// The target of the path argument, if there is one.
///
/// # Safety
///
/// `path` is null or a C string, as libc asks of its callers.
unsafe fn target(path: *const c_char) -> Target {
    if path.is_null() {
        return Target::Itself;
    }
    // SAFETY: not null, so a C string by this function's own contract.
    paths::resolve(unsafe { CStr::from_ptr(path) })
}

fn fail(error: Errno) -> c_int {
    // SAFETY: takes no argument and always succeeds.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own errno.
    unsafe { errno.write(error.raw_os_error()) };
    -1
}

/// Opens one of the mock's device nodes.
fn open_device(target: &Target) -> c_int {
    let kfd = kfd::get();
    let Target::Render(agent) = target else {
        return kfd.device.open().unwrap_or_else(fail);
    };
    let fd = kfd.vram.open();
    if let Ok(fd) = fd {
        kfd.nodes.opened(fd, *agent);
    }
    fd.unwrap_or_else(fail)
}

/// Replaces a function with a path argument. For a device node, `device` gives the answer; for a
/// file of the synthetic sysfs, the real function is called with another path.
macro_rules! by_path {
    ($(
        $symbol:literal $name:ident($($before:ident: $before_type:ty,)* [$path:ident]
            $(, $after:ident: $after_type:ty)*) -> $result:ty, device $device:expr;
    )*) => {$(
        #[doc = concat!("libc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        ///
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            // SAFETY: the caller keeps libc's contract.
            let target = unsafe { target($path) };
            let other;
            let path = match &target {
                Target::Itself => $path,
                Target::Sysfs(place) => place.as_ptr(),
                Target::Kfd | Target::Render(_) => {
                    let answer: Device<$result> = $device;
                    match answer {
                        Device::Open(open) => return open(&target),
                        Device::Like(stand_in) => {
                            other = stand_in;
                            other.as_ptr()
                        }
                    }
                }
            };
            real!(
                $symbol,
                fn($($before_type,)* *const c_char $(, $after_type)*) -> $result,
                $($before,)* path $(, $after)*
            )
        }
    )*};
}

/// How a function treats a device node.
enum Device<R> {
    /// It opens it.
    Open(fn(&Target) -> R),
    /// It returns the data of this similar device.
    Like(&'static CStr),
}

by_path! {
    c"open" open([path], flags: c_int, mode: c_uint) -> c_int, device Device::Open(open_device);
    c"open64" open64([path], flags: c_int, mode: c_uint) -> c_int, device Device::Open(open_device);
    c"openat" openat(at: c_int, [path], flags: c_int, mode: c_uint) -> c_int, device Device::Open(open_device);
    c"openat64" openat64(at: c_int, [path], flags: c_int, mode: c_uint) -> c_int, device Device::Open(open_device);
    c"__open_2" __open_2([path], flags: c_int) -> c_int, device Device::Open(open_device);
    c"__open64_2" __open64_2([path], flags: c_int) -> c_int, device Device::Open(open_device);
    c"fopen" fopen([path], mode: *const c_char) -> *mut c_void, device Device::Like(c"/dev/null");
    c"fopen64" fopen64([path], mode: *const c_char) -> *mut c_void, device Device::Like(c"/dev/null");
    c"opendir" opendir([path]) -> *mut c_void, device Device::Like(c"/dev/null");
    c"access" access([path], mode: c_int) -> c_int, device Device::Like(c"/dev/null");
    c"stat" stat([path], buffer: *mut c_void) -> c_int, device Device::Like(c"/dev/null");
    c"stat64" stat64([path], buffer: *mut c_void) -> c_int, device Device::Like(c"/dev/null");
    c"lstat" lstat([path], buffer: *mut c_void) -> c_int, device Device::Like(c"/dev/null");
    c"lstat64" lstat64([path], buffer: *mut c_void) -> c_int, device Device::Like(c"/dev/null");
}

/// libc's `ioctl`; KFD's requests on `/dev/kfd` and one on render nodes are answered here.
///
/// # Safety
///
/// As libc's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // _IOC_NR, _IOC_TYPE, _IOC_SIZE of asm-generic/ioctl.h.
    let [number, kind, ..] = request.to_le_bytes();
    let bytes = (request >> 16 & 0x3fff) as usize;
    if kind == KFD_TYPE
        && let Some(kfd) = kfd::existing().filter(|kfd| kfd.device.is(fd))
    {
        if argument.is_null() {
            return fail(Errno::FAULT);
        }
        // SAFETY: by the request, the argument points to this many readable and writable bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(argument.cast::<u8>(), bytes) };
        return ioctl::run(kfd, number, bytes).map_or_else(fail, |()| 0);
    }
    if (kind, number) == (DRM_TYPE, AMDGPU_INFO)
        && !argument.is_null()
        && let Some(kfd) = kfd::existing().filter(|kfd| kfd.vram.is(fd))
        && let Some(agent) = kfd.nodes.agent(fd)
    {
        // SAFETY: by the request, the argument points to this many readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(argument.cast::<u8>(), bytes) };
        return match register::read(kfd, agent, bytes) {
            Ok((0, _)) => fail(Errno::FAULT),
            Ok((place, value)) => {
                // SAFETY: the caller's own pointer, to as many bytes as it says.
                unsafe { (place as *mut u32).write_unaligned(value) };
                0
            }
            Err(error) => fail(error),
        };
    }
    real!(
        c"ioctl",
        fn(c_int, c_ulong, *mut c_void) -> c_int,
        fd,
        request,
        argument
    )
}
