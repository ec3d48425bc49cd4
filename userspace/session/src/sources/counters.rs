//! Periodically reads counters of GPUs and traced processes.
//!
//! Only changed values go into the capture: most of a GPU's hundreds of counters rarely change. At
//! the end everything is written once more, so that the last value reaches to the end of the
//! recording. Each reading of a group of files is noted with its begin and end, even if nothing has
//! changed: so it is known what was read while a kernel ran.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gputrace_capture::{
    Meta,
    counter::{Counter, CounterValues, GroupRead},
};
use gputrace_collect::{CommandSender, clocks};
use gputrace_files::kernel;
use gputrace_kfd::{
    Paths,
    metrics::{
        GpuPlace, PmuCounters, Reading, Readings, drm_readings, gpu_readings, pcie_readings,
        places, process_readings,
    },
    processes,
    topology::Topology,
};
use gputrace_loader::calls::Calls;

use super::{Source, Wanted};
use crate::said::notice;

/// Minimum time between two looks at the descriptors of processes: there may be thousands.
const DRM_PAUSE: Duration = Duration::from_secs(1);

/// Maximum time that readings made by other threads wait to be collected.
const LINK_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of reported problems; larger numbers have a common cause.
const MOST_TOLD: usize = 20;

/// For each group of files: a counter that every GPU with this kind of measurement has, and the
/// name of what is missing without it.
const EXPECTED: [(&str, &str); 6] = [
    ("gpu_metrics.", "gpu_metrics"),
    ("gpu_busy_percent", "gpu_busy_percent"),
    ("mem_busy_percent", "mem_busy_percent"),
    ("mem_info_vram_used", "mem_info_vram_used"),
    ("pp_dpm_", "clocks (pp_dpm_*)"),
    ("power", "power (hwmon)"),
];

pub(super) fn source(wanted: &Wanted<'_>) -> Option<Box<dyn Source>> {
    let hertz = wanted.request.counter_rate?;
    Some(Box::new(Counters {
        hertz,
        reader: None,
    }))
}

/// The counters of a recording.
#[derive(Debug)]
struct Counters {
    /// Readings per second.
    hertz: u32,
    reader: Option<Reader>,
}

impl Source for Counters {
    fn start(&mut self, calls: &Arc<Calls>, sender: &CommandSender) -> Vec<Meta> {
        let processes = Arc::clone(calls);
        let (reader, news) = Reader::start(Paths::default(), self.hertz, processes, sender.clone());
        self.reader = reader;
        news.map(notice).into_iter().collect()
    }

    fn stop(&mut self) {
        drop(self.reader.take());
    }
}

/// The processes whose files are read, in addition to the GPUs'.
trait ProcessSet: Send + 'static {
    /// Process ids in the initial pid namespace; `None`: all processes that use GPUs.
    fn pids(&self) -> Option<Vec<u32>>;
}

impl ProcessSet for Arc<Calls> {
    fn pids(&self) -> Option<Vec<u32>> {
        // If the map cannot be read, there are no targets.
        let targets = self.targets().unwrap_or_default();
        (!targets.contains(&0)).then_some(targets)
    }
}

