//! The limit on open files. Probes are descriptors (perf events need two per function), and shells
//! often allow only 1024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit before it was raised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(Option<Rlimit>);

/// Raises the limit of this process as far as permitted. Programs that it starts should get the old
/// limit back ([`Before::restore`]): `select(2)` cannot handle higher descriptors.
pub(crate) fn raise() -> Before {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    // If the limit cannot be raised, the kernel may refuse a probe, which is reported then.
    Before(setrlimit(Resource::Nofile, raised).ok().map(|()| before))
}

impl Before {
    /// Restores the limit. May be called between `fork(2)` and `execve(2)`.
    pub(crate) fn restore(&self) -> std::io::Result<()> {
        match &self.0 {
            Some(before) => Ok(setrlimit(Resource::Nofile, *before)?),
            None => Ok(()),
        }
    }
}
