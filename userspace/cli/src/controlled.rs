//! A recording for another program: the recorder of the library `gputrace`'s sessions.
//!
//! The other program is at the other end of the socket on standard input ([`gputrace::wire`]). It
//! gets what is otherwise written for people, the capture's descriptor, and the outcome.

use std::{
    cell::RefCell,
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::ExitStatusExt,
    },
    rc::Rc,
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use gputrace::wire::{self, Asked, Ended, Said};
use gputrace_files::kernel;
use gputrace_session::{Finished, News, Order, Orders, Remote, record_for};
use rustix::{
    io::fcntl_dupfd_cloexec,
    net::{
        SocketType,
        sockopt::{socket_peercred, socket_type},
    },
    stdio::{dup2_stdin, stdin},
};

use crate::{args::RecordArgs, exit, record, say};

/// What is kept of a recording for another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kept {
    /// Nothing.
    #[value(name = "unkept")]
    Nothing,
    /// The capture.
    #[value(name = "kept")]
    Capture,
    /// The capture, and outputs made of it.
    #[value(name = "formats")]
    Formats,
}

/// Records for the program at the other end of standard input, and tells it what became of it.
pub(crate) fn run(args: &RecordArgs, kept: Kept) -> Result<u8> {
    if socket_type(stdin()) != Ok(SocketType::SEQPACKET) {
        say(
            "error: --controlled is for the library gputrace, which gives its recorder a socket as \
             standard input",
        );
        return Ok(exit::USAGE);
    }
    let socket = Arc::new(connection()?);
    let said = match record(args, kept, &socket) {
        Ok(said) => said,
        Err(error) => failed(&error),
    };
    tell(&socket, &said);
    Ok(0)
}

/// Records. Returns what became of it.
fn record(args: &RecordArgs, kept: Kept, socket: &Arc<OwnedFd>) -> Result<Said> {
    let mut request = match record::asked(args)? {
        Ok(request) => request,
        Err(text) => {
            return Ok(Said::Failed {
                status: exit::USAGE,
                text,
            });
        }
    };
    request.output.unkept = kept == Kept::Nothing;
    if kept != Kept::Formats {
        request.output.formats.list.clear();
    }
    for text in record::remarks(args, &request) {
        tell(socket, &Said::Line(text.to_owned()));
    }
    let orders = Rc::new(RefCell::new(None));
    let opened = {
        let (socket, orders) = (Arc::clone(socket), Rc::clone(&orders));
        move |capture: File| {
            let opened = Said::Opened {
                version: wire::VERSION.to_owned(),
            };
            wire::send(&*socket, &opened, Some(capture.as_fd()))?;
            // Not earlier: helpers are forked before, and a fork must not meet other threads.
            match orders.borrow_mut().take() {
                Some(orders) => listen(socket, orders),
                None => Ok(()),
            }
        }
    };
    let news = {
        let socket = Arc::clone(socket);
        move |news| {
            let said = match news {
                News::Began => Said::Began,
                News::Flushed(number) => Said::Flushed(number),
            };
            tell(&socket, &said);
        }
    };
    let (remote, sender) = Remote::new(opened, news);
    orders.replace(Some(sender));
    let finished = record_for(remote, &request, &|line| {
        tell(socket, &Said::Line(wire::short(line.as_str())));
    });
    Ok(ended(finished?))
}

/// The socket on standard input, which reads nothing from then on: a launched program must not
/// have it.
fn connection() -> Result<OwnedFd> {
    let socket = fcntl_dupfd_cloexec(stdin(), 3).context("cannot use standard input")?;
    dup2_stdin(kernel::open("/dev/null").context("cannot open /dev/null")?)
        .context("cannot replace standard input")?;
    Ok(socket)
}

/// Starts the thread that passes the other program's orders on.
fn listen(socket: Arc<OwnedFd>, orders: Orders) -> io::Result<()> {
    // As this process sees it: the other one may live in a container.
    let caller = socket_peercred(&*socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
    let caller = caller.cast_unsigned();
    let pass = move || {
        // Anything else than an order is a defect of the other program, and ends the recording.
        while let Ok(Some((asked, _))) = wire::receive::<Asked>(&*socket) {
            let order = match asked {
                Asked::Annotate(mut annotation) => {
                    annotation.pid = caller;
                    Order::Annotate(annotation)
                }
                Asked::Flush(number) => Order::Flush(number),
                Asked::Stop => Order::Stop,
                Asked::Pause => Order::Pause,
                Asked::Resume => Order::Resume,
                Asked::Passed(position) => Order::Passed(position),
            };
            if !orders.give(order) {
                break;
            }
        }
    };
    thread::Builder::new()
        .name("orders".to_owned())
        .spawn(pass)
        .map(drop)
}

/// Sends a message. If the other program has gone, the recording ends by itself.
fn tell(socket: &OwnedFd, message: &Said) {
    if let Err(error) = wire::send(socket, message, None)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        say(&format!(
            "a message to the controlling program was lost: {error}"
        ));
    }
}

/// What became of a recording.
fn ended(finished: Finished) -> Said {
    let Finished {
        capture,
        outputs,
        program,
        capture_failure,
        too_many,
        ..
    } = finished;
    if let Some(text) = capture_failure {
        return Said::Failed {
            status: exit::OUTPUT,
            text,
        };
    }
    if let Some((format, error)) = outputs.report.failures.first() {
        return Said::Failed {
            status: exit::OUTPUT,
            text: wire::short(&format!("{format}: {error}")),
        };
    }
    if let Some(error) = too_many {
        return failed(&error.into());
    }
    let outputs = outputs.report.outputs.into_iter().map(|output| output.path);
    Said::Ended(Ended {
        capture: Some(capture).filter(|path| !path.as_os_str().is_empty()),
        program: program.map(ExitStatusExt::into_raw),
        outputs: outputs.collect(),
    })
}

fn failed(error: &anyhow::Error) -> Said {
    Said::Failed {
        status: exit::code(error),
        text: wire::short(&exit::text(error)),
    }
}
