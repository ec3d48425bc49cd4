//! The terminal on which the screen is shown, and its keys.

use std::{
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use gputrace_text::terminal::stdout;

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor,
        event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

use crate::screen::{Asked, Key, Screen};

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

/// A terminal that shows a screen. Dropping it restores what was there before.
pub(crate) struct Shown {
    terminal: Terminal<CrosstermBackend<Box<dyn Write>>>,
    screen: Screen,
}

impl Shown {
    /// Takes the terminal behind `out`. Keys come from standard input.
    ///
    /// # Errors
    ///
    /// When it is no terminal, or cannot be written.
    pub(crate) fn new(mut out: Box<dyn Write>) -> io::Result<Self> {
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Release);
        let entered = execute!(out, EnterAlternateScreen, cursor::Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(out)));
        let drawn = terminal.and_then(|terminal| {
            let mut shown = Self {
                terminal,
                screen: Screen::default(),
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
        self.terminal.draw(|frame| screen.draw(frame))?;
        Ok(())
    }

    /// Does what the keys ask for that were pressed since the last time. Returns whether the user
    /// wants to end.
    pub(crate) fn keys(&mut self) -> io::Result<bool> {
        let mut is_new = false;
        while poll(Duration::ZERO)? {
            let asked = match read()? {
                Event::Key(event) if event.kind != KeyEventKind::Release => {
                    key(event).map_or(Asked::Nothing, |key| self.screen.key(key))
                }
                Event::Resize(..) => Asked::Redraw,
                _ => Asked::Nothing,
            };
            match asked {
                Asked::End => return Ok(true),
                Asked::Redraw => is_new = true,
                Asked::Nothing => {}
            }
        }
        if is_new {
            self.draw()?;
        }
        Ok(false)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        restore();
    }
}

fn key(event: KeyEvent) -> Option<Key> {
    let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Tab => Key::Tab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
