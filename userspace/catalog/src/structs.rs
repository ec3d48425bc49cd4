//! Layouts of structures. The text form is `data/structs.txt` (and the hand-written
//! `data/newer_structs.txt`, `data/decoder_structs.txt` and `data/hipfile_structs.txt`).
//!
//! ```text
//! hipExtent | 5.2.3- | width: size_t = uint:8 @ 0+8 | height: size_t = uint:8 @ 8+8
//! ```
//!
//! A line has the structure, the releases whose headers have this layout, and the fields worth
//! showing (listed in the hand-written `data/layouts.txt`). Each field has its name, C type,
//! [`Class`], offset and size in bytes. The name of a field of a nested structure contains a dot. A
//! `string` is text inside the structure itself.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::LazyLock,
};

use gputrace_capture::meta;

use crate::{
    class::Class, enums::plain_type, flags::values_of, lines, release::Releases,
    signature::Argument,
};

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name, prefixed with those of the enclosing structures.
    pub name: &'a str,
    /// C type as in the header.
    pub c_type: &'a str,
    /// Class of the type.
    pub class: Class,
    /// Offset, bytes.
    pub offset: u16,
    /// Size, bytes.
    pub bytes: u16,
}

/// Layout of a structure in some releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout<'a> {
    /// Name in C.
    pub name: &'a str,
    /// Releases whose headers have this layout.
    pub releases: Releases,
    /// Fields worth showing.
    pub fields: Vec<Field<'a>>,
}

impl fmt::Display for Layout<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {}", self.name, self.releases)?;
        self.fields
            .iter()
            .try_for_each(|field| write!(f, " | {field}"))
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            c_type,
            class,
            offset,
            bytes,
        } = self;
        write!(f, "{name}: {c_type} = {class} @ {offset}+{bytes}")
    }
}

/// Parses a line of the text form.
#[must_use]
pub fn parse_layout(line: &str) -> Option<Layout<'_>> {
    let mut parts = line.split(" | ");
    let name = parts.next()?;
    let releases = parts.next()?.parse().ok()?;
    let fields = parts.map(parse_field).collect::<Option<Vec<_>>>()?;
    Some(Layout {
        name,
        releases,
        fields,
    })
}

fn parse_field(text: &str) -> Option<Field<'_>> {
    let (name, rest) = text.split_once(": ")?;
    let (c_type, rest) = rest.rsplit_once(" = ")?;
    let (class, place) = rest.split_once(" @ ")?;
    let (offset, bytes) = place.split_once('+')?;
    Some(Field {
        name,
        c_type,
        class: class.parse().ok()?,
        offset: offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}

/// Parses the layouts in a text. Invalid lines are skipped; their fields are then not shown.
pub fn parse(text: &str) -> impl Iterator<Item = Layout<'_>> {
    lines(text).filter_map(parse_layout)
}

/// The committed data.
const DATA: [&str; 4] = [
    include_str!("../data/structs.txt"),
    include_str!("../data/newer_structs.txt"),
    include_str!("../data/decoder_structs.txt"),
    include_str!("../data/hipfile_structs.txt"),
];

/// All layouts of the committed data; those of one structure by release.
pub fn layouts() -> impl Iterator<Item = Layout<'static>> {
    DATA.iter().flat_map(|text| parse(text))
}

/// Layouts by structure, oldest first.
static STRUCTURES: LazyLock<HashMap<&'static str, Vec<Layout<'static>>>> = LazyLock::new(|| {
    let mut structures: HashMap<&str, Vec<Layout<'_>>> = HashMap::new();
    for layout in layouts() {
        structures.entry(layout.name).or_default().push(layout);
    }
    structures
});

/// The major release of HIP whose library has this `DT_SONAME`; `None` if it is another library.
///
/// ```
/// assert_eq!(gputrace_catalog::structs::hip_major("libamdhip64.so.6"), Some(6));
/// assert_eq!(gputrace_catalog::structs::hip_major("libhsa-runtime64.so.1"), None);
/// ```
#[must_use]
pub fn hip_major(soname: &str) -> Option<u16> {
    soname.strip_prefix("libamdhip64.so.")?.parse().ok()
}

/// The structure that a parameter of this C type is or points to.
fn structure_of(c_type: &str) -> &str {
    let name = plain_type(c_type.strip_suffix('*').unwrap_or(c_type).trim_end());
    name.strip_prefix("struct ").unwrap_or(name)
}

