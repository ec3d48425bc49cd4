//! The code objects of one process, kept up to date.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use gputrace_tracee::process::maps::{self, Mapping};

use crate::{
    cache::Cache,
    chain::Chain,
    container::{self, ContainerError},
    contents::{Contents, Kernel},
    elf::{ElfError, Layout},
    hash::ContentHash,
    image::Image,
    memory::{Memory, MemoryError, ProcessMemory},
    registry::{Damage, Listed, Registry, RegistryError},
    source::{self, FilePart, SourceError},
    uri::{Uri, UriError},
};

/// Maximum number of bytes that one update reads, of all code objects together. A process can refer
/// to the same memory any number of times.
const MAX_BYTES: u64 = 8 << 30;

/// Storage of a code object's bytes when it was loaded, in rocprofiler's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// In a file.
    File,
    /// Only in memory: compiled at run time, decompressed or received.
    Memory,
}

/// A code object that a process has loaded.
#[derive(Clone, Debug)]
pub struct CodeObject {
    /// Its origin; bytes that are not UTF-8 are replaced.
    pub uri: String,
    /// File or memory.
    pub storage: Storage,
    /// Difference between addresses in memory and in the code object, modulo 2⁶⁴ (`l_addr`).
    pub load_delta: u64,
    /// Lowest address that it occupies.
    pub load_base: u64,
    /// Number of bytes that it occupies from there.
    pub load_size: u64,
    /// Its contents.
    pub contents: Arc<Contents>,
    listed: Listed,
    /// Its loaded image, with a hash of the beginning that shows whether the image was replaced.
    image: Option<(Image, ContentHash)>,
}

impl CodeObject {
    /// Its kernels with their handles, in order of address.
    pub fn kernels(&self) -> impl Iterator<Item = (u64, &Kernel)> {
        let handle = |kernel: &Kernel| self.load_delta.wrapping_add(kernel.address);
        self.contents
            .kernels()
            .iter()
            .map(move |kernel| (handle(kernel), kernel))
    }

    /// The kernel with this handle.
    #[must_use]
    pub fn kernel(&self, kernel_object: u64) -> Option<&Kernel> {
        self.contents
            .kernel_at(kernel_object.wrapping_sub(self.load_delta))
    }
}

/// Changes since the last update.
#[derive(Debug, Default)]
pub struct Update {
    /// Newly loaded code objects, in the order of loading.
    pub added: Vec<Arc<CodeObject>>,
    /// Code objects that are no longer loaded.
    pub removed: Vec<Arc<CodeObject>>,
    /// Code objects and lists that could not be read; each failure is reported once.
    pub problems: Vec<Problem>,
    /// Whether all lists were stable. If not, another update is due soon.
    pub settled: bool,
}

/// A code object or list that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A code object cannot be read.
    #[error("the code object {uri} cannot be read, so its kernels have no names: {cause}")]
    CodeObject {
        /// URI of the code object.
        uri: String,
        /// Difference between addresses in memory and in the code object.
        load_delta: u64,
        /// The reason.
        cause: Cause,
    },
    /// A list cannot be followed to its end.
    #[error(transparent)]
    List(#[from] Damage),
}

/// Why a code object cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The URI is invalid.
    #[error("its URI is not understood: {0}")]
    Uri(#[from] UriError),
    /// The bytes cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The bytes are not a code object.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The bytes are a damaged bundle.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The bytes are a bundle, and it is unknown which of its code objects was loaded.
    #[error(
        "it is one of {candidates} in a bundle, and gputrace did not find its loaded image, which \
         would show which one"
    )]
    Ambiguous {
        /// Number of code objects in the bundle.
        candidates: usize,
    },
    /// The file or memory it was loaded from has other contents now, and the loaded image cannot be
    /// read.
    #[error("what is there now is not what was loaded, and the loaded image cannot be read")]
    Changed,
    /// This update has reached its limit of bytes.
    #[error("the code objects of the process are larger than {MAX_BYTES} bytes together")]
    Budget,
}

/// Maximum number of attempts for a code object that cannot be read.
const TRIES: u32 = 4;

/// The code objects that a process has loaded now.
///
/// Created when gputrace begins to trace the process, and updated when the runtime reports a change
/// ([`Registry::notification`]). The cost of an update is proportional to the changes, plus a few
/// checks: it does not go through all that is loaded ([`crate::chain`]).
#[derive(Debug)]
pub struct CodeObjects {
    memory: ProcessMemory,
    registries: Vec<Registry>,
    known: Known,
}

