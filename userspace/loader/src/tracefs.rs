//! The tracing file system: its location, and the layout of the running kernel's tracepoints.
//!
//! Field offsets differ between kernels, so they are always read, never assumed. The kernel's
//! `Documentation/trace/events.rst` describes the `format` files.

use std::{
    io,
    path::{Path, PathBuf},
};

use gputrace_files::kernel;

use crate::ProbeError;

/// Directory where the tracing file system is mounted.
///
/// # Errors
///
/// [`ProbeError::NoTracefs`] if it is in neither usual place, [`ProbeError::PermissionDenied`] if
/// it may not be read.
pub fn tracefs() -> Result<PathBuf, ProbeError> {
    let mut cause = io::Error::from(io::ErrorKind::NotFound);
    for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        match kernel::list(Path::new(place).join("events")) {
            Ok(_) => return Ok(PathBuf::from(place)),
            // Only root may read it, so this does not say whether it is mounted.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ProbeError::PermissionDenied {
                    action: format!("read {place}"),
                });
            }
            Err(error) => cause = error,
        }
    }
    Err(ProbeError::NoTracefs { cause })
}

/// The kernel's tracepoints that match `category:name`, where the name may be `*`, sorted by name;
/// empty if there are none.
#[must_use]
pub fn matching(pattern: &str) -> Vec<String> {
    let (Ok(root), Some((category, name))) = (tracefs(), pattern.split_once(':')) else {
        return Vec::new();
    };
    // Both parts become components of a path.
    if category.is_empty()
        || [category, name]
            .iter()
            .any(|part| part.contains(['/', '.']))
    {
        return Vec::new();
    }
    let directory = root.join("events").join(category);
    let exists = |name: &str| kernel::exists(directory.join(name).join("format"));
    if name != "*" {
        return exists(name)
            .then(|| pattern.to_owned())
            .into_iter()
            .collect();
    }
    let mut names: Vec<String> = kernel::list(&directory)
        .into_iter()
        .flatten()
        .filter_map(|name| name.into_string().ok())
        .filter(|name| exists(name))
        .map(|name| format!("{category}:{name}"))
        .collect();
    names.sort();
    names
}

/// Layout of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    name: String,
    path: PathBuf,
    fields: Vec<Field>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, without type and array bounds.
    pub name: String,
    /// Offset from the start of the record, bytes.
    pub offset: u32,
    /// Size, bytes.
    pub size: u32,
    /// C type. Array bounds are left out, except those of a dynamic array's type.
    pub c_type: String,
    /// Whether it is a signed integer.
    pub signed: bool,
    /// Number of elements of an array; 1 for other fields.
    pub count: u32,
}

impl Tracepoint {
    /// Reads the layout of `category:name`.
    ///
    /// # Errors
    ///
    /// [`ProbeError::NoTracefs`], or [`ProbeError::Tracepoint`] if the kernel has no such
    /// tracepoint.
    pub fn read(category: &str, name: &str) -> Result<Self, ProbeError> {
        let path = tracefs()?
            .join("events")
            .join(category)
            .join(name)
            .join("format");
        let tracepoint = format!("{category}:{name}");
        match kernel::read_text(&path) {
            Ok(text) => Ok(Self {
                name: tracepoint,
                path,
                fields: parse(&text),
            }),
            Err(error) => Err(ProbeError::Tracepoint {
                tracepoint,
                path,
                cause: error.to_string(),
            }),
        }
    }

    /// `category:name`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The category.
    #[must_use]
    pub fn category(&self) -> &str {
        self.name
            .split_once(':')
            .map_or("", |(category, _)| category)
    }

    /// The name within the category.
    #[must_use]
    pub fn event(&self) -> &str {
        self.name.split_once(':').map_or("", |(_, event)| event)
    }

    /// The fields, without those that every tracepoint has.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields
            .iter()
            .filter(|field| !field.name.starts_with("common_"))
    }

    /// Size of the record in bytes, without the contents of dynamic fields.
    #[must_use]
    pub fn size(&self) -> u32 {
        let ends = self
            .fields
            .iter()
            .map(|field| field.offset.saturating_add(field.size));
        ends.max().unwrap_or(0)
    }

    /// Whether the record has dynamic fields, whose length varies.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        let is_dynamic = |field: &Field| {
            field.c_type.starts_with("__data_loc") || field.c_type.starts_with("__rel_loc")
        };
        self.fields.iter().any(is_dynamic)
    }

    /// Offset of the field `name`, which must have `size` bytes.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Tracepoint`] if there is no such field, or it has another size.
    pub fn offset(&self, name: &str, size: u32) -> Result<u32, ProbeError> {
        let cause = match self.fields.iter().find(|field| field.name == name) {
            Some(field) if field.size == size => return Ok(field.offset),
            Some(field) => format!(
                "field {name} has {} bytes, {size} were expected",
                field.size
            ),
            None => format!("there is no field {name}"),
        };
        Err(ProbeError::Tracepoint {
            tracepoint: self.name.clone(),
            path: self.path.clone(),
            cause,
        })
    }
}

