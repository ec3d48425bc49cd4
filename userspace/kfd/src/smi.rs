//! KFD's SMI events: evictions, migrations, page faults, resets, throttling.
//!
//! `AMDKFD_IOC_SMI_EVENTS` provides a descriptor for one GPU. The reader writes a mask of the
//! wanted events into it, and reads lines: the event's number in hexadecimal, followed by its
//! values. The formats are those of `amdkfd/kfd_smi_events.c` and, since Linux 6.12, of
//! `linux/kfd_ioctl.h`; they have grown over time, always at the end of the line. A line that
//! cannot be parsed is returned as text.
//!
//! ```
//! use gputrace_kfd::smi;
//!
//! let event = smi::parse("9 81234567890 -4711 c822 2").unwrap();
//! assert_eq!((event.name, event.time, event.pid), ("QUEUE_EVICTION", Some(81234567890), Some(4711)));
//! assert_eq!(event.get("trigger").unwrap().to_string(), "TTM");
//! ```

use std::{
    fmt,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _},
};

use gputrace_files::kernel;

use crate::{Paths, ioctl::flags::Names};

/// The requested events by number (`KFD_SMI_EVENT_*`), and the bit that requests those of all
/// processes.
const EVENTS: std::ops::RangeInclusive<u32> = 1..=13;
const ALL_PROCESSES: u32 = 64;

/// `AMDKFD_IOC_SMI_EVENTS`.
const SMI_EVENTS: libc::c_ulong = 0xc008_4b1f;

/// `enum KFD_MIGRATE_TRIGGERS`, `KFD_QUEUE_EVICTION_TRIGGERS`, `KFD_SVM_UNMAP_TRIGGERS`.
const MIGRATE: Names = &[
    (0, "PREFETCH"),
    (1, "PAGEFAULT_GPU"),
    (2, "PAGEFAULT_CPU"),
    (3, "TTM_EVICTION"),
];
const EVICT: Names = &[
    (0, "SVM"),
    (1, "USERPTR"),
    (2, "TTM"),
    (3, "SUSPEND"),
    (4, "CRIU_CHECKPOINT"),
    (5, "CRIU_RESTORE"),
];
const UNMAP: Names = &[
    (0, "MMU_NOTIFY"),
    (1, "MMU_NOTIFY_MIGRATE"),
    (2, "UNMAP_FROM_CPU"),
];

/// Role of an event in an operation that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It begins an operation, which ends with the event of this number.
    Begins(u32),
    /// It ends the operation that the event of this number began.
    Ends(u32),
    /// It does not belong to such an operation.
    Moment,
}

/// A value of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmiValue {
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// An address in bytes (not pages), or bits; shown in hexadecimal.
    Hex(u64),
    /// KFD's id of a GPU; 0 is the host.
    Gpu(u32),
    /// The name of a choice, or other text.
    Text(String),
}

impl fmt::Display for SmiValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Gpu(0) => f.write_str("host"),
            Self::Gpu(id) => write!(f, "GPU {id}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmiEvent {
    /// Event number, `KFD_SMI_EVENT_*`.
    pub number: u32,
    /// Event name without that prefix; `UNKNOWN` for a number that this version does not know.
    pub name: &'static str,
    /// Time, ns `CLOCK_BOOTTIME`, if the line contains it.
    pub time: Option<u64>,
    /// Process id, initial pid namespace, if the line contains it.
    pub pid: Option<u32>,
    /// KFD's id of the GPU, if the line contains it.
    pub gpu_id: Option<u32>,
    /// Whether it begins or ends an operation.
    pub part: Part,
    /// Further values.
    pub fields: Vec<(&'static str, SmiValue)>,
}

impl SmiEvent {
    /// A field by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SmiValue> {
        self.fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }
}

