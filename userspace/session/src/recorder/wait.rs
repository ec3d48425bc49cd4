//! Waits for the end of the recording, and handles events until then.

use std::time::Duration;

use gputrace_text::tables::plural;

use gputrace_abi::record::task_op;
use gputrace_capture::{Meta, meta::Notice};
use gputrace_collect::{CollectorEvent, Command, ReachedLimit, clocks};
use gputrace_files::kernel;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use super::{
    Recorder,
    ending::{Ending, Stops, ended, ends_of},
    flight,
    periods::Schedule,
};
use crate::{
    SessionError,
    inbox::Message,
    outputs::live::Live,
    remote::{self, News, Order},
    request::Targets,
    system::{self, STOP_FILE},
};

/// How often to look for processes that have ended.
const TICK: Duration = Duration::from_secs(1);

/// Number of ticks between two searches for libraries whose mapping was not reported.
const TICKS_PER_LOOK: u64 = 10;

impl Recorder<'_> {
    /// Puts metadata from sources into the recording, and shows its notices to the user.
    pub(super) fn driver_news(&self, metas: Vec<Meta>) {
        for meta in metas {
            if let Meta::Notice(notice) = &meta {
                self.tell(&notice.text);
            }
            self.collector.send(Command::Meta(Box::new(meta)));
        }
    }

    /// Waits for the end of the recording. Handles all events until then.
    pub(super) async fn wait(&mut self, stops: &mut Stops) -> Result<Ending, SessionError> {
        // The first tick comes later: everything has just been looked at.
        let mut tick = interval_at(Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The recording of a node begins when all processes have been looked at.
        let from_now_on = |after: Duration| match self.request.targets {
            Targets::Node => Duration::MAX,
            Targets::Launch { .. } | Targets::Attach { .. } => after,
        };
        let over = sleep(from_now_on(self.request.duration.unwrap_or(Duration::MAX)));
        tokio::pin!(over);
        let mut schedule = Schedule::new(&self.request.periods);
        let mut next = schedule.next();
        let switch = sleep(from_now_on(next.map_or(Duration::MAX, |next| next.after)));
        tokio::pin!(switch);
        let unread = self.live.as_ref().map(Live::closed);
        let unread = async move {
            match unread {
                Some(unread) => unread.await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(unread);
        let mut attached = match &self.request.targets {
            Targets::Attach { pids, .. } => ends_of(pids),
            _ => JoinSet::new(),
        };
        loop {
            tokio::select! {
                // Signals first: Ctrl-C must work even under a flood of events.
                biased;
                stop = stops.next() => return Ok(Ending::Stopped(stop)),
                order = remote::order(&mut self.remote) => match order {
                    Some(Order::Stop) => return Ok(Ending::Asked),
                    Some(order) => self.obey(order),
                    None => return Ok(Ending::Unread),
                },
                news = flight::news(&mut self.flight) => self.flight_news(news),
                () = &mut unread => return Ok(Ending::Unread),
                () = &mut over, if self.request.duration.is_some() => return Ok(Ending::DurationOver),
                () = &mut switch, if next.is_some() => {
                    self.switch(next.is_some_and(|next| next.on));
                    next = schedule.next();
                    match next {
                        Some(next) => {
                            let due = switch.deadline() + next.after;
                            switch.as_mut().reset(due);
                        }
                        None => return Ok(Ending::DurationOver),
                    }
                }
                ended = ended(&mut self.targets.program), if self.targets.program.is_some() => {
                    return Ok(Ending::ProgramEnded(ended));
                }
                Some(_) = attached.join_next() => {
                    if attached.is_empty() {
                        return Ok(Ending::TargetsGone);
                    }
                }
                message = self.inbox.take() => {
                    if self.take(message)? {
                        // The requested duration counts from now on.
                        let now = Instant::now();
                        if let Some(due) = self.request.duration.and_then(|after| now.checked_add(after)) {
                            over.as_mut().reset(due);
                        }
                        if let Some(due) = next.and_then(|next| now.checked_add(next.after)) {
                            switch.as_mut().reset(due);
                        }
                    }
                    if self.told.failure.is_some() {
                        return Ok(Ending::CaptureFailed);
                    }
                    if let Some(limit) = self.told.limit_reached {
                        self.tell(match limit {
                            ReachedLimit::Bytes => {
                                "the recording has reached its --max-size, and ends"
                            }
                            ReachedLimit::Events => {
                                "the recording has reached its --max-events, and ends"
                            }
                        });
                        return Ok(Ending::LimitReached);
                    }
                }
                _ = tick.tick() => {
                    if system::is_switched_off() {
                        self.tell(&format!("{STOP_FILE} exists: the recording ends"));
                        return Ok(Ending::SwitchedOff);
                    }
                    self.tick();
                }
            }
        }
    }

    /// Handles a message. Returns true if the recording of the node begins with it.
    fn take(&mut self, message: Message) -> Result<bool, SessionError> {
        let event = match message {
            Message::Collector(event) => event,
            Message::Linker { task, since } => {
                self.linker_changed(&task, since);
                return Ok(false);
            }
            Message::Mapped { pid, since } => {
                self.mapped(pid, since);
                return Ok(false);
            }
            Message::Surveyed(number) => return self.node_surveyed(number),
        };
        match event {
            CollectorEvent::NewProcess(pid) => self.describe(pid),
            CollectorEvent::Task(task) => match task.op {
                task_op::EXEC => {
                    self.forget_gpu(task.pid);
                    self.describe(task.pid);
                }
                task_op::EXIT if task.pid == task.tid => {
                    self.targets.described.remove(&task.pid);
                    self.forget_gpu(task.pid);
                }
                task_op::FORK if self.request.follows_forks() => {
                    self.targets.linkers.forked(task.parent, task.pid);
                    self.describe(task.pid);
                }
                _ => {}
            },
            CollectorEvent::Linker(task) => self.linker_changed(&task, task.time),
            CollectorEvent::Kernel { pid, kernel_object } => self.new_kernel(pid, kernel_object),
            CollectorEvent::Remark(text) => self.tell(&text),
            CollectorEvent::CaptureFailed(text) => self.told.failure = Some(text),
            CollectorEvent::LimitReached(limit) => self.told.limit_reached = Some(limit),
        }
        Ok(false)
    }

    /// Does what the program that controls the recording asks for.
    fn obey(&mut self, order: Order) {
        let on = match order {
            Order::Passed(position) => {
                if let Some(remote) = &mut self.remote {
                    remote.passed(position);
                }
                return;
            }
            Order::Pause => false,
            Order::Resume => true,
            Order::Annotate(annotation) => {
                if self.targets.described.insert(annotation.pid) {
                    self.describe(annotation.pid);
                }
                self.collector
                    .send(Command::Meta(Box::new(Meta::Annotation(annotation))));
                return;
            }
            Order::Flush(number) => {
                self.collector.drain();
                if let Some(remote) = &self.remote {
                    remote.tell(News::Flushed(number));
                }
                return;
            }
            // The caller ends the recording.
            Order::Stop => return,
        };
        if !self.request.periods.is_empty() {
            self.tell("a recording with collection periods is not paused or resumed otherwise");
        } else if self.course.is_on() != on {
            self.switch(on);
        }
    }

    /// Begins or ends a collection period. Everything recorded in it has begun between the two
    /// reported times.
    fn switch(&mut self, on: bool) {
        let mut time = clocks::now();
        if on {
            self.collector.passed_over();
            time = clocks::now();
        }
        // It worked before. If it fails now, more or less is recorded than was requested.
        if let Err(error) = self.calls.pause(!on) {
            self.tell(&format!(
                "a collection period could not be started or ended: {error}"
            ));
            return;
        }
        if !on {
            time = clocks::now();
        }
        if let Some(text) = self.course.switched(on, time) {
            self.tell(text.trim_end_matches('.'));
            self.collector
                .send(Command::Meta(Box::new(Notice { time, text }.into())));
        }
        if let Some(pause) = self.course.pause() {
            self.collector.send(Command::Meta(Box::new(pause.into())));
        }
    }

    /// Runs once a second. Forgets processes that have ended, because their ids can be reused.
    fn tick(&mut self) {
        for pid in self.calls.targets().unwrap_or_default() {
            if pid != 0 && !kernel::exists(format!("/proc/{pid}")) {
                // This fails only if the process is no longer in the map.
                let _ = self.calls.remove_target(pid);
            }
        }
        self.targets.ticks += 1;
        if !self.calls.has_probes() && !std::mem::replace(&mut self.told.probes_gone, true) {
            self.remark(
                "gputrace's process that holds the probes has been killed: calls are not recorded \
                 from here on"
                    .to_owned(),
            );
        }
        self.tell_stuck();
        self.look_at_open_calls();
        // If this cannot be read now, it is reported at the end.
        let remarks = self.instruments.cool().unwrap_or_default();
        for text in remarks.told {
            self.remark(text);
        }
        for text in remarks.noted {
            self.note(text);
        }
        let metas = self.sources.tick(&self.calls);
        self.driver_news(metas);
        self.tell_unmatched();
        let refused = self.inbox.take_refused();
        if refused != 0 {
            self.remark(format!(
                "too much happened at once: {} dropped: names of processes and threads may be \
                 missing",
                plural(
                    refused,
                    "event of a process was",
                    "events of processes were"
                )
            ));
        }
        let due = self.targets.ticks.is_multiple_of(TICKS_PER_LOOK);
        if let Some(scanner) = &mut self.targets.scanner {
            // If the kernel reports mappings, only libraries that are no longer used remain to be
            // looked for.
            let is_due = due && scanner.blind().is_some();
            let unused = due && self.instruments.look_for_users();
            if is_due || unused || refused != 0 {
                let number = scanner.survey();
                self.targets.letting_go = unused.then_some(number).or(self.targets.letting_go);
            }
        } else if due || !self.targets.linkers.any() {
            // Watched dynamic linkers report new libraries. The linker of a container that started
            // meanwhile is not watched.
            self.look();
        }
        if due {
            self.targets.linkers.release();
        }
    }
}