/// The fields that are shown of a parameter: those of a structure passed by value, or of one that
/// it points to. Empty for all other types.
///
/// If releases lay out a structure differently, these are the fields that have the same place in
/// all of them: in all releases of the traced major release of HIP, if known. Releases later than
/// those of the data are assumed to have the newest of these layouts. A structure that only older
/// releases have belongs to functions that are kept for older programs.
///
/// ```
/// use gputrace_catalog::structs::fields;
/// let names: Vec<_> = fields("struct hipExtent", None).iter().map(|field| field.name).collect();
/// assert_eq!(names, ["width", "height", "depth"]);
/// assert_eq!(fields("const hipExtent *", None).len(), 3);
/// assert!(fields("hipExtent **", None).is_empty() && fields("int", None).is_empty());
/// ```
#[must_use]
pub fn fields(c_type: &str, hip: Option<u16>) -> Vec<Field<'static>> {
    let layouts = STRUCTURES.get(structure_of(c_type));
    let layouts = layouts.map(Vec::as_slice).unwrap_or_default();
    let may_be = |layout: &Layout<'_>| {
        let Releases { first, last } = layout.releases;
        hip.is_none_or(|major| first.major <= major && last.is_none_or(|last| major <= last.major))
    };
    let is_known = layouts.iter().any(may_be);
    let mut possible = layouts.iter().filter(|layout| !is_known || may_be(layout));
    let mut fields = possible
        .next()
        .map_or_else(Vec::new, |layout| layout.fields.clone());
    for layout in possible {
        fields.retain(|field| layout.fields.contains(field));
    }
    fields
}

/// Parameters that point to several structures, with their functions.
static ARRAYS: LazyLock<HashSet<(&'static str, &'static str)>> = LazyLock::new(|| {
    let lines = lines(include_str!("../data/arrays.txt"));
    lines.filter_map(|line| line.split_once(" | ")).collect()
});

/// The fields of the parameter `name` of a function, as a capture stores them; for several
/// structures, those of the first.
pub(crate) fn recorded(
    function: &str,
    Argument { name, c_type }: &Argument<'_>,
    hip: Option<u16>,
) -> Vec<meta::Field> {
    let structure = structure_of(c_type.spelling);
    let place = if ARRAYS.contains(&(function, *name)) {
        "[0]"
    } else {
        ""
    };
    let field = |field: &Field<'_>| meta::Field {
        name: format!("{name}{place}.{}", field.name),
        c_type: field.c_type.to_owned(),
        kind: match field.class {
            Class::Float(bytes) => meta::ValueKind::Real(bytes),
            class => class.kind(),
        },
        offset: field.offset,
        bytes: field.bytes,
        values: values_of(structure, field.name)
            .unwrap_or_default()
            .to_owned(),
    };
    fields(c_type.spelling, hip).iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_data_is_whole() {
        let lines: Vec<&str> = DATA.iter().flat_map(|text| lines(text)).collect();
        let written: Vec<String> = layouts().map(|layout| layout.to_string()).collect();
        assert_eq!(written, lines);
        assert!(lines.len() > 30);
        for layout in layouts() {
            let mut fields = layout.fields.iter();
            assert!(
                fields.all(|field| matches!(field.bytes, 1 | 2 | 4 | 8 | 12)
                    || field.class == Class::CString)
            );
        }
    }

    #[test]
    fn what_differs_between_releases_is_left_out() {
        let names = |c_type, hip| -> Vec<&str> {
            let fields = fields(c_type, hip);
            fields.iter().map(|field| field.name).collect()
        };
        // `memoryType` became `type` in 6.0; 5.7.1 has both, in a union.
        let same = ["device", "devicePointer", "hostPointer", "isManaged"];
        assert_eq!(names("hipPointerAttribute_t *", None), same);
        let shown = names("hipPointerAttribute_t *", Some(5));
        assert_eq!((shown.len(), shown[0]), (5, "memoryType"));
        for major in [6, 7] {
            let shown = names("hipPointerAttribute_t *", Some(major));
            assert_eq!((shown.len(), shown[0]), (5, "type"));
        }
        let width = |hip| -> Vec<(u16, u16)> {
            let fields = fields("const HIP_MEMCPY3D *", hip);
            let width = fields.iter().filter(|field| field.name == "WidthInBytes");
            width.map(|field| (field.offset, field.bytes)).collect()
        };
        assert_eq!(width(Some(5)), [(112, 4)]);
        assert_eq!(width(Some(6)), [(160, 8)]);
        assert_eq!(width(None), []);
        assert_eq!(
            names("const struct hipChannelFormatDesc *", None),
            ["x", "y", "z", "w", "f"]
        );
        assert_eq!(names("hipDeviceProp_t *", Some(6)), ["name"]);
        assert!(names("hipMemcpyKind", None).is_empty());
    }

    #[test]
    fn of_several_structures_the_first_is_shown() {
        for (function, parameter) in ARRAYS.iter() {
            let signature = crate::signature(function).expect("in the catalogue");
            let parameters = signature.parameters_in(Some(6));
            let mut parameters = parameters.iter().filter(|known| known.name == *parameter);
            let fields = &parameters.next().expect("its parameter").fields;
            let first = format!("{parameter}[0].");
            assert!(!fields.is_empty(), "{function}");
            assert!(fields.iter().all(|field| field.name.starts_with(&first)));
        }
        assert!(ARRAYS.len() > 3);
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        for line in [
            "",
            "a",
            "a | x",
            "a | 5.2.3- | b",
            "a | 5.2.3- | b: int = int:4 @ 0",
            "a | 5.2.3- | b: int = int:4 @ -1+4",
        ] {
            assert_eq!(parse_layout(line), None, "{line}");
        }
    }
}
