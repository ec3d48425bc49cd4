//! The end of a recording: the eBPF programs are frozen, the accounts completed, the probes
//! removed, and the outputs made.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use gputrace_abi::record::task_op;
use gputrace_capture::meta::Notice;
use gputrace_collect::{CollectorEvent, CollectorHandle, Command, clocks};
use gputrace_export::OutputDir;
use gputrace_loader::{calls::Calls, probes::Probes};
use gputrace_text::{
    Line,
    tables::{self, plural},
};
use gputrace_tracee::process;

use super::{
    Finished, Recorder,
    ending::{Ending, Stops, last_status},
    gpus::Gpus,
    periods::Course,
};
use crate::{
    SessionError,
    inbox::Message,
    outputs::{Outputs, export},
    request::Request,
};

/// How long unresponsive processes are waited for in total, once the recording is over.
const READING: Duration = Duration::from_millis(300);

/// Writes into the recording what came of the periods that were asked for.
fn note_periods(course: Course, collector: &CollectorHandle) {
    let time = clocks::now();
    let text = course.summary(time);
    collector.send(Command::Meta(Box::new(Notice { time, text }.into())));
}

impl Recorder<'_> {
    /// Ends the recording. Nothing that happened before is lost.
    pub(crate) async fn finish(
        mut self,
        ending: Ending,
        mut stops: Stops,
        directory: &OutputDir,
        name: &str,
        capture: PathBuf,
    ) -> Result<Finished, SessionError> {
        let frozen = self.calls.stop()?;
        gputrace_reader::hurry_from(Instant::now() + READING);
        self.say_last(&ending)?;
        let Recorder {
            calls,
            collector,
            instruments,
            targets,
            mut sources,
            told,
            say,
            request,
            course,
            live,
            flight,
            remote,
            ..
        } = self;
        let began = course.began;
        // Threads whose messages have not been read are still held. Dropping the holder releases
        // them: the program may be waited for below.
        drop(targets.holder);
        // No thread is held any more, and outputs take long.
        drop(targets.urgency);
        if !request.periods.is_empty() || course.has_paused() {
            note_periods(course, &collector);
        }
        let mut probes: Vec<Probes> = instruments
            .into_probes()
            .chain(targets.linkers.into_probes())
            .collect();
        if !frozen {
            Probes::remove(std::mem::take(&mut probes));
            calls.settle();
        }
        // Before the accounts are completed, so that they include everything the sources have read.
        sources.stop();
        collector.send(sources.open_records()?);
        let reason = ending.reason();
        let stopped = collector.finish(reason.clone())?;
        Probes::remove(probes);
        drop(sources);
        // Its last probes may be removed while the outputs are made.
        let backend = Arc::into_inner(calls).map(Calls::leave);

        let mut rest = match flight {
            Some(mut flight) => {
                flight.ended(&ending);
                Some(flight.finish(&stopped, &reason).await)
            }
            None => None,
        };
        for text in rest.iter().flat_map(|rest| &rest.remarks) {
            say(&Line::new(text));
        }
        let on_dump = rest.as_mut().and_then(|rest| rest.on_dump.as_mut());
        if let Some(on_dump) = on_dump {
            tokio::select! {
                () = on_dump.finish(say) => {}
                () = stops.give_up() => {}
            }
        }
        let outputs = match live {
            Some(live) => tokio::select! {
                outputs = live.finish() => outputs?,
                () = stops.give_up() => return Err(SessionError::NotAllShown),
            },
            None if rest.is_some() || request.output.unkept => Outputs::none(),
            None => make(&capture, directory, name, request, &mut stops).await?,
        };
        drop(backend);
        let program = match remote {
            // The other program decides whether to wait.
            Some(_) => targets.program.and_then(|mut program| match ending {
                Ending::ProgramEnded(status) => status,
                _ => program.ended(),
            }),
            None => last_status(targets.program, &ending, &mut stops, say).await,
        };
        Ok(Finished {
            capture,
            directory: directory.clone(),
            name: name.to_owned(),
            main_pid: targets.main_pid,
            began,
            ended: stopped.ledger.time,
            ledger: stopped.ledger,
            outputs,
            dumps: rest.map(|rest| rest.dumps),
            reason,
            program,
            capture_failure: stopped.failure,
            nothing_matched: told.nothing_matched,
            too_many: told.too_many,
        })
    }

    /// Reports what is known only after the eBPF programs have stopped: missing functions, skipped
    /// events, code objects that were loaded unnoticed, and processes that are still running.
    fn say_last(&mut self, ending: &Ending) -> Result<(), SessionError> {
        // Stops further reports of mappings.
        self.targets.scanner = None;
        // Held threads continue by themselves: the eBPF programs know that the recording is over.
        self.collector.drain();
        while let Some(message) = self.inbox.try_take() {
            match message {
                Message::Collector(CollectorEvent::Kernel { pid, kernel_object }) => {
                    self.new_kernel(pid, kernel_object);
                }
                Message::Linker { task, since } if task.op == task_op::LINKER => {
                    self.tell_unseen(task.pid, since);
                }
                Message::Linker { task, .. } if task.op == task_op::CODE_OBJECTS => {
                    self.code_objects(task.pid, Some(task.time));
                }
                _ => {}
            }
        }
        self.tell_unmatched();
        let remarks = self.instruments.never_found();
        self.told.nothing_matched |= !remarks.is_empty();
        self.tell_nothing()?;
        let missed = missed(self.calls.missed() + self.sources.missed());
        for text in remarks
            .into_iter()
            .chain(self.instruments.too_often()?)
            .chain(missed)
        {
            self.remark(text);
        }
        // Kernels whose dispatches are still in the rings can belong to code objects that were
        // loaded unnoticed.
        self.all_code_objects();
        if let Some(text) = self.gpus.as_ref().and_then(Gpus::unread) {
            self.remark(text);
        }
        for pid in std::mem::take(&mut self.targets.described) {
            self.describe(pid);
        }
        self.tell_stuck();
        if let Ending::ProgramEnded(_) = ending {
            let alive = self
                .calls
                .targets()?
                .into_iter()
                .filter(|pid| process::describe(*pid).is_ok())
                .count();
            if alive > 0 {
                self.tell(&format!(
                    "the program ended; {} running, untraced",
                    plural(
                        alive as u64,
                        "process that it started keeps",
                        "processes that it started keep"
                    )
                ));
            }
        }
        Ok(())
    }
}

