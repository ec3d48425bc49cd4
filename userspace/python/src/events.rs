//! Events as Python objects.

use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    sync::{Arc, Mutex, PoisonError},
};

use gputrace_library::{
    Call as RustCall, Copy as RustCopy, Dispatch as RustDispatch, Domain, Event, Events, Index,
    Ledger, args,
    event::{FunctionInfo, ProcessInfo},
    gpu::GpuTime,
};
use pyo3::{prelude::*, types::PyDict};

use crate::raised;

/// An API call or a marker.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Call {
    call: RustCall,
    function: Option<Arc<FunctionInfo>>,
}

#[pymethods]
impl Call {
    /// Name of the function, or text of the marker.
    #[getter]
    fn name(&self) -> &str {
        let function = self.function.as_ref();
        function.map_or("(unknown function)", |info| &info.function.name)
    }

    /// Name of the domain, e.g. `HIP_RUNTIME_API`; `None` if this version does not know it.
    #[getter]
    fn domain(&self) -> Option<&'static str> {
        Domain::from_id(self.call.domain).map(Domain::name)
    }

    /// Whether it is a marker.
    #[getter]
    fn is_marker(&self) -> bool {
        self.function
            .as_ref()
            .is_some_and(|info| info.range.is_some())
    }

    /// Process id on the host.
    #[getter]
    fn pid(&self) -> u32 {
        self.call.pid
    }

    /// Thread id on the host.
    #[getter]
    fn tid(&self) -> u32 {
        self.call.tid
    }

    /// ns, `CLOCK_BOOTTIME`.
    #[getter]
    fn begin_ns(&self) -> u64 {
        self.call.begin
    }

    /// ns, `CLOCK_BOOTTIME`.
    #[getter]
    fn end_ns(&self) -> u64 {
        self.call.end
    }

    /// Unique in the recording, never 0.
    #[getter]
    fn correlation_id(&self) -> u64 {
        self.call.correlation
    }

    /// That of the call around it; 0 if none.
    #[getter]
    fn parent_correlation_id(&self) -> u64 {
        self.call.parent
    }

    /// The id that the program had set for its work.
    #[getter]
    fn external_correlation_id(&self) -> Option<u64> {
        self.call.external
    }

    /// Why its end is not its return; `None` if it is.
    #[getter]
    fn unfinished(&self) -> Option<&'static str> {
        self.call.how.reason()
    }

    /// The result as text; `None` if it did not return or returns nothing.
    #[getter]
    fn result(&self) -> Option<String> {
        let value = args::returned(self.function.as_deref()?, &self.call)?;
        Some(value.to_string())
    }

    /// Arguments by name, as text, in order of declaration.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let arguments = PyDict::new(py);
        if let Some(function) = &self.function {
            for (name, value) in args::decoded(function, &self.call) {
                arguments.set_item(name, value.to_string())?;
            }
        }
        Ok(arguments)
    }

    fn __repr__(&self) -> String {
        format!(
            "<Call {} {} ns>",
            self.name(),
            self.call.end - self.call.begin
        )
    }
}

/// Attributes of work, for kernels and copies.
macro_rules! work {
    ($class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $class {
            /// Process id on the host.
            #[getter]
            fn pid(&self) -> u32 {
                self.work.origin.pid
            }

            /// Thread that submitted it; 0 if unknown.
            #[getter]
            fn tid(&self) -> u32 {
                self.work.origin.tid
            }

            /// Correlation id of the call by which programs know it; 0 if none is recorded.
            #[getter]
            fn correlation_id(&self) -> u64 {
                self.work.origin.caller
            }

            /// The id that the program had set for its work.
            #[getter]
            fn external_correlation_id(&self) -> Option<u64> {
                self.work.origin.external
            }

            /// Number of its stream; 0 for a null or unknown stream.
            #[getter]
            fn stream_id(&self) -> u32 {
                self.work.origin.stream_id
            }

            /// When it was submitted; ns, `CLOCK_BOOTTIME`.
            #[getter]
            fn submitted_ns(&self) -> u64 {
                self.work.origin.time
            }

            /// How well its times are known: `exact`, `sampled`, `bounded` or `submitted`.
            #[getter]
            fn quality(&self) -> &'static str {
                self.work.time.quality.name()
            }

            /// ns, `CLOCK_BOOTTIME`; `None` if it is not known.
            #[getter]
            fn begin_ns(&self) -> Option<u64> {
                self.work.time.drawn_begin()
            }

            /// ns, `CLOCK_BOOTTIME`; `None` if it is not known.
            #[getter]
            fn end_ns(&self) -> Option<u64> {
                self.work.time.drawn_end()
            }

            /// The earliest and latest begin that is possible, ns; the latter is `None` if unknown.
            #[getter]
            fn begin_window(&self) -> (u64, Option<u64>) {
                (self.work.time.begin_window.earliest, self.work.time.begin_window.latest)
            }

            /// The earliest and latest end that is possible, ns; the latter is `None` if unknown.
            #[getter]
            fn end_window(&self) -> (u64, Option<u64>) {
                (self.work.time.end_window.earliest, self.work.time.end_window.latest)
            }

            $($own)*
        }
    };
}

/// How long work took, for people.
fn shown(time: &GpuTime) -> String {
    match time.drawn_begin().zip(time.drawn_end()) {
        Some((begin, end)) => format!("{} ns {}", end - begin, time.quality.name()),
        None => "not known how long".to_owned(),
    }
}

