//! The program of a round, and what it does when nobody traces it.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use gputrace_e2e::{Bench, Running};

use crate::{plan::Round, shared::Shared};

/// What a program printed, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Standard output.
    pub text: String,
    /// Its end.
    pub status: ExitStatus,
}

/// The workload with the arguments of a round.
#[derive(Debug)]
pub struct Target<'a> {
    bench: &'a Bench,
    round: &'a Round,
    /// Processes that live at once in the first action of each pass.
    crowd: u32,
}

impl<'a> Target<'a> {
    /// The program of `round`. `crowd` processes live at once in the first action of each of its
    /// passes.
    #[must_use]
    pub fn new(bench: &'a Bench, round: &'a Round, crowd: u32) -> Self {
        Self {
            bench,
            round,
            crowd,
        }
    }

    /// Whether hosts of its processes live at once.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowd > 0
    }

    /// The program with its arguments: `passes` times through its actions, or until it is told to
    /// stop (0).
    #[must_use]
    pub fn words(&self, passes: u32, shared: &Path) -> Vec<PathBuf> {
        let program = self.bench.program("chaos/chaos");
        let libraries = program.parent().unwrap_or(Path::new("/")).to_owned();
        let numbers = [self.round.seed, self.round.steps, u64::from(passes)];
        let mut words = vec![program];
        words.extend(numbers.map(|number| number.to_string().into()));
        words.extend([shared.to_owned(), libraries, self.crowd.to_string().into()]);
        words
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it does not begin.
    #[must_use]
    pub fn start(&self, passes: u32, shared: &Shared) -> Running {
        let words = self.words(passes, shared.path());
        let mut words = words.iter();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        let running = Running::start("chaos", &mut command);
        running.wait_for_stdout("ready");
        running
    }

    /// Runs it by itself.
    ///
    /// # Panics
    /// If it does not end, or could not do what it is there for.
    #[must_use]
    pub fn alone(&self, shared: &Shared) -> Seen {
        let mut program = self.start(1, shared);
        let status = program.wait();
        let text = program.stdout();
        assert!(
            !text.contains("userfaultfd:") && status.code() != Some(99),
            "the program could not do all: {status}: {}",
            program.describe()
        );
        Seen { text, status }
    }
}
