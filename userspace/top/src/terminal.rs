//! The terminal on which the screen is shown, and its keys.

use std::{
    cell::Cell,
    io::{self, Write},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use gputrace_export::OutputError;
use gputrace_text::{
    Line,
    terminal::{is_unread, say, stdout},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor, execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::read,
};

use crate::{
    jobs::Jobs,
    screen::{Asked, Key, Screen},
    view::Options,
};

/// Whether the terminal is in the state of a screen.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Restores the terminal, if a screen has it. For a program that ends while the view's thread still
/// runs.
pub fn restore() {
    if IS_TAKEN.swap(false, Ordering::AcqRel) {
        // Errors are ignored: the terminal may be gone.
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    }
}

/// Writes as long as the terminal is there. Afterwards, what is written is dropped: ratatui panics
/// if it can neither restore the cursor nor say so.
struct UntilGone {
    out: Box<dyn Write>,
    is_gone: Rc<Cell<bool>>,
}

impl Write for UntilGone {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_gone.get() {
            return Ok(bytes.len());
        }
        let written = self.out.write(bytes);
        unless_gone(written, bytes.len(), &self.is_gone)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_gone.get() {
            return Ok(());
        }
        let flushed = self.out.flush();
        unless_gone(flushed, (), &self.is_gone)
    }
}

/// The result of an access to the terminal; `otherwise`, if it is gone, which is then noted.
fn unless_gone<T>(result: io::Result<T>, otherwise: T, is_gone: &Cell<bool>) -> io::Result<T> {
    match result {
        Err(error) if is_gone_of(&error) => {
            is_gone.set(true);
            Ok(otherwise)
        }
        result => result,
    }
}

/// Whether an error says that the terminal is gone.
fn is_gone_of(error: &io::Error) -> bool {
    // Errors of standard output are typed, inside those of the system.
    let output = error.get_ref().and_then(|inner| inner.downcast_ref());
    is_unread(error, &stdout()) || output.is_some_and(OutputError::is_closed_pipe)
}

/// A terminal that shows a screen. Dropping it restores what was there before.
pub(crate) struct Shown {
    terminal: Terminal<CrosstermBackend<UntilGone>>,
    is_gone: Rc<Cell<bool>>,
    screen: Screen,
    jobs: Option<Jobs>,
}

impl Shown {
    /// Takes the terminal behind `out`. Keys come from standard input.
    ///
    /// # Errors
    ///
    /// When it is no terminal, or cannot be written.
    pub(crate) fn new(out: Box<dyn Write>, options: &Options) -> io::Result<Self> {
        let is_gone = Rc::new(Cell::new(false));
        let mut out = UntilGone {
            out,
            is_gone: Rc::clone(&is_gone),
        };
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Release);
        let entered = execute!(out, EnterAlternateScreen, cursor::Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(out)));
        let drawn = terminal.and_then(|terminal| {
            let mut shown = Self {
                terminal,
                is_gone,
                screen: Screen::new(options.group_by),
                jobs: options.start.map(Jobs::new),
            };
            shown.draw()?;
            Ok(shown)
        });
        drawn.inspect_err(|_| restore())
    }

    pub(crate) fn screen(&mut self) -> &mut Screen {
        &mut self.screen
    }

    pub(crate) fn draw(&mut self) -> io::Result<()> {
        let screen = &self.screen;
        let drawn = self.terminal.draw(|frame| screen.draw(frame));
        unless_gone(drawn.map(drop), (), &self.is_gone)
    }

    /// Does what the keys ask for that were pressed since the last time. Returns whether the user
    /// wants to end, or the terminal is gone.
    pub(crate) fn keys(&mut self) -> io::Result<bool> {
        let stdin = io::stdin();
        let mut is_new = false;
        loop {
            let mut files = [PollFd::new(&stdin, PollFlags::IN)];
            if poll(&mut files, Some(&Timespec::default()))? == 0 {
                break;
            }
            let mut bytes = [0; 64];
            // Without anything to read, the terminal has hung up.
            let count = read(&stdin, &mut bytes).map_err(io::Error::from);
            let count = unless_gone(count, 0, &self.is_gone)?;
            if count == 0 {
                return Ok(true);
            }
            for key in keys(bytes.get(..count).unwrap_or_default()) {
                match self.screen.key(key) {
                    Asked::End => return Ok(true),
                    Asked::Redraw => is_new = true,
                    Asked::Nothing => {}
                    Asked::Task(task) => {
                        is_new = true;
                        let told = self.jobs.as_mut().map(|jobs| jobs.toggle(task));
                        self.tell(told);
                    }
                }
            }
        }
        let ended = self.jobs.as_mut().map(Jobs::ended).unwrap_or_default();
        if !ended.is_empty() {
            is_new = true;
            self.tell(Some(ended.join("; ")));
        }
        if is_new {
            self.draw()?;
        }
        Ok(self.is_gone.get())
    }

    /// Shows a message, and which processes are being recorded.
    fn tell(&mut self, told: Option<String>) {
        let recorded = self.jobs.as_ref().map(Jobs::recorded).unwrap_or_default();
        self.screen.tell(told, recorded);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        restore();
        for told in self.jobs.as_mut().map(Jobs::finish).unwrap_or_default() {
            say(&Line::new(format_args!("gputrace: {told}")));
        }
    }
}

/// The keys that a terminal sends as `bytes`: ECMA-48 and xterm's control sequences. A sequence that
/// stands for another key is skipped.
pub(crate) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let text = String::from_utf8_lossy(bytes);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        keys.extend(match char {
            '\x03' => Some(Key::Interrupt),
            '\t' => Some(Key::Tab),
            '\r' | '\n' => Some(Key::Enter),
            '\x08' | '\x7f' => Some(Key::Backspace),
            '\x1b' if chars.next_if(|next| matches!(next, '[' | 'O')).is_some() => {
                match chars.find(|end| matches!(end, '\x40'..='\x7e')) {
                    Some('A') => Some(Key::Up),
                    Some('B') => Some(Key::Down),
                    _ => None,
                }
            }
            '\x1b' => Some(Key::Escape),
            char if char.is_control() || char == char::REPLACEMENT_CHARACTER => None,
            char => Some(Key::Char(char)),
        });
    }
    keys
}
