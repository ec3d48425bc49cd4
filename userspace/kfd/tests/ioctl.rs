//! The table of requests against the kernel's own header, and the decoder with bytes of all kinds.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside of #[test] functions"
)]

use std::collections::HashMap;

use gputrace_kfd::ioctl::{self, Direction, IOCTLS, Ioctl, Origin};
use proptest::prelude::*;

/// Environment variable with a header other than the installed one, such as libhsakmt's.
const HEADER_VARIABLE: &str = "GPUTRACE_KFD_IOCTL_H";

/// Structures and requests of a header, as far as the C that it uses is understood.
#[derive(Default)]
struct Header {
    minor: u32,
    /// Size, alignment, and fields with name, offset and width.
    structures: HashMap<String, Structure>,
    /// Name, direction, number, structure.
    requests: Vec<(String, Direction, u8, Option<String>)>,
}

#[derive(Clone, Default)]
struct Structure {
    size: usize,
    align: usize,
    fields: Vec<(String, usize, usize)>,
}

impl Structure {
    fn add(&mut self, name: &str, element: &Structure, count: usize) {
        let offset = self.size.next_multiple_of(element.align);
        for index in 0..count.max(1) {
            // A flexible array member exists and has no size.
            let base = offset + index * element.size;
            if element.fields.is_empty() {
                self.fields.push((name.to_owned(), base, element.size));
            }
            for (field, at, width) in &element.fields {
                self.fields
                    .push((format!("{name}.{field}"), base + at, *width));
            }
        }
        self.size = offset + element.size * count;
        self.align = self.align.max(element.align);
    }
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        kept.push_str(before);
        kept.push(' ');
        rest = after.split_once("*/").unwrap().1;
    }
    (kept + rest).replace("\\\n", " ")
}

fn parse(text: &str) -> Header {
    let text = without_comments(text);
    let mut header = Header::default();
    let constants: HashMap<&str, usize> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("#define ")?.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        })
        .collect();
    header.minor = u32::try_from(constants["KFD_IOCTL_MINOR_VERSION"]).unwrap();
    for part in text.split("\nstruct ").skip(1) {
        let Some((name, body)) = part.split_once('{') else {
            continue;
        };
        // Nested bodies (unions) are left to the test of the union.
        let Some((body, _)) = body.split_once("\n}") else {
            continue;
        };
        if name.contains(';') || body.contains('{') {
            continue;
        }
        let mut structure = Structure {
            align: 1,
            ..Structure::default()
        };
        let complete = body
            .split(';')
            .map(str::trim)
            .filter(|field| !field.is_empty())
            .all(|field| {
                let (kind, field) = field.rsplit_once(char::is_whitespace).unwrap();
                let scalar = |size| Structure {
                    size,
                    align: size,
                    fields: Vec::new(),
                };
                let element = match kind.trim() {
                    "__u32" | "__s32" | "uint32_t" => scalar(4),
                    "__u64" => scalar(8),
                    other => match other
                        .strip_prefix("struct ")
                        .and_then(|name| header.structures.get(name.trim()))
                    {
                        Some(known) => known.clone(),
                        None => return false,
                    },
                };
                let (field, count) = match field.trim_end_matches(']').split_once('[') {
                    Some((field, "")) => (field, 0),
                    Some((field, count)) => {
                        (field, count.parse().unwrap_or_else(|_| constants[count]))
                    }
                    None => (field, 1),
                };
                structure.add(field, &element, count);
                true
            });
        if complete {
            structure.size = structure.size.next_multiple_of(structure.align);
            header.structures.insert(name.trim().to_owned(), structure);
        }
    }
    for define in text.split("#define AMDKFD_IOC_").skip(1) {
        let (name, rest) = define.split_once(char::is_whitespace).unwrap();
        let rest = rest.trim_start().strip_prefix("AMDKFD_").unwrap();
        let (macro_name, rest) = rest.split_once('(').unwrap();
        let arguments = rest.split_once(')').unwrap().0;
        let (number, structure) = match arguments.split_once(',') {
            Some((number, structure)) => (
                number,
                Some(structure.trim().strip_prefix("struct ").unwrap().to_owned()),
            ),
            None => (arguments, None),
        };
        let direction = match macro_name {
            "IO" => Direction::None,
            "IOR" => Direction::Read,
            "IOW" => Direction::Write,
            "IOWR" => Direction::ReadWrite,
            other => panic!("{other}"),
        };
        let number = u8::from_str_radix(number.trim().trim_start_matches("0x"), 16).unwrap();
        header
            .requests
            .push((name.to_owned(), direction, number, structure));
    }
    header
}