/// Message about events for which the kernel skipped the eBPF programs.
fn missed(count: u64) -> Option<String> {
    (count != 0).then(|| {
        format!(
            "the kernel skipped gputrace's programs at {} of any process (ioctls, tracepoints of \
             the driver, ends of processes), because another BPF operation was running on that \
             CPU: what happened there is in no account",
            tables::count(count, "tracepoint event")
        )
    })
}

/// Makes the outputs of a complete capture.
async fn make(
    capture: &Path,
    directory: &OutputDir,
    name: &str,
    request: &Request,
    stops: &mut Stops,
) -> Result<Outputs, SessionError> {
    let cancel = Arc::new(AtomicBool::new(false));
    let export = {
        let (cancel, capture) = (Arc::clone(&cancel), capture.to_owned());
        let (directory, name, formats) = (
            directory.clone(),
            name.to_owned(),
            request.output.formats.clone(),
        );
        let watcher = request.output.watcher.clone();
        tokio::task::spawn_blocking(move || {
            export(&capture, &directory, &name, &formats, &mut |progress| {
                watcher.tell(progress);
                if cancel.load(Ordering::Relaxed) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
        })
    };
    tokio::pin!(export);
    let outputs = tokio::select! {
        outputs = &mut export => outputs,
        () = stops.give_up() => {
            // Waits for the removal of unfinished files before this process ends.
            cancel.store(true, Ordering::Relaxed);
            let _ = export.await;
            return Err(SessionError::GivenUp { capture: capture.display().to_string() });
        }
    };
    outputs.map_err(|error| SessionError::System {
        action: "make the outputs",
        cause: std::io::Error::other(error),
    })?
}
