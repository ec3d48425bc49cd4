//! The text form of the catalogue: how `data/*.txt` is written and read.
//!
//! ```text
//! # A comment.
//! releases | 5.2.3 | 5.7.1 | 6.4.3
//! hipFree | 5.2.3- | hipError_t = hip_error | ptr: void * = pointer
//! ```
//!
//! The first line that is not a comment names the releases whose headers were read, oldest first.
//! Every other line is one function: its name, the releases with this declaration
//! ([`Releases`](crate::release::Releases)), the return type, and the parameters. A type is
//! followed by its [`Class`](crate::class::Class), because only a header tells what `hipStream_t`
//! is. A pointer through which the function stores a value is also followed by the class of that
//! value, as in `devPtr: void ** = pointer > pointer`. Lines are sorted by name; a function whose
//! signature changed has one line per signature, oldest first. Neither `|` nor ` = ` occurs in a C
//! type, nor `: ` in a C name.

use std::fmt;

use crate::class::UnknownClass;
use crate::release::{NotARelease, Release};
use crate::signature::{Argument, CType, Signature};

const FIELD: &str = " | ";
const STORED: &str = " > ";
const HEADER: &str = "releases";

/// The text form of a catalogue cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}; generate the file again with `cargo xtask gen-catalog`")]
pub struct TableError {
    /// Line number, from 1.
    pub line: usize,
    /// The problem.
    pub problem: Problem,
}

/// Problem of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A function has no releases or return type, or an empty part.
    #[error("a field is missing or empty")]
    Missing,
    /// A release number is invalid.
    #[error(transparent)]
    Release(#[from] NotARelease),
    /// The class of a type is unknown.
    #[error(transparent)]
    Class(#[from] UnknownClass),
    /// The line belongs before the previous one; lookups would miss it.
    #[error("not in the order of names and releases")]
    Order,
    /// A function precedes the line with the releases, or that line is missing.
    #[error("no `releases` line before the first function")]
    NoReleases,
}

/// A parsed catalogue file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table<'a> {
    /// Releases whose headers were read, oldest first.
    pub releases: Vec<Release>,
    /// Functions by name, then release.
    pub signatures: Vec<Signature<'a>>,
}

impl<'a> Table<'a> {
    /// Parses a whole file. The table borrows names from it.
    ///
    /// # Errors
    ///
    /// The first invalid line, and its problem.
    pub fn parse(text: &'a str) -> Result<Self, TableError> {
        let mut table = Self::default();
        for (index, line) in text.lines().enumerate() {
            table.add_line(line).map_err(|problem| TableError {
                line: index + 1,
                problem,
            })?;
        }
        if table.releases.is_empty() {
            return Err(TableError {
                line: text.lines().count().max(1),
                problem: Problem::NoReleases,
            });
        }
        Ok(table)
    }

    fn add_line(&mut self, line: &'a str) -> Result<(), Problem> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let mut fields = line.split(FIELD);
        let name = fields
            .next()
            .filter(|name| !name.is_empty())
            .ok_or(Problem::Missing)?;
        if name == HEADER {
            self.releases = fields.map(str::parse).collect::<Result<_, _>>()?;
            return if self.releases.is_sorted() {
                Ok(())
            } else {
                Err(Problem::Order)
            };
        }
        if self.releases.is_empty() {
            return Err(Problem::NoReleases);
        }
        let signature = Signature {
            name,
            releases: fields.next().ok_or(Problem::Missing)?.parse()?,
            returns: parse_type(fields.next().ok_or(Problem::Missing)?)?,
            arguments: fields.map(parse_argument).collect::<Result<_, _>>()?,
        };
        let key = |signature: &Signature<'a>| (signature.name, signature.releases.first);
        if self
            .signatures
            .last()
            .is_some_and(|last| key(last) >= key(&signature))
        {
            return Err(Problem::Order);
        }
        self.signatures.push(signature);
        Ok(())
    }

    /// The signatures of a function, oldest release first; empty if there is none. This is a binary
    /// search.
    #[must_use]
    pub fn variants(&self, name: &str) -> &[Signature<'a>] {
        let start = self
            .signatures
            .partition_point(|signature| signature.name < name);
        let rest = self.signatures.get(start..).unwrap_or_default();
        let count = rest
            .iter()
            .take_while(|signature| signature.name == name)
            .count();
        rest.get(..count).unwrap_or_default()
    }
}

fn parse_argument(text: &str) -> Result<Argument<'_>, Problem> {
    let (name, c_type) = text
        .split_once(": ")
        .filter(|(name, _)| !name.is_empty())
        .ok_or(Problem::Missing)?;
    Ok(Argument {
        name,
        c_type: parse_type(c_type)?,
    })
}