/// A kernel dispatch.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Dispatch {
    work: Box<RustDispatch>,
    name: String,
    node: Option<u32>,
}

work!(Dispatch {
    /// Name of the kernel.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// KFD topology node of the agent, if known.
    #[getter]
    fn node_id(&self) -> Option<u32> {
        self.node
    }

    /// Work-items.
    #[getter]
    fn grid_size(&self) -> [u32; 3] {
        self.work.grid
    }

    /// Work-items per workgroup.
    #[getter]
    fn workgroup_size(&self) -> [u32; 3] {
        self.work.workgroup
    }

    fn __repr__(&self) -> String {
        format!("<Dispatch {} {}>", self.name, shown(&self.work.time))
    }
});

/// A memory copy.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Copy {
    work: Box<RustCopy>,
}

work!(Copy {
    /// Direction as rocprofiler spells it.
    #[getter]
    fn name(&self) -> &'static str {
        self.work.direction.name()
    }

    /// Bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.work.bytes
    }

    fn __repr__(&self) -> String {
        let name = self.work.direction.name();
        format!("<Copy {name} {} bytes {}>", self.work.bytes, shown(&self.work.time))
    }
});

/// A process.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Process(Box<ProcessInfo>);

#[pymethods]
impl Process {
    /// Process id on the host.
    #[getter]
    fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Its command line.
    #[getter]
    fn command(&self) -> Vec<String> {
        self.0.command.clone()
    }

    fn __repr__(&self) -> String {
        format!("<Process {} {}>", self.0.pid, self.0.name)
    }
}

/// A remark of the recorder.
#[pyclass(frozen, module = "gputrace", get_all)]
pub(crate) struct Notice {
    /// ns, `CLOCK_BOOTTIME`.
    time_ns: u64,
    /// The remark.
    text: String,
}

#[pymethods]
impl Notice {
    fn __repr__(&self) -> String {
        format!("<Notice {}>", self.text)
    }
}

/// What was seen, and what became of it: `seen = written + unfinished + dropped`.
#[pyclass(frozen, module = "gputrace", get_all)]
pub(crate) struct Account {
    /// Whether it is the final account of a recording that ended in order.
    is_complete: bool,
    /// Records that were seen.
    seen: u64,
    /// Recorded whole.
    written: u64,
    /// Recorded without an end.
    unfinished: u64,
    /// Lost.
    dropped: u64,
}

#[pymethods]
impl Account {
    fn __repr__(&self) -> String {
        format!("<Account seen {} dropped {}>", self.seen, self.dropped)
    }
}

impl Account {
    fn of(ledger: &Ledger) -> Self {
        let total = ledger.total();
        Self {
            is_complete: ledger.complete,
            seen: total.seen,
            written: total.written,
            unfinished: total.unfinished,
            dropped: total.lost(),
        }
    }
}

/// Makes Python objects of events.
#[derive(Default)]
pub(crate) struct Objects {
    index: Index,
    /// Functions by number, shared by their calls.
    functions: std::collections::HashMap<u32, Arc<FunctionInfo>>,
}

impl Objects {
    /// The object for an event; `None` if it only says what later events refer to.
    pub(crate) fn of(&mut self, py: Python<'_>, event: Event) -> PyResult<Option<Py<PyAny>>> {
        self.index.learn(&event);
        Ok(Some(match event {
            Event::Call(call) => {
                let function = match self.functions.get(&call.function) {
                    Some(known) => Some(Arc::clone(known)),
                    None => self.index.function(call.function).map(|info| {
                        let info = Arc::new(info.clone());
                        self.functions.insert(call.function, Arc::clone(&info));
                        info
                    }),
                };
                Py::new(py, Call { call, function })?.into_any()
            }
            Event::Dispatch(work) => {
                let name = self.index.kernel_name(&work).into_owned();
                let node = self.index.queue(work.queue).and_then(|queue| queue.node_id);
                Py::new(py, Dispatch { work, name, node })?.into_any()
            }
            Event::Copy(work) => Py::new(py, Copy { work })?.into_any(),
            Event::Process(info) => Py::new(py, Process(info))?.into_any(),
            Event::Notice(notice) => {
                let (time_ns, text) = (notice.time, notice.text);
                Py::new(py, Notice { time_ns, text })?.into_any()
            }
            Event::Ledger(ledger) => Py::new(py, Account::of(&ledger))?.into_any(),
            Event::Function(info) => {
                self.functions.remove(&info.function.id);
                return Ok(None);
            }
            _ => return Ok(None),
        }))
    }

    /// The object for the next event of a stream that has one.
    pub(crate) fn next<R: Read + Seek + Send>(
        &mut self,
        py: Python<'_>,
        events: &mut Events<R>,
    ) -> PyResult<Option<Py<PyAny>>> {
        loop {
            match py.detach(|| events.next()) {
                None => return Ok(None),
                Some(Err(error)) => return Err(raised(&error)),
                Some(Ok(event)) => {
                    if let Some(object) = self.of(py, event)? {
                        return Ok(Some(object));
                    }
                }
            }
        }
    }
}

/// The events of a capture.
#[pyclass(module = "gputrace")]
pub(crate) struct Stream(Mutex<(Events<BufReader<File>>, Objects)>);

impl Stream {
    pub(crate) fn new(events: Events<BufReader<File>>) -> Self {
        Self(Mutex::new((events, Objects::default())))
    }
}

#[pymethods]
impl Stream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (events, objects) = &mut *inner;
        objects.next(py, events)
    }
}
