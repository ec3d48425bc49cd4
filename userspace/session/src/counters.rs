//! Reading now and then what GPUs and traced processes use.
//!
//! Only what has changed goes into the capture: most of a GPU's hundreds of numbers stand still most of the time. At the
//! end everything is written once more, so that the last value reaches to the end. Each reading of a group of files is
//! noted even if nothing has changed, with when it began and ended: so it is known what was read while a kernel ran.

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
        GpuPlace, PmuCounters, Reading, Readings, drm_readings, gpu_readings, pcie_readings, places,
        process_readings,
    },
    processes,
    topology::Topology,
};
use gputrace_probe::calls::Calls;

use crate::said::notice;

/// Descriptors of processes are looked at no more often than this: there may be thousands.
const DRM_PAUSE: Duration = Duration::from_secs(1);

/// What other threads have read waits no longer than this.
const LINK_PAUSE: Duration = Duration::from_millis(100);

/// Problems that are told; more have one cause.
const MOST_TOLD: usize = 20;

/// Of each group of files one that any GPU with this kind of measurement has, and what is missing without it.
const EXPECTED: [(&str, &str); 6] = [
    ("gpu_metrics.", "gpu_metrics"),
    ("gpu_busy_percent", "gpu_busy_percent"),
    ("mem_busy_percent", "mem_busy_percent"),
    ("mem_info_vram_used", "mem_info_vram_used"),
    ("pp_dpm_", "clocks (pp_dpm_*)"),
    ("power", "power (hwmon)"),
];

/// Whose files are read besides the GPUs'.
pub(crate) trait Whom: Send + 'static {
    /// The processes, initial pid namespace; `None`: all that use GPUs.
    fn pids(&self) -> Option<Vec<u32>>;
}

impl Whom for Arc<Calls> {
    fn pids(&self) -> Option<Vec<u32>> {
        // Without the map there are no targets either.
        let targets = self.targets().unwrap_or_default();
        (!targets.contains(&0)).then_some(targets)
    }
}

/// Threads that read. Dropping this reads everything a last time and ends them.
#[derive(Debug)]
pub(crate) struct Reader {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Reads `hertz` times a second (at least once), beginning now. The second part is what is to be said.
    pub(crate) fn start(
        paths: Paths,
        hertz: u32,
        whom: impl Whom,
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
                    book.round(&paths, &whom, with_drm, &mut give);
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
            book.round(&paths, &whom, true, &mut give);
        };
        match thread::Builder::new().name("counters".to_owned()).spawn(read) {
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
            // It can only have failed by a defect, which it has told of itself.
            let _ = thread.join();
        }
    }
}

/// A thread for each GPU that has `pcie_bw`, which takes a second to be read. They end when nobody listens any more, and
/// nobody waits for them.
fn link_readers(paths: &Paths, gpus: &[GpuPlace]) -> Vec<mpsc::Receiver<(u32, Taken)>> {
    let has_it = |gpu: &&GpuPlace| kernel::exists(paths.device(gpu.drm_render_minor).join("pcie_bw"));
    let start = |gpu: &GpuPlace| {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (paths, gpu) = (paths.clone(), gpu.clone());
        let read = move || {
            loop {
                let begin = Instant::now();
                let mut taken = timed(|| pcie_readings(&paths, &gpu));
                // It is about the second that is over.
                taken.time = taken.end;
                let readings = &taken.readings;
                if readings.values.is_empty() && !readings.asleep || sender.send((gpu.gpu_id, taken)).is_err()
                {
                    return;
                }
                // A GPU that sleeps answers at once.
                thread::sleep(DRM_PAUSE.saturating_sub(begin.elapsed()));
            }
        };
        let started = thread::Builder::new().name("pcie_bw".to_owned()).spawn(read);
        started.is_ok().then_some(receiver)
    };
    gpus.iter().filter(has_it).filter_map(start).collect()
}

/// What tells counters apart: GPU, process, name.
type Key = (u32, u32, String);

/// What is read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    /// Files of a GPU, by KFD's number.
    Gpu(u32),
    /// A GPU's link.
    Link(u32),
    /// What perf counts, of all GPUs.
    Pmu,
    /// What KFD has of a process.
    Process(u32),
    /// What the descriptors of a process say.
    Drm(u32),
}

/// What the capture has of a group.
#[derive(Debug)]
struct Members {
    /// Its number.
    number: u32,
    /// The counters that were read the last time, by number.
    present: Vec<u32>,
}

