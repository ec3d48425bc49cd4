//! A terminal with a program on it: a pseudo terminal (pty(7)), whose other end is in the test.
//!
//! The program has it as its controlling terminal and as its standard input, output and error.
//! script(1) could do that too, but it stops itself when its program is stopped, and nobody makes
//! it go on.
//!
//! Nobody else reads what the program writes: it waits when the terminal's buffer is full, until
//! the test waits for something.

use std::{
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, ExitStatus},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read, write},
    process::{Pid, Signal, ioctl_tiocsctty, kill_process, kill_process_group, setsid},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    stdio::stdin,
    termios::{Winsize, tcsetwinsize},
};

use crate::process::{PATIENCE, eventually, on_this_machine, signals_by_default};

/// Columns and lines.
const SIZE: Winsize = Winsize {
    ws_col: 80,
    ws_row: 24,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// A terminal of 80 columns and 24 lines, and the program that was started on it.
#[derive(Debug)]
pub struct Terminal {
    /// The end of whoever sits before the terminal.
    master: OwnedFd,
    program: Program,
    /// What the terminal was sent so far.
    sent: Vec<u8>,
}

impl Terminal {
    /// Starts a program. Takes the command, because that holds the terminal open.
    ///
    /// # Panics
    /// If there are no more terminals, or the program cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let (master, slave) = open().expect("a pseudo terminal");
        let copy = || slave.try_clone().expect("another descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: only makes async-signal-safe calls.
        unsafe { command.pre_exec(signals_by_default) };
        // SAFETY: likewise.
        unsafe { command.pre_exec(take_terminal) };
        let child = command.spawn();
        Self {
            master,
            program: Program(child.unwrap_or_else(|error| panic!("{command:?}: {error}"))),
            sent: Vec::new(),
        }
    }

    /// What the terminal was sent up to the last wait, with all control sequences.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.sent).into_owned()
    }

    /// Waits until the terminal was sent `text`. A screen is sent only what changes: words, but not
    /// the spaces between them.
    ///
    /// # Panics
    /// If it is not, or the program ends before.
    pub fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + on_this_machine(PATIENCE);
        while !self.text().contains(text) {
            assert!(
                self.read_until(deadline),
                "the program ended before {text:?}: {:?}",
                self.text()
            );
        }
    }

    /// Types these keys.
    ///
    /// # Panics
    /// If nobody has the terminal open any more.
    pub fn press(&self, keys: &str) {
        let written = write(&self.master, keys.as_bytes());
        assert_eq!(written, Ok(keys.len()), "{:?}", self.text());
    }

    /// Sends a signal to the program alone.
    ///
    /// # Panics
    /// If it has ended and was waited for.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.program.pid(), signal).expect("a child that was not waited for");
    }

    /// Waits for the end of the program, and of all others on the terminal.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + on_this_machine(PATIENCE);
        while self.read_until(deadline) {}
        self.program.wait()
    }

    /// Hangs up, as when a window is closed, and waits for the end of the program.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn hang_up(self) -> ExitStatus {
        let Self {
            master,
            mut program,
            ..
        } = self;
        drop(master);
        program.wait()
    }

    /// Waits until the terminal is sent more, and takes it. Returns whether there was more: false
    /// when nobody has the terminal open any more.
    ///
    /// # Panics
    /// If nothing happens until `deadline`.
    fn read_until(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("minutes");
        let mut files = [PollFd::new(&self.master, PollFlags::IN)];
        match poll(&mut files, Some(&timeout)) {
            Err(Errno::INTR) => return true,
            ready => assert_ne!(ready, Ok(0), "waited in vain: {:?}", self.text()),
        }
        let mut bytes = [0; 4096];
        match read(&self.master, &mut bytes) {
            Ok(count) => self.sent.extend(&bytes[..count]),
            Err(Errno::INTR) => {}
            Err(Errno::IO) => return false,
            Err(error) => panic!("the terminal cannot be read: {error}"),
        }
        true
    }
}

/// Opens both ends of a pseudo terminal. It becomes nobody's controlling terminal by that.
fn open() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetwinsize(&slave, SIZE)?;
    Ok((master, slave))
}

/// Makes this process the leader of a session, and its standard input the session's terminal.
fn take_terminal() -> std::io::Result<()> {
    setsid()?;
    ioctl_tiocsctty(stdin())?;
    Ok(())
}

/// A process that is the leader of its group. The group is killed when this is dropped.
#[derive(Debug)]
struct Program(Child);

impl Program {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the program ends", PATIENCE, || {
            status = self.0.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("the program has ended")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Errors cannot be handled here. A process that was waited for is not waited for again.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Terminal {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Terminal::start(command)
    }

    #[test]
    fn a_program_has_a_terminal_of_its_own() {
        let mut terminal = shell("stty size; tty </dev/tty; read line; echo got $line; exit 3");
        terminal.wait_for("24 80\r\n/dev/");
        terminal.press("a key\n");
        assert_eq!(terminal.wait().code(), Some(3));
        // The terminal echoes what is typed.
        let text = terminal.text();
        assert!(text.ends_with("a key\r\ngot a key\r\n"), "{text:?}");
    }

    #[test]
    fn what_is_sent_is_whole_although_nobody_reads_it_at_first() {
        let mut terminal = shell("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done");
        terminal.wait_for("0\r\n");
        assert!(terminal.wait().success());
        let expected: Vec<String> = (0..20000).map(|number| format!("{number}\r\n")).collect();
        assert!(terminal.text() == expected.concat());
    }

    #[test]
    fn a_terminal_that_hangs_up_tells_its_program() {
        let mut terminal = shell("trap 'exit 7' HUP; echo ready; while :; do read line; done");
        terminal.wait_for("ready");
        assert_eq!(terminal.hang_up().code(), Some(7));
    }

    #[test]
    #[should_panic(expected = "ended before")]
    fn what_never_comes_is_not_waited_for() {
        shell("echo one").wait_for("two");
    }
}
