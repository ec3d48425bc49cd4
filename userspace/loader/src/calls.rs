//! User-space half of `ebpf/probes`: the programs that trace calls, and their maps.

mod maps;
pub(crate) mod stacks;

use std::{
    collections::HashSet,
    ffi::OsStr,
    hint,
    os::fd::{AsFd as _, AsRawFd as _, RawFd},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gputrace_abi::{
    config::{CookiePlace, target_flags},
    cookie::Cookie,
};
use gputrace_files::kernel;
use libbpf_rs::{
    Link, MapCore as _, MapFlags, MapHandle, MapType, Object, ObjectBuilder, ProgramAttachType,
    TracepointCategory,
};
use zerocopy::IntoBytes as _;

use crate::{
    ProbeError, Ring,
    attach::{
        Attached, Backend, End, Failure, Point, Scope, Side, TracedFunction, UprobeMulti,
        attach_all,
    },
    cpus::{possible_cpus, present_cpus},
    events::{PerfEvents, Say},
    extra,
    layout::cookie_place,
    libbpf::{capture_messages, forget_messages, refused},
    probes::{Hook, Probes},
    settings::configure,
};

pub use crate::settings::{BackendChoice, CallLimit, Options};

/// The compiled programs.
pub(crate) static OBJECT: &[u8] = include_bytes!(env!("GPUTRACE_PROBES_OBJECT"));

/// Programs that are attached to functions, as opposed to tracepoints.
const FUNCTION_PROGRAMS: [&str; 11] = [
    "call_enter",
    "call_enter_only",
    "call_exit",
    "call_leave",
    "code_objects_changed",
    "code_objects_end",
    "cookie_tried",
    "gpu_enter",
    "linker_changed",
    "runtime_ends",
    stacks::PROGRAM,
];

/// Programs on raw tracepoints: program, tracepoint.
const RAW_TRACEPOINT_PROGRAMS: [(&str, &str); 3] = [
    ("task_created", "task_newtask"),
    ("task_exited", "sched_process_exit"),
    ("task_executed", "sched_process_exec"),
];

/// Programs on tracepoints that are optional: without them, some facts are known later or less
/// precisely. A kernel may be built without the tracepoints of system calls. Program, category,
/// name.
const OPTIONAL_TRACEPOINT_PROGRAMS: [(&str, &str, &str); 1] =
    [("process_exits", "syscalls", "sys_enter_exit_group")];

/// Map of the programs' variables. The stop flag is the only variable.
const STOP_FLAG: &str = ".bss";

/// Size of the ring of a processor that is not present, bytes. If the processor comes online, this
/// ring holds its records until it gets a ring of full size; see [`Calls::adopt`].
const SPARE_RING: u32 = 1 << 16;

/// The rings of all CPUs, and which of them have their full size.
#[derive(Debug)]
struct Rings {
    all: Vec<(u32, MapHandle)>,
    whole: HashSet<u32>,
    /// Full size of a ring, bytes.
    bytes: u32,
}

/// The loaded programs that trace calls. Dropping it removes everything from the kernel.
#[derive(Debug)]
pub struct Calls {
    backend: Box<dyn Backend>,
    // Dropped before the object, so that no program runs when its maps are freed.
    links: Vec<Link>,
    rings: Mutex<Rings>,
    object: Object,
    cpus: u32,
    /// Functions with ids below this can be limited.
    limited: u32,
}

impl Calls {
    /// Loads the programs, and attaches those on tracepoints. No function is probed yet.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses the programs or lacks a feature that they need.
    pub fn load(options: &Options) -> Result<Self, ProbeError> {
        Self::load_telling(options, None)
    }

    /// Like [`Self::load`]. If other tracers keep probes from being added, says so, and waits for
    /// them without a limit.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn load_telling(options: &Options, say: Option<Say<'_>>) -> Result<Self, ProbeError> {
        capture_messages();
        match options.backend {
            BackendChoice::Perf => Self::tried(options, false, say),
            BackendChoice::UprobeMulti => Self::tried(options, true, say),
            BackendChoice::Auto => match Self::tried(options, true, say) {
                Err(error) if !matches!(error, ProbeError::PermissionDenied { .. }) => {
                    tracing::debug!("uprobe_multi is not available ({error}); trying perf events");
                    Self::tried(options, false, say)
                }
                decided => decided,
            },
        }
    }

    /// Loads the programs for a back-end, and checks that the back-end works. The kernel may accept
    /// the programs and refuse the probes.
    fn tried(options: &Options, multi: bool, say: Option<Say<'_>>) -> Result<Self, ProbeError> {
        let calls = Self::load_with(options, multi)?;
        calls.backend.wait(say)?;
        calls.trial()?;
        Ok(calls)
    }

    fn load_with(options: &Options, multi: bool) -> Result<Self, ProbeError> {
        forget_messages();
        let cpus = possible_cpus();
        let ring_bytes = options.ring_bytes.max(4096).next_power_of_two();
        let mut open = ObjectBuilder::default()
            .name("gputrace")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(|error| refused("read the eBPF object", &error))?;
        let cookie = if multi {
            CookiePlace::default()
        } else {
            cookie_place()?
        };
        configure(&mut open, options, cpus, ring_bytes, cookie)?;
        for mut program in open.progs_mut() {
            let name = program.name();
            let optional = OPTIONAL_TRACEPOINT_PROGRAMS
                .iter()
                .map(|(program, ..)| program);
            let here = RAW_TRACEPOINT_PROGRAMS
                .iter()
                .map(|(program, _)| program)
                .chain(optional);
            if !FUNCTION_PROGRAMS
                .iter()
                .chain(here)
                .any(|one| name == OsStr::new(one))
            {
                program.set_autoload(false);
            }
        }
        if multi {
            for mut program in open.progs_mut() {
                if FUNCTION_PROGRAMS
                    .iter()
                    .any(|name| program.name() == OsStr::new(name))
                {
                    program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
                }
            }
        }
        let object = open
            .load()
            .map_err(|error| refused("load the call-tracing programs", &error))?;
        let backend: Box<dyn Backend> = if multi {
            Box::new(UprobeMulti)
        } else {
            // Before there are rings, whose memory the other process does not need.
            Box::new(PerfEvents::start(&descriptors(&object))?)
        };
        let mut calls = Self {
            backend,
            links: Vec::new(),
            rings: Mutex::new(Rings {
                all: Vec::new(),
                whole: HashSet::new(),
                bytes: ring_bytes,
            }),
            object,
            cpus,
            limited: options.limit.map_or(0, |limit| limit.functions),
        };
        calls.create_rings()?;
        for (program, name) in RAW_TRACEPOINT_PROGRAMS {
            let link = extra::raw_tracepoint(&calls.object, program, name)?;
            calls.links.push(link);
        }
        for (program, category, name) in OPTIONAL_TRACEPOINT_PROGRAMS {
            match calls
                .program(program)?
                .attach_tracepoint(TracepointCategory::Custom(category.to_owned()), name)
            {
                Ok(link) => calls.links.push(link),
                Err(error) => tracing::debug!("no tracepoint {category}:{name}: {error}"),
            }
        }
        Ok(calls)
    }

    /// How often the kernel skipped a program on a tracepoint, because another BPF operation was
    /// running on the same processor.
    #[must_use]
    pub fn missed(&self) -> u64 {
        extra::missed(&self.object)
    }

    /// Checks whether the back-end works: probes a function of gputrace itself, for this process
    /// only, calls it, and looks whether the program got the probe's cookie.
    fn trial(&self) -> Result<(), ProbeError> {
        /// Any number that nothing else has.
        const COOKIE: u64 = 0x6770_7574_7261_6365;
        let refused_cookie = |cause: &str| ProbeError::Refused {
            action: format!("try probes by {}", self.backend()),
            cause: cause.to_owned(),
            log: Vec::new(),
        };
        let offset = file_offset(tried as *const ())
            .ok_or_else(|| refused_cookie("gputrace is not in its own /proc/self/maps"))?;
        let point = Point {
            offset,
            cookie: COOKIE,
        };
        let (program, path) = (self.program("cookie_tried")?, Path::new("/proc/self/exe"));
        let scope = Scope::Process(std::process::id());
        let attached = self
            .backend
            .attach(&program, path, scope, Side::Entry, &[point])?;
        tried(COOKIE);
        let got = self.map("TRIED")?.lookup(0u32.as_bytes(), MapFlags::ANY);
        drop(attached);
        match got {
            Ok(Some(bytes)) if bytes == COOKIE.as_bytes() => Ok(()),
            _ => Err(refused_cookie("the program did not get the probe's number")),
        }
    }

    /// Creates a ring for each possible processor, a small one if the processor is not present.
    fn create_rings(&self) -> Result<(), ProbeError> {
        let present = present_cpus();
        self.adopt(&present)?;
        let mut rings = self.held_rings();
        for cpu in (0..self.cpus).filter(|cpu| !present.contains(cpu)) {
            let ring = self.create_ring(cpu, SPARE_RING.min(rings.bytes))?;
            rings.all.push((cpu, ring));
        }
        Ok(())
    }

    /// Gives processors that have come online rings of full size, which take their memory at once.
    /// Returns the new rings. The old rings must be read as well: they hold the records made until
    /// now.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses, most likely because memory is short. The small rings
    /// stay then.
    pub fn adopt(&self, present: &[u32]) -> Result<Vec<(u32, Ring)>, ProbeError> {
        let mut new = Vec::new();
        let mut rings = self.held_rings();
        for cpu in present {
            if *cpu < self.cpus && !rings.whole.contains(cpu) {
                let ring = self.create_ring(*cpu, rings.bytes)?;
                new.push((*cpu, maps::readable(*cpu, &ring)?));
                rings.all.push((*cpu, ring));
                rings.whole.insert(*cpu);
            }
        }
        Ok(new)
    }

    /// Creates a ring, and makes the programs on this processor use it.
    fn create_ring(&self, cpu: u32, bytes: u32) -> Result<MapHandle, ProbeError> {
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let ring = MapHandle::create(
            MapType::RingBuf,
            Some("gputrace_ring"),
            0,
            0,
            bytes,
            &options,
        )
        .map_err(|error| refused(format!("create a ring buffer of {bytes} bytes"), &error))?;
        let fd = ring.as_fd().as_raw_fd();
        self.map("RINGS")?
            .update(cpu.as_bytes(), fd.as_bytes(), MapFlags::ANY)
            .map_err(|error| refused("install a ring buffer", &error))?;
        Ok(ring)
    }

    fn held_rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, ProbeError> {
        self.object
            .progs_mut()
            .find(|program| program.name() == OsStr::new(name))
            .ok_or_else(|| ProbeError::BrokenObject {
                part: format!("program {name}"),
            })
    }

    pub(crate) fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, ProbeError> {
        // libbpf prefixes the name of a data section's map with the object's name.
        let matches = |map: &libbpf_rs::Map<'_>| {
            map.name()
                .to_str()
                .is_some_and(|n| n == name || name.starts_with('.') && n.ends_with(name))
        };
        self.object
            .maps()
            .find(matches)
            .ok_or_else(|| ProbeError::BrokenObject {
                part: format!("map {name}"),
            })
    }

    /// Name of the back-end in use.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Waits until the probes that were dropped are removed: after this, no program runs there.
    pub fn settle(&self) {
        self.backend.settle();
    }

    /// Whether attached probes still are. With perf events, a process of gputrace owns them, which
    /// somebody may have killed.
    #[must_use]
    pub fn has_probes(&self) -> bool {
        self.backend.is_alive()
    }

    /// Removes everything from the kernel. Probes of perf events are removed meanwhile: dropping
    /// the result waits a moment for that.
    #[must_use]
    pub fn leave(self) -> Box<dyn Backend> {
        self.backend.close();
        self.backend
    }

    /// Whether programs are attached by `uprobe_multi`.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.backend.name() == UprobeMulti.name()
    }

    /// Number of possible CPUs: the range of a record's `cpu`.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Probes functions of the file at `path`. Ends are probed before entries, so that every entry
    /// that is seen also has its end seen. A function whose end the kernel refuses to probe is not
    /// probed. The result holds the probes; dropping it removes them.
    ///
    /// # Errors
    ///
    /// [`ProbeError::BrokenObject`]. Points that the kernel refuses are listed in the result.
    pub fn attach(
        &self,
        path: &Path,
        scope: Scope,
        functions: &[TracedFunction],
    ) -> Result<Probes, ProbeError> {
        forget_messages();
        let attach = |program, side, points: Vec<Point>| {
            self.attach_all(program, path, scope, side, &points)
        };
        let entries_of = |is_one: fn(&End) -> bool| {
            let functions = functions
                .iter()
                .filter(move |function| is_one(&function.end));
            functions.map(|function| function.entry)
        };
        let returns = entries_of(|end| *end == End::Return).collect();
        let (mut ends, mut failures) = attach("call_leave", Side::Return, returns)?;
        let exits = functions.iter().flat_map(|function| function.end.exits());
        let (links, refused) = attach("call_exit", Side::Entry, exits.copied().collect())?;
        ends.extend(links);
        failures.extend(refused);
        let refused: HashSet<u64> = failures
            .iter()
            .map(|failure| Cookie(failure.point.cookie).of_entry().0)
            .collect();
        let whole = entries_of(|end| *end != End::NotSeen)
            .filter(|entry| !refused.contains(&entry.cookie))
            .collect();
        let (mut entries, refused) = attach("call_enter", Side::Entry, whole)?;
        failures.extend(refused);
        let only = entries_of(|end| *end == End::NotSeen).collect();
        let (links, refused) = attach("call_enter_only", Side::Entry, only)?;
        entries.extend(links);
        failures.extend(refused);
        Ok(Probes::new(entries, ends, failures))
    }

    /// Attaches a program to as many of `points` as the kernel accepts.
    fn attach_all(
        &self,
        program: &str,
        path: &Path,
        scope: Scope,
        side: Side,
        points: &[Point],
    ) -> Result<(Vec<Attached>, Vec<Failure>), ProbeError> {
        if points.is_empty() {
            return Ok(Default::default());
        }
        let program = self.program(program)?;
        Ok(attach_all(
            &*self.backend,
            &program,
            path,
            scope,
            side,
            points,
        ))
    }

    /// Watches places in the file at `path` that report something other than calls.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses.
    pub fn watch(
        &self,
        hook: Hook,
        path: &Path,
        scope: Scope,
        points: &[Point],
    ) -> Result<Probes, ProbeError> {
        self.attach_side(hook.program(), path, scope, hook.side(), points)
    }

    /// Observes functions that report the GPU's work and are not traced as calls. Their cookies say
    /// which role each has: [`gputrace_abi::gpu::role`].
    ///
    /// # Errors
    ///
    /// [`ProbeError`] when the kernel refuses any of them.
    pub fn observe(
        &self,
        path: &Path,
        scope: Scope,
        points: &[Point],
    ) -> Result<Probes, ProbeError> {
        self.attach_side("gpu_enter", path, scope, Side::Entry, points)
    }

    fn attach_side(
        &self,
        program: &str,
        path: &Path,
        scope: Scope,
        side: Side,
        points: &[Point],
    ) -> Result<Probes, ProbeError> {
        forget_messages();
        let program = self.program(program)?;
        let attached = self.backend.attach(&program, path, scope, side, points)?;
        Ok(Probes::new(vec![attached], Vec::new(), Vec::new()))
    }
}

