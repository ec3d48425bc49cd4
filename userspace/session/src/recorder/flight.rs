//! Decides when a flight recorder dumps what it has kept.

use std::{
    collections::VecDeque, future::pending, os::unix::process::ExitStatusExt as _, path::PathBuf,
};

use gputrace_capture::{
    flight::{Cause, Dump},
    meta::EndReason,
};
use gputrace_collect::{CollectorHandle, Snapshot, Stopped, clocks};
use gputrace_export::{OutputDir, OutputError, output::Existing};
use gputrace_flight::{Moment, OpenCall, Rule, Watch};
use gputrace_text::{Line, tables};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

use super::{Recorder, ending::Ending, on_dump::OnDump};
use crate::{
    SessionError,
    outputs::flight::{DumpOrder, Flight, Made},
    request::FlightRequest,
};

/// Maximum number of causes that a dump lists.
const LISTED: usize = 100;

/// Maximum number of names tried for a dump.
const ATTEMPTS: u32 = 10_000;

/// The signal that asks for a dump.
const ASK: fn() -> SignalKind = SignalKind::user_defined2;

/// A flight recorder.
#[derive(Debug)]
pub(crate) struct FlightRecorder {
    request: FlightRequest,
    threads: Flight,
    asked: Signal,
    directory: OutputDir,
    /// First part of the dumps' names.
    name: String,
    /// Causes of the next dump; empty if none is due.
    causes: Vec<Cause>,
    more_causes: u64,
    /// When the next dump is due.
    due: Option<Instant>,
    /// When the time of the current file is over, if the recording is divided by time.
    part_over: Option<Instant>,
    /// When the last dump became due because of a rule.
    last: Option<Instant>,
    /// Number of dumps that became due because of rules.
    by_rules: u32,
    /// Number of causes because of which no dump was made.
    passed_over: u64,
    /// Number of the last dump.
    number: u32,
    /// The command that is run when a dump was written.
    on_dump: Option<OnDump>,
    /// Files that were written.
    dumps: VecDeque<PathBuf>,
}

/// Something that a flight recorder reacts to.
#[derive(Debug)]
pub(crate) enum News {
    /// Somebody asked for a dump.
    Asked,
    /// A rule applies.
    Cause(Cause),
    /// It is time to make the dump.
    Due,
    /// The time of the current file is over.
    PartOver,
    /// A dump was written.
    Made(Box<Made>),
}

/// Waits for the next event of a flight recorder, if there is one.
pub(crate) async fn news(flight: &mut Option<FlightRecorder>) -> News {
    match flight {
        Some(flight) => flight.next().await,
        None => pending().await,
    }
}

impl FlightRecorder {
    /// A flight recorder whose dumps go into `directory`; `name` begins their names. `on_dump` is
    /// run for each.
    pub(crate) fn new(
        request: FlightRequest,
        threads: Flight,
        directory: OutputDir,
        name: String,
        on_dump: Option<OnDump>,
    ) -> Result<Self, SessionError> {
        let part_over = next_part(&request);
        Ok(Self {
            request,
            threads,
            part_over,
            asked: signal(ASK()).map_err(|cause| SessionError::System {
                action: "listen to signals",
                cause,
            })?,
            on_dump,
            directory,
            name,
            causes: Vec::new(),
            more_causes: 0,
            due: None,
            last: None,
            by_rules: 0,
            passed_over: 0,
            number: 0,
            dumps: VecDeque::new(),
        })
    }

    async fn next(&mut self) -> News {
        let until = async |time: Option<Instant>| match time {
            Some(time) => sleep_until(time).await,
            None => pending().await,
        };
        let (due, part_over) = (self.due, self.part_over);
        tokio::select! {
            biased;
            Some(()) = self.asked.recv() => News::Asked,
            () = until(due) => News::Due,
            () = until(part_over) => News::PartOver,
            Some(made) = self.threads.made.recv() => News::Made(Box::new(made)),
            Some(cause) = self.threads.causes.recv() => News::Cause(cause),
            else => pending().await,
        }
    }