/// The reading threads. Dropping this reads everything a last time and ends them.
#[derive(Debug)]
struct Reader {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Reads `hertz` times per second (at least once), beginning now. Also returns remarks.
    fn start(
        paths: Paths,
        hertz: u32,
        traced: impl ProcessSet,
        commands: CommandSender,
    ) -> (Option<Self>, Option<String>) {
        let gpus = places(&Topology::read(&paths).unwrap_or_default());
        let news = gpus.is_empty().then(|| {
            "KFD shows no GPU with a render node, so only counters of processes are read".to_owned()
        });
        let (stop, stopped) = mpsc::channel::<()>();
        let pause = Duration::from_secs(1) / hertz.max(1);
        let read = move || {
            let mut book = Book::new(gpus);
            let pcie = link_readers(&paths, &book.gpus);
            book.pmu = PmuCounters::open(&paths, &book.gpus);
            let mut give = |meta| commands.meta(meta);
            let mut drm = Instant::now();
            let mut due = Instant::now();
            loop {
                let now = Instant::now();
                if now >= due {
                    due = now + pause;
                    let with_drm = now >= drm;
                    if with_drm {
                        drm = now + DRM_PAUSE;
                    }
                    book.round(&paths, &traced, with_drm, &mut give);
                }
                for (gpu, taken) in pcie.iter().flat_map(mpsc::Receiver::try_iter) {
                    book.take(Group::Link(gpu), taken, &mut give);
                }
                let mut wait = due.saturating_duration_since(Instant::now());
                if !pcie.is_empty() {
                    wait = wait.min(LINK_PAUSE);
                }
                if stopped.recv_timeout(wait) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
            book.last = HashMap::new();
            book.round(&paths, &traced, true, &mut give);
        };
        match thread::Builder::new()
            .name("counters".to_owned())
            .spawn(read)
        {
            Ok(thread) => {
                let reader = Self {
                    stop: Some(stop),
                    thread: Some(thread),
                };
                (Some(reader), news)
            }
            Err(error) => (None, Some(format!("counters are not read: {error}"))),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread can fail only because of a defect, which it has reported itself.
            let _ = thread.join();
        }
    }
}

/// Starts a thread for each GPU that has `pcie_bw`, a file that takes a second to read. The threads
/// end when the receivers are gone, and nobody waits for them.
fn link_readers(paths: &Paths, gpus: &[GpuPlace]) -> Vec<mpsc::Receiver<(u32, Taken)>> {
    let has_it =
        |gpu: &&GpuPlace| kernel::exists(paths.device(gpu.drm_render_minor).join("pcie_bw"));
    let start = |gpu: &GpuPlace| {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (paths, gpu) = (paths.clone(), gpu.clone());
        let read = move || {
            loop {
                let begin = Instant::now();
                let mut taken = timed(|| pcie_readings(&paths, &gpu));
                // The value describes the second that has just passed.
                taken.time = taken.end;
                let readings = &taken.readings;
                if readings.values.is_empty() && !readings.asleep
                    || sender.send((gpu.gpu_id, taken)).is_err()
                {
                    return;
                }
                // If the GPU sleeps, reading returns at once.
                thread::sleep(DRM_PAUSE.saturating_sub(begin.elapsed()));
            }
        };
        let started = thread::Builder::new()
            .name("pcie_bw".to_owned())
            .spawn(read);
        started.is_ok().then_some(receiver)
    };
    gpus.iter().filter(has_it).filter_map(start).collect()
}

/// Key of a counter: GPU, process, name.
type Key = (u32, u32, String);

/// Counters that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    /// Files of a GPU, by KFD's GPU id.
    Gpu(u32),
    /// The PCIe link of a GPU.
    Link(u32),
    /// Counters of perf, for all GPUs.
    Pmu,
    /// KFD's files about a process.
    Process(u32),
    /// The DRM descriptors of a process.
    Drm(u32),
}

/// State of a group in the capture.
#[derive(Debug)]
struct Members {
    /// Number of the group.
    number: u32,
    /// Numbers of the counters that were read the last time.
    present: Vec<u32>,
}

/// State of all counters in the capture.
#[derive(Debug, Default)]
struct Book {
    gpus: Vec<GpuPlace>,
    /// Counters of the GPUs that perf provides.
    pmu: PmuCounters,
    numbers: HashMap<Key, u32>,
    groups: HashMap<Group, Members>,
    /// The last value written for each counter.
    last: HashMap<u32, f64>,
    told: BTreeSet<String>,
    /// GPUs whose missing counters have been reported.
    described: BTreeSet<u32>,
}

impl Book {
    fn new(gpus: Vec<GpuPlace>) -> Self {
        Self {
            gpus,
            ..Self::default()
        }
    }

    /// Reads everything once.
    fn round(
        &mut self,
        paths: &Paths,
        traced: &impl ProcessSet,
        with_drm: bool,
        give: &mut impl FnMut(Meta),
    ) {
        let gpus = std::mem::take(&mut self.gpus);
        for gpu in &gpus {
            let taken = timed(|| gpu_readings(paths, gpu));
            self.missing(gpu, &taken.readings, give);
            self.take_of(&gpus, Group::Gpu(gpu.gpu_id), taken, give);
        }
        let taken = timed(|| self.pmu.read());
        self.take_of(&gpus, Group::Pmu, taken, give);
        let listed = processes::pids(paths).unwrap_or_default();
        for pid in traced.pids().unwrap_or_else(|| listed.clone()) {
            if listed.contains(&pid) {
                let taken = timed(|| process_readings(paths, pid));
                self.take_of(&gpus, Group::Process(pid), taken, give);
            }
            if with_drm {
                let taken = timed(|| drm_readings(paths, &gpus, pid));
                self.take_of(&gpus, Group::Drm(pid), taken, give);
            }
        }
        self.gpus = gpus;
    }

