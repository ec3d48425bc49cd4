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
    contents::{ContentHash, Contents, Kernel},
    elf::{ElfError, Layout},
    image::Image,
    memory::{Memory, MemoryError, ProcessMemory},
    registry::{Damage, Listed, Registry, RegistryError},
    source::{self, FilePart, SourceError},
    uri::{Uri, UriError},
};

/// Bytes that one update reads at most, of all code objects together. A process can name its memory as often
/// as it likes.
const MAX_BYTES: u64 = 8 << 30;

/// Where the bytes of a code object were when it was loaded, in rocprofiler's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// In a file.
    File,
    /// In memory only: compiled at run time, decompressed or received.
    Memory,
}

/// A code object that a process has loaded.
#[derive(Clone, Debug)]
pub struct CodeObject {
    /// Where it came from; bytes that are no UTF-8 are replaced.
    pub uri: String,
    /// File or memory.
    pub storage: Storage,
    /// Difference between addresses in memory and those in the code object, modulo 2⁶⁴ (`l_addr`).
    pub load_delta: u64,
    /// Lowest address that it occupies.
    pub load_base: u64,
    /// Bytes that it occupies from there.
    pub load_size: u64,
    /// What is in it.
    pub contents: Arc<Contents>,
    listed: Listed,
    /// Its loaded image with a hash of its beginning, to notice another one in its place.
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

    /// The kernel that a handle stands for.
    #[must_use]
    pub fn kernel(&self, kernel_object: u64) -> Option<&Kernel> {
        self.contents
            .kernel_at(kernel_object.wrapping_sub(self.load_delta))
    }
}

/// What has changed since the last update.
#[derive(Debug, Default)]
pub struct Update {
    /// Newly loaded code objects, in the order of loading.
    pub added: Vec<Arc<CodeObject>>,
    /// Code objects that are gone.
    pub removed: Vec<Arc<CodeObject>>,
    /// What could not be read; each failure is told once.
    pub problems: Vec<Problem>,
    /// Whether all lists held still. If not, another update is due soon.
    pub settled: bool,
}

/// Something that the process has loaded and that cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A code object cannot be read.
    #[error("the code object {uri} cannot be read, so its kernels have no names: {cause}")]
    CodeObject {
        /// Its URI.
        uri: String,
        /// Difference between addresses in memory and those in the code object.
        load_delta: u64,
        /// Why.
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
    /// Its URI is none.
    #[error("its URI is not understood: {0}")]
    Uri(#[from] UriError),
    /// Its bytes cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// They are no code object.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// They are a damaged bundle.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// They are a bundle, and nothing says which of its code objects was loaded.
    #[error(
        "it is one of {candidates} in a bundle, and its loaded image was not found to tell which"
    )]
    Ambiguous {
        /// Code objects in the bundle.
        candidates: usize,
    },
    /// Something else is where it was loaded from, and the loaded image cannot be read.
    #[error("what is there now is not what was loaded, and the loaded image cannot be read")]
    Changed,
    /// This update has read enough.
    #[error("the code objects of the process are larger than {MAX_BYTES} bytes together")]
    Budget,
}

/// How often a code object is tried that cannot be read.
const TRIES: u32 = 4;

/// The code objects that a process has loaded now.
///
/// Built when gputrace comes to the process and updated when the runtime tells of a change
/// ([`Registry::notification`]). An update costs what has changed and a few checks: it does not go through
/// all that is loaded ([`crate::chain`]).
#[derive(Debug)]
pub struct CodeObjects {
    memory: ProcessMemory,
    registries: Vec<Registry>,
    known: Known,
}

/// What is known of a process, whatever its memory is read by.
#[derive(Debug)]
struct Known {
    /// The lists.
    chains: Vec<Chain>,
    cache: Arc<Cache>,
    loaded: HashMap<Listed, Arc<CodeObject>>,
    /// By load base.
    places: BTreeMap<u64, Arc<CodeObject>>,
    /// What could not be read and may be another time, with how often it was tried.
    pending: Vec<(Listed, u32)>,
}

impl CodeObjects {
    /// Finds the lists of a process. Nothing of them is read before the first [`CodeObjects::update`].
    ///
    /// # Errors
    /// [`RegistryError`]; [`RegistryError::NoRuntime`] also if the process has not loaded the runtime yet.
    pub fn open(pid: u32, cache: Arc<Cache>) -> Result<Self, RegistryError> {
        // First, so that everything else is of the same process.
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

    /// As [`CodeObjects::open`], for lists whose heads are known to be at these addresses, in no library of the
    /// runtime: those of tests and benchmarks.
    ///
    /// # Errors
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

    /// The lists, for probes on their changes.
    #[must_use]
    pub fn registries(&self) -> &[Registry] {
        &self.registries
    }

    /// Code objects that are loaded, as of the last update, in order of address.
    pub fn loaded(&self) -> impl Iterator<Item = &Arc<CodeObject>> {
        self.known.places.values()
    }

    /// The kernel that a handle in a dispatch packet stands for, as of the last update.
    #[must_use]
    pub fn kernel(&self, kernel_object: u64) -> Option<(&Arc<CodeObject>, &Kernel)> {
        let (_, object) = self.known.places.range(..=kernel_object).next_back()?;
        Some((object, object.kernel(kernel_object)?))
    }

    /// Reads what is new in the lists. What has gone from them is noticed when something takes its place, and
    /// otherwise within some updates: each checks a part of what is known.
    ///
    /// # Errors
    /// [`MemoryError`] if the process is gone or may not be read any more. What is known stays.
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
                    // What is in motion may be all right the next time.
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

/// Whether another code object is loaded in place of a known one. Its list entry, load address and URI can
/// be the same by chance, after a program unloaded one and compiled the next.
fn is_another(memory: &impl Memory, known: &CodeObject) -> bool {
    let Some((image, expected)) = &known.image else {
        return false;
    };
    if image.beginning(memory).as_ref() == Some(expected) {
        return false;
    }
    // Not there any more: it may have moved, with all else the same.
    let found = Image::find(memory, &known.listed);
    found.and_then(|image| image.beginning(memory)) != Some(*expected)
}

/// One update's way to the bytes.
struct Reading<'a, M> {
    memory: &'a M,
    pid: u32,
    cache: &'a Cache,
    /// Mappings of the process, read when first needed.
    mappings: Option<Vec<Mapping>>,
    /// Bytes that may still be read.
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
            // The first reason is the one to tell.
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

    /// Reads a code object from where its URI says; `None` if what is there is not what was loaded.
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
                // A list that cannot be read is as good as none: the path is then looked up.
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
                // What was taken from a bundle depends on the process.
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

    /// Makes a code object of bytes, which may be a bundle of several.
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

    /// Where the code objects of the made-up process are loaded.
    const LOADED: u64 = 0x10_0000_0000;

    /// The `number`th of many code objects, all different.
    fn object(number: usize) -> Vec<u8> {
        let mut bytes = code_object(false);
        bytes[0x5f0..0x5f8].copy_from_slice(&(number as u64).to_le_bytes());
        bytes
    }

    /// Where it is loaded.
    fn place(number: usize) -> u64 {
        LOADED + number as u64 * 0x800
    }

    /// Puts bytes where the `number`th code object is loaded.
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

    /// A program that compiles thousands of kernels pays for each alike, however many there are.
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

    /// The next one takes the place of one that is gone, in the list, in memory, and by name: only its bytes
    /// tell.
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
        // In the middle it takes some updates, which find it while they check all in turns.
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
        // While the list is in motion it is tried again, but not for ever.
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
