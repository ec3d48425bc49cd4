//! Requests to the driver: every `ioctl(2)` on `/dev/kfd`, with its structure before and after.
//!
//! User space interprets the structures (`gputrace-kfd`); programs only copy their bytes. Most
//! requests have structures of at most [`SHORT_DATA`] bytes, so records come in two sizes.

use crate::record::RecordHeader;

/// Maximum number of bytes of a structure in a short record. Of the known requests, only
/// `CREATE_QUEUE`, `CRIU_OP`, `GET_PROCESS_APERTURES` and `SVM` with attributes are longer.
pub const SHORT_DATA: usize = 48;

/// Maximum number of bytes of a structure in a long record; the rest of a longer one is cut.
/// `GET_PROCESS_APERTURES` has 400, `SVM` 24 plus 8 per attribute.
pub const LONG_DATA: usize = 416;

/// Maximum number of elements in a record of a list that the structure points to.
pub const LISTED: usize = 8;

/// Bits of [`Ioctl::flags`].
pub mod ioctl_flags {
    /// The structure could not be read when the request began.
    pub const BEFORE_UNREADABLE: u16 = 1 << 0;
    /// The structure could not be read when the request ended.
    pub const AFTER_UNREADABLE: u16 = 1 << 1;
    /// The list could not be read.
    pub const LIST_UNREADABLE: u16 = 1 << 2;
    /// [`super::Ioctl::result`] is that of the driver's handler instead of the system call.
    pub const OF_HANDLER: u16 = 1 << 3;
}

shared! {
    /// A request to the driver; followed by its structure before and after, [`SHORT_DATA`] or
    /// [`LONG_DATA`] bytes each.
    pub struct Ioctl {
        /// Kind [`crate::record::kind::IOCTL`] or [`crate::record::kind::IOCTL_UNFINISHED`].
        pub header: RecordHeader,
        /// Process id in the initial pid namespace.
        pub pid: u32,
        /// Thread id in the initial pid namespace.
        pub tid: u32,
        /// Time of the entry; ns, `CLOCK_BOOTTIME`.
        pub begin: u64,
        /// Time of the return; ns, `CLOCK_BOOTTIME`; 0 while the request is open.
        pub end: u64,
        /// See [`crate::frame::Frame::correlation`].
        pub correlation: u64,
        /// Correlation id of the innermost open API call of the thread; 0 if there is none.
        pub parent: u64,
        /// Result: 0 or more, or a negative error number; 0 if the request has not returned.
        pub result: i64,
        /// Third argument of `ioctl(2)`: address of the structure.
        pub argument: u64,
        /// Second argument of `ioctl(2)`.
        pub request: u32,
        /// Bits of [`ioctl_flags`].
        pub flags: u16,
        /// Number of API calls open on the thread around the request.
        pub depth: u16,
        /// Number of bytes of the structure in `before` and `after`.
        pub data: u16,
        /// Number of elements of the list in `list`.
        pub listed: u16,
        /// Number of elements that the list has in the process.
        pub list_length: u32,
        /// The first elements of the list: ids of events of `WAIT_EVENTS`, ids of GPUs of
        /// `MAP_MEMORY_TO_GPU` and `UNMAP_MEMORY_FROM_GPU`.
        pub list: [u32; LISTED],
    }
}

shared! {
    /// A request with a structure of at most [`SHORT_DATA`] bytes.
    pub struct ShortIoctl {
        /// The common part.
        pub ioctl: Ioctl,
        /// The structure when the request began.
        pub before: [u8; SHORT_DATA],
        /// The structure when the request ended.
        pub after: [u8; SHORT_DATA],
    }
}

shared! {
    /// A request with a longer structure.
    pub struct LongIoctl {
        /// The common part.
        pub ioctl: Ioctl,
        /// The structure when the request began.
        pub before: [u8; LONG_DATA],
        /// The structure when the request ended.
        pub after: [u8; LONG_DATA],
    }
}

shared! {
    /// Settings of the programs that trace requests. Offsets are bytes.
    #[derive(Default)]
    pub struct KfdConfig {
        /// Device number of `/dev/kfd` as the kernel stores it: `major << 20 | minor`.
        pub device: u32,
        /// Offset of `fd` in `syscalls:sys_enter_ioctl`.
        pub enter_fd: u32,
        /// Offset of `cmd` in `syscalls:sys_enter_ioctl`.
        pub enter_cmd: u32,
        /// Offset of `arg` in `syscalls:sys_enter_ioctl`.
        pub enter_arg: u32,
        /// Offset of `ret` in `syscalls:sys_exit_ioctl`.
        pub exit_ret: u32,
        /// Offset of `files` in `struct task_struct`.
        pub task_files: u32,
        /// Offset of `fdt` in `struct files_struct`.
        pub files_fdt: u32,
        /// Offset of `max_fds` in `struct fdtable`.
        pub fdt_max_fds: u32,
        /// Offset of `fd` in `struct fdtable`.
        pub fdt_fd: u32,
        /// Offset of `f_inode` in `struct file`.
        pub file_inode: u32,
        /// Offset of `i_rdev` in `struct inode`.
        pub inode_rdev: u32,
        /// Unused, 0.
        pub reserved: u32,
    }
}

/// Numbers of requests whose structure points to a list: bits 7 to 0 of [`Ioctl::request`].
pub mod nr {
    /// `AMDKFD_IOC_WAIT_EVENTS`.
    pub const WAIT_EVENTS: u8 = 0x0c;
    /// `AMDKFD_IOC_MAP_MEMORY_TO_GPU`.
    pub const MAP_MEMORY_TO_GPU: u8 = 0x18;
    /// `AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU`.
    pub const UNMAP_MEMORY_FROM_GPU: u8 = 0x19;
}

/// The size of the structure in a request, bytes: `_IOC_SIZE` of `asm-generic/ioctl.h`.
#[must_use]
pub const fn size_of_request(request: u32) -> u32 {
    request >> 16 & 0x3fff
}

/// `size` of a [`ShortIoctl`].
pub const SHORT_IOCTL_SIZE: usize = size_of::<ShortIoctl>();
/// `size` of a [`LongIoctl`].
pub const LONG_IOCTL_SIZE: usize = size_of::<LongIoctl>();

const _: () = assert!(size_of::<Ioctl>() == 112);
const _: () = assert!(SHORT_IOCTL_SIZE == 208);
const _: () = assert!(LONG_IOCTL_SIZE == 944);
const _: () = assert!(size_of::<KfdConfig>() == 48);