/// What the capture has of counters.
#[derive(Debug, Default)]
struct Book {
    gpus: Vec<GpuPlace>,
    /// Counters of the GPUs that perf has.
    pmu: PmuCounters,
    numbers: HashMap<Key, u32>,
    groups: HashMap<Group, Members>,
    /// The last value of each counter that was written.
    last: HashMap<u32, f64>,
    told: BTreeSet<String>,
    /// GPUs of which was said what they do not have.
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
    fn round(&mut self, paths: &Paths, whom: &impl Whom, with_drm: bool, give: &mut impl FnMut(Meta)) {
        let gpus = std::mem::take(&mut self.gpus);
        for gpu in &gpus {
            let taken = timed(|| gpu_readings(paths, gpu));
            self.missing(gpu, &taken.readings, give);
            self.take_of(&gpus, Group::Gpu(gpu.gpu_id), taken, give);
        }
        let taken = timed(|| self.pmu.read());
        self.take_of(&gpus, Group::Pmu, taken, give);
        let listed = processes::pids(paths).unwrap_or_default();
        for pid in whom.pids().unwrap_or_else(|| listed.clone()) {
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

    fn take_of(&mut self, gpus: &[GpuPlace], group: Group, taken: Taken, give: &mut impl FnMut(Meta)) {
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
        // Nothing was read, and nothing had been.
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

    /// The number of what was read, described if it is new.
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

    /// Says what a GPU does not have, the first time that it is awake.
    fn missing(&mut self, gpu: &GpuPlace, readings: &Readings, give: &mut impl FnMut(Meta)) {
        let id = gpu.gpu_id;
        if readings.asleep {
            let text = format!("GPU {id} sleeps and is left asleep: its counters are read when it is awake");
            return self.tell(text, give);
        }
        let has = |start: &str| readings.values.iter().any(|one| one.name.starts_with(start));
        let missing: Vec<&str> = EXPECTED
            .iter()
            .filter(|(start, _)| !has(start))
            .map(|(_, what)| *what)
            .collect();
        // Once for a GPU, not for every file that comes and goes.
        if self.described.insert(id) && !missing.is_empty() {
            let text = format!(
                "GPU {id} does not tell {}: there are no such counters",
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

/// Readings and when they were made, ns `CLOCK_BOOTTIME`.
struct Taken {
    readings: Readings,
    begin: u64,
    end: u64,
    /// The time that the values have: the middle.
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
mod tests {
    use std::{fs, path::Path};

    use super::*;

    struct These(Option<Vec<u32>>);

    impl Whom for These {
        fn pids(&self) -> Option<Vec<u32>> {
            self.0.clone()
        }
    }

    fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A node with one GPU and a process on it.
    fn node(root: &Path) -> Book {
        let topology = "sys/class/kfd/kfd/topology";
        write(root, &format!("{topology}/generation_id"), "1\n");
        write(root, &format!("{topology}/nodes/1/gpu_id"), "51234\n");
        write(
            root,
            &format!("{topology}/nodes/1/properties"),
            "simd_count 416\nlocation_id 768\ndomain 0\ndrm_render_minor 128\n",
        );
        let device = "sys/class/drm/renderD128/device";
        write(root, &format!("{device}/gpu_busy_percent"), "97\n");
        write(root, &format!("{device}/mem_info_vram_used"), "4096\n");
        let mut table = [0xff_u8; 120];
        table[..4].copy_from_slice(&[120, 0, 1, 3]);
        table[6..8].copy_from_slice(&61_u16.to_le_bytes());
        write(root, &format!("{device}/gpu_metrics"), table);
        let process = "sys/class/kfd/kfd/proc/4711";
        write(root, &format!("{process}/vram_51234"), "8192\n");
        write(root, &format!("{process}/sdma_51234"), "5\n");
        write(root, &format!("{process}/stats_51234/evicted_ms"), "7\n");
        write(root, &format!("{process}/stats_51234/cu_occupancy"), "104\n");
        write(
            root,
            "proc/4711/fdinfo/9",
            "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-memory-vram:\t2 KiB\n",
        );
        Book::new(places(&Topology::read(&Paths::under(root)).unwrap()))
    }

    /// What a round gives: new counters' names, values by name, remarks.
    fn round(
        book: &mut Book,
        root: &Path,
        pids: Option<Vec<u32>>,
    ) -> (Vec<Counter>, Vec<(u32, f64)>, Vec<String>) {
        let (mut counters, mut values, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        book.round(&Paths::under(root), &These(pids), true, &mut |meta| match meta {
            Meta::Counter(counter) => counters.push(*counter),
            Meta::CounterValues(read) => values.extend(read.values),
            Meta::Notice(notice) => notices.push(notice.text),
            other => panic!("{other:?}"),
        });
        (counters, values, notices)
    }

    #[test]
    fn what_changes_is_written_and_what_is_missing_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut book = node(root);
        let (counters, values, notices) = round(&mut book, root, None);
        let shown: Vec<_> = counters
            .iter()
            .zip(&values)
            .map(|(counter, (number, value))| {
                assert_eq!((counter.number, counter.node_id), (*number, Some(1)));
                assert_eq!(counter.gpu_id, 51234);
                (
                    counter.name.as_str(),
                    counter.pid,
                    *value,
                    counter.unit.as_str(),
                    counter.cumulative,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("gpu_busy_percent", 0, 97.0, "%", false),
                ("mem_info_vram_used", 0, 4096.0, "B", false),
                ("gpu_metrics.temperature_hotspot", 0, 61.0, "°C", false),
                ("vram", 4711, 8192.0, "B", false),
                ("sdma", 4711, 5e3, "ns", true),
                ("evicted", 4711, 7e6, "ns", true),
                ("cu_occupancy", 4711, 104.0, "", false),
                ("drm-memory-vram", 4711, 2048.0, "B", false),
            ]
        );
        assert_eq!(
            notices,
            [
                "GPU 51234 does not tell mem_busy_percent, clocks (pp_dpm_*), power (hwmon): there are no such counters"
            ]
        );
        // Nothing new, then one value, then one that vanishes and another that lies.
        assert_eq!(round(&mut book, root, None), (vec![], vec![], vec![]));
        let busy = "sys/class/drm/renderD128/device/gpu_busy_percent";
        write(root, busy, "12\n");
        assert_eq!(round(&mut book, root, None).1, [(0, 12.0)]);
        fs::remove_file(root.join("sys/class/drm/renderD128/device/gpu_metrics")).unwrap();
        write(root, busy, "lots\n");
        let (counters, values, notices) = round(&mut book, root, None);
        assert_eq!((counters, values), (vec![], vec![]));
        assert!(
            notices.len() == 1 && notices[0].contains("gpu_busy_percent"),
            "{notices:?}"
        );
        assert_eq!(round(&mut book, root, None).2, Vec::<String>::new());
    }

    #[test]
    fn each_reading_of_a_group_is_noted_with_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut book = node(root);
        let mut reads = || {
            let (mut counters, mut reads) = (Vec::new(), Vec::new());
            let before = clocks::now();
            book.round(&Paths::under(root), &These(None), true, &mut |meta| match meta {
                Meta::Counter(counter) => counters.push(*counter),
                Meta::CounterValues(values) => reads.push(*values),
                _ => {}
            });
            let after = clocks::now();
            for values in &reads {
                let read = values.read.unwrap();
                assert!(values.time - read.before >= before && values.time + read.after <= after);
            }
            let reads: Vec<_> = reads
                .into_iter()
                .map(|values| (values.read.unwrap().group, values.values.len(), values.gone))
                .collect();
            (counters, reads)
        };
        let (counters, first) = reads();
        // The GPU's three, KFD's four of the process, one of its descriptors.
        assert_eq!(first, [(0, 3, vec![]), (1, 4, vec![]), (2, 1, vec![])]);
        let groups: Vec<_> = counters.iter().map(|counter| counter.group).collect();
        assert_eq!(
            groups,
            [
                Some(0),
                Some(0),
                Some(0),
                Some(1),
                Some(1),
                Some(1),
                Some(1),
                Some(2)
            ]
        );
        let unchanged = [(0, 0, vec![]), (1, 0, vec![]), (2, 0, vec![])];
        assert_eq!(reads().1, unchanged);
        let used = root.join("sys/class/drm/renderD128/device/mem_info_vram_used");
        fs::remove_file(&used).unwrap();
        fs::remove_dir_all(root.join("proc/4711")).unwrap();
        assert_eq!(reads().1, [(0, 0, vec![1]), (1, 0, vec![]), (2, 0, vec![7])]);
        // It is back with the value that it had; what nothing is read of is not noted.
        fs::write(&used, "4096\n").unwrap();
        assert_eq!(reads().1, [(0, 1, vec![]), (1, 0, vec![])]);
    }

    #[test]
    fn only_the_processes_asked_for_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut book = node(root);
        let (counters, ..) = round(&mut book, root, Some(vec![1]));
        assert!(counters.iter().all(|counter| counter.pid == 0));
        let (counters, ..) = round(&mut book, root, Some(vec![4711]));
        assert!(counters.iter().any(|counter| counter.pid == 4711));
        // A process that has gone is no problem.
        fs::remove_dir_all(root.join("sys/class/kfd/kfd/proc/4711")).unwrap();
        fs::remove_dir_all(root.join("proc/4711")).unwrap();
        assert_eq!(round(&mut book, root, Some(vec![4711])), (vec![], vec![], vec![]));
    }

    #[test]
    fn a_sleeping_gpu_is_left_asleep_and_an_unknown_table_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut book = node(root);
        let device = "sys/class/drm/renderD128/device";
        write(root, &format!("{device}/power/runtime_status"), "suspended\n");
        let (counters, _, notices) = round(&mut book, root, Some(vec![]));
        assert!(
            counters.is_empty() && notices.len() == 1 && notices[0].contains("asleep"),
            "{notices:?}"
        );
        write(root, &format!("{device}/power/runtime_status"), "active\n");
        write(root, &format!("{device}/gpu_metrics"), [4, 0, 9, 9]);
        let (counters, _, notices) = round(&mut book, root, Some(vec![]));
        assert_eq!(counters.len(), 2);
        assert!(
            notices.iter().any(|text| text.contains("version 9.9")),
            "{notices:?}"
        );
        assert_eq!(round(&mut book, root, Some(vec![])).2, Vec::<String>::new());
    }
}
