//! The library whose functions are called. One function begins with an instruction that the kernel
//! emulates at a breakpoint, one with instructions that the kernel must single-step.

use std::{
    ffi::{CString, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

/// The name makes gputrace treat it as ROCm's; there is no such version.
const NAME: &str = "libamdhip64.so.99";

const SOURCE: &str = "\
    .text
    .globl hipBenchEmulated
    .type hipBenchEmulated, @function
    .p2align 4
hipBenchEmulated:
    push %rbp
    mov %rsp, %rbp
    mov $100, %eax
    pop %rbp
    ret
    .size hipBenchEmulated, . - hipBenchEmulated

    .globl hipBenchStepped
    .type hipBenchStepped, @function
    .p2align 4
hipBenchStepped:
    endbr64
    sub $8, %rsp
    mov $100, %eax
    add $8, %rsp
    ret
    .size hipBenchStepped, . - hipBenchStepped

    .globl hipBenchOptimized
    .type hipBenchOptimized, @function
    .p2align 4
hipBenchOptimized:
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    mov $100, %eax
    ret
    .size hipBenchOptimized, . - hipBenchOptimized
    .section .note.GNU-stack, \"\", @progbits
";

/// Begins with `push`.
pub(crate) const EMULATED: &str = "hipBenchEmulated";
/// Begins with `endbr64; sub`.
pub(crate) const STEPPED: &str = "hipBenchStepped";

/// Begins with the five-byte `nop`.
pub(crate) const OPTIMIZED: &str = "hipBenchOptimized";

/// A function of this program, which begins with `push`.
pub(crate) const OWN: &str = "gputrace_bench_own";

std::arch::global_asm!(
    ".pushsection .text.gputrace_bench_own, \"ax\", @progbits",
    ".globl gputrace_bench_own",
    ".type gputrace_bench_own, @function",
    ".p2align 4",
    "gputrace_bench_own:",
    "push rbp",
    "mov eax, 100",
    "pop rbp",
    "ret",
    ".size gputrace_bench_own, . - gputrace_bench_own",
    ".popsection",
);

unsafe extern "C" {
    safe fn gputrace_bench_own() -> c_int;
}

/// The library's file; removed when dropped.
#[derive(Debug)]
pub(crate) struct Library {
    directory: TempDir,
}

impl Library {
    /// Builds it with gcc.
    ///
    /// # Errors
    ///
    /// When gcc is missing or fails.
    pub(crate) fn build() -> Result<Self> {
        let library = Self {
            directory: tempfile::tempdir()?,
        };
        let source = library.directory.path().join("sites.S");
        fs::write(&source, SOURCE)?;
        let output = Command::new("gcc")
            .args(["-shared", "-Wl,--build-id", "-Wl,-soname,", "-o"])
            .arg(library.path())
            .arg(&source)
            .output()
            .context("gcc builds the library that is called; on Debian: apt-get install gcc")?;
        if !output.status.success() {
            bail!("gcc failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(library)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(NAME)
    }

    /// The directory, for further files that are removed with it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// A function of the library, mapped into this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site(extern "C" fn() -> c_int);

impl Site {
    /// Maps the library permanently, and finds the function. That of this program is in no library.
    ///
    /// # Errors
    ///
    /// When it is not such a library.
    pub(crate) fn load(library: &Path, name: &str) -> Result<Self> {
        if name == OWN {
            return Ok(Self(gputrace_bench_own));
        }
        let path = CString::new(library.as_os_str().as_bytes())?;
        let symbol = CString::new(name)?;
        // SAFETY: a library of our own, without constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            bail!("cannot map {}", library.display());
        }
        // SAFETY: a handle that was just opened, and a terminated name.
        let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
        if address.is_null() {
            bail!("{} has no {name}", library.display());
        }
        // SAFETY: a function of this type (see `SOURCE`) that stays mapped.
        Ok(Self(unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address)
        }))
    }

    /// Whether its first instruction has been replaced by a breakpoint (`int3`).
    pub(crate) fn has_breakpoint(self) -> bool {
        // SAFETY: the function's code is readable, and is only changed one byte at a time.
        unsafe { (self.0 as *const u8).read_volatile() == 0xcc }
    }

    /// Calls it `count` times.
    #[inline]
    pub(crate) fn call(self, count: u64) {
        for _ in 0..count {
            std::hint::black_box((self.0)());
        }
    }
}