    fn take(&mut self, group: Group, taken: Taken, give: &mut impl FnMut(Meta)) {
        let gpus = std::mem::take(&mut self.gpus);
        self.take_of(&gpus, group, taken, give);
        self.gpus = gpus;
    }

    fn take_of(
        &mut self,
        gpus: &[GpuPlace],
        group: Group,
        taken: Taken,
        give: &mut impl FnMut(Meta),
    ) {
        let readings = taken.readings;
        for problem in readings.problems {
            self.tell(format!("a counter is not recorded: {problem}"), give);
        }
        if readings.values.is_empty() && !self.groups.contains_key(&group) {
            return;
        }
        let next = self.groups.len() as u32;
        let members = self.groups.entry(group).or_insert(Members {
            number: next,
            present: Vec::new(),
        });
        let (number, before) = (members.number, std::mem::take(&mut members.present));
        let mut values = Vec::new();
        let mut present = Vec::with_capacity(before.len());
        for reading in readings.values {
            let value = reading.value;
            let counter = self.number(gpus, number, reading, give);
            present.push(counter);
            if self.last.insert(counter, value) != Some(value) {
                values.push((counter, value));
            }
        }
        let gone: Vec<u32> = if present == before {
            Vec::new()
        } else {
            let now: BTreeSet<u32> = present.iter().copied().collect();
            before
                .into_iter()
                .filter(|counter| !now.contains(counter))
                .collect()
        };
        for counter in &gone {
            self.last.remove(counter);
        }
        // Nothing was read now or before.
        if present.is_empty() && gone.is_empty() {
            return;
        }
        if let Some(members) = self.groups.get_mut(&group) {
            members.present = present;
        }
        let read = GroupRead {
            group: number,
            before: taken.time.saturating_sub(taken.begin),
            after: taken.end.saturating_sub(taken.time),
        };
        let values = CounterValues {
            time: taken.time,
            values,
            read: Some(read),
            gone,
        };
        give(values.into());
    }

    /// The number of a counter. Writes its description if the counter is new.
    fn number(
        &mut self,
        gpus: &[GpuPlace],
        group: u32,
        reading: Reading,
        give: &mut impl FnMut(Meta),
    ) -> u32 {
        let key = (reading.gpu_id, reading.pid, reading.name.into_owned());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        let place = gpus.iter().find(|gpu| gpu.gpu_id == reading.gpu_id);
        let counter = Counter {
            number,
            name: key.2.clone(),
            unit: reading.unit.to_owned(),
            cumulative: reading.cumulative,
            pid: reading.pid,
            gpu_id: reading.gpu_id,
            node_id: place.map(|gpu| gpu.node_id),
            group: Some(group),
        };
        give(counter.into());
        self.numbers.insert(key, number);
        number
    }

    /// Reports which counters a GPU does not have, the first time that it is awake.
    fn missing(&mut self, gpu: &GpuPlace, readings: &Readings, give: &mut impl FnMut(Meta)) {
        let id = gpu.gpu_id;
        if readings.asleep {
            let text = format!(
                "GPU {id} is asleep and is not woken: its counters are read when it is awake"
            );
            return self.tell(text, give);
        }
        let has = |start: &str| {
            readings
                .values
                .iter()
                .any(|one| one.name.starts_with(start))
        };
        let missing: Vec<&str> = EXPECTED
            .iter()
            .filter(|(start, _)| !has(start))
            .map(|(_, what)| *what)
            .collect();
        // Once per GPU, not for every file that appears or disappears.
        if self.described.insert(id) && !missing.is_empty() {
            let text = format!(
                "GPU {id} does not report {}: there are no such counters",
                missing.join(", ")
            );
            give(notice(text));
        }
    }

    fn tell(&mut self, text: String, give: &mut impl FnMut(Meta)) {
        if self.told.len() < MOST_TOLD && self.told.insert(text.clone()) {
            give(notice(text));
        }
    }
}

/// Readings and their times, ns `CLOCK_BOOTTIME`.
struct Taken {
    readings: Readings,
    begin: u64,
    end: u64,
    /// Time assigned to the values: the middle of the reading.
    time: u64,
}

fn timed(read: impl FnOnce() -> Readings) -> Taken {
    let begin = clocks::now();
    let readings = read();
    let end = clocks::now().max(begin);
    Taken {
        readings,
        begin,
        end,
        time: begin + (end - begin) / 2,
    }
}

#[cfg(test)]
mod tests;