/// The known code objects of a process, independent of how its memory is read.
#[derive(Debug)]
struct Known {
    /// The lists.
    chains: Vec<Chain>,
    cache: Arc<Cache>,
    loaded: HashMap<Listed, Arc<CodeObject>>,
    /// Code objects by load base.
    places: BTreeMap<u64, Arc<CodeObject>>,
    /// Code objects that could not be read but may be readable later, with the number of attempts.
    pending: Vec<(Listed, u32)>,
}

impl CodeObjects {
    /// Finds the lists of a process. They are first read by [`CodeObjects::update`].
    ///
    /// # Errors
    ///
    /// [`RegistryError`]; [`RegistryError::NoRuntime`] also if the process has not loaded the
    /// runtime yet.
    pub fn open(pid: u32, cache: Arc<Cache>) -> Result<Self, RegistryError> {
        // Opened first, so that everything else belongs to the same process.
        let memory = ProcessMemory::open(pid)?;
        let registries = Registry::find(pid)?;
        if !memory.is_alive()? {
            return Err(MemoryError::NoSuchProcess { pid }.into());
        }
        let heads = registries.iter().map(|registry| registry.address);
        Ok(Self {
            known: Known::new(heads, cache),
            memory,
            registries,
        })
    }

    /// Like [`CodeObjects::open`], for lists with heads at these addresses, outside of any runtime
    /// library: those of tests and benchmarks.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn with_lists(
        pid: u32,
        heads: impl IntoIterator<Item = u64>,
        cache: Arc<Cache>,
    ) -> Result<Self, MemoryError> {
        Ok(Self {
            memory: ProcessMemory::open(pid)?,
            registries: Vec::new(),
            known: Known::new(heads.into_iter(), cache),
        })
    }

    /// The process's memory.
    #[must_use]
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// The lists, needed for probes on their changes.
    #[must_use]
    pub fn registries(&self) -> &[Registry] {
        &self.registries
    }

    /// The loaded code objects as of the last update, in order of address.
    pub fn loaded(&self) -> impl Iterator<Item = &Arc<CodeObject>> {
        self.known.places.values()
    }

    /// The kernel with this handle from a dispatch packet, as of the last update.
    #[must_use]
    pub fn kernel(&self, kernel_object: u64) -> Option<(&Arc<CodeObject>, &Kernel)> {
        let (_, object) = self.known.places.range(..=kernel_object).next_back()?;
        Some((object, object.kernel(kernel_object)?))
    }

    /// Reads what is new in the lists. A removed entry is noticed when another takes its place, and
    /// otherwise within several updates: each one checks a part of the known entries.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the process is gone or may no longer be read. The known code objects
    /// stay.
    pub fn update(&mut self) -> Result<Update, MemoryError> {
        self.known.update(&self.memory, self.memory.pid())
    }
}

impl Known {
    fn new(heads: impl Iterator<Item = u64>, cache: Arc<Cache>) -> Self {
        Self {
            chains: heads.map(Chain::new).collect(),
            cache,
            loaded: HashMap::new(),
            places: BTreeMap::new(),
            pending: Vec::new(),
        }
    }

    fn update(&mut self, memory: &impl Memory, pid: u32) -> Result<Update, MemoryError> {
        let mut update = Update {
            settled: true,
            ..Update::default()
        };
        let mut added = Vec::new();
        let mut removed = Vec::new();
        for chain in &mut self.chains {
            let is_same = |listed: &Listed| {
                let known = self.loaded.get(listed);
                known.is_none_or(|known| !is_another(memory, known))
            };
            let changes = chain.look(memory, is_same)?;
            update.settled &= changes.settled;
            update.problems.extend(changes.damage.map(Problem::List));
            removed.extend(changes.removed);
            added.extend(changes.added.into_iter().map(|listed| (listed, 0)));
        }
        for listed in &removed {
            update.removed.extend(self.remove(listed));
        }
        let mut reading = Reading {
            memory,
            pid,
            cache: &self.cache,
            mappings: None,
            left: MAX_BYTES,
        };
        let tried = std::mem::take(&mut self.pending);
        for (object, tries) in tried.into_iter().chain(added) {
            if tries > 0 && !self.chains.iter().any(|chain| chain.has(&object)) {
                continue;
            }
            match reading.code_object(&object) {
                Ok(found) => update.added.push(Arc::new(found)),
                Err(cause) => {
                    // A list that is changing may be readable the next time.
                    let again = !update.settled || matches!(cause, Cause::Budget);
                    if tries == 0 {
                        update.problems.push(Problem::CodeObject {
                            uri: String::from_utf8_lossy(&object.uri).into_owned(),
                            load_delta: object.load_delta,
                            cause,
                        });
                    }
                    if again && tries + 1 < TRIES {
                        self.pending.push((object, tries + 1));
                    }
                }
            }
        }
        for object in &update.added {
            self.loaded.insert(object.listed.clone(), object.clone());
            self.places.insert(object.load_base, object.clone());
        }
        Ok(update)
    }

