//! User half of the program that copies records of tracepoints (`ebpf/probes`, module `tracepoint`).

use gputrace_abi::tracepoint::{
    FUNCTIONS_FROM, LONG_TRACE, TRACEPOINTS, TraceConfig, trace_cookie,
};
use libbpf_rs::{KprobeOpts, Link, Object, TracepointCategory, TracepointOpts};
use zerocopy::IntoBytes as _;

use crate::{ProbeError, calls::Calls, extra, libbpf::refused, tracefs::Tracepoint};

/// Its maps, which the call programs are loaded without.
pub(crate) const MAPS: [&str; 1] = ["TRACE_RATES"];

/// Bytes that are copied for fields of changing length, which lie behind the others.
const DYNAMIC_BYTES: u32 = 192;

/// Loads one of the programs, with its guard.
fn load(calls: &Calls, program: &str, per_second: u64) -> Result<Object, ProbeError> {
    let config = TraceConfig { per_second };
    extra::load(calls, &[program], |name, map| match name {
        ".trace" => Some(map.set_initial_value(config.as_bytes())),
        "TRACE_RATES" => Some(Ok(())),
        _ => None,
    })
}

/// The loaded program. Dropping it removes it from all tracepoints.
#[derive(Debug)]
pub struct Tracing {
    // Before the object, so that nothing runs any more when its maps go.
    links: Vec<Link>,
    object: Object,
}

impl Tracing {
    /// Tracepoints that one recording can have.
    pub const MOST: usize = TRACEPOINTS;

    /// Loads the program. Of each tracepoint, what comes after the first `per_second` records of a second is counted
    /// and left out; 0 is no limit.
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

    /// How often the kernel left the program out, because another operation of BPF was under way on the processor.
    #[must_use]
    pub fn missed(&self) -> u64 {
        extra::missed(&self.object)
    }

    /// Attaches it to `tracepoint`, whose records will have this number.
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

/// Functions of the kernel whose registers are recorded when they are called. Dropping it removes the program.
#[derive(Debug)]
pub struct Functions {
    // Before the object, so that nothing runs any more when its maps go.
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

    /// Attaches it to the function `symbol`; returns the number that its records have.
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

    /// How often the kernel left the program out, because another operation of BPF was under way on the processor.
    #[must_use]
    pub fn missed(&self) -> u64 {
        extra::missed(&self.object)
    }
}

/// Bytes of `struct pt_regs` (`asm/ptrace.h` of x86-64) from its beginning up to the first argument.
const REGISTERS: u32 = 120;

/// Where the registers of a function's first six integer arguments are in a record, bytes from its beginning: `rdi`, `rsi`,
/// `rdx`, `rcx`, `r8`, `r9`. Of an argument of less than eight bytes the rest is not defined.
pub const ARGUMENTS: [u32; 6] = [112, 104, 96, 88, 72, 64];
