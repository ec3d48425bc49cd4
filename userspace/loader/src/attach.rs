//! Attaching probes to functions.

use std::path::Path;

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts};

use crate::{
    ProbeError,
    events::{Event, Say},
    libbpf::refused,
};

/// The side of a function at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before the probed instruction.
    Entry,
    /// After the function returned to its caller.
    Return,
}

/// The processes that get the breakpoints. Programs also filter processes themselves; the scope
/// decides which processes pay for breakpoints at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only this process, without its children.
    Process(u32),
    /// Every process that maps the file, now or later.
    EveryProcess,
}

impl Scope {
    /// The kernel's argument: a process id, or -1 for all.
    pub(crate) fn pid(self) -> i32 {
        match self {
            Self::Process(pid) => i32::try_from(pid).unwrap_or(-1),
            Self::EveryProcess => -1,
        }
    }
}

/// An instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// File offset of the instruction, bytes.
    pub offset: u64,
    /// Passed to the program at each hit; see [`gputrace_abi::cookie::Cookie`].
    pub cookie: u64,
}

/// A function whose calls are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedFunction {
    /// Its probed entry.
    pub entry: Point,
    /// How the end of a call is seen.
    pub end: End,
}

impl TracedFunction {
    /// A function whose return the kernel probes ([`End::Return`]).
    #[must_use]
    pub const fn by_return(entry: Point) -> Self {
        Self {
            entry,
            end: End::Return,
        }
    }
}

/// How the end of a function's calls is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The kernel replaces the return address on the stack, and runs a program when it is used. No
    /// unwinder can pass such a frame, and no other stack may be used inside it.
    Return,
    /// At these instructions, which leave the function. Their cookies are that of the entry, or
    /// that with [`gputrace_abi::cookie::Cookie::at_tail_call`].
    Exits(Vec<Point>),
    /// Not at all: records of calls have no end.
    NotSeen,
}

impl End {
    /// The instructions that leave the function, as far as they are probed.
    #[must_use]
    pub fn exits(&self) -> &[Point] {
        match self {
            Self::Exits(exits) => exits,
            Self::Return | Self::NotSeen => &[],
        }
    }
}

/// A probe that the kernel refused, although others of the same request are attached.
#[derive(Debug)]
pub struct Failure {
    /// The refused probe.
    pub point: Point,
    /// The reason.
    pub error: ProbeError,
}

/// A program at points of a file. Dropping it removes the probes.
#[derive(Debug)]
pub enum Attached {
    /// By [`UprobeMulti`].
    Link(Link),
    /// By [`crate::events::PerfEvents`].
    Event(Event),
}

/// A way of attaching a program to points of a file.
pub trait Backend: std::fmt::Debug + Send + Sync {
    /// Name used in outputs and options.
    fn name(&self) -> &'static str;

    /// Attaches `program` to all `points` of the file at `path`, in one request.
    ///
    /// # Errors
    ///
    /// The kernel's error; nothing is attached then.
    fn attach(
        &self,
        program: &ProgramMut<'_>,
        path: &Path,
        scope: Scope,
        side: Side,
        points: &[Point],
    ) -> Result<Attached, ProbeError>;

    /// Waits until other tracers no longer keep probes from being added. Says so if that takes
    /// longer than a moment.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] if it cannot be found out.
    fn wait(&self, _say: Option<Say<'_>>) -> Result<(), ProbeError> {
        Ok(())
    }

    /// Waits until the probes that were dropped are removed.
    fn settle(&self) {}

    /// Has all probes removed. Dropping the back-end waits a moment for that.
    fn close(&self) {}

    /// Whether attached probes still are.
    fn is_alive(&self) -> bool {
        true
    }
}

/// Back-end with one link for all points of a file and side (Linux 6.6). Attaching or detaching 400
/// functions takes milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct UprobeMulti;

impl Backend for UprobeMulti {
    fn name(&self) -> &'static str {
        "uprobe_multi"
    }

    fn attach(
        &self,
        program: &ProgramMut<'_>,
        path: &Path,
        scope: Scope,
        side: Side,
        points: &[Point],
    ) -> Result<Attached, ProbeError> {
        let options = UprobeMultiOpts {
            // `usize` is 64 bits wide on every machine that has these libraries.
            offsets: points.iter().map(|point| point.offset as usize).collect(),
            cookies: points.iter().map(|point| point.cookie).collect(),
            retprobe: side == Side::Return,
            ..Default::default()
        };
        program
            .attach_uprobe_multi_with_opts(scope.pid(), path, "", options)
            .map(Attached::Link)
            .map_err(|error| refused(describe(path, side, points), &error))
    }
}

/// Attaches as many of `points` as the kernel accepts. If it refuses a request, the request is
/// halved until the refused points are isolated.
pub fn attach_all(
    backend: &dyn Backend,
    program: &ProgramMut<'_>,
    path: &Path,
    scope: Scope,
    side: Side,
    points: &[Point],
) -> (Vec<Attached>, Vec<Failure>) {
    let (mut links, mut failures) = (Vec::new(), Vec::new());
    let mut requests = vec![points];
    while let Some(request) = requests.pop() {
        match (request, backend.attach(program, path, scope, side, request)) {
            (_, Ok(new)) => links.push(new),
            ([point], Err(error)) => failures.push(Failure {
                point: *point,
                error,
            }),
            ([], Err(_)) => {}
            // A refusal that is unrelated to single points would repeat for each of them, so it is
            // not tried hundreds of times.
            (_, Err(error @ ProbeError::PermissionDenied { .. })) => {
                failures.extend(request.first().map(|point| Failure {
                    point: *point,
                    error,
                }));
            }
            (_, Err(_)) => {
                let (left, right) = request.split_at(request.len() / 2);
                requests.extend([right, left]);
            }
        }
    }
    (links, failures)
}

/// What is attempted, for error messages.
pub(crate) fn describe(path: &Path, side: Side, points: &[Point]) -> String {
    let side = match side {
        Side::Entry => "entries",
        Side::Return => "returns",
    };
    match points {
        [point] => format!(
            "probe function {side} at offset {:#x} of {}",
            point.offset,
            path.display()
        ),
        _ => format!(
            "probe {} function {side} of {}",
            points.len(),
            path.display()
        ),
    }
}
