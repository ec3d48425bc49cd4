//! The Python module `gputrace`: the library `gputrace` for Python.

mod events;
mod session;
mod tables;

use gputrace_library::{Capture as RustCapture, Cause, Error as RustError};
use pyo3::{create_exception, exceptions::PyException, prelude::*};

use crate::{events::Stream, tables::Table};

create_exception!(
    gputrace,
    Error,
    PyException,
    "Why a session or a capture cannot be used: the text says what to do; `cause` is its kind."
);

/// A Rust error in Python.
pub(crate) fn raised(error: &RustError) -> PyErr {
    let cause = match error {
        RustError::Start { .. } => "start",
        RustError::Version { .. } => "version",
        RustError::Read(_) => "capture",
        RustError::Domain(_) => "usage",
        RustError::Refused { cause, .. } => match cause {
            Cause::Usage => "usage",
            Cause::NoTarget => "no_target",
            Cause::NoRocm => "no_rocm",
            Cause::Untraceable => "untraceable",
            Cause::NoPermission => "no_permission",
            Cause::Kernel => "kernel",
            Cause::Output | Cause::Exists => "output",
            Cause::Library => "library",
            _ => "recorder",
        },
        _ => "recorder",
    };
    let raised = Error::new_err(error.to_string());
    Python::attach(|py| {
        // The exception is raised in any case.
        let _ = raised.value(py).setattr("cause", cause);
    });
    raised
}

/// A capture in a file.
#[pyclass(frozen, module = "gputrace")]
struct Capture(RustCapture);

#[pymethods]
impl Capture {
    /// The host on which it was recorded.
    #[getter]
    fn hostname(&self) -> &str {
        &self.0.recording().hostname
    }

    /// The version of gputrace that recorded it.
    #[getter]
    fn version(&self) -> &str {
        &self.0.recording().tool_version
    }

    /// The command line of gputrace.
    #[getter]
    fn command(&self) -> Vec<String> {
        self.0.recording().command.clone()
    }

    /// The domains that were recorded.
    #[getter]
    fn domains(&self) -> Vec<String> {
        self.0.recording().domains.clone()
    }

    /// The capture's events, from the beginning.
    fn __iter__(&self) -> PyResult<Stream> {
        let events = self.0.events().map_err(|error| raised(&error))?;
        Ok(Stream::new(events))
    }

    /// API calls and markers, as a table.
    #[getter]
    fn calls(&self, py: Python<'_>) -> PyResult<Table> {
        tables::calls(py, &self.0, None)
    }

    /// Kernel dispatches, as a table.
    #[getter]
    fn kernels(&self, py: Python<'_>) -> PyResult<Table> {
        tables::kernels(py, &self.0, None)
    }

    /// Memory copies, as a table.
    #[getter]
    fn copies(&self, py: Python<'_>) -> PyResult<Table> {
        tables::copies(py, &self.0, None)
    }

    /// A table by its name (`calls`, `kernels` or `copies`), with some of its columns: this is
    /// faster and takes less memory.
    #[pyo3(signature = (name, columns=None))]
    fn table(&self, py: Python<'_>, name: &str, columns: Option<Vec<String>>) -> PyResult<Table> {
        match name {
            "calls" => tables::calls(py, &self.0, columns),
            "kernels" => tables::kernels(py, &self.0, columns),
            "copies" => tables::copies(py, &self.0, columns),
            _ => Err(pyo3::exceptions::PyKeyError::new_err(format!(
                "there is no table {name}: use calls, kernels or copies"
            ))),
        }
    }

    fn __repr__(&self) -> String {
        format!("<gputrace.Capture of {}>", self.0.recording().hostname)
    }
}

/// Opens a capture (`.gtcap`). No root is needed.
#[pyfunction]
fn read(path: std::path::PathBuf) -> PyResult<Capture> {
    RustCapture::open(path)
        .map(Capture)
        .map_err(|error| raised(&error))
}

/// Names of the functions of a domain, e.g. `HIP_RUNTIME_API`, that this version knows.
#[pyfunction]
fn operations(domain: &str) -> PyResult<Vec<&'static str>> {
    Ok(gputrace_library::operations(session::domain(domain)?))
}

/// Follow AMD GPU work of other processes, and read captures.
#[pymodule]
fn gputrace(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Capture>()?;
    module.add_class::<Table>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Range>()?;
    module.add_class::<events::Call>()?;
    module.add_class::<events::Dispatch>()?;
    module.add_class::<events::Copy>()?;
    module.add_class::<events::Process>()?;
    module.add_class::<events::Notice>()?;
    module.add_class::<events::Account>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(operations, module)?)?;
    module.add_function(wrap_pyfunction!(session::attach, module)?)?;
    module.add_function(wrap_pyfunction!(session::launch, module)?)?;
    module.add_function(wrap_pyfunction!(session::node, module)?)
}
