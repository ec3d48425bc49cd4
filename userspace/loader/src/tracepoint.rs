//! User-space half of the program that copies records of tracepoints (`ebpf/probes`, module
//! `tracepoint`).

use gputrace_abi::tracepoint::{
    FUNCTIONS_FROM, LONG_TRACE, TRACEPOINTS, TraceConfig, trace_cookie,
};
use libbpf_rs::{KprobeOpts, Link, Object, TracepointCategory, TracepointOpts};
use zerocopy::IntoBytes as _;

use crate::{ProbeError, calls::Calls, extra, libbpf::refused, tracefs::Tracepoint};

/// Maps of this program, which are not created for the call-tracing programs.
pub(crate) const MAPS: [&str; 1] = ["TRACE_RATES"];

/// Number of bytes copied for the contents of dynamic fields, which follow the other fields.
const DYNAMIC_BYTES: u32 = 192;

/// Loads one of the programs, with its rate limit.
fn load(calls: &Calls, program: &str, per_second: u64) -> Result<Object, ProbeError> {
    let config = TraceConfig { per_second };
    extra::load(calls, &[program], |name, map| match name {
        ".trace" => Some(map.set_initial_value(config.as_bytes())),
        "TRACE_RATES" => Some(Ok(())),
        _ => None,
    })
}

/// The loaded program for tracepoints. Dropping it removes it from all tracepoints.
#[derive(Debug)]
pub struct Tracing {
    // Dropped before the object, so that no program runs when its maps are freed.
    links: Vec<Link>,
    object: Object,
}

impl Tracing {
    /// Maximum number of tracepoints per recording.
    pub const MOST: usize = TRACEPOINTS;

    /// Loads the program. For each tracepoint, records beyond the first `per_second` of a second
    /// are counted and left out; 0 means no limit.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses it.
    pub fn load(calls: &Calls, per_second: u64) -> Result<Self, ProbeError> {
        Ok(Self {
            links: Vec::new(),
            object: load(calls, "trace_event", per_second)?,
        })
    }

    /// How often the kernel skipped the program, because another BPF operation was running on the
    /// same processor.
    #[must_use]
    pub fn missed(&self) -> u64 {
        extra::missed(&self.object)
    }

    /// Attaches the program to `tracepoint`, whose records get this number.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses.
    pub fn attach(&mut self, number: u32, tracepoint: &Tracepoint) -> Result<(), ProbeError> {
        let mut bytes = tracepoint.size();
        if tracepoint.is_dynamic() {
            bytes = bytes.saturating_add(DYNAMIC_BYTES);
        }
        let options = TracepointOpts {
            cookie: trace_cookie(number, bytes.min(LONG_TRACE as u32 - 8)),
            ..TracepointOpts::default()
        };
        let category = TracepointCategory::Custom(tracepoint.category().to_owned());
        let link = extra::program(&self.object, "trace_event")?
            .attach_tracepoint_with_opts(category, tracepoint.event(), options)
            .map_err(|error| {
                refused(
                    format!("attach to tracepoint {}", tracepoint.name()),
                    &error,
                )
            })?;
        self.links.push(link);
        Ok(())
    }
}

/// The loaded program for kernel functions, which records their registers when they are called.
/// Dropping it removes it from all functions.
#[derive(Debug)]
pub struct Functions {
    // Dropped before the object, so that no program runs when its maps are freed.
    links: Vec<Link>,
    object: Object,
}

impl Functions {
    /// Loads the program; `per_second` as for [`Tracing::load`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses it.
    pub fn load(calls: &Calls, per_second: u64) -> Result<Self, ProbeError> {
        Ok(Self {
            links: Vec::new(),
            object: load(calls, "kernel_function", per_second)?,
        })
    }

    /// Attaches the program to the function `symbol`, and returns the number of its records.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when there is no such function, or the kernel refuses.
    pub fn attach(&mut self, symbol: &str) -> Result<u32, ProbeError> {
        let number = FUNCTIONS_FROM + self.links.len() as u32;
        let options = KprobeOpts {
            cookie: trace_cookie(number, REGISTERS),
            ..KprobeOpts::default()
        };
        let link = extra::program(&self.object, "kernel_function")?
            .attach_kprobe_with_opts(false, symbol, options)
            .map_err(|error| {
                refused(format!("attach to the kernel's function {symbol}"), &error)
            })?;
        self.links.push(link);
        Ok(number)
    }

    /// How often the kernel skipped the program, because another BPF operation was running on the
    /// same processor.
    #[must_use]
    pub fn missed(&self) -> u64 {
        extra::missed(&self.object)
    }
}

/// Size, in bytes, of the beginning of `struct pt_regs` (`asm/ptrace.h` of x86-64) up to and
/// including the first argument.
const REGISTERS: u32 = 120;

/// Offsets, in bytes, of the registers with a function's first six integer arguments in a record:
/// `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`. If an argument has less than eight bytes, the remaining
/// bytes are undefined.
pub const ARGUMENTS: [u32; 6] = [112, 104, 96, 88, 72, 64];
