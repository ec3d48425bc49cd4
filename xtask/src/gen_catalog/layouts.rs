//! Finds the offsets of the structure fields that `userspace/catalog/data/layouts.txt` lists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, anyhow, ensure};
use clang::{Entity, EntityKind, EntityVisitResult, Type, TypeKind};
use gputrace_catalog::class::Class;
use gputrace_catalog::release::{Release, Releases};
use gputrace_catalog::structs::{Field, Layout, parse};

use super::declarations::{Enums, class_of, learn};
use super::headers::Headers;

/// Wanted fields, by structure.
pub(super) type Wanted = BTreeMap<String, Vec<String>>;

/// A field in the headers of one release.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnedField {
    name: String,
    c_type: String,
    class: Class,
    offset: u16,
    bytes: u16,
}

/// Structures in the headers, by name.
pub(super) type Structures = BTreeMap<String, Vec<OwnedField>>;

/// Parses `layouts.txt`.
pub(super) fn wanted(text: &str) -> Result<Wanted> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let structure = |line: &str| {
        let (name, fields) = line
            .split_once(" | ")
            .with_context(|| format!("layouts.txt: no ` | ` in {line}"))?;
        Ok((
            name.to_owned(),
            fields.split(' ').map(str::to_owned).collect(),
        ))
    };
    lines.map(structure).collect()
}

/// The wanted fields of the wanted structures, as far as these headers have them, and the
/// enumerations among their types.
///
/// # Errors
///
/// If headers do not compile, or a field has a type that cannot be shown.
pub(super) fn structures(headers: &Headers<'_>, wanted: &Wanted) -> Result<(Structures, Enums)> {
    headers.read("", |unit| {
        let (mut structures, mut enums) = (Structures::new(), Enums::new());
        let mut failure = None;
        unit.visit_children(|entity, _| {
            let name = entity.get_name().unwrap_or_default();
            let (c_type, paths) = match (entity.get_kind(), wanted.get(&name)) {
                (EntityKind::LinkageSpec | EntityKind::UnexposedDecl, _) => {
                    return EntityVisitResult::Recurse;
                }
                (EntityKind::StructDecl, Some(paths)) if entity.is_definition() => {
                    (entity.get_type(), paths)
                }
                (EntityKind::TypedefDecl, Some(paths)) => {
                    (entity.get_typedef_underlying_type(), paths)
                }
                _ => return EntityVisitResult::Continue,
            };
            if let Some(c_type) = c_type.filter(|_| headers.have(&entity)) {
                match paths
                    .iter()
                    .filter_map(|path| field(c_type, path, &mut enums).transpose())
                    .collect::<Result<Vec<_>>>()
                    .with_context(|| name.clone())
                {
                    Ok(fields) => drop(structures.insert(name, fields)),
                    Err(error) => {
                        failure = Some(error);
                        return EntityVisitResult::Break;
                    }
                }
            }
            EntityVisitResult::Continue
        });
        failure.map_or(Ok((structures, enums)), Err)
    })
}

