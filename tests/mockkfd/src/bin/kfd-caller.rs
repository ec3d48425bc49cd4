//! Calls KFD without ROCm, for the tests: `kfd-caller clock | unknown-ioctl | unknown-sdma`.
//!
//! It runs with the preloaded library like any other program.

#![expect(clippy::print_stdout, reason = "a program whose output the tests read")]

use std::error::Error;
use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

/// Size of the ring of an SDMA queue in bytes.
const RING_BYTES: usize = 4096;
/// Size of a GPU's doorbell page in bytes.
const DOORBELL_BYTES: u64 = 8192;
/// The first GPU's id.
const GPU: u64 = 31_000;

fn main() -> Result<(), Box<dyn Error>> {
    let kfd = File::options().read(true).write(true).open("/dev/kfd")?;
    match std::env::args().nth(1).as_deref() {
        Some("clock") => clock(&kfd),
        Some("unknown-ioctl") => ioctl(&kfd, 0x7f, &mut [13]).map_err(Into::into),
        Some("unknown-sdma") => unknown_sdma(&kfd),
        _ => Err("usage: kfd-caller clock | unknown-ioctl | unknown-sdma".into()),
    }
}

/// An ioctl of KFD: `_IOWR('K', number, arguments)`.
fn ioctl<const WORDS: usize>(
    kfd: &File,
    number: u64,
    arguments: &mut [u64; WORDS],
) -> io::Result<()> {
    let request = 3 << 30 | (WORDS as u64 * 8) << 16 | u64::from(b'K') << 8 | number;
    // SAFETY: the request's size is that of the arguments, which are alive during the call.
    match unsafe { libc::ioctl(kfd.as_raw_fd(), request, arguments.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Prints readings of the GPU's and the host's clock in ticks and ns, and the GPU's id from sysfs.
fn clock(kfd: &File) -> Result<(), Box<dyn Error>> {
    // kfd_ioctl_get_clock_counters_args: GPU ticks, CPU ns, system ns, frequency, GPU id and
    // padding.
    let mut counters = [0, 0, 0, 0, GPU];
    ioctl(kfd, 0x05, &mut counters)?;
    let [ticks, _, system, ..] = counters;
    println!("clock {ticks} {system}");
    print!(
        "id {}",
        fs::read_to_string("/sys/class/kfd/kfd/topology/nodes/1/gpu_id")?
    );
    Ok(())
}

/// Creates an SDMA queue and submits a packet with an invalid operation. Only the library can end
/// this program.
fn unknown_sdma(kfd: &File) -> Result<(), Box<dyn Error>> {
    let mut ring = vec![0_u64; RING_BYTES / 8];
    if let Some(first) = ring.first_mut() {
        *first = 0xdead_beef_0000_00ee;
    }
    let (mut write_pointer, mut read_pointer) = (0_u64, 0_u64);
    // kfd_ioctl_create_queue_args; ring size and GPU id share a word, and so do queue type (1:
    // SDMA) and percentage.
    let mut queue = [
        ring.as_ptr() as u64,
        (&raw mut write_pointer) as u64,
        (&raw mut read_pointer) as u64,
        0,
        RING_BYTES as u64 | GPU << 32,
        1 | 100 << 32,
        0,
        0,
        0,
        0,
        0,
    ];
    ioctl(kfd, 0x02, &mut queue)?;
    let [_, _, _, doorbell_offset, ..] = queue;
    let page = doorbell_offset / DOORBELL_BYTES * DOORBELL_BYTES;
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            usize::try_from(DOORBELL_BYTES)?,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            kfd.as_raw_fd(),
            libc::off_t::try_from(page)?,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    let doorbell = mapped.wrapping_byte_add(usize::try_from(doorbell_offset - page)?);
    ring_doorbell(doorbell, 8);
    loop {
        std::thread::park();
    }
}

/// Tells the GPU how many bytes of the ring have been written.
fn ring_doorbell(doorbell: *mut c_void, bytes: u64) {
    // SAFETY: inside the mapped page, aligned to 8 bytes; the GPU reads it at any time.
    unsafe { doorbell.cast::<u64>().write_volatile(bytes) };
}