/// Descriptors of the programs that are attached to functions.
fn descriptors(object: &Object) -> Vec<RawFd> {
    let on_functions = |name: &OsStr| FUNCTION_PROGRAMS.iter().any(|one| name == OsStr::new(one));
    object
        .progs()
        .filter(|program| on_functions(program.name()))
        .map(|program| program.as_fd().as_raw_fd())
        .collect()
}

/// The function that is probed in a trial.
#[inline(never)]
extern "C" fn tried(value: u64) -> u64 {
    hint::black_box(value)
}

/// Offset, in its file, of a function of this program.
pub(crate) fn file_offset(function: *const ()) -> Option<u64> {
    let address = function as u64;
    let maps = kernel::read_text("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end, offset) = (number(begin)?, number(end)?, number(words.nth(1)?)?);
        (begin..end)
            .contains(&address)
            .then(|| address - begin + offset)
    })
}

/// Flag of a target whose threads wait, in the kernel, while their new libraries are being probed.
pub const HOLD: u32 = target_flags::HOLD;

/// Flag of a target that is traced from its first instruction on.
pub const FROM_START: u32 = target_flags::FROM_START;

/// Flag of gputrace itself while it starts a program.
pub const STARTER: u32 = target_flags::STARTER;

#[cfg(test)]
mod tests {
    use super::*;