/// Parses a line; `None` if it does not begin with a number.
#[must_use]
pub fn parse(line: &str) -> Option<SmiEvent> {
    let (number, rest) = line.trim_end_matches(['\n', '\0']).split_once(' ')?;
    let number = u32::from_str_radix(number, 16).ok()?;
    let mut event = SmiEvent {
        number,
        name: name(number),
        time: None,
        pid: None,
        gpu_id: None,
        part: match number {
            3 | 5 | 7 | 9 => Part::Begins(number + 1),
            4 | 6 | 8 | 10 => Part::Ends(number - 1),
            _ => Part::Moment,
        },
        fields: Vec::new(),
    };
    if known(&mut event, rest).is_none() {
        event.fields = vec![("text", SmiValue::Text(rest.to_owned()))];
    }
    Some(event)
}

fn name(number: u32) -> &'static str {
    match number {
        1 => "VMFAULT",
        2 => "THERMAL_THROTTLE",
        3 => "GPU_PRE_RESET",
        4 => "GPU_POST_RESET",
        5 => "MIGRATE_START",
        6 => "MIGRATE_END",
        7 => "PAGE_FAULT_START",
        8 => "PAGE_FAULT_END",
        9 => "QUEUE_EVICTION",
        10 => "QUEUE_RESTORE",
        11 => "UNMAP_FROM_GPU",
        12 => "PROCESS_START",
        13 => "PROCESS_END",
        _ => "UNKNOWN",
    }
}

/// Size of a host page, bytes: KFD gives addresses and sizes in pages.
const PAGE: u64 = 4096;

/// Parses the line of an event whose format is known.
fn known(event: &mut SmiEvent, text: &str) -> Option<()> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let fields = &mut Vec::new();
    if matches!(event.number, 5..=11) {
        event.time = Some(words.next()?.parse().ok()?);
        event.pid = Some(words.next()?.strip_prefix('-')?.parse().ok()?);
    }
    match event.number {
        1 => {
            let (pid, task) = text.split_once(':')?;
            event.pid = Some(hex(pid)? as u32);
            fields.push(("task", SmiValue::Text(task.to_owned())));
        }
        2 => {
            let (mask, count) = text.split_once(':')?;
            fields.push(("mask", SmiValue::Hex(hex(mask)?)));
            fields.push(("count", SmiValue::Number(hex(count)?)));
        }
        3 | 4 => {
            fields.push(("sequence", SmiValue::Number(hex(words.next()?)?)));
            let cause: Vec<&str> = words.collect();
            if !cause.is_empty() {
                fields.push(("cause", SmiValue::Text(cause.join(" "))));
            }
        }
        5 | 6 => {
            range(words.next()?, fields)?;
            let (from, to) = words.next()?.split_once("->")?;
            event.gpu_id = [to, from]
                .into_iter()
                .filter_map(|gpu| Some(hex(gpu)? as u32))
                .find(|gpu| *gpu != 0);
            fields.push(("from", SmiValue::Gpu(hex(from)? as u32)));
            fields.push(("to", SmiValue::Gpu(hex(to)? as u32)));
            if event.number == 5 {
                let (prefetch, preferred) = words.next()?.split_once(':')?;
                fields.push(("prefetch", SmiValue::Hex(hex(prefetch)?)));
                fields.push(("preferred", SmiValue::Hex(hex(preferred)?)));
            }
            fields.push(("trigger", choice(MIGRATE, words.next()?)?));
            if let Some(error) = words.next() {
                fields.push(("error", SmiValue::Signed(error.parse().ok()?)));
            }
        }
        7 | 8 => {
            // The address is a page number, too.
            let (address, node) = words
                .next()?
                .strip_prefix('@')?
                .strip_suffix(')')?
                .split_once('(')?;
            event.gpu_id = Some(hex(node)? as u32);
            fields.push(("address", SmiValue::Hex(hex(address)?.saturating_mul(PAGE))));
            let (name, meaning) = match words.next()? {
                "R" => ("access", "read"),
                "W" => ("access", "write"),
                "M" => ("outcome", "migrated"),
                "U" => ("outcome", "page table updated"),
                _ => return None,
            };
            fields.push((name, SmiValue::Text(meaning.to_owned())));
        }
        9 => {
            event.gpu_id = Some(hex(words.next()?)? as u32);
            fields.push(("trigger", choice(EVICT, words.next()?)?));
        }
        10 => {
            event.gpu_id = Some(hex(words.next()?)? as u32);
            fields.push((
                "rescheduled",
                SmiValue::Text((words.next() == Some("R")).to_string()),
            ));
        }
        11 => {
            range(words.next()?, fields)?;
            event.gpu_id = Some(hex(words.next()?)? as u32);
            fields.push(("trigger", choice(UNMAP, words.next()?)?));
        }
        12 | 13 => {
            event.pid = Some(hex(words.next()?)? as u32);
            let task: Vec<&str> = words.collect();
            fields.push(("task", SmiValue::Text(task.join(" "))));
        }
        _ => return None,
    }
    event.fields = std::mem::take(fields);
    Some(())
}

