//! What processes have mapped.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use foldhash::fast::RandomState;
use gputrace_abi::stack::StackCopy;
use gputrace_capture::{
    Meta,
    stack::{CodeFile, Frame, StackEnd},
};
use gputrace_collect::clocks;
use gputrace_files::target::RegularFile;
use gputrace_tracee::process::{self, MappedFile};
use gputrace_unwind::{Dependencies, End, Module, Modules, Registers, Stack, Unwound};
use object::ReadCache;

use super::known;

/// Maximum number of processes whose memory maps are remembered; beyond that all are read again.
const PROCESSES: usize = 4096;

/// Maximum size of all tables together, bytes. Further files are as if they had none.
const TABLES: usize = 1 << 30;

/// Maximum number of files that are kept open. The tables of a file are read when a stack first has
/// a frame in it. Files beyond this number can be read only while a process has them mapped.
const OPEN: usize = 512;

/// An unwound stack.
pub(super) struct Found {
    pub(super) frames: Vec<Frame>,
    pub(super) end: StackEnd,
    /// The return address of the traced function.
    pub(super) return_address: u64,
    /// `None` if the stack must not be recognised, because more may be known of it later.
    pub(super) depends_on: Option<Dependencies>,
}

/// Identifies a file on the node: device and inode.
type FileKey = (u64, u64);

/// A file with code.
enum File {
    /// No stack has led through it yet. `None` if it could not be opened, or too many are open.
    Unread(MappedFile, Option<RegularFile>),
    /// Its number, and its tables; `None` if it cannot be read or has none.
    Read(u32, Option<Module>),
}

/// A part of a file that a process has mapped as code.
#[derive(PartialEq, Eq, Hash)]
struct Mapped {
    range: Range<u64>,
    /// File offset of its first byte.
    offset: u64,
    file: FileKey,
}

/// A process.
#[derive(Default)]
struct Image {
    mapped: HashSet<Mapped, RandomState>,
    /// The part of it that stacks have led through.
    modules: Modules,
    /// When its memory map was read, ns `CLOCK_BOOTTIME`; 0: not yet.
    read: u64,
    /// What was mapped before this time may be gone, ns `CLOCK_BOOTTIME`.
    valid_since: u64,
    has_ended: bool,
}

/// The files and processes in which stacks were found.
#[derive(Default)]
pub(super) struct Images {
    files: HashMap<FileKey, File, RandomState>,
    /// Number of files whose tables were read.
    numbers: u32,
    /// Number of files that are open.
    open: usize,
    /// Size of all tables, bytes.
    size: usize,
    processes: HashMap<u32, Image, RandomState>,
    changed: Vec<u32>,
}

impl Images {
    /// Unwinds a copy. Files that come up for the first time are told to `tell`.
    pub(super) fn unwind(
        &mut self,
        copy: &StackCopy,
        most: usize,
        tell: &mut dyn FnMut(Meta),
    ) -> Found {
        loop {
            let unwound = self.walk(copy, most);
            let Stack { frames, end } = &unwound.stack;
            let last = frames.last().map(gputrace_unwind::Frame::within);
            let more = match (end, last) {
                (End::UnknownCode, Some(last)) => self.learn(copy, last, tell),
                _ => false,
            };
            if !more {
                return self.found(copy.pid, unwound);
            }
        }
    }

    /// Learns what the process has mapped at an address. Returns whether there is something new.
    fn learn(&mut self, copy: &StackCopy, address: u64, tell: &mut dyn FnMut(Meta)) -> bool {
        if !self.is_valid(copy) {
            return false;
        }
        if self.add(copy.pid, address, tell) {
            return true;
        }
        // The process may have mapped it since its memory map was read.
        let read = self.processes.get(&copy.pid).map_or(0, |image| image.read);
        if read >= copy.time {
            return false;
        }
        self.map(copy.pid, copy.time);
        self.add(copy.pid, address, tell)
    }

    /// Whether what is known of the process's code was so when the stack was copied.
    pub(super) fn is_valid(&self, copy: &StackCopy) -> bool {
        let image = self.processes.get(&copy.pid);
        image.is_none_or(|image| image.valid_since <= copy.time)
    }

