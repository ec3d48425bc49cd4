//! The tracing file system: where it is, and the layout of the running kernel's tracepoints.
//!
//! Field offsets differ between kernels, so they are always read, never assumed. The format of the
//! `format` files is that of the kernel's `Documentation/trace/events.rst`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::ProbeError;

/// Where the tracing file system is mounted.
///
/// # Errors
///
/// [`ProbeError::NoTracefs`] if it is in neither usual place, [`ProbeError::PermissionDenied`] if it may not be
/// looked into.
pub fn tracefs() -> Result<PathBuf, ProbeError> {
    let mut cause = io::Error::from(io::ErrorKind::NotFound);
    for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        match fs::read_dir(Path::new(place).join("events")) {
            Ok(_) => return Ok(PathBuf::from(place)),
            // Only root may look into it, so this says nothing about whether it is mounted.
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
    /// Bytes from the start of the record.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

impl Tracepoint {
    /// Reads the layout of `category:name`.
    ///
    /// # Errors
    ///
    /// [`ProbeError::NoTracefs`], or [`ProbeError::Tracepoint`] if the kernel has no such tracepoint.
    pub fn read(category: &str, name: &str) -> Result<Self, ProbeError> {
        let path = tracefs()?.join("events").join(category).join(name).join("format");
        let tracepoint = format!("{category}:{name}");
        match fs::read_to_string(&path) {
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

    /// Offset of the field `name`, which must have `size` bytes.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Tracepoint`] if there is no such field or it has another size.
    pub fn offset(&self, name: &str, size: u32) -> Result<u32, ProbeError> {
        let cause = match self.fields.iter().find(|field| field.name == name) {
            Some(field) if field.size == size => return Ok(field.offset),
            Some(field) => format!("field {name} has {} bytes, {size} were expected", field.size),
            None => format!("there is no field {name}"),
        };
        Err(ProbeError::Tracepoint {
            tracepoint: self.name.clone(),
            path: self.path.clone(),
            cause,
        })
    }
}

/// Parses the `field:` lines of a `format` file; others are skipped.
fn parse(text: &str) -> Vec<Field> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.trim().split(';').map(str::trim);
            let declaration = parts.next()?.strip_prefix("field:")?;
            let (mut offset, mut size) = (None, None);
            for part in parts {
                match part.split_once(':') {
                    Some(("offset", value)) => offset = value.parse().ok(),
                    Some(("size", value)) => size = value.parse().ok(),
                    _ => {}
                }
            }
            let name = declaration.split('[').next()?.rsplit([' ', '*']).next()?;
            Some(Field {
                name: name.to_owned(),
                offset: offset?,
                size: size?,
            })
        })
        .collect()
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
}