    fn remove(&mut self, object: &Listed) -> Option<Arc<CodeObject>> {
        let removed = self.loaded.remove(object)?;
        if self
            .places
            .get(&removed.load_base)
            .is_some_and(|there| Arc::ptr_eq(there, &removed))
        {
            self.places.remove(&removed.load_base);
        }
        Some(removed)
    }
}

/// Whether another code object is loaded in place of a known one. List entry, load address and URI
/// can be the same by chance, after a program has unloaded one code object and compiled the next.
fn is_another(memory: &impl Memory, known: &CodeObject) -> bool {
    let Some((image, expected)) = &known.image else {
        return false;
    };
    if image.beginning(memory).as_ref() == Some(expected) {
        return false;
    }
    // The image is gone: it may have moved while everything else stayed the same.
    let found = Image::find(memory, &known.listed);
    found.and_then(|image| image.beginning(memory)) != Some(*expected)
}

/// Reads the bytes of code objects during one update.
struct Reading<'a, M> {
    memory: &'a M,
    pid: u32,
    cache: &'a Cache,
    /// Mappings of the process, read on demand.
    mappings: Option<Vec<Mapping>>,
    /// Number of bytes that may still be read.
    left: u64,
}

impl<M: Memory> Reading<'_, M> {
    fn code_object(&mut self, listed: &Listed) -> Result<CodeObject, Cause> {
        let uri = Uri::parse(&listed.uri)?;
        let storage = match uri {
            Uri::File { .. } => Storage::File,
            Uri::Memory { .. } => Storage::Memory,
        };
        let image = Image::find(self.memory, listed);
        let loaded = image.and_then(|image| image.constant_hash(self.memory));
        let is_it = |contents: &Contents| loaded.is_none() || loaded == contents.constant_hash();
        let contents = match (self.contents(&uri, &is_it), image) {
            (Ok(Some(contents)), _) => contents,
            (Ok(None), None) => return Err(Cause::Changed),
            // The first reason is the one to report.
            (Err(cause), None) => return Err(cause),
            (found, Some(image)) => {
                let contents = self.image(image);
                contents.map_err(|from_image| found.err().unwrap_or(from_image))?
            }
        };
        Ok(CodeObject {
            uri: String::from_utf8_lossy(&listed.uri).into_owned(),
            storage,
            load_delta: listed.load_delta,
            load_base: listed.load_delta.wrapping_add(contents.base),
            load_size: contents.load_size,
            contents,
            listed: listed.clone(),
            image: image.and_then(|image| Some((image, image.beginning(self.memory)?))),
        })
    }

    /// Reads a code object from its URI; `None` if the data there is not what was loaded.
    fn contents(
        &mut self,
        uri: &Uri,
        is_it: &dyn Fn(&Contents) -> bool,
    ) -> Result<Option<Arc<Contents>>, Cause> {
        match uri {
            Uri::Memory { range, .. } => {
                self.charge(range.size)?;
                let bytes = source::memory(self.memory, *range)?;
                self.parse(&bytes, is_it)
            }
            Uri::File { path, range } => {
                let pid = self.pid;
                // If the mappings cannot be read, the path is looked up without them.
                let mappings = self
                    .mappings
                    .get_or_insert_with(|| maps::of_process(pid).unwrap_or_default());
                let part = FilePart::open(pid, path, *range, mappings)?;
                let before = part.state()?;
                if let Some(contents) = self.cache.of_file(&before) {
                    return Ok(is_it(&contents).then_some(contents));
                }
                self.charge(part.range.size)?;
                let bytes = part.read()?;
                let contents = self.parse(&bytes, is_it)?;
                // A code object selected from a bundle depends on the process, so it is not shared.
                if let Some(contents) = &contents
                    && contents.size == bytes.len() as u64
                    && part.state()? == before
                {
                    self.cache.is_file(before, contents);
                }
                Ok(contents)
            }
        }
    }

    /// Parses bytes, which may be a bundle of several code objects.
    fn parse(
        &self,
        bytes: &[u8],
        is_it: &dyn Fn(&Contents) -> bool,
    ) -> Result<Option<Arc<Contents>>, Cause> {
        if !container::is_bundle(bytes) {
            let contents = self.cache.contents(bytes, Layout::File)?;
            return Ok(is_it(&contents).then_some(contents));
        }
        let mut candidates = Vec::new();
        for candidate in container::code_objects(bytes)? {
            let contents = self.cache.contents(&candidate.bytes, Layout::File)?;
            if is_it(&contents) && !candidates.contains(&contents) {
                candidates.push(contents);
            }
        }
        match candidates.len() {
            0 | 1 => Ok(candidates.pop()),
            candidates => Err(Cause::Ambiguous { candidates }),
        }
    }

    /// Reads the loaded image.
    fn image(&mut self, image: Image) -> Result<Arc<Contents>, Cause> {
        self.charge(image.size())?;
        let bytes = image.read(self.memory).ok_or(Cause::Changed)?;
        Ok(self.cache.contents(&bytes, Layout::Loaded)?)
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Cause> {
        self.left = self.left.checked_sub(bytes).ok_or(Cause::Budget)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{List, code_object};

    /// Load address of the first code object in the simulated process.
    const LOADED: u64 = 0x10_0000_0000;

    /// Code object `number` of many, all different.
    fn object(number: usize) -> Vec<u8> {
        let mut bytes = code_object(false);
        bytes[0x5f0..0x5f8].copy_from_slice(&(number as u64).to_le_bytes());
        bytes
    }

    /// Load address of code object `number`.
    fn place(number: usize) -> u64 {
        LOADED + number as u64 * 0x800
    }

    /// Writes bytes where code object `number` is loaded.
    fn put(list: &mut List, number: usize, bytes: &[u8]) {
        let memory = &mut list.memory.parts[1].1;
        let begin = number * 0x800;
        memory.resize(memory.len().max(begin + 0x800), 0);
        memory[begin..begin + bytes.len()].copy_from_slice(bytes);
    }

    fn load(list: &mut List, number: usize, bytes: &[u8]) {
        put(list, number, bytes);
        let at = place(number);
        let entry = list.free.pop().unwrap_or_else(|| list.put(&[0; 40]));
        list.add_loaded(entry, at, &format!("memory://1#offset={at}&size=1536"));
    }

    fn process() -> (List, Known) {
        let mut list = List::of(&[]);
        list.memory.parts.push((LOADED, Vec::new()));
        (list, Known::new([List::HEAD].into_iter(), Arc::default()))
    }

    /// A program that compiles thousands of kernels pays the same for each, however many there are.
    #[test]
    fn what_an_update_reads_does_not_grow() {
        let (mut list, mut known) = process();
        let mut costs = Vec::new();
        for number in 0..5_000 {
            load(&mut list, number, &object(number));
            list.memory.reads.set(0);
            let update = known.update(&list.memory, 1).unwrap();
            assert_eq!((update.added.len(), update.removed.len()), (1, 0));
            assert!(update.settled && update.problems.is_empty());
            let (handle, kernel) = update.added[0].kernels().next().unwrap();
            assert_eq!((handle - place(number), &*kernel.name), (0x500, "first"));
            costs.push(list.memory.reads.get());
        }
        let most = |costs: &[usize]| costs.iter().copied().max().unwrap();
        assert!(most(&costs) <= 60, "{}", most(&costs));
        assert!(most(&costs[4_900..]) <= most(&costs[..100]));
    }

    /// The next code object replaces a removed one in the list, in memory, and by name: only its
    /// bytes differ.
    #[test]
    fn another_in_the_same_place_is_noticed() {
        let (mut list, mut known) = process();
        for number in 0..100 {
            load(&mut list, number, &object(number));
        }
        known.update(&list.memory, 1).unwrap();
        for number in 100..105 {
            put(&mut list, 99, &object(number));
            let update = known.update(&list.memory, 1).unwrap();
            assert_eq!(
                (update.added.len(), update.removed.len()),
                (1, 1),
                "{number}"
            );
        }
        // A replacement in the middle is found within several updates, as they check all entries in
        // turn.
        put(&mut list, 50, &object(1_000));
        let mut found = 0;
        for _ in 0..4 {
            let update = known.update(&list.memory, 1).unwrap();
            assert_eq!(update.added.len(), update.removed.len());
            found += update.added.len();
        }
        assert_eq!(
            (found, known.loaded.len(), known.places.len()),
            (1, 100, 100)
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_once() {
        let (mut list, mut known) = process();
        load(&mut list, 0, b"no code object");
        let update = known.update(&list.memory, 1).unwrap();
        assert!(matches!(update.problems[..], [Problem::CodeObject { .. }]));
        assert!(known.update(&list.memory, 1).unwrap().problems.is_empty());
        // While the list is changing, reading is tried again, but not endlessly.
        list.set(List::HEAD + 24, 1);
        load(&mut list, 1, b"not yet");
        let mut told = 0;
        for _ in 0..10 {
            told += known.update(&list.memory, 1).unwrap().problems.len();
        }
        assert_eq!((told, known.pending.len()), (1, 0));
        load(&mut list, 2, b"not yet");
        assert_eq!(known.update(&list.memory, 1).unwrap().added.len(), 0);
        put(&mut list, 2, &object(2));
        assert_eq!(known.update(&list.memory, 1).unwrap().added.len(), 1);
    }
}
