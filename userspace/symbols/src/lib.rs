//! Names of the functions in stacks, from the symbol tables of the files that a capture names.
//!
//! A file is used only if it has the build id in the capture: then it is the same file, wherever
//! the capture was made. Files are opened as the user who runs gputrace, and only regular ones: a
//! capture can name any path.

use std::{collections::HashMap, path::Path};

use gputrace_capture::stack::{CodeFile, Frame};
use gputrace_files::target::RegularFile;
use object::{Object as _, ObjectSymbol as _, ReadCache, SymbolKind};

/// Maximum number of symbols of a file that are read. The largest libraries have some millions.
const SYMBOLS: usize = 1 << 23;

/// A function.
#[derive(Clone, Debug)]
struct Symbol {
    address: u64,
    /// 0 if unknown.
    size: u64,
    name: String,
}

/// The functions of a file, by address; empty if they are not known.
#[derive(Clone, Debug, Default)]
struct Table(Vec<Symbol>);

impl Table {
    /// Reads the functions of a file, if it has this build id.
    fn read(path: &Path, build_id: &str) -> Option<Self> {
        let file = RegularFile::open(path).ok()?;
        let cache = ReadCache::new(file.file());
        let file = object::File::parse(&cache).ok()?;
        let found = file.build_id().ok().flatten()?;
        let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
        if found != build_id {
            return None;
        }
        let all = file.symbols().chain(file.dynamic_symbols());
        let functions = all
            .filter(|symbol| matches!(symbol.kind(), SymbolKind::Text) && symbol.is_definition());
        let mut symbols: Vec<Symbol> = functions
            .take(SYMBOLS)
            .filter_map(|symbol| {
                Some(Symbol {
                    address: symbol.address(),
                    size: symbol.size(),
                    name: symbol.name().ok()?.to_owned(),
                })
            })
            .collect();
        // Of several names for a function, the shortest says most.
        symbols.sort_by(|a, b| {
            (a.address, a.name.len(), &a.name).cmp(&(b.address, b.name.len(), &b.name))
        });
        symbols.dedup_by_key(|symbol| symbol.address);
        Some(Self(symbols))
    }

    /// The name of the function that contains `address`.
    fn name(&self, address: u64) -> Option<&str> {
        let next = self.0.partition_point(|symbol| symbol.address <= address);
        let symbol = self.0.get(next.checked_sub(1)?)?;
        let is_within = symbol.size == 0 || address - symbol.address < symbol.size;
        is_within.then_some(symbol.name.as_str())
    }
}

/// Finds the names of frames. Memory grows with the symbols of the files in which there are frames.
#[derive(Debug, Default)]
pub struct Symbols {
    files: HashMap<u32, CodeFile>,
    tables: HashMap<u32, Table>,
}

impl Symbols {
    /// Learns of a file.
    pub fn learn(&mut self, file: &CodeFile) {
        self.files.insert(file.number, file.clone());
    }

    /// The name of a frame's function as people read it. Without a name: the file and the address
    /// in it, or the address.
    pub fn name(&mut self, frame: &Frame) -> String {
        let within = frame.within();
        let Some(number) = frame.file else {
            return format!("{within:#x}");
        };
        let Some(file) = self.files.get(&number) else {
            return format!("file {number}+{within:#x}");
        };
        let path = Path::new(&file.path);
        let table = self.tables.entry(number).or_insert_with(|| {
            let build_id = file.build_id.as_deref();
            build_id
                .and_then(|id| Table::read(path, id))
                .unwrap_or_default()
        });
        match table.name(within) {
            Some(name) => gputrace_demangle::demangle(name).unwrap_or_else(|| name.to_owned()),
            None => {
                let name = path
                    .file_name()
                    .map_or(file.path.as_str().into(), |name| name.to_string_lossy());
                format!("{name}+{within:#x}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: Option<u32>, address: u64) -> Frame {
        Frame {
            file,
            address,
            is_interrupted: false,
        }
    }

    #[test]
    fn functions_have_the_name_of_the_symbol_that_contains_the_call() {
        let symbol = |address, size, name: &str| Symbol {
            address,
            size,
            name: name.to_owned(),
        };
        let table = Table(vec![
            symbol(10, 10, "a"),
            symbol(30, 0, "b"),
            symbol(50, 1, "c"),
        ]);
        let names = [9, 10, 19, 20, 30, 49, 50, 51].map(|address| table.name(address));
        let expected = [
            None,
            Some("a"),
            Some("a"),
            None,
            Some("b"),
            Some("b"),
            Some("c"),
            None,
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_file_that_is_another_one_is_not_used() {
        let path = std::env::current_exe().unwrap();
        let path = path.to_str().unwrap().to_owned();
        let mut symbols = Symbols::default();
        for (number, build_id) in [(1, None), (2, Some("00".to_owned()))] {
            symbols.learn(&CodeFile {
                number,
                path: path.clone(),
                build_id,
            });
        }
        for file in [1, 2] {
            let name = symbols.name(&frame(Some(file), 0x1001));
            assert!(
                name.starts_with("gputrace_symbols-") && name.ends_with("+0x1000"),
                "{name}"
            );
        }
        assert_eq!(symbols.name(&frame(Some(3), 0x1001)), "file 3+0x1000");
        assert_eq!(symbols.name(&frame(None, 0x1001)), "0x1000");
    }
}