    /// Processes in which code has been unmapped since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed)
    }

    /// Adds the file that a process has mapped at an address to its modules. Returns whether it was
    /// added.
    fn add(&mut self, pid: u32, address: u64, tell: &mut dyn FnMut(Meta)) -> bool {
        let Some(image) = self.processes.get_mut(&pid) else {
            return false;
        };
        let Some(mapped) = image.mapped.iter().find(|one| one.range.contains(&address)) else {
            return false;
        };
        let Some(file) = self.files.get_mut(&mapped.file) else {
            return false;
        };
        if let File::Unread(found, opened) = file {
            self.numbers += 1;
            self.open -= usize::from(opened.is_some());
            let opened = opened.take().or_else(|| open(pid, found));
            let (module, described) = examine(found, opened.as_ref(), self.numbers);
            tell(described.into());
            let module = module.filter(|module| self.size + module.size() <= TABLES);
            self.size += module.as_ref().map_or(0, Module::size);
            *file = File::Read(self.numbers, module);
        }
        let File::Read(number, Some(module)) = file else {
            return false;
        };
        let Mapped { range, offset, .. } = mapped;
        image
            .modules
            .add(range.clone(), *offset, module.clone(), *number)
    }

    fn walk(&self, copy: &StackCopy, most: usize) -> Unwound {
        let nothing = Modules::default();
        let image = self.processes.get(&copy.pid);
        let modules = image
            .filter(|_| self.is_valid(copy))
            .map_or(&nothing, |image| &image.modules);
        modules.unwind(&Registers(copy.registers), most, |address| {
            known::word(copy, address)
        })
    }

    /// Reads the memory map of a process, and opens the files that are new. If something that it
    /// had mapped is gone, copies from before `since` (ns `CLOCK_BOOTTIME`) cannot be unwound any
    /// more.
    pub(super) fn map(&mut self, pid: u32, since: u64) {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        let now = clocks::now();
        let found = process::code_mappings(pid);
        let image = self.processes.entry(pid).or_default();
        image.read = now;
        let Ok(found) = found else {
            image.has_ended = process::has_ended(pid);
            return;
        };
        image.has_ended = false;
        let mut mapped = HashSet::with_capacity_and_hasher(found.len(), RandomState::default());
        for (mapping, file) in found {
            let key = (file.device, file.inode);
            mapped.insert(Mapped {
                range: mapping.start..mapping.end,
                offset: mapping.offset,
                file: key,
            });
            self.files.entry(key).or_insert_with(|| {
                let opened = (self.open < OPEN).then(|| open(pid, &file)).flatten();
                self.open += usize::from(opened.is_some());
                File::Unread(file, opened)
            });
        }
        if !image.mapped.is_subset(&mapped) {
            image.modules = Modules::default();
            image.valid_since = since;
            self.changed.push(pid);
        }
        image.mapped = mapped;
    }

    fn found(&self, pid: u32, unwound: Unwound) -> Found {
        let Unwound { stack, depends_on } = unwound;
        let Stack { frames, end } = stack;
        let image = self.processes.get(&pid);
        let has_ended = image.is_none_or(|image| image.has_ended);
        let shown = frames.iter().map(|frame| {
            let place = image.and_then(|image| image.modules.place(frame.within()));
            Frame {
                file: place.map(|(file, _)| file),
                address: match place {
                    // The place is within the instruction before.
                    Some((_, address)) if !frame.is_interrupted => address + 1,
                    Some((_, address)) => address,
                    None => frame.address,
                },
                is_interrupted: frame.is_interrupted,
            }
        });
        let end = match end {
            End::Complete => StackEnd::Complete,
            End::TooDeep => StackEnd::TooDeep,
            End::NotCopied => StackEnd::NotCopied,
            End::UnknownCode if has_ended => StackEnd::ProcessEnded,
            End::UnknownCode => StackEnd::UnknownCode,
            End::NoRules => StackEnd::NoRules,
            End::UnsupportedRules => StackEnd::UnsupportedRules,
            End::Loop => StackEnd::Loop,
        };
        Found {
            return_address: frames.first().map_or(0, |frame| frame.address),
            frames: shown.collect(),
            depends_on: (end != StackEnd::ProcessEnded).then_some(depends_on),
            end,
        }
    }
}

/// Opens a file that a process has mapped.
fn open(pid: u32, file: &MappedFile) -> Option<RegularFile> {
    process::locate_mapped(pid, file).ok()?.open().ok()
}

/// Reads the tables of a file, and describes it.
fn examine(
    file: &MappedFile,
    opened: Option<&RegularFile>,
    number: u32,
) -> (Option<Module>, CodeFile) {
    let module = opened.and_then(|opened| Module::read(&ReadCache::new(opened.file())).ok());
    let build_id = module.as_ref().and_then(Module::build_id);
    let described = CodeFile {
        number,
        path: file.path.to_string_lossy().into_owned(),
        build_id: build_id.map(str::to_owned),
    };
    (module, described)
}