/// The member of a structure with this name, including members of anonymous unions, and its offset
/// in bits.
fn member<'t>(structure: Type<'t>, name: &str) -> Result<Option<(Entity<'t>, usize)>> {
    for field in structure
        .get_canonical_type()
        .get_fields()
        .unwrap_or_default()
    {
        let offset = || {
            field
                .get_offset_of_field()
                .map_err(|error| anyhow!("has no offset: {error}"))
        };
        match field.get_name().as_deref().unwrap_or_default() {
            "" => {
                let c_type = field.get_type().context("a member without name or type")?;
                if let Some((found, bits)) = member(c_type, name)? {
                    return Ok(Some((found, offset()? + bits)));
                }
            }
            own if own == name => {
                let bits = offset()?;
                return Ok(Some((field, bits)));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The field at a path in a structure; `None` if it does not exist.
fn field(structure: Type<'_>, path: &str, enums: &mut Enums) -> Result<Option<OwnedField>> {
    let (mut c_type, mut bits) = (structure, 0);
    for part in path.split('.') {
        let Some((field, before)) = member(c_type, part).with_context(|| path.to_owned())? else {
            return Ok(None);
        };
        ensure!(!field.is_bit_field(), "{path} is a bit field");
        bits += before;
        c_type = field
            .get_type()
            .with_context(|| format!("{path} has no type"))?;
    }
    let canonical = c_type.get_canonical_type();
    let is_text = canonical.get_kind() == TypeKind::ConstantArray
        && canonical
            .get_element_type()
            .is_some_and(|element| element.get_kind() == TypeKind::CharS);
    let class = match class_of(c_type).with_context(|| path.to_owned())? {
        _ if is_text => Class::CString,
        // The string is elsewhere; only its address is in the structure.
        Class::CString => Class::Pointer,
        class => class,
    };
    ensure!(
        is_text || !matches!(class, Class::Small(_) | Class::Memory(_)),
        "{path} is a structure: name its fields"
    );
    learn(enums, std::iter::once(c_type));
    let bytes = canonical
        .get_sizeof()
        .map_err(|error| anyhow!("{path}: {error}"))?;
    Ok(Some(OwnedField {
        name: path.to_owned(),
        c_type: c_type.get_display_name(),
        class,
        offset: u16::try_from(bits / 8)?,
        bytes: u16::try_from(bytes)?,
    }))
}

/// The structures of one library in several releases.
#[derive(Default)]
pub(super) struct Library(pub(super) BTreeMap<Release, Structures>);

impl Library {
    /// Lines of the data file. For each structure, releases with the same layout share a line.
    fn lines(&self) -> Vec<(String, Release, String)> {
        let newest = self.0.keys().next_back().copied();
        let names: BTreeSet<&String> = self.0.values().flat_map(BTreeMap::keys).collect();
        let mut lines = Vec::new();
        for name in names {
            let mut runs: Vec<(Release, Release, &Vec<OwnedField>)> = Vec::new();
            for (release, fields) in self
                .0
                .iter()
                .filter_map(|(release, found)| Some((release, found.get(name)?)))
            {
                match runs.last_mut() {
                    Some((_, last, before)) if *before == fields => *last = *release,
                    _ => runs.push((*release, *release, fields)),
                }
            }
            lines.extend(runs.into_iter().map(|(first, last, fields)| {
                let last = (Some(last) != newest).then_some(last);
                let fields = fields.iter().map(OwnedField::borrowed).collect();
                let releases = Releases { first, last };
                (
                    name.clone(),
                    first,
                    Layout {
                        name,
                        releases,
                        fields,
                    }
                    .to_string(),
                )
            }));
        }
        lines
    }
}

impl OwnedField {
    fn borrowed(&self) -> Field<'_> {
        Field {
            name: &self.name,
            c_type: &self.c_type,
            class: self.class,
            offset: self.offset,
            bytes: self.bytes,
        }
    }
}

/// Generates the data file.
///
/// # Errors
///
/// If no header has a structure or field.
pub(super) fn render(libraries: &[Library], wanted: &Wanted) -> Result<String> {
    let mut lines: Vec<_> = libraries.iter().flat_map(Library::lines).collect();
    lines.sort();
    let text: String = lines
        .iter()
        .map(|(_, _, line)| format!("{line}\n"))
        .collect();
    for (name, fields) in wanted {
        for field in fields {
            let mut layouts = parse(&text).filter(|layout| layout.name == name);
            ensure!(
                layouts.any(|layout| layout.fields.iter().any(|known| known.name == field)),
                "layouts.txt: no header has {field} in {name}"
            );
        }
    }
    Ok(format!(
        "# Where structures have the fields that layouts.txt names.\n# Made by `cargo xtask gen-catalog`; do not edit.\n{text}"
    ))
}

#[cfg(test)]
mod tests {
    use clang::Clang;

    use super::*;
    use crate::gen_catalog::Library as Headed;

    const HEADER: &str = r"
        #include <stddef.h>
        typedef enum kind { FIRST, SECOND } kind;
        typedef struct { size_t x, y; } position;
        typedef struct whole {
            char name[16];
            position at;
            const char *text;
            kind of;
            union { void *pointer; int number; };
            float ratio;
            unsigned bit : 1;
        } whole;
    ";

    #[test]
    fn fields_are_where_the_compiler_puts_them() {
        let clang = match Clang::new() {
            Ok(clang) => clang,
            Err(error) => return eprintln!("skipped: libclang cannot be loaded: {error}"),
        };
        let include = tempfile::tempdir().unwrap();
        std::fs::write(include.path().join("api.h"), HEADER).unwrap();
        let library = Headed {
            file: "",
            title: "",
            package: "",
            suites: &[],
            includes: None,
            headers: &["api.h"],
            domains: &[],
        };
        let headers = Headers {
            clang: &clang,
            library: &library,
            include: include.path(),
            more: None,
        };
        let read = |paths: &str| structures(&headers, &wanted(&format!("whole | {paths}"))?);
        let (structures, enums) = read("name at.y text of absent number ratio").unwrap();
        let release: Release = "1.0.0".parse().unwrap();
        let library = Library(BTreeMap::from([(release, structures)]));
        let lines: Vec<String> = library
            .lines()
            .into_iter()
            .map(|(_, _, line)| line)
            .collect();
        assert_eq!(
            lines,
            [
                "whole | 1.0.0- | name: char[16] = string @ 0+16 | at.y: size_t = uint:8 @ 24+8 | text: const char * = pointer @ 32+8 \
                 | of: kind = uint:4 @ 40+4 | number: int = int:4 @ 48+4 | ratio: float = float:4 @ 56+4"
            ]
        );
        assert_eq!(enums["kind"][&1], "SECOND");
        let missing = wanted("whole | absent").unwrap();
        assert!(render(&[library], &missing).is_err());
        for (refused, why) in [("at", "name its fields"), ("bit", "bit field")] {
            let error = format!("{:#}", read(refused).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn releases_are_joined_while_the_layout_stays() {
        let field = |offset| OwnedField {
            name: "x".to_owned(),
            c_type: "int".to_owned(),
            class: Class::Signed(4),
            offset,
            bytes: 4,
        };
        let releases = [("5.2.3", 0), ("5.7.1", 0), ("6.4.3", 8)].map(|(release, offset)| {
            let structures = Structures::from([("s".to_owned(), vec![field(offset)])]);
            (release.parse().unwrap(), structures)
        });
        let text = render(&[Library(releases.into())], &Wanted::new()).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "s | 5.2.3-5.7.1 | x: int = int:4 @ 0+4",
                "s | 6.4.3- | x: int = int:4 @ 8+4"
            ]
        );
    }
}
