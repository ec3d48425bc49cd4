//! Replacements for the functions of libdrm that the ROCm runtime calls. The real libdrm is never
//! used.
//!
//! All of them are unversioned symbols, so those of the preloaded library take precedence.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::kfd;
use crate::paths::agent_of_minor;

/// `amdgpu_device_handle`: just a duplicated descriptor, because the caller closes the one that it
/// passed.
#[derive(Debug)]
struct Device {
    fd: OwnedFd,
}

/// Opens `/dev/dri/renderD<minor>`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn drmOpenRender(minor: c_int) -> c_int {
    let agent = u32::try_from(minor).ok().and_then(agent_of_minor);
    if agent.is_none() {
        return -Errno::NOENT.raw_os_error();
    }
    kfd::get()
        .vram
        .open()
        .unwrap_or_else(|error| -error.raw_os_error())
}

/// Closes a descriptor from `drmOpenRender`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn drmClose(fd: c_int) -> c_int {
    // SAFETY: closes a descriptor that the caller gives up.
    unsafe { libc::close(fd) }
}

/// Creates a device for a render node's descriptor.
///
/// # Safety
///
/// The pointers are valid for writing.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn amdgpu_device_initialize(
    fd: c_int,
    major: *mut u32,
    minor: *mut u32,
    device: *mut *mut c_void,
) -> c_int {
    if fd < 0 || major.is_null() || minor.is_null() || device.is_null() {
        return -Errno::INVAL.raw_os_error();
    }
    // SAFETY: the caller's descriptor, open during the call; a closed one gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let fd = match rustix::io::fcntl_dupfd_cloexec(fd, 0) {
        Ok(fd) => fd,
        Err(error) => return -error.raw_os_error(),
    };
    // SAFETY: valid for writing by this function's contract. 3.54 is the driver of Linux 6.7.
    unsafe { major.write(3) };
    // SAFETY: as above.
    unsafe { minor.write(54) };
    let made = Box::into_raw(Box::new(Device { fd }));
    // SAFETY: as above.
    unsafe { device.write(made.cast()) };
    0
}

/// Destroys a device.
///
/// # Safety
///
/// `device` comes from `amdgpu_device_initialize` and is not used again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn amdgpu_device_deinitialize(device: *mut c_void) -> c_int {
    if !device.is_null() {
        // SAFETY: created by `Box::into_raw` of the same type.
        drop(unsafe { Box::from_raw(device.cast::<Device>()) });
    }
    0
}

/// The descriptor of a device.
///
/// # Safety
///
/// `device` comes from `amdgpu_device_initialize`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn amdgpu_device_get_fd(device: *mut c_void) -> c_int {
    // SAFETY: a live device by this function's contract, or null.
    unsafe { device.cast::<Device>().as_ref() }.map_or(-1, |device| device.fd.as_raw_fd())
}

/// The name that users see. The runtime gets other names from KFD's topology.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn amdgpu_get_marketing_name(_device: *mut c_void) -> *const c_char {
    c"Software GPU".as_ptr()
}

/// Data about the chip: only its ids.
///
/// # Safety
///
/// `info` points to a `struct amdgpu_gpu_info`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn amdgpu_query_gpu_info(
    _device: *mut c_void,
    info: *mut c_uint,
) -> c_int {
    // asic_id, chip_rev, chip_external_rev, family_id: of a Vega 20 (AMDGPU_FAMILY_AI).
    for (index, value) in [0x66a1, 0, 0x28, 141].into_iter().enumerate() {
        let field = info.wrapping_add(index);
        // SAFETY: the structure begins with these four fields.
        unsafe { field.write(value) };
    }
    0
}