/// Parses `@START(SIZE)`, given in pages.
fn range(word: &str, fields: &mut Vec<(&'static str, SmiValue)>) -> Option<()> {
    let (start, size) = word.strip_prefix('@')?.strip_suffix(')')?.split_once('(')?;
    fields.push(("address", SmiValue::Hex(hex(start)?.saturating_mul(PAGE))));
    fields.push(("bytes", SmiValue::Number(hex(size)?.saturating_mul(PAGE))));
    Some(())
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.trim(), 16).ok()
}

fn choice(names: Names, word: &str) -> Option<SmiValue> {
    let number: u32 = word.parse().ok()?;
    let known = names.iter().find(|(value, _)| *value == number);
    Some(match known {
        Some((_, name)) => SmiValue::Text((*name).to_owned()),
        None => SmiValue::Number(number.into()),
    })
}

/// Reads the events of one GPU.
#[derive(Debug)]
pub struct SmiReader {
    gpu_id: u32,
    events: File,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
}

impl SmiReader {
    /// Requests the events of a GPU. Those of other processes need `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// The system's error: there is no such GPU, or this process may not use it.
    pub fn open(paths: &Paths, gpu_id: u32) -> io::Result<Self> {
        let device = kernel::open_writable(&paths.dev_kfd)?;
        // `struct kfd_ioctl_smi_events_args`: the GPU, and the descriptor that the driver creates.
        let mut args = [gpu_id, 0];
        // SAFETY: the structure has the size encoded in the request's number.
        if unsafe { libc::ioctl(device.as_raw_fd(), SMI_EVENTS, &raw mut args) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let [_, fd] = args;
        // SAFETY: the driver has just created the descriptor for this process, and nobody else uses
        // it.
        let mut events = unsafe { File::from_raw_fd(fd.cast_signed()) };
        let mask = EVENTS
            .chain([ALL_PROCESSES])
            .fold(0u64, |mask, number| mask | 1 << (number - 1));
        events.write_all(&mask.to_ne_bytes())?;
        Ok(Self {
            gpu_id,
            events,
            rest: Vec::new(),
        })
    }

    /// KFD's id of the GPU.
    #[must_use]
    pub const fn gpu_id(&self) -> u32 {
        self.gpu_id
    }

    /// Returns the complete lines that are waiting; never blocks.
    ///
    /// # Errors
    ///
    /// The system's error, except that no data is available.
    pub fn read(&mut self) -> io::Result<Vec<String>> {
        let mut buffer = [0; 8192];
        match self.events.read(&mut buffer) {
            Ok(count) => self
                .rest
                .extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let whole = self
            .rest
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines = self.rest.drain(..whole).collect::<Vec<u8>>();
        Ok(String::from_utf8_lossy(&lines)
            .lines()
            .map(str::to_owned)
            .collect())
    }
}

impl AsFd for SmiReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &str) -> String {
        let event = parse(line).unwrap();
        let fields: Vec<String> = event
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!(
            "{} time={:?} pid={:?} gpu={:?} {}",
            event.name,
            event.time,
            event.pid,
            event.gpu_id,
            fields.join(" ")
        )
    }

