//! The limit on open files. Probes are descriptors, by perf events two for each function, and shells often allow only 1024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the limit was before it was raised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(Option<Rlimit>);

/// Raises the limit of this process as far as it may be raised. Programs that it starts are to have the old one again
/// ([`Before::restore`]): `select(2)` is of no use with higher descriptors.
pub(crate) fn raise() -> Before {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    // Where it may not be raised, the kernel's refusal of a probe will be told.
    Before(setrlimit(Resource::Nofile, raised).ok().map(|()| before))
}

impl Before {
    /// Sets the limit as it was. May be called between `fork(2)` and `execve(2)`.
    pub(crate) fn restore(&self) -> std::io::Result<()> {
        match &self.0 {
            Some(before) => Ok(setrlimit(Resource::Nofile, *before)?),
            None => Ok(()),
        }
    }
}
