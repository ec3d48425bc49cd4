//! Looks at all processes of the node, in a separate thread.
//!
//! The kernel reports the code that processes map ([`MappingNews`]), which costs those processes
//! and this thread next to nothing. So the memory maps of processes are read only when a recording
//! begins and when reports were lost, and then only for processes whose code has changed since the
//! last reading. Where the kernel does not report mappings, the recorder requests a survey from
//! time to time, and watches dynamic linkers.
//!
//! A survey takes at most [`SHARE`] of a processor once the recording has begun. Findings go to the
//! recorder, merged into one message per process.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    io,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use gputrace_collect::clocks;
use gputrace_tracee::process::{
    self, CodeState,
    maps::{self, Mapping},
    news::{FileNumber, MappingNews},
};

use crate::{
    inbox::{Message, Post},
    probing::tools,
};

/// Share of a processor that a survey may take: 2 %.
const SHARE: f64 = 0.02;
/// How often to check whether a processor has come online.
const PROCESSORS_EVERY: Duration = Duration::from_secs(1);
/// Number of the first survey.
pub(crate) const FIRST: u64 = 0;
/// Maximum number of remembered files. When it is reached, all are forgotten and looked at once
/// more.
const FILES: usize = 1 << 16;

/// Which mapped code is of interest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interest {
    /// ROCm's libraries, and tools in the same process.
    Rocm,
    /// Any file may be of interest: each is looked at once.
    Any,
}

impl Interest {
    fn has(self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| {
            !gputrace_catalog::library_domains(name).is_empty() || tools::is_tool(name)
        })
    }
}

/// The scanning thread. It ends when this is dropped, but nobody waits for it: the processes that
/// it looks at can delay it.
#[derive(Debug)]
pub(crate) struct Scanner {
    asks: Sender<u64>,
    /// Number of the last survey requested.
    asked: u64,
    /// Why the kernel does not report mappings.
    blind: Option<io::Error>,
}

impl Scanner {
    /// Starts with a survey, which ends with [`Message::Surveyed`] and the number [`FIRST`].
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn start(interest: Interest, post: Post) -> io::Result<Self> {
        // Opened before the first look, so that no mapping falls between the two.
        let (news, blind) = match MappingNews::open() {
            Ok(news) => (Some(news), None),
            Err(error) => (None, Some(error)),
        };
        let (asks, orders) = channel();
        let scan = Scan::new(interest, news, post);
        thread::Builder::new()
            .name("scanner".to_owned())
            .spawn(move || scan.run(&orders))?;
        Ok(Self {
            asks,
            asked: FIRST,
            blind,
        })
    }

    /// If new libraries are found only by surveys, the reason.
    pub(crate) fn blind(&self) -> Option<&io::Error> {
        self.blind.as_ref()
    }

    /// Requests a survey that begins after this call. It reports all processes with code of
    /// interest again, and ends with [`Message::Surveyed`] and the returned number or a higher one.
    pub(crate) fn survey(&mut self) -> u64 {
        self.asked += 1;
        // This fails only if the thread has ended; then there is nobody to ask.
        let _ = self.asks.send(self.asked);
        self.asked
    }
}

/// State of a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    state: CodeState,
    of_interest: bool,
    /// Number of the survey that last saw it.
    survey: u64,
}

/// A survey in progress.
#[derive(Debug)]
struct Survey {
    left: VecDeque<u32>,
    /// When the previous survey began, ns `CLOCK_BOOTTIME`: new code was mapped after that.
    since: Option<u64>,
    /// Number under which the survey was requested, if it was. Then processes are reported even if
    /// their code is unchanged.
    asked: Option<u64>,
}

/// State of the scanning thread.
struct Scan {
    interest: Interest,
    news: Option<MappingNews>,
    post: Post,
    seen: HashMap<u32, Seen>,
    /// Files whose mapping has been reported, if any file can be of interest.
    files: HashSet<FileNumber>,
    survey: Option<Survey>,
    /// Whether another survey is to follow, and its number if it was requested.
    wanted: Option<Option<u64>>,
    surveys: u64,
    /// When the last survey began, and when reports were last read, ns `CLOCK_BOOTTIME`.
    last: Option<u64>,
    looked: u64,
    processors_due: Instant,
    buffer: Vec<u8>,
}

impl Scan {
    fn new(interest: Interest, news: Option<MappingNews>, post: Post) -> Self {
        Self {
            interest,
            news,
            post,
            seen: HashMap::new(),
            files: HashSet::new(),
            survey: None,
            wanted: Some(Some(FIRST)),
            surveys: 0,
            last: None,
            looked: clocks::now(),
            processors_due: Instant::now() + PROCESSORS_EVERY,
            buffer: Vec::new(),
        }
    }