    #[test]
    fn lines_of_every_kind_are_read() {
        for (line, expected) in [
            (
                "1 1267:app",
                "VMFAULT time=None pid=Some(4711) gpu=None task=app",
            ),
            (
                "2 40:3",
                "THERMAL_THROTTLE time=None pid=None gpu=None mask=0x40 count=3",
            ),
            (
                "3 1f",
                "GPU_PRE_RESET time=None pid=None gpu=None sequence=31",
            ),
            (
                "3 2 job hang",
                "GPU_PRE_RESET time=None pid=None gpu=None sequence=2 cause=job hang",
            ),
            (
                "5 100 -47 @7f00(200) 0->c822 c822:0 1",
                "MIGRATE_START time=Some(100) pid=Some(47) gpu=Some(51234) address=0x7f00000 bytes=2097152 from=host \
                 to=GPU 51234 prefetch=0xc822 preferred=0x0 trigger=PAGEFAULT_GPU",
            ),
            (
                "6 120 -47 @7f00(200) 0->c822 1 -12",
                "MIGRATE_END time=Some(120) pid=Some(47) gpu=Some(51234) address=0x7f00000 bytes=2097152 from=host \
                 to=GPU 51234 trigger=PAGEFAULT_GPU error=-12",
            ),
            (
                "7 90 -47 @7f00(c822) W",
                "PAGE_FAULT_START time=Some(90) pid=Some(47) gpu=Some(51234) address=0x7f00000 access=write",
            ),
            (
                "8 95 -47 @7f00(c822) M",
                "PAGE_FAULT_END time=Some(95) pid=Some(47) gpu=Some(51234) address=0x7f00000 outcome=migrated",
            ),
            (
                "9 5 -47 c822 2",
                "QUEUE_EVICTION time=Some(5) pid=Some(47) gpu=Some(51234) trigger=TTM",
            ),
            (
                "a 9 -47 c822",
                "QUEUE_RESTORE time=Some(9) pid=Some(47) gpu=Some(51234) rescheduled=false",
            ),
            (
                "a 9 -47 c822 R",
                "QUEUE_RESTORE time=Some(9) pid=Some(47) gpu=Some(51234) rescheduled=true",
            ),
            (
                "b 9 -47 @10(1) c822 2",
                "UNMAP_FROM_GPU time=Some(9) pid=Some(47) gpu=Some(51234) address=0x10000 bytes=4096 trigger=UNMAP_FROM_CPU",
            ),
            (
                "c 1267 my app",
                "PROCESS_START time=None pid=Some(4711) gpu=None task=my app",
            ),
            (
                "e something new",
                "UNKNOWN time=None pid=None gpu=None text=something new",
            ),
        ] {
            assert_eq!(shown(line), expected);
        }
        assert_eq!(parse("nonsense here"), None);
        assert_eq!(parse(""), None);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "[0-9a-f]{1,3} .{0,60}|.*") {
            if let Some(event) = parse(&line) {
                prop_assert!(!event.fields.is_empty() || event.number == 0 || !event.name.is_empty());
            }
        }

        #[test]
        fn evictions_and_restores_are_read_as_the_driver_writes_them(time: u64, pid in 1u32..4_194_304, gpu: u32, trigger in 0u32..9) {
            let evicted = parse(&format!("9 {time} -{pid} {gpu:x} {trigger}\n")).unwrap();
            prop_assert_eq!((evicted.time, evicted.pid, evicted.gpu_id), (Some(time), Some(pid), Some(gpu)));
            let restored = parse(&format!("a {time} -{pid} {gpu:x} 0\n")).unwrap();
            prop_assert_eq!((restored.time, restored.pid, restored.gpu_id), (Some(time), Some(pid), Some(gpu)));
            prop_assert_eq!((evicted.part, restored.part), (Part::Begins(10), Part::Ends(9)));
        }
    }
}