    /// Notes a cause. Returns whether a dump becomes due because of it.
    fn cause(&mut self, cause: Cause, by_rule: bool) -> bool {
        let now = Instant::now();
        if self.due.is_none() && by_rule && self.request.parts.is_none() {
            let too_soon = self
                .last
                .is_some_and(|last| now < last + self.request.pause);
            if too_soon || self.by_rules >= self.request.dumps {
                self.passed_over += 1;
                return false;
            }
            self.by_rules += 1;
            self.last = Some(now);
        }
        if self.causes.len() < LISTED {
            self.causes.push(cause);
        } else {
            self.more_causes += 1;
        }
        if self.due.is_some() {
            return false;
        }
        self.threads.hold();
        self.due = Some(now + self.request.after);
        true
    }

    /// Has the dump written that is due.
    fn dump(&mut self, moment: Moment) -> Result<(), OutputError> {
        self.due = None;
        self.part_over = next_part(&self.request);
        let is_part = self.request.parts.is_some();
        let causes = std::mem::take(&mut self.causes);
        let more_causes = std::mem::take(&mut self.more_causes);
        let (file, path) = loop {
            self.number += 1;
            let what = if is_part { "part" } else { "dump" };
            let name = format!("{}_{what}-{}.gtcap", self.name, self.number);
            match self.directory.file_in_place(&name, Existing::Keep) {
                Err(OutputError::Exists { .. }) if self.number < ATTEMPTS => {}
                result => break (result?, self.directory.path().join(name)),
            }
        };
        self.threads.dump(DumpOrder {
            file,
            path,
            moment,
            about: Dump {
                number: self.number,
                causes,
                more_causes,
                is_part,
                ..Dump::default()
            },
        });
        Ok(())
    }

    /// Says what became of a dump.
    fn told(&mut self, made: Made) -> Vec<String> {
        let path = made.path.display();
        let causes = &made.about.causes;
        let first = causes.first().map_or("", |cause| &cause.text);
        let more = causes.len() as u64 + made.about.more_causes;
        let more = match more.saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let what = if made.about.is_part { "part" } else { "dump" };
        let number = made.about.number;
        match made.result {
            Ok(written) => {
                let length = written.to.saturating_sub(written.from);
                let short = if written.is_short {
                    ", less than asked for, because the space was full"
                } else {
                    ""
                };
                let text = format!(
                    "{what} {number}: {path} ({}{short}; {} bytes), because {first}{more}",
                    tables::duration(length as f64),
                    written.bytes,
                );
                let mut texts = vec![text];
                if let Some(command) = &mut self.on_dump {
                    texts.extend(command.start(&made.path));
                }
                self.dumps.push_back(made.path);
                texts.extend(self.remove_old());
                texts
            }
            Err(error) => vec![format!("{what} {number} was not made: {path}: {error}")],
        }
    }

    /// Removes files beyond those that are kept. Returns what to say if that fails.
    fn remove_old(&mut self) -> Option<String> {
        let keep = self.request.parts?.keep.get() as usize;
        while self.dumps.len() > keep {
            let old = self.dumps.pop_front()?;
            let name = old.file_name()?.to_str()?;
            if let Err(error) = self.directory.remove(name) {
                return Some(format!("{} was not removed: {error}", old.display()));
            }
        }
        None
    }
}

/// When the time of a file that begins now is over.
fn next_part(request: &FlightRequest) -> Option<Instant> {
    let time = request.parts?.time?;
    Instant::now().checked_add(time)
}

/// What a flight recorder leaves.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The dumps that were written.
    pub(crate) dumps: Vec<PathBuf>,
    /// The command whose processes may still run.
    pub(crate) on_dump: Option<OnDump>,
    /// Lines for the user.
    pub(crate) remarks: Vec<String>,
}

