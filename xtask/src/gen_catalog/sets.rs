//! Named values whose names do not follow from the C types of parameters: macros, enumerators of
//! other types, extensions of enumerations. `userspace/catalog/data/sets.txt` says which names
//! belong together; their values come from the headers.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use clang::{Entity, EntityKind, EntityVisitResult};

use super::{
    declarations::{Enums, marks_range},
    headers::Headers,
};

/// The parts of a set.
#[derive(Debug, PartialEq)]
pub(super) struct Recipe {
    /// Name of the set.
    pub(super) name: String,
    /// Whether its values are bits that can be combined.
    pub(super) is_mask: bool,
    /// Names of enumerations, macros and enumerators; a name ending in `*` stands for all macros
    /// and enumerators with that prefix.
    parts: Vec<String>,
}

/// The sets in one release: values by name.
pub(super) type Sets = BTreeMap<String, BTreeMap<String, i64>>;

/// Parses `sets.txt`.
pub(super) fn recipes(text: &str) -> Result<Vec<Recipe>> {
    let recipe = |line: &str| -> Result<Recipe> {
        let (head, parts) = line.split_once(" | ").context("no ` | `")?;
        let (sort, name) = head.split_once(' ').context("no sort")?;
        ensure!(
            matches!(sort, "mask" | "values"),
            "neither `mask` nor `values`"
        );
        Ok(Recipe {
            name: name.to_owned(),
            is_mask: sort == "mask",
            parts: parts.split(' ').map(str::to_owned).collect(),
        })
    };
    let lines = text.lines().zip(1..);
    lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, number)| {
            recipe(line).with_context(|| format!("sets.txt, line {number}: {line}"))
        })
        .collect()
}

/// Named constants of a library's headers, without those of included headers.
#[derive(Default)]
struct Constants {
    /// Enumerators of each named enumeration, in order of declaration.
    types: BTreeMap<String, Vec<(String, i64)>>,
    enumerators: Vec<(String, i64)>,
    /// Names of macros, whose values are not known yet.
    macros: BTreeSet<String>,
}

impl Constants {
    fn visit(&mut self, entity: &Entity<'_>, headers: &Headers<'_>) -> EntityVisitResult {
        if !headers.have(entity) {
            return EntityVisitResult::Continue;
        }
        let name = entity.get_name().unwrap_or_default();
        match entity.get_kind() {
            EntityKind::LinkageSpec | EntityKind::UnexposedDecl => {
                return EntityVisitResult::Recurse;
            }
            EntityKind::MacroDefinition if !entity.is_function_like_macro() => {
                self.macros.insert(name);
            }
            EntityKind::EnumDecl => {
                let values = enumerators(entity);
                self.enumerators.extend(values.iter().cloned());
                self.types.insert(name, values);
            }
            EntityKind::TypedefDecl => {
                let underlying = entity.get_typedef_underlying_type();
                let declared =
                    underlying.and_then(|c_type| c_type.get_canonical_type().get_declaration());
                if let Some(declared) =
                    declared.filter(|entity| entity.get_kind() == EntityKind::EnumDecl)
                {
                    self.types.insert(name, enumerators(&declared));
                }
            }
            _ => {}
        }
        EntityVisitResult::Continue
    }

    /// Names of macros that a part of a recipe refers to.
    fn macros_of<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a str> {
        let prefix = part.strip_suffix('*');
        let is_meant =
            move |name: &&str| prefix.map_or(*name == part, |prefix| name.starts_with(prefix));
        self.macros.iter().map(String::as_str).filter(is_meant)
    }

    /// Constants other than macros that a part of a recipe refers to.
    fn values_of(&self, part: &str) -> Vec<(String, i64)> {
        if let Some(values) = self.types.get(part) {
            let mut seen = BTreeSet::new();
            // If several have the same value, the first one; the others mark ranges.
            let first = values.iter().filter(|(_, value)| seen.insert(*value));
            return first.cloned().collect();
        }
        let prefix = part.strip_suffix('*');
        let is_meant = |name: &str| prefix.map_or(name == part, |prefix| name.starts_with(prefix));
        let all = self.enumerators.iter().filter(|(name, _)| is_meant(name));
        all.cloned().collect()
    }
}

fn enumerators(entity: &Entity<'_>) -> Vec<(String, i64)> {
    let children = entity.get_children().into_iter();
    children
        .filter_map(|child| Some((child.get_name()?, child.get_enum_constant_value()?.0)))
        .filter(|(name, _)| !marks_range(name))
        .collect()
}

