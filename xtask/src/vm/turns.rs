//! Orders the messages of guests that run at the same time.
//!
//! The first guest's messages are shown as they come; those of the others are kept until the guests
//! before them are done. So a report reads as if the guests had run one after the other.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::progress;

/// Whose turn it is, and the kept messages of the others.
pub(super) struct Turns {
    state: Mutex<State>,
}

struct State {
    screen: Box<dyn Write + Send>,
    /// Number of the speaker whose messages are shown at once.
    turn: usize,
    speakers: Vec<Speaker>,
}

#[derive(Clone, Debug, Default)]
struct Speaker {
    kept: String,
    is_done: bool,
}

/// A speaker. It is done when this is dropped.
pub(super) struct Voice<'a> {
    turns: &'a Turns,
    number: usize,
}

impl Turns {
    /// Creates turns for `count` speakers on standard error.
    pub(super) fn new(count: usize) -> Self {
        Self::on(Box::new(io::stderr()), count)
    }

    fn on(screen: Box<dyn Write + Send>, count: usize) -> Self {
        let speakers = vec![Speaker::default(); count];
        let state = State {
            screen,
            turn: 0,
            speakers,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// The speaker `number`, counted from 0.
    pub(super) fn voice(&self, number: usize) -> Voice<'_> {
        Voice {
            turns: self,
            number,
        }
    }

    fn with_state(&self, change: impl FnOnce(&mut State)) {
        // A thread that panicked has left only complete texts behind.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
    }
}

impl State {
    /// Shows `text`. If writing fails, nobody reads it.
    fn show(&mut self, text: &str) {
        let _ = self.screen.write_all(text.as_bytes());
    }
}

impl Voice<'_> {
    /// As [`progress::heading`].
    pub(super) fn heading(&self, text: fmt::Arguments<'_>) {
        self.say(&progress::heading_text(text));
    }

    /// As [`progress::note`].
    pub(super) fn note(&self, text: fmt::Arguments<'_>) {
        self.say(&progress::note_text(text));
    }

    /// As [`progress::line`].
    pub(super) fn line(&self, state: &str, text: fmt::Arguments<'_>, took: Duration) {
        self.say(&progress::line_text(state, text, took));
    }

    fn say(&self, text: &str) {
        self.turns.with_state(|state| {
            if state.turn == self.number {
                state.show(text);
            } else if let Some(speaker) = state.speakers.get_mut(self.number) {
                speaker.kept.push_str(text);
            }
        });
    }
}

impl Drop for Voice<'_> {
    fn drop(&mut self) {
        self.turns.with_state(|state| {
            if let Some(speaker) = state.speakers.get_mut(self.number) {
                speaker.is_done = true;
            }
            while state
                .speakers
                .get(state.turn)
                .is_some_and(|speaker| speaker.is_done)
            {
                state.turn += 1;
                let next = state.speakers.get_mut(state.turn);
                let kept = next.map(|speaker| std::mem::take(&mut speaker.kept));
                state.show(&kept.unwrap_or_default());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakers_are_shown_one_after_the_other() {
        let (screen, writer) = io::pipe().unwrap();
        let turns = Turns::on(Box::new(writer), 3);
        let (first, second, third) = (turns.voice(0), turns.voice(1), turns.voice(2));
        second.say("b1 ");
        first.say("a1 ");
        third.say("c1 ");
        drop(third);
        second.say("b2 ");
        first.say("a2 ");
        drop(first);
        second.say("b3 ");
        drop(second);
        drop(turns);
        assert_eq!(io::read_to_string(screen).unwrap(), "a1 a2 b1 b2 b3 c1 ");
    }
}
