//! What processes have mapped.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gputrace_abi::stack::{PAGE, STACK_POINTER, StackCopy};
use gputrace_capture::{
    Meta,
    stack::{CodeFile, Frame, StackEnd},
};
use gputrace_collect::clocks;
use gputrace_tracee::process::{self, MappedFile};
use gputrace_unwind::{Dependencies, End, Module, Modules, Registers, Stack, Unwound};
use object::ReadCache;

/// Maximum number of processes whose memory maps are remembered; beyond that all are read again.
const PROCESSES: usize = 4096;

/// Maximum size of all tables together, bytes. Further files are as if they had none.
const TABLES: usize = 1 << 30;

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
struct Known {
    number: u32,
    /// `None` if it cannot be read or has no tables.
    module: Option<Module>,
}

/// A process.
#[derive(Default)]
struct Image {
    modules: Modules,
    /// When its memory map was read, ns `CLOCK_BOOTTIME`; 0: not yet.
    read: u64,
    has_ended: bool,
}

/// The files and processes in which stacks were found.
#[derive(Default)]
pub(super) struct Images {
    files: HashMap<FileKey, Known, RandomState>,
    /// Size of all tables, bytes.
    size: usize,
    processes: HashMap<u32, Image, RandomState>,
}

impl Images {
    /// Unwinds a copy. Files that come up for the first time are told to `tell`.
    pub(super) fn unwind(
        &mut self,
        copy: &StackCopy,
        most: usize,
        tell: &mut dyn FnMut(Meta),
    ) -> Found {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&copy.pid) {
            self.processes.clear();
        }
        let mut unwound = self.walk(copy, most);
        // The process may have mapped a file since its memory map was read.
        let is_unknown = unwound.stack.end == End::UnknownCode;
        let image = self.processes.entry(copy.pid).or_default();
        if is_unknown && image.read < copy.time {
            self.read(copy.pid, tell);
            unwound = self.walk(copy, most);
        }
        self.found(copy.pid, unwound)
    }

    fn walk(&self, copy: &StackCopy, most: usize) -> Unwound {
        let nothing = Modules::default();
        let image = self.processes.get(&copy.pid);
        let modules = image.map_or(&nothing, |image| &image.modules);
        let [_, _, pointer, ..] = copy.registers;
        debug_assert_eq!(STACK_POINTER, 2);
        let begin = pointer & !(PAGE as u64 - 1);
        let copied = usize::try_from(copy.pages).unwrap_or_default() * PAGE;
        let copied = copy.memory.get(..copied).unwrap_or_default();
        modules.unwind(&Registers(copy.registers), most, |address| {
            let at = usize::try_from(address.checked_sub(begin)?).ok()?;
            let word = copied.get(at..at.checked_add(8)?)?;
            word.try_into().ok().map(u64::from_ne_bytes)
        })
    }

    /// Reads the memory map of a process.
    fn read(&mut self, pid: u32, tell: &mut dyn FnMut(Meta)) {
        let now = clocks::now();
        let mapped = process::code_mappings(pid);
        let image = self.processes.entry(pid).or_default();
        image.read = now;
        let Ok(mapped) = mapped else {
            image.has_ended = process::has_ended(pid);
            return;
        };
        // What it had mapped before may be gone.
        image.modules = Modules::default();
        image.has_ended = false;
        for (mapping, file) in mapped {
            let next = self.files.len() as u32 + 1;
            let known = self
                .files
                .entry((file.device, file.inode))
                .or_insert_with(|| {
                    let (module, described) = examine(pid, &file, next);
                    tell(described.into());
                    let module = module.filter(|module| self.size + module.size() <= TABLES);
                    self.size += module.as_ref().map_or(0, Module::size);
                    Known {
                        number: next,
                        module,
                    }
                });
            if let Some(module) = &known.module {
                let range = mapping.start..mapping.end;
                // A mapping that is not one of the file's segments has no rules.
                image
                    .modules
                    .add(range, mapping.offset, module.clone(), known.number);
            }
        }
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

/// Reads the tables of a file, and describes it.
fn examine(pid: u32, file: &MappedFile, number: u32) -> (Option<Module>, CodeFile) {
    let described = CodeFile {
        number,
        path: file.path.to_string_lossy().into_owned(),
        build_id: None,
    };
    let opened = process::locate_mapped(pid, file)
        .ok()
        .and_then(|place| place.open().ok());
    let Some(opened) = opened else {
        return (None, described);
    };
    let cache = ReadCache::new(opened.file());
    let module = Module::read(&cache).ok();
    let build_id = module
        .as_ref()
        .and_then(Module::build_id)
        .map(str::to_owned);
    let described = CodeFile {
        build_id,
        ..described
    };
    (module, described)
}