/// Parses the `field:` lines of a `format` file; other lines are skipped.
fn parse(text: &str) -> Vec<Field> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.trim().split(';').map(str::trim);
            let declaration = parts.next()?.strip_prefix("field:")?;
            let (mut offset, mut size, mut signed) = (None, None, false);
            for part in parts {
                match part.split_once(':') {
                    Some(("offset", value)) => offset = value.parse().ok(),
                    Some(("size", value)) => size = value.parse().ok(),
                    Some(("signed", value)) => signed = value == "1",
                    _ => {}
                }
            }
            let (c_type, name, count) = declared(declaration)?;
            Some(Field {
                name: name.to_owned(),
                c_type,
                signed,
                count,
                offset: offset?,
                size: size?,
            })
        })
        .collect()
}

/// Splits a declaration into type, name and number of elements. Dynamic arrays have their brackets
/// in the type (`__data_loc char[] ring`), other arrays after the name (`char comm[16]`).
fn declared(declaration: &str) -> Option<(String, &str, u32)> {
    let (plain, bounds) = match declaration
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once('['))
    {
        Some((plain, bounds)) => (plain, Some(bounds)),
        None => (declaration, None),
    };
    let at = plain.rfind([' ', '*', ']'])? + 1;
    let (c_type, name) = (plain.get(..at)?.trim(), plain.get(at..)?);
    if name.is_empty() {
        return None;
    }
    // A bound may be an expression; then only the size of the whole array is known.
    let count = bounds.map_or(1, |bounds| bounds.trim().parse().unwrap_or(0));
    let c_type = match bounds {
        Some(bounds) => format!("{c_type}[{bounds}]"),
        None => c_type.to_owned(),
    };
    Some((c_type, name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWTASK: &str = "name: task_newtask\nID: 123\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
        \tfield:unsigned long clone_flags;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:const char * ptr;\toffset:40;\tsize:8;\tsigned:0;\n\nprint fmt: \"pid=%d\", REC->pid\n";

    #[test]
    fn parses_a_format_file() {
        let fields = parse(NEWTASK);
        let found: Vec<_> = fields
            .iter()
            .map(|f| (f.name.as_str(), f.offset, f.size))
            .collect();
        assert_eq!(
            found,
            [
                ("common_type", 0, 2),
                ("pid", 8, 4),
                ("comm", 12, 16),
                ("clone_flags", 32, 8),
                ("ptr", 40, 8)
            ]
        );
    }

    #[test]
    fn wrong_size_and_missing_field_are_named() {
        let tracepoint = Tracepoint {
            name: "task:task_newtask".into(),
            path: "/x".into(),
            fields: parse(NEWTASK),
        };
        assert_eq!(tracepoint.offset("clone_flags", 8).unwrap(), 32);
        assert!(
            tracepoint
                .offset("pid", 8)
                .unwrap_err()
                .to_string()
                .contains("has 4 bytes")
        );
        assert!(
            tracepoint
                .offset("nothing", 8)
                .unwrap_err()
                .to_string()
                .contains("no field nothing")
        );
    }

    #[test]
    fn declarations_of_all_kinds_are_taken_apart() {
        let text = "\tfield:__data_loc char[] ring;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:struct amdgpu_bo * bo;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned int src_data[4];\toffset:24;\tsize:16;\tsigned:0;\n\
            \tfield:long start;\toffset:40;\tsize:8;\tsigned:1;\n\
            \tfield:nonsense\n\tfield:x;\toffset:a;\n";
        let fields = parse(text);
        let found: Vec<_> = fields
            .iter()
            .map(|field| {
                (
                    field.c_type.as_str(),
                    field.name.as_str(),
                    field.signed,
                    field.count,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("__data_loc char[]", "ring", false, 1),
                ("struct amdgpu_bo *", "bo", false, 1),
                ("unsigned int[4]", "src_data", false, 4),
                ("long", "start", true, 1),
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed(text in "(\\tfield:[ -~]{0,30};\\toffset:[0-9]{0,12};\\tsize:[0-9]{0,12};\\tsigned:[01];\n|.*\n){0,8}") {
            let tracepoint = Tracepoint { name: "a:b".into(), path: "/x".into(), fields: parse(&text) };
            let _ = (tracepoint.size(), tracepoint.is_dynamic(), tracepoint.fields().count());
        }
    }
}
