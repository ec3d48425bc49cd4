//! The helper process.

use std::{
    ffi::OsStr,
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{
    io::Errno,
    mm::MlockAllFlags,
    net::{RecvFlags, SendFlags},
    process::Signal,
};

use crate::{
    direct,
    message::{ANSWER, Answer, PIECE, PLACES, QUESTION, Question, What},
    run::{self, Run},
};

/// The name (`argv[0]`) by which a process knows that it is a helper.
pub(crate) const NAME: &str = "gputrace-reader";

/// The most that follows a question: a run; addresses and names are shorter.
const MOST_BYTES: usize = run::QUESTION;

/// Serves as a helper, and does not return, if that is what this process was started for. To be
/// called before anything else.
pub fn serve_if_asked() {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(NAME)) {
        let served = serve(io::stdin().as_fd());
        std::process::exit(i32::from(served.is_err()));
    }
}

/// Answers until nobody asks any more.
fn serve(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // Also while it waits for a process, which an end of the socket would not tell it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Without it looks come late, and are looks all the same.
    let _ = run::wake_in_time();
    greet(socket)?;
    let mut question = [0; QUESTION + MOST_BYTES];
    loop {
        let (got, _) = match rustix::net::recv(socket, &mut question[..], RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            got => got?,
        };
        if got == 0 {
            return Ok(());
        }
        let question =
            Question::decode(question.get(..got).unwrap_or_default()).ok_or(Errno::INVAL)?;
        answer(socket, question)?;
    }
}

/// Says that it is ready. Starting may take long where disks or processors are busy, which is not the
/// fault of the process that is asked about first. So it has done by now what an answer needs.
fn greet(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let me = std::process::id();
    // What comes of it is of no interest: its code is in memory afterwards.
    let mut byte = [0];
    let _ = direct::memory(me, (&raw const byte).addr() as u64, &mut byte);
    let _ = direct::file(me, "stat", 1);
    // It stays there if that is allowed, and is brought from disk again if not.
    let _ = rustix::mm::mlockall(
        MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT,
    );
    let greeting = Answer {
        error: 0,
        goes_on: false,
        bytes: &[],
    };
    rustix::net::send(socket, &greeting.encode(), SendFlags::NOSIGNAL)?;
    Ok(())
}

fn answer(socket: BorrowedFd<'_>, question: Question<'_>) -> Result<(), Errno> {
    let read = match question.what {
        What::Memory { address } => {
            let length = usize::try_from(question.length).unwrap_or(PIECE).min(PIECE);
            let mut bytes = vec![0; length];
            direct::memory(question.pid, address, &mut bytes).map(|got| {
                bytes.truncate(got);
                bytes
            })
        }
        What::File(name) => direct::file(question.pid, name, question.length),
        What::Places(places) => {
            let (addresses, _) = places.as_chunks::<8>();
            let each = usize::try_from(question.length).unwrap_or(PIECE);
            direct::places(
                question.pid,
                addresses.iter().map(|address| u64::from_ne_bytes(*address)),
                each.min(PIECE / PLACES - 1),
            )
        }
        What::Run(bytes) => match Run::decode(question.length, bytes) {
            Some(run) => Ok(run::encode(&run.look())),
            None => Err(Errno::INVAL.into()),
        },
    };
    let (error, bytes) = match read {
        Ok(bytes) => (0, bytes),
        Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
    };
    let mut rest = bytes.as_slice();
    loop {
        let (piece, behind) = rest.split_at(rest.len().min(PIECE));
        let packet = Answer {
            error,
            goes_on: !behind.is_empty(),
            bytes: piece,
        };
        debug_assert!(packet.bytes.len() + ANSWER <= PIECE + ANSWER, "one packet");
        rustix::net::send(socket, &packet.encode(), SendFlags::NOSIGNAL)?;
        if behind.is_empty() {
            return Ok(());
        }
        rest = behind;
    }
}