/// The value and name of a constant with a prefix: a number, or `(1 << N)`.
fn define<'a>(line: &'a str, prefix: &str) -> Option<(u32, &'a str)> {
    let (name, value) = line
        .strip_prefix("#define ")?
        .split_once(char::is_whitespace)?;
    let value = value.trim();
    let number = match value.strip_prefix("(1 << ") {
        Some(bit) => 1 << bit.strip_suffix(')')?.parse::<u32>().ok()?,
        None => match value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => value.parse().ok()?,
        },
    };
    Some((number, name.strip_prefix(prefix)?))
}

fn known(nr: u8) -> &'static Ioctl {
    ioctl::by_number(nr).unwrap_or_else(|| panic!("{nr:#x} is not in the table"))
}

#[test]
fn the_table_is_the_headers() {
    let path = std::env::var(HEADER_VARIABLE)
        .unwrap_or_else(|_| "/usr/include/linux/kfd_ioctl.h".to_owned());
    let Ok(text) = std::fs::read_to_string(&path) else {
        gputrace_skip::skipped(&format!(
            "no {path} (Debian: apt-get install linux-libc-dev)"
        ));
        return;
    };
    let header = parse(&text);
    assert!(
        header.requests.len() >= 35,
        "{} requests in {path}",
        header.requests.len()
    );
    for (name, direction, nr, structure) in &header.requests {
        let ioctl = known(*nr);
        assert_eq!((ioctl.name, ioctl.direction), (name.as_str(), *direction));
        let Some(structure) = structure else { continue };
        // A structure with a union, which is compared below.
        let Some(structure) = header.structures.get(structure) else {
            assert_eq!(name, "DBG_TRAP");
            continue;
        };
        let of_version = ioctl
            .sizes
            .iter()
            .rev()
            .find(|(_, minor)| *minor <= header.minor);
        assert_eq!(
            of_version.map(|(size, _)| usize::from(*size)),
            Some(structure.size),
            "{name}"
        );
        for (field, offset, width) in &structure.fields {
            if field
                .split('.')
                .any(|part| part.starts_with("pad") || part == "reserved")
            {
                continue;
            }
            let is_same = |known: &&ioctl::Field| {
                let first = usize::from(known.offset);
                let places = (0..usize::from(known.count))
                    .map(|index| first + index * usize::from(known.stride));
                known.name == field
                    && usize::from(known.width) == *width
                    && places.into_iter().any(|at| at == *offset)
            };
            assert!(
                ioctl.fields.iter().any(|known| is_same(&known)),
                "{name}: {field} at {offset}"
            );
        }
        // The table has no fields at this size that the header lacks.
        for field in ioctl
            .fields
            .iter()
            .filter(|field| usize::from(field.offset) < structure.size)
        {
            assert!(
                structure.fields.iter().any(|(name, ..)| name == field.name),
                "{name}: {}",
                field.name
            );
        }
    }
    let choices = [
        ("KFD_IOC_ALLOC_MEM_FLAGS_", ioctl::flags::ALLOC_MEM_FLAGS),
        ("KFD_IOCTL_SVM_FLAG_", ioctl::flags::SVM_FLAGS),
        ("KFD_IOC_QUEUE_TYPE_", ioctl::flags::QUEUE_TYPES),
        ("KFD_IOC_EVENT_", ioctl::flags::EVENT_TYPES),
        ("KFD_IOC_WAIT_RESULT_", ioctl::flags::WAIT_RESULTS),
    ];
    for (prefix, names) in choices {
        let defined: Vec<(u32, &str)> = text
            .lines()
            .filter_map(|line| define(line, prefix))
            .collect();
        assert!(defined.len() >= 3, "{prefix}");
        for choice in defined {
            assert!(names.contains(&choice), "{prefix}{choice:?}");
        }
    }
    // Members of DBG_TRAP's union, where the header has them.
    let members = [
        (0, "enable"),
        (2, "send_runtime_event"),
        (3, "set_exceptions_enabled"),
        (4, "set_wave_launch_override"),
        (5, "set_wave_launch_mode"),
        (6, "suspend_queues"),
        (7, "resume_queues"),
        (8, "set_node_address_watch"),
        (9, "clear_node_address_watch"),
        (10, "set_flags"),
        (11, "query_debug_event"),
        (12, "query_exception_info"),
        (13, "queue_snapshot"),
        (14, "device_snapshot"),
    ];
    for (op, member) in members {
        let Some(structure) = header
            .structures
            .get(&format!("kfd_ioctl_dbg_trap_{member}_args"))
        else {
            continue;
        };
        let own = known(0x26)
            .fields
            .iter()
            .filter(|field| field.condition == Some((4, op)));
        let own: Vec<_> = own
            .map(|field| {
                (
                    field.name.to_owned(),
                    usize::from(field.offset) - 8,
                    usize::from(field.width),
                )
            })
            .collect();
        let theirs = structure.fields.iter().filter(|(name, ..)| name != "pad");
        assert!(
            own.iter().eq(theirs),
            "{member}: {own:?} {:?}",
            structure.fields
        );
    }
}