    fn run(mut self, orders: &Receiver<u64>) {
        loop {
            let is_first = self.surveys <= 1 && (self.survey.is_some() || self.wanted.is_some());
            let pause = if is_first {
                Duration::ZERO
            } else {
                MappingNews::EVERY
            };
            match orders.recv_timeout(pause) {
                Ok(number) => self.wanted = Some(Some(number)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
            self.more_processors();
            if self.survey.is_none()
                && let Some(asked) = self.wanted.take()
            {
                self.begin(asked);
            }
            self.go_on(MappingNews::EVERY.mul_f64(if is_first { 1.0 } else { SHARE }));
        }
    }

    /// Passes on the mappings since the last look.
    fn look(&mut self) {
        let Some(news) = &mut self.news else { return };
        let since = std::mem::replace(&mut self.looked, clocks::now());
        let (interest, files) = (self.interest, &mut self.files);
        let mut pids = BTreeSet::new();
        let lost = news.look(|mapping| {
            let mut is_new = || match interest {
                Interest::Any => {
                    if files.len() >= FILES {
                        files.clear();
                    }
                    files.insert(mapping.file)
                }
                Interest::Rocm => false,
            };
            if interest.has(mapping.path) || is_new() {
                pids.insert(mapping.pid);
            }
        });
        for pid in pids {
            self.post.put(Message::Mapped {
                pid,
                since: Some(since),
            });
        }
        if lost {
            tracing::debug!("news of mapped code was lost");
            self.wanted.get_or_insert(None);
        }
    }

    fn more_processors(&mut self) {
        let Some(news) = &mut self.news else { return };
        let now = Instant::now();
        if now < self.processors_due {
            return;
        }
        self.processors_due = now + PROCESSORS_EVERY;
        match news.more_processors() {
            Ok(false) => {}
            Ok(true) => {
                self.wanted.get_or_insert(None);
            }
            Err(error) => tracing::debug!("a new processor is not listened to: {error}"),
        }
    }

    fn begin(&mut self, asked: Option<u64>) {
        self.surveys += 1;
        let since = self.last.replace(clocks::now());
        // Processes that cannot be listed now are found by the next survey.
        let left = process::pids().unwrap_or_default().into();
        self.survey = Some(Survey { left, since, asked });
    }

    /// Looks at processes for about `slice`.
    fn go_on(&mut self, slice: Duration) {
        let Some(mut survey) = self.survey.take() else {
            return;
        };
        let end = Instant::now() + slice;
        while let Some(pid) = survey.left.pop_front() {
            self.visit(pid, &survey);
            if Instant::now() >= end {
                break;
            }
        }
        if !survey.left.is_empty() {
            self.survey = Some(survey);
            return;
        }
        let number = self.surveys;
        self.seen.retain(|_, seen| seen.survey == number);
        // Mappings made after their process was looked at are reported before the end of the
        // survey.
        self.look();
        if let Some(number) = survey.asked {
            self.post.put(Message::Surveyed(number));
        }
    }

    fn visit(&mut self, pid: u32, survey: &Survey) {
        let Some(state) = process::code_state(pid) else {
            return;
        };
        let before = self.seen.get(&pid).filter(|seen| seen.state == state);
        let (of_interest, is_new) = match before {
            Some(seen) => (seen.of_interest, false),
            None => (self.has_code(pid), true),
        };
        self.seen.insert(
            pid,
            Seen {
                state,
                of_interest,
                survey: self.surveys,
            },
        );
        if of_interest && (is_new || survey.asked.is_some()) {
            self.post.put(Message::Mapped {
                pid,
                since: survey.since,
            });
        }
    }

    /// Whether a process has mapped code of interest. False for a process that is gone or may not
    /// be inspected.
    fn has_code(&mut self, pid: u32) -> bool {
        let interest = self.interest;
        let wanted = |mapping: &Mapping| {
            let path = mapping.path();
            match interest {
                Interest::Any => path.is_absolute(),
                Interest::Rocm => interest.has(&path),
            }
        };
        maps::any_code(pid, &mut self.buffer, wanted).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Processes that are reported until `done`.
    fn told(inbox: &Inbox, mut done: impl FnMut(&Message) -> bool) -> Vec<u32> {
        let deadline = Instant::now() + PATIENCE;
        let mut pids = Vec::new();
        loop {
            assert!(Instant::now() < deadline, "only {pids:?} were told of");
            match inbox.try_take() {
                Some(message) if done(&message) => return pids,
                Some(Message::Mapped { pid, .. }) => pids.push(pid),
                Some(_) => {}
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn a_survey_names_each_process_once_and_again_when_asked() {
        let inbox = Inbox::default();
        let mut scanner = Scanner::start(Interest::Any, inbox.post()).unwrap();
        let me = std::process::id();
        let mut number = FIRST;
        for _ in 0..2 {
            let pids = told(
                &inbox,
                |message| matches!(message, Message::Surveyed(this) if *this == number),
            );
            assert!(pids.contains(&me), "{pids:?}");
            number = scanner.survey();
        }
    }

    #[test]
    fn nobody_here_uses_rocm() {
        let inbox = Inbox::default();
        let _scanner = Scanner::start(Interest::Rocm, inbox.post()).unwrap();
        let pids = told(&inbox, |message| {
            matches!(message, Message::Surveyed(FIRST))
        });
        assert!(!pids.contains(&std::process::id()));
    }

    #[test]
    fn what_is_mapped_later_is_told_of() {
        let inbox = Inbox::default();
        let scanner = Scanner::start(Interest::Rocm, inbox.post()).unwrap();
        if let Some(error) = scanner.blind() {
            assert!(
                std::env::var_os("GPUTRACE_REQUIRE_BPF").is_none(),
                "{error}"
            );
            return gputrace_skip::skipped(&error.to_string());
        }
        told(&inbox, |message| {
            matches!(message, Message::Surveyed(FIRST))
        });
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("libamdhip64.so.99");
        std::fs::copy("/bin/true", &program).unwrap();
        let mut child = std::process::Command::new(&program).spawn().unwrap();
        let pid = child.id();
        told(
            &inbox,
            |message| matches!(message, Message::Mapped { pid: found, since: Some(_) } if *found == pid),
        );
        child.wait().unwrap();
    }

    #[test]
    fn names_of_interest() {
        for (path, expected) in [
            ("/opt/rocm/lib/libamdhip64.so.6", true),
            ("/x/libhsa-runtime64.so.1", true),
            ("/x/librocprofiler-sdk-tool.so.1", true),
            ("/lib/libc.so.6", false),
            ("/", false),
        ] {
            assert_eq!(Interest::Rocm.has(Path::new(path)), expected, "{path}");
        }
    }
}