/// The sets in these headers, without those of which they define nothing.
///
/// # Errors
///
/// If headers do not compile.
pub(super) fn sets(headers: &Headers<'_>, recipes: &[Recipe]) -> Result<Sets> {
    let constants = headers.read("", |unit| {
        let mut constants = Constants::default();
        unit.visit_children(|entity, _| constants.visit(&entity, headers));
        Ok(constants)
    })?;
    let parts = || recipes.iter().flat_map(|recipe| &recipe.parts);
    let macros: BTreeSet<&str> = parts().flat_map(|part| constants.macros_of(part)).collect();
    let values = macro_values(headers, &macros)?;

    let mut sets = Sets::new();
    for recipe in recipes {
        let of_part = |part: &String| {
            let named = constants.macros_of(part);
            let named = named.filter_map(|name| Some((name.to_owned(), *values.get(name)?)));
            named.chain(constants.values_of(part)).collect::<Vec<_>>()
        };
        let set: BTreeMap<String, i64> = recipe.parts.iter().flat_map(of_part).collect();
        if !set.is_empty() {
            sets.insert(recipe.name.clone(), set);
        }
    }
    Ok(sets)
}

/// Prefix of a macro's name: an enumerator with the macro's value.
const PREFIX: &str = "value_of_";

/// The values of macros, determined by the compiler.
fn macro_values(headers: &Headers<'_>, macros: &BTreeSet<&str>) -> Result<BTreeMap<String, i64>> {
    if macros.is_empty() {
        return Ok(BTreeMap::new());
    }
    let entries: String = macros
        .iter()
        .map(|name| format!("{PREFIX}{name} = (long long)({name}),\n"))
        .collect();
    headers.read(&format!("enum : long long {{ {entries} }};\n"), |unit| {
        let enums = unit.get_children().into_iter();
        let enums = enums.filter(|entity| entity.get_kind() == EntityKind::EnumDecl);
        let values = enums.flat_map(|entity| enumerators(&entity));
        let named =
            values.filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)));
        Ok(named.collect())
    })
}

/// The sets of several releases, which must be added oldest first.
#[derive(Default)]
pub(super) struct Merged(Sets);

impl Merged {
    /// Adds a release. If a name's value has changed, the newer value counts.
    pub(super) fn add(&mut self, release: Sets) {
        for (name, values) in release {
            self.0.entry(name).or_default().extend(values);
        }
    }

    /// Names by value, of the recipes that are masks, and of the others. A value with two names
    /// gets none, because it is unknown which one is meant.
    ///
    /// # Errors
    ///
    /// If no header defines anything of a set.
    pub(super) fn by_value(&self, recipes: &[Recipe]) -> Result<(Enums, Enums)> {
        let (mut masks, mut others) = (Enums::new(), Enums::new());
        for recipe in recipes {
            let set = self.0.get(&recipe.name);
            let set =
                set.with_context(|| format!("sets.txt: no header has any of {}", recipe.name))?;
            let mut names: BTreeMap<i64, Option<&String>> = BTreeMap::new();
            for (name, value) in set {
                let other = names.insert(*value, Some(name));
                if other.is_some() {
                    names.insert(*value, None);
                }
            }
            let names = names
                .into_iter()
                .filter_map(|(value, name)| Some((value, name?.clone())));
            let to = if recipe.is_mask {
                &mut masks
            } else {
                &mut others
            };
            to.insert(recipe.name.clone(), names.collect());
        }
        Ok((masks, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_read() {
        let text = "# hand\nmask hipStream | hipStreamDefault hipStreamNon*\nvalues hsa_extension_t | hsa_extension_t\n";
        let recipes = recipes(text).unwrap();
        assert_eq!(recipes.len(), 2);
        assert!(recipes[0].is_mask && recipes[0].parts == ["hipStreamDefault", "hipStreamNon*"]);
        for wrong in ["flags a | b", "mask a", "a | b"] {
            assert!(super::recipes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_the_newest_and_never_ambiguous() {
        let recipes = recipes("mask m | m*\nvalues v | v").unwrap();
        let set = |entries: &[(&str, i64)]| {
            entries
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect()
        };
        let mut merged = Merged::default();
        merged.add(Sets::from([(
            "m".to_owned(),
            set(&[("mOld", 0), ("mA", 1), ("mReadOnly", 8)]),
        )]));
        assert!(merged.by_value(&recipes).is_err());
        merged.add(Sets::from([
            ("m".to_owned(), set(&[("mOld", 4), ("mCoarse", 8)])),
            ("v".to_owned(), set(&[("vOne", 1)])),
        ]));
        let (masks, others) = merged.by_value(&recipes).unwrap();
        let shown: Vec<_> = masks["m"]
            .iter()
            .map(|(value, name)| (*value, name.as_str()))
            .collect();
        assert_eq!(shown, [(1, "mA"), (4, "mOld")]);
        assert_eq!(others["v"][&1], "vOne");
    }
}
