//! Functions as described by DWARF: names, including those of static and inlined functions, and
//! source locations.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
};

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_decl_file, DW_AT_decl_line, DW_AT_high_pc,
    DW_AT_inline, DW_AT_linkage_name, DW_AT_low_pc, DW_AT_name, DW_AT_ranges, DW_AT_specification,
    DW_TAG_inlined_subroutine, DW_TAG_subprogram, DebuggingInformationEntry, Dwarf, DwarfSections,
    EndianSlice, LittleEndian, Unit, UnitOffset,
};

use super::sections::Sections;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Maximum number of references followed from one entry to another until a name is found: from a
/// definition to its declaration, from that to an abstract instance.
const MAX_REFERENCES: usize = 8;
/// Maximum length of a path in bytes; longer ones are cut.
const MAX_PATH: usize = 4096;

/// Source location of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name, as it was given to the compiler.
    pub file: String,
    /// Line number, from 1; 0 if unknown.
    pub line: u64,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => formatter.write_str(&self.file),
            line => write!(formatter, "{}:{line}", self.file),
        }
    }
}

/// A function with code of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subprogram {
    /// Linkage name if there is one, else the name in the source.
    pub(super) name: Option<String>,
    pub(super) address: u64,
    /// Size in bytes; 0 if the code is in several parts.
    pub(super) size: u64,
    pub(super) source: Option<Source>,
}

/// The functions found in DWARF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Information {
    pub(super) subprograms: Vec<Subprogram>,
    /// Names of functions that were inlined and have no code of their own in the same unit.
    pub(super) inlined: BTreeSet<String>,
}

impl Information {
    pub(super) fn is_empty(&self) -> bool {
        self.subprograms.is_empty()
    }
}

/// Reads the debug information. Parts that cannot be parsed are left out, with a remark.
pub(super) fn read(sections: &Sections<'_>, remarks: &mut Vec<String>) -> Information {
    let mut information = Information::default();
    let loaded = DwarfSections::load(|id| {
        Ok::<_, std::convert::Infallible>(sections.bytes(id.name()).unwrap_or(Cow::Borrowed(&[])))
    });
    let Ok(loaded) = loaded;
    let dwarf = loaded.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut units = dwarf.units();
    loop {
        let header = match units.next() {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(error) => {
                remarks.push(format!(
                    "its debug information is read only up to an error: {error}"
                ));
                break;
            }
        };
        let read = dwarf
            .unit(header)
            .and_then(|unit| read_unit(&dwarf, &unit, &mut information));
        if let Err(error) = read {
            remarks.push(format!(
                "a part of its debug information cannot be read: {error}"
            ));
        }
    }
    remarks.dedup();
    information
}

/// Reads one unit.
fn read_unit<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    information: &mut Information,
) -> gimli::Result<()> {
    let mut files = HashMap::new();
    // Abstract instances of functions: those that were inlined, and those that also have code.
    let (mut inlined, mut concrete) = (HashSet::new(), HashSet::new());
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() == DW_TAG_inlined_subroutine {
            inlined.extend(reference(entry));
            continue;
        }
        if entry.tag() != DW_TAG_subprogram || entry.attr_value(DW_AT_inline).is_some() {
            continue;
        }
        let Some((address, size)) = place(dwarf, unit, entry) else {
            continue;
        };
        concrete.extend(reference(entry));
        let described = describe(dwarf, unit, entry)?;
        let source = described.file.map(|number| Source {
            file: files
                .entry(number)
                .or_insert_with(|| file_name(dwarf, unit, number).unwrap_or_default())
                .clone(),
            line: described.line.unwrap_or(0),
        });
        information.subprograms.push(Subprogram {
            name: described.name,
            address,
            size,
            source: source.filter(|source| !source.file.is_empty()),
        });
    }
    for offset in inlined.difference(&concrete) {
        if let Ok(entry) = unit.entry(*offset)
            && let Some(name) = describe(dwarf, unit, &entry)?.name
        {
            information.inlined.insert(name);
        }
    }
    Ok(())
}

/// The entry that this one refers to, if it is in the same unit.
fn reference(entry: &DebuggingInformationEntry<Slice<'_>>) -> Option<UnitOffset> {
    [DW_AT_abstract_origin, DW_AT_specification]
        .into_iter()
        .find_map(|attribute| match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => Some(offset),
            _ => None,
        })
}

/// Start address of the code, and its size if it is in one part.
fn place<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    entry: &DebuggingInformationEntry<Slice<'a>>,
) -> Option<(u64, u64)> {
    if let Some(value) = entry.attr_value(DW_AT_low_pc) {
        let low = dwarf.attr_address(unit, value).ok().flatten()?;
        let size = match entry.attr_value(DW_AT_high_pc)? {
            AttributeValue::Udata(size) => size,
            value => dwarf
                .attr_address(unit, value)
                .ok()
                .flatten()?
                .checked_sub(low)?,
        };
        // Linkers set the address of discarded code to 0.
        return (low != 0).then_some((low, size));
    }
    let mut ranges = dwarf
        .attr_ranges(unit, entry.attr_value(DW_AT_ranges)?)
        .ok()
        .flatten()?;
    // The function begins in the first part.
    let first = ranges.next().ok().flatten()?;
    (first.begin != 0).then_some((first.begin, first.end.checked_sub(first.begin)?))
}

/// Name and source location of a function.
#[derive(Default)]
struct Described {
    name: Option<String>,
    file: Option<u64>,
    line: Option<u64>,
}

/// Collects the attributes of an entry and of those that it refers to.
fn describe<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    entry: &DebuggingInformationEntry<Slice<'a>>,
) -> gimli::Result<Described> {
    let (mut described, mut plain) = (Described::default(), None);
    let mut next = Some(entry.clone());
    for _ in 0..MAX_REFERENCES {
        let Some(entry) = next.take() else { break };
        let text = |attribute| {
            let value = dwarf.attr_string(unit, entry.attr_value(attribute)?).ok()?;
            let text = value.to_string().ok().filter(|text| !text.is_empty())?;
            Some(text.to_owned())
        };
        described.name = described.name.or_else(|| text(DW_AT_linkage_name));
        plain = plain.or_else(|| text(DW_AT_name));
        let number = |attribute| entry.attr_value(attribute)?.udata_value();
        if described.file.is_none() {
            described.file = match entry.attr_value(DW_AT_decl_file) {
                Some(AttributeValue::FileIndex(number)) => Some(number),
                _ => number(DW_AT_decl_file),
            };
            described.line = number(DW_AT_decl_line);
        }
        next = match reference(&entry) {
            Some(offset) => Some(unit.entry(offset)?),
            None => None,
        };
    }
    described.name = described.name.or(plain);
    Ok(described)
}

/// Path of a source file.
fn file_name<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let text = |value| Some(dwarf.attr_string(unit, value).ok()?.to_string_lossy());
    let name = text(file.path_name())?;
    let mut path = String::new();
    if !name.starts_with('/')
        && let Some(directory) = file.directory(header).and_then(text)
    {
        path.push_str(&directory);
        path.push('/');
    }
    path.push_str(&name);
    (path.len() <= MAX_PATH).then_some(path)
}