fn parse_type(text: &str) -> Result<CType<'_>, Problem> {
    let (spelling, class) = text
        .rsplit_once(" = ")
        .filter(|(c_type, _)| !c_type.is_empty())
        .ok_or(Problem::Missing)?;
    let (class, stored) = match class.split_once(STORED) {
        Some((class, stored)) => (class, Some(stored.parse()?)),
        None => (class, None),
    };
    Ok(CType {
        spelling,
        class: class.parse()?,
        stored,
    })
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        for release in &self.releases {
            write!(f, "{FIELD}{release}")?;
        }
        f.write_str("\n")?;
        self.signatures
            .iter()
            .try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

impl fmt::Display for Signature<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{FIELD}{}{FIELD}{}",
            self.name, self.releases, self.returns
        )?;
        self.arguments
            .iter()
            .try_for_each(|argument| write!(f, "{FIELD}{}: {}", argument.name, argument.c_type))
    }
}

impl fmt::Display for CType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.spelling, self.class)?;
        self.stored
            .map_or(Ok(()), |stored| write!(f, "{STORED}{stored}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use proptest::prelude::*;

    const SMALL: &str = "\
releases | 5.2.3 | 6.4.3
hipFree | 5.2.3- | hipError_t = hip_error | ptr: void * = pointer
hipMallocArray | 5.2.3-5.2.3 | hipError_t = hip_error | array: hipArray ** = pointer
hipMallocArray | 6.4.3- | hipError_t = hip_error | array: hipArray_t * = pointer > pointer
hipRunHostCode | 6.4.3- | void = void | call: void (*)(int, void *) = pointer | arg1: int = int:4
";

    #[test]
    fn reads_what_it_writes() {
        let table = Table::parse(SMALL).unwrap();
        assert_eq!(table.to_string(), SMALL);
        assert_eq!(table.variants("hipMallocArray").len(), 2);
        assert_eq!(
            table.variants("hipFree")[0].arguments[0].c_type.spelling,
            "void *"
        );
        for absent in ["", "hipFre", "hipFreeArray", "zzz"] {
            assert!(table.variants(absent).is_empty(), "{absent}");
        }
    }

    #[test]
    fn says_which_line_is_wrong() {
        let cases = [
            ("", 1, Problem::NoReleases),
            ("hipFree | 5.2.3- | int = int:4", 1, Problem::NoReleases),
            ("releases | 5.2.3 | x", 1, Problem::Release(NotARelease)),
            ("releases | 6.4.3 | 5.2.3", 1, Problem::Order),
            ("releases | 5.2.3\n\nhipFree", 3, Problem::Missing),
            ("releases | 5.2.3\nhipFree | 5.2.3-", 2, Problem::Missing),
            (
                "releases | 5.2.3\nhipFree | 5.2.3 | int = int:4",
                2,
                Problem::Release(NotARelease),
            ),
            (
                "releases | 5.2.3\nhipFree | 5.2.3- | int",
                2,
                Problem::Missing,
            ),
            (
                "releases | 5.2.3\nhipFree | 5.2.3- | int = int:5",
                2,
                Problem::Class(UnknownClass),
            ),
            (
                "releases | 5.2.3\nhipFree | 5.2.3- | int = int:4 | void * = pointer",
                2,
                Problem::Missing,
            ),
            (
                "releases | 5.2.3\nb | 5.2.3- | int = int:4\na | 5.2.3- | int = int:4",
                3,
                Problem::Order,
            ),
            (
                "releases | 5.2.3\na | 5.2.3- | int = int:4\na | 5.2.3- | int = int:4",
                3,
                Problem::Order,
            ),
        ];
        for (text, line, problem) in cases {
            assert_eq!(
                Table::parse(text),
                Err(TableError { line, problem }),
                "{text:?}"
            );
        }
    }

    /// Also checks that the committed files are as `gen-catalog` writes them.
    #[test]
    fn committed_data_is_whole() {
        for text in crate::DATA {
            let table = Table::parse(text).unwrap();
            let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(table.to_string().lines().collect::<Vec<_>>(), lines);
            assert!(!table.signatures.is_empty());
            for signature in &table.signatures {
                assert!(
                    crate::classify(signature.name).is_some(),
                    "{} is not traced",
                    signature.name
                );
                assert!(
                    signature
                        .arguments
                        .iter()
                        .all(|argument| argument.c_type.class != Class::Void)
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(releases \\| 5.2.3\n)?([a-z |:=.0-9*-]{0,30}\n?){0,4}") {
            if let Ok(table) = Table::parse(&text) {
                let written = table.to_string();
                prop_assert_eq!(Table::parse(&written), Ok(table));
            }
        }

        #[test]
        fn a_damaged_line_is_read_or_refused(at in 0..SMALL.len(), with in "[ |:=a-z0-9-]{0,3}") {
            let mut text = SMALL.to_owned();
            text.replace_range(at..=at, &with);
            let _ = Table::parse(&text);
        }
    }
}
