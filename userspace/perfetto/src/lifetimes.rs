//! Draws begins, ends and names of processes and threads.

use std::io::{self, Write};

use gputrace_timeline::event::{Lifetime, LifetimeChange};

use crate::{
    sequence::{EventType, Sequence, Value},
    tracks::Tracks,
};

/// Category of the instants.
const CATEGORY: &str = "lifetime";

/// Draws a change as an instant on the track of its thread, and keeps tracks and names up to date.
pub(crate) fn change<W: Write>(
    out: &mut Sequence<W>,
    tracks: &mut Tracks,
    lifetime: &Lifetime,
) -> io::Result<()> {
    let Lifetime {
        time,
        pid,
        tid,
        what,
    } = lifetime;
    let (pid, tid) = (*pid, *tid);
    let (title, annotation) = match what {
        LifetimeChange::ProcessStarted { parent } => {
            tracks.process_started(pid);
            let parent = Value::Uint((*parent).into());
            ("process started".to_owned(), Some(("parent", parent)))
        }
        LifetimeChange::ThreadStarted { .. } => {
            tracks.thread_started(out, pid, tid)?;
            ("thread started".to_owned(), None)
        }
        LifetimeChange::Executed { name } => {
            tracks.executed(pid, name);
            (
                format!("executed {name}"),
                Some(("name", Value::Text(name))),
            )
        }
        LifetimeChange::Exited => {
            tracks.thread(out, pid, tid)?.exited();
            ("exited".to_owned(), None)
        }
        LifetimeChange::Renamed { name } => {
            tracks.know_thread(pid, tid, name);
            (
                format!("renamed to {name}"),
                Some(("name", Value::Text(name))),
            )
        }
    };
    let track = match what {
        // The kernel renames a thread that executes another program just before the exec event: the
        // name may belong to the next track. If nothing has been drawn yet, the track's name is
        // enough.
        LifetimeChange::Renamed { .. } => match tracks.drawn(pid, tid) {
            Some(track) => track,
            None => return Ok(()),
        },
        _ => tracks.thread(out, pid, tid)?.track(),
    };
    out.bound_interning()?;
    out.event(*time, EventType::Instant, track, |event| {
        event.rare_title(CATEGORY, &title);
        if let Some((name, value)) = annotation {
            event.annotations().named(name, value);
        }
    })
}