#[test]
fn numbers_are_in_order_and_fields_within_their_structures() {
    assert!(IOCTLS.is_sorted_by(|first, second| first.nr < second.nr));
    for ioctl in IOCTLS {
        assert_eq!(
            ioctl.origin == Origin::Rocm,
            ioctl.nr >= 0x80,
            "{}",
            ioctl.name
        );
        let largest = ioctl.sizes.iter().map(|(size, _)| *size).max();
        // Attributes of SVM follow its structure.
        for field in ioctl
            .fields
            .iter()
            .filter(|field| !field.name.starts_with("attrs."))
        {
            let end =
                field.offset + u16::from(field.width) + u16::from(field.count - 1) * field.stride;
            assert!(
                largest.is_none_or(|size| end <= size),
                "{} {}",
                ioctl.name,
                field.name
            );
            assert_eq!(field.offset % u16::from(field.width), 0);
        }
    }
}

/// A structure of 32-bit numbers.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn flags_choices_and_units_have_names() {
    let alloc = words(&[
        0x1000,
        0,
        0x20_0000,
        0,
        5,
        31_000,
        0,
        0,
        31_000,
        0xd000_0041,
    ]);
    let request = ioctl::decode(0xc028_4b16, &alloc);
    assert_eq!(
        request.to_string(),
        "ALLOC_MEMORY_OF_GPU va_addr=0x1000 size=2097152 B handle=0x791800000005 mmap_offset=0x0 gpu_id=GPU 31000 \
         flags=VRAM|NO_SUBSTITUTE|EXECUTABLE|WRITABLE|0x40"
    );
    assert_eq!(request.get("size"), Some(2 << 20));
    let wait = ioctl::decode(0xc018_4b0c, &words(&[0, 1, 2, 1, u32::MAX, 1]));
    assert_eq!(
        wait.to_string(),
        "WAIT_EVENTS events_ptr=0x100000000 num_events=2 wait_for_all=true timeout=forever wait_result=TIMEOUT"
    );
    let xnack = ioctl::decode(0xc004_4b21, &words(&[u32::MAX]));
    assert_eq!(xnack.to_string(), "SET_XNACK_MODE xnack_enabled=-1");
}

#[test]
fn structures_of_other_sizes_decode_as_far_as_they_go() {
    let mut queue = vec![0_u8; 96];
    queue[40] = 4;
    queue[88] = 3;
    assert_eq!(
        ioctl::decode(0xc060_4b02, &queue).get("sdma_engine_id"),
        Some(3)
    );
    // An old libhsakmt: bytes after its structure do not belong to it.
    let old = ioctl::decode(0xc058_4b02, &queue);
    assert_eq!(
        (old.get("sdma_engine_id"), old.get("queue_type")),
        (None, Some(4))
    );
    // A capture that kept only the beginning.
    let cut = ioctl::decode(0xc060_4b02, &queue[..43]);
    assert_eq!((cut.get("gpu_id"), cut.get("queue_type")), (Some(0), None));
    // Two attributes in a structure of the caller's size.
    let svm = words(&[0x1000, 0, 0x2000, 0, 0, 2, 1, 31_000, 5, 0x10]);
    let svm = ioctl::decode(0xc028_4b20, &svm);
    assert_eq!(svm.get("attrs[0].value"), Some(31_000));
    assert_eq!(svm.get("attrs[1].type"), Some(5));
    assert_eq!(svm.get("attrs[2].type"), None);
    // Only the union's member for the operation is shown.
    let suspend = ioctl::decode(0xc020_4b26, &words(&[42, 7, 0x1000, 0, 3, 0, 0, 0]));
    assert_eq!(
        suspend.to_string(),
        "DBG_TRAP pid=42 op=RESUME_QUEUES queue_array_ptr=0x1000 num_queues=3"
    );
}

#[test]
fn an_unknown_request_is_shown_by_number() {
    let request = ioctl::decode(0xc010_4b7f, &[1; 16]);
    assert_eq!(request.to_string(), "KFD ioctl 0x7f");
    assert!(request.ioctl.is_none() && request.arguments.is_empty());
    // KFD does not check the letter.
    assert_eq!(ioctl::decode(0x8008_5801, &[1; 8]).name(), "GET_VERSION");
}

proptest! {
    #[test]
    fn any_request_with_any_bytes_decodes(request: u32, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let decoded = ioctl::decode(request, &bytes);
        let _ = decoded.to_string();
        for argument in &decoded.arguments {
            let names: Vec<_> = argument.value.names().collect();
            prop_assert!(names.len() <= 32);
        }
    }
}