    /// `BPF_JMP | BPF_CALL`, and `BPF_FUNC_tail_call`, of `linux/bpf.h`.
    const CALL: u8 = 0x85;
    const TAIL_CALL: i32 = 12;

    /// A sleepable program would let a target block every user of BPF. Sections of sleepable
    /// programs end with `.s`.
    #[test]
    fn no_program_may_sleep() {
        let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        for program in object.progs() {
            let section = program.section().to_string_lossy();
            let kind = section.split('/').next().unwrap();
            assert!(!kind.ends_with(".s"), "{section}");
        }
    }

    /// Without that call, threads that preempt each other in such a program share variables from
    /// Linux 6.13 on: see `maps::state_in_uprobe` in `ebpf/probes`.
    #[test]
    fn programs_of_functions_stay_on_the_threads_stack() {
        let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let on_functions: Vec<_> = object
            .progs()
            .filter(|program| {
                let section = program.section().to_string_lossy();
                section.starts_with("uprobe") || section.starts_with("uretprobe")
            })
            .collect();
        let mut names: Vec<_> = on_functions
            .iter()
            .map(|program| program.name().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, FUNCTION_PROGRAMS);
        for program in on_functions {
            assert!(
                program
                    .insns()
                    .iter()
                    .any(|instruction| instruction.code == CALL
                        && instruction.src_reg() == 0
                        && instruction.imm == TAIL_CALL),
                "{:?}",
                program.name()
            );
        }
    }
}
