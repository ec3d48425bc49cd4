//! The kernel's side of ROCm inside a test program. When preloaded, it lets the real and unmodified
//! libamdhip64 and libhsa-runtime64 run on the [software GPU](gputrace_softgpu).
//!
//! ```text
//! LD_PRELOAD=libgputrace_mockkfd.so SOFTGPU_LOG=/tmp/truth ./program
//! ```
//!
//! # How it works
//!
//! The runtime accesses a GPU only through files in sysfs, two device nodes, and libdrm.
//!
//! * `interpose` replaces the libc functions that open, examine or control files; `paths` knows
//!   which paths are the GPU's. sysfs paths lead into a directory that `sysfs` has written.
//!   `/dev/kfd` and `/dev/dri/renderD*` become descriptors of sparse memory files (`files`), which
//!   the runtime maps by itself.
//! * `ioctl` answers KFD's requests from a table; `uapi` defines their structures, and `events`,
//!   `alloc` and `doorbell` implement them. Creating a queue starts a packet processor of the
//!   software GPU.
//! * `drm` replaces the few functions of libdrm that the runtime calls.
//! * `register` answers the one request to render nodes that the tracer makes.
//! * `kfd` holds the state, once per process; `names` finds the names of kernels.
//!
//! Everything that it does not support ends the program with status 86 and one line on stderr.

mod alloc;
mod doorbell;
mod drm;
mod events;
mod files;
#[cfg(not(test))]
mod interpose;
mod ioctl;
mod kfd;
mod names;
mod paths;
mod register;
mod sysfs;
mod uapi;