impl FlightRecorder {
    /// Makes the last dump, if one is due. The capture is complete.
    pub(crate) async fn finish(mut self, stopped: &Stopped, reason: &EndReason) -> Rest {
        let mut remarks = Vec::new();
        self.threads.over();
        while let Some(cause) = self.threads.causes.recv().await {
            self.cause(cause, true);
        }
        if self.request.parts.is_some() {
            let cause = Cause {
                time: stopped.ledger.time,
                text: "the recording ended".to_owned(),
            };
            self.cause(cause, false);
        }
        if self.due.is_some() {
            let moment = Moment {
                time: stopped.ledger.time,
                ledger: stopped.ledger.clone(),
                open: Vec::new(),
                further: Vec::new(),
                bytes: stopped.capture_bytes,
                ended: Some(reason.clone()),
            };
            if let Err(error) = self.dump(moment) {
                remarks.push(format!("a dump was not made: {error}"));
            }
        }
        let made = self.threads.rest().await;
        remarks.extend(made.into_iter().flat_map(|made| self.told(made)));
        if self.passed_over > 0 {
            remarks.push(format!(
                "{} without a dump: --dump-limit and --dump-pause limit their number and rate",
                tables::plural(self.passed_over, "further cause", "further causes")
            ));
        }
        Rest {
            dumps: self.dumps.into(),
            on_dump: self.on_dump,
            remarks,
        }
    }

    /// Notes how the program ended, if a rule is about that.
    pub(crate) fn ended(&mut self, ending: &Ending) {
        let Ending::ProgramEnded(Some(status)) = ending else {
            return;
        };
        let is_wanted = self
            .request
            .rules
            .iter()
            .any(|rule| matches!(rule, Rule::Killed));
        if let Some(signal) = status.signal().filter(|_| is_wanted) {
            let cause = Cause {
                time: clocks::now(),
                text: format!("the program was ended by signal {signal}"),
            };
            self.cause(cause, true);
        }
    }
}

impl Recorder<'_> {
    /// Reacts to an event of the flight recorder.
    pub(super) fn flight_news(&mut self, news: News) {
        let Some(flight) = &mut self.flight else {
            return;
        };
        let text = match news {
            News::Asked => {
                let cause = Cause {
                    time: clocks::now(),
                    text: "SIGUSR2 asked for it".to_owned(),
                };
                flight.cause(cause, false);
                return;
            }
            News::Cause(cause) => {
                let text = cause.text.clone();
                if !flight.cause(cause, true) || flight.request.parts.is_some() {
                    return;
                }
                format!("{text}: a dump follows")
            }
            News::PartOver => {
                flight.part_over = None;
                let cause = Cause {
                    time: clocks::now(),
                    text: "its time was up".to_owned(),
                };
                flight.cause(cause, false);
                return;
            }
            News::Made(made) => {
                for text in flight.told(*made) {
                    (self.say)(&Line::new(&text));
                }
                return;
            }
            News::Due => match flight.dump_now(&self.collector) {
                Ok(()) => return,
                Err(error) => format!("a dump was not made: {error}"),
            },
        };
        (self.say)(&Line::new(&text));
    }

    /// Has the rules look at calls that have been open for long.
    pub(super) fn look_at_open_calls(&mut self) {
        let Some(flight) = &self.flight else {
            return;
        };
        let Some(after) = Watch::open_after(&flight.request.rules) else {
            return;
        };
        let now = clocks::now();
        // If they cannot be read now, they are looked at a second later.
        let threads = self.calls.threads().unwrap_or_default();
        let open = threads.iter().flat_map(|(id, thread)| {
            let frames = thread.frames.iter().take(thread.depth as usize);
            frames.map(move |frame| OpenCall {
                function: frame.cookie().function(),
                pid: (id >> 32) as u32,
                tid: *id as u32,
                begin: frame.begin,
                correlation: frame.correlation,
            })
        });
        let long = open.filter(|call| now.saturating_sub(call.begin) > after);
        flight.threads.look_at(long.collect());
    }
}

impl FlightRecorder {
    fn dump_now(&mut self, collector: &CollectorHandle) -> Result<(), OutputError> {
        // If the collector is gone, the recording is about to end, and the dump is made then.
        let Some(Snapshot {
            time,
            ledger,
            open,
            signals,
            bytes,
        }) = collector.snapshot()
        else {
            return Ok(());
        };
        self.dump(Moment {
            time,
            ledger,
            open,
            further: signals,
            bytes,
            ended: None,
        })
    }
}
