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

/// The name (`argv[0]`) by which a process recognises that it is a helper.
pub(crate) const NAME: &str = "gputrace-reader";

/// Maximum size of the data after a request's head: that of a run; addresses and names are shorter.
const MOST_BYTES: usize = run::QUESTION;

/// If this process was started as a helper, serves as one and does not return. Call it before
/// anything else.
pub fn serve_if_asked() {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(NAME)) {
        let served = serve(io::stdin().as_fd());
        std::process::exit(i32::from(served.is_err()));
    }
}

/// Answers until the other end closes the socket.
fn serve(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // Needed while the helper is blocked by a process, when it cannot notice the end of the socket.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // If this fails, looks come late but are still valid.
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

/// Reports that the helper is ready. Starting may take long on busy disks or processors, which must
/// not be blamed on the process that is read first. So the helper first does once what an answer
/// needs.
fn greet(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let me = std::process::id();
    // The result does not matter; afterwards, the code is in memory.
    let mut byte = [0];
    let _ = direct::memory(me, (&raw const byte).addr() as u64, &mut byte);
    let _ = direct::file(me, "stat", 1);
    // Keeps the code in memory if that is permitted; otherwise it may have to be read from disk
    // again.
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
