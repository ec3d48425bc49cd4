//! Sessions.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gputrace_library::{Builder, Control, Domain, Session as RustSession};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use crate::{events::Objects, raised};

/// The domain with this name.
pub(crate) fn domain(name: &str) -> PyResult<Domain> {
    (0..=u8::MAX)
        .filter_map(Domain::from_id)
        .find(|domain| domain.name() == name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no domain {name}")))
}

/// What `attach`, `launch` and `node` have in common.
struct Settings<'py> {
    domains: Option<Vec<String>>,
    options: Option<Vec<String>>,
    keep: Option<PathBuf>,
    recorder: Option<PathBuf>,
    env: Option<Bound<'py, PyDict>>,
}

fn start(py: Python<'_>, mut builder: Builder, settings: Settings<'_>) -> PyResult<Session> {
    for name in settings.domains.unwrap_or_default() {
        builder = builder.domains([domain(&name)?]);
    }
    for option in settings.options.unwrap_or_default() {
        builder = builder.option(option);
    }
    for (name, value) in settings.env.iter().flatten() {
        let (name, value): (String, String) = (name.extract()?, value.extract()?);
        builder = builder.env(name, value);
    }
    if let Some(path) = settings.keep {
        let name = path.file_stem().map(ToOwned::to_owned);
        let name = name.ok_or_else(|| PyValueError::new_err("keep is no path of a file"))?;
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        builder = builder.keep(directory.unwrap_or(std::path::Path::new(".")), name);
    }
    if let Some(recorder) = settings.recorder {
        builder = builder.recorder(recorder);
    }
    let session = py.detach(|| builder.start());
    let session = session.map_err(|error| raised(&error))?;
    Ok(Session {
        control: session.control(),
        inner: Mutex::new(Some((session, Objects::default()))),
    })
}

/// Follows running processes: one id or several.
#[pyfunction]
#[pyo3(signature = (pid, *more, domains=None, options=None, keep=None, recorder=None, env=None))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn attach(
    py: Python<'_>,
    pid: u32,
    more: Vec<u32>,
    domains: Option<Vec<String>>,
    options: Option<Vec<String>>,
    keep: Option<PathBuf>,
    recorder: Option<PathBuf>,
    env: Option<Bound<'_, PyDict>>,
) -> PyResult<Session> {
    let settings = Settings {
        domains,
        options,
        keep,
        recorder,
        env,
    };
    let builder = RustSession::builder().attach(pid);
    let builder = more.into_iter().fold(builder, Builder::attach);
    start(py, builder, settings)
}

/// Starts a program, given with its arguments as a list, and follows it from its first call.
#[pyfunction]
#[pyo3(signature = (command, *, domains=None, options=None, keep=None, recorder=None, env=None))]
pub(crate) fn launch(
    py: Python<'_>,
    command: Vec<std::ffi::OsString>,
    domains: Option<Vec<String>>,
    options: Option<Vec<String>>,
    keep: Option<PathBuf>,
    recorder: Option<PathBuf>,
    env: Option<Bound<'_, PyDict>>,
) -> PyResult<Session> {
    if command.is_empty() {
        return Err(PyValueError::new_err("the command is empty"));
    }
    let settings = Settings {
        domains,
        options,
        keep,
        recorder,
        env,
    };
    start(py, RustSession::builder().launch(command), settings)
}

/// Follows every process of the node.
#[pyfunction]
#[pyo3(signature = (*, domains=None, options=None, keep=None, recorder=None, env=None))]
pub(crate) fn node(
    py: Python<'_>,
    domains: Option<Vec<String>>,
    options: Option<Vec<String>>,
    keep: Option<PathBuf>,
    recorder: Option<PathBuf>,
    env: Option<Bound<'_, PyDict>>,
) -> PyResult<Session> {
    let settings = Settings {
        domains,
        options,
        keep,
        recorder,
        env,
    };
    start(py, RustSession::builder().node(), settings)
}

/// A running recording: a context manager, and an iterator over its events.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Session {
    control: Control,
    /// `None` when it was finished.
    inner: Mutex<Option<(RustSession, Objects)>>,
}

#[pymethods]
impl Session {
    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Ends the recording.
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.finish(py)?;
        Ok(false)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // A second thread must not wait here while it keeps Python from running.
        let Ok(mut inner) = self.inner.try_lock() else {
            return Err(PyRuntimeError::new_err("another thread takes the events"));
        };
        match &mut *inner {
            None => Ok(None),
            Some((session, objects)) => objects.next(py, session.events()),
        }
    }

    /// Ends the recording. What was recorded is still delivered, then the events end.
    fn stop(&self) {
        self.control.stop();
    }

    /// Records nothing that begins from now on.
    fn pause(&self) {
        self.control.pause();
    }

    /// Records again.
    fn resume(&self) {
        self.control.resume();
    }

    /// Marks this moment in the recording, in the events and in every output.
    fn mark(&self, text: &str) {
        self.control.mark(text);
    }

    /// A context manager that marks a range in the recording.
    fn range(&self, text: String) -> Range {
        Range {
            control: self.control.clone(),
            text,
            open: Mutex::new(None),
        }
    }

    /// Waits until every call that had ended before is delivered to the thread that takes events.
    /// Returns whether that happened within `seconds`.
    #[pyo3(signature = (seconds=10.0))]
    fn flush(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let limit = Duration::try_from_secs_f64(seconds);
        let limit = limit.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(py.detach(|| self.control.flush(limit)))
    }

    /// Takes the lines that the recorder has written for people.
    fn lines(&self) -> Vec<String> {
        self.control.take_lines()
    }

    /// Ends the recording and waits until nothing of it is left but its files. Returns the path of
    /// the capture, if it was kept.
    fn finish(&self, py: Python<'_>) -> PyResult<Option<PathBuf>> {
        self.control.stop();
        let session = py.detach(|| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.take().map(|(session, _)| session.finish())
        });
        match session {
            None => Ok(None),
            Some(Ok(finished)) => Ok(finished.capture),
            Some(Err(error)) => Err(raised(&error)),
        }
    }
}

/// A range in a recording.
#[pyclass(frozen, module = "gputrace")]
pub(crate) struct Range {
    control: Control,
    text: String,
    open: Mutex<Option<gputrace_library::Range>>,
}

#[pymethods]
impl Range {
    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        let range = slf.control.range(&slf.text);
        *slf.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(range);
        slf
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> bool {
        drop(
            self.open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        false
    }
}
