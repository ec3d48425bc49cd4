//! The metadata note: the compiler's description of the kernels, in MessagePack.
//!
//! The keys are those of LLVM's `AMDGPUUsage`, "Code Object V3 Metadata" to "V6 Metadata".

use rmpv::ValueRef;

/// Maximum nesting. Real metadata has five levels: the document, `amdhsa.kernels`, a kernel,
/// `.args`, an argument.
const MAX_NESTING: usize = 32;
/// Maximum size of one kernel's metadata, or of another value of the document, bytes. A decoded
/// value takes up to fifty times as much memory as its bytes, so the document is decoded piece by
/// piece.
const MAX_VALUE: usize = 4 << 20;

/// Why metadata cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The bytes are not MessagePack, are cut off, or are nested too deeply.
    #[error("its metadata is not readable as MessagePack: {0}")]
    Encoding(String),
    /// The document is not a map with `amdhsa.version`.
    #[error("its metadata is not that of AMD GPU code")]
    NotAmdhsa,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Argument {
    /// `.name`, if the compiler kept it.
    pub name: Option<String>,
    /// `.type_name`, if the compiler kept it.
    pub type_name: Option<String>,
    /// `.value_kind`: `by_value`, `global_buffer`, `hidden_global_offset_x` and so on.
    pub value_kind: String,
    /// Offset in the kernarg segment, bytes.
    pub offset: u32,
    /// Size, bytes.
    pub size: u32,
}

/// Metadata of a kernel. Missing values are `None` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelMetadata {
    /// `.name`: the kernel's name, mangled for C++.
    pub name: String,
    /// `.symbol`: name of the symbol of its descriptor, e.g. `small_a.kd`.
    pub symbol: String,
    /// `.kernarg_segment_size`, bytes.
    pub kernarg_segment_size: u32,
    /// `.kernarg_segment_align`, bytes.
    pub kernarg_segment_align: u32,
    /// `.group_segment_fixed_size`, bytes.
    pub group_segment_size: u32,
    /// `.private_segment_fixed_size`, bytes.
    pub private_segment_size: u32,
    /// `.wavefront_size`.
    pub wavefront_size: u32,
    /// `.sgpr_count`: number of scalar registers that the code uses.
    pub sgpr_count: u32,
    /// `.vgpr_count`: number of vector registers that the code uses; on gfx90a and later
    /// data-centre GPUs it includes accumulation registers.
    pub vgpr_count: u32,
    /// `.agpr_count`: number of accumulation registers that the code uses.
    pub agpr_count: Option<u32>,
    /// `.sgpr_spill_count`.
    pub sgpr_spill_count: u32,
    /// `.vgpr_spill_count`.
    pub vgpr_spill_count: u32,
    /// `.max_flat_workgroup_size`, work-items.
    pub max_flat_workgroup_size: u32,
    /// `.uses_dynamic_stack`.
    pub uses_dynamic_stack: bool,
    /// `.args`.
    pub arguments: Vec<Argument>,
}

/// A metadata document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// `amdhsa.version`: (1, 0) for code object version 3, (1, 1) for 4, (1, 2) for 5 and 6.
    pub version: (u32, u32),
    /// `amdhsa.target`, e.g. `amdgcn-amd-amdhsa--gfx906:xnack-`; from version 4 on.
    pub target: Option<String>,
    /// `amdhsa.kernels`, in the order of the document.
    pub kernels: Vec<KernelMetadata>,
}

impl Metadata {
    /// Parses the descriptor of a note `AMDGPU`, type 32. Unknown keys are skipped, and values of
    /// the wrong type count as missing.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MetadataError> {
        let mut rest = bytes;
        let Some((Container::Map, pairs)) = Container::read(&mut rest) else {
            return Err(MetadataError::NotAmdhsa);
        };
        let mut metadata = Self::default();
        let mut is_amdhsa = false;
        for _ in 0..pairs {
            let key = value(&mut rest)?;
            let mut ahead = rest;
            match (text(&key), Container::read(&mut ahead)) {
                (Some("amdhsa.kernels"), Some((Container::Array, kernels))) => {
                    rest = ahead;
                    for _ in 0..kernels {
                        metadata.kernels.extend(kernel(&value(&mut rest)?));
                    }
                    continue;
                }
                (Some("amdhsa.version"), _) => {
                    if let ValueRef::Array(version) = value(&mut rest)? {
                        is_amdhsa = true;
                        let part = |at| version.get(at).map(number).unwrap_or_default();
                        metadata.version = (part(0), part(1));
                    }
                }
                (Some("amdhsa.target"), _) => {
                    metadata.target = text(&value(&mut rest)?).map(str::to_owned);
                }
                _ => drop(value(&mut rest)?),
            }
        }
        if is_amdhsa {
            Ok(metadata)
        } else {
            Err(MetadataError::NotAmdhsa)
        }
    }
}

/// Type of a value that contains others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Map,
    Array,
}

impl Container {
    /// Reads the head of a map or array: its type, and the number of its pairs or elements.
    fn read(rest: &mut &[u8]) -> Option<(Self, u32)> {
        let (&marker, tail) = rest.split_first()?;
        let (container, width) = match marker {
            0x80..=0x8f => (Self::Map, 0),
            0x90..=0x9f => (Self::Array, 0),
            0xdc => (Self::Array, 2),
            0xdd => (Self::Array, 4),
            0xde => (Self::Map, 2),
            0xdf => (Self::Map, 4),
            _ => return None,
        };
        let (digits, tail) = tail.split_at_checked(width)?;
        *rest = tail;
        let length = match digits {
            [] => u32::from(marker & 0xf),
            digits => digits
                .iter()
                .fold(0, |length, byte| length << 8 | u32::from(*byte)),
        };
        Some((container, length))
    }
}

/// Reads a complete value.
fn value<'a>(rest: &mut &'a [u8]) -> Result<ValueRef<'a>, MetadataError> {
    let bytes = *rest;
    let mut near = bytes.get(..bytes.len().min(MAX_VALUE)).unwrap_or(bytes);
    let before = near.len();
    let value = rmpv::decode::read_value_ref_with_max_depth(&mut near, MAX_NESTING)
        .map_err(|error| MetadataError::Encoding(error.to_string()))?;
    *rest = bytes.get(before - near.len()..).unwrap_or_default();
    Ok(value)
}

fn kernel(value: &ValueRef<'_>) -> Option<KernelMetadata> {
    let ValueRef::Map(fields) = value else {
        return None;
    };
    let mut kernel = KernelMetadata::default();
    for (key, value) in fields {
        match text(key)? {
            ".name" => kernel.name = owned(value),
            ".symbol" => kernel.symbol = owned(value),
            ".kernarg_segment_size" => kernel.kernarg_segment_size = number(value),
            ".kernarg_segment_align" => kernel.kernarg_segment_align = number(value),
            ".group_segment_fixed_size" => kernel.group_segment_size = number(value),
            ".private_segment_fixed_size" => kernel.private_segment_size = number(value),
            ".wavefront_size" => kernel.wavefront_size = number(value),
            ".sgpr_count" => kernel.sgpr_count = number(value),
            ".vgpr_count" => kernel.vgpr_count = number(value),
            ".agpr_count" => kernel.agpr_count = Some(number(value)),
            ".sgpr_spill_count" => kernel.sgpr_spill_count = number(value),
            ".vgpr_spill_count" => kernel.vgpr_spill_count = number(value),
            ".max_flat_workgroup_size" => kernel.max_flat_workgroup_size = number(value),
            ".uses_dynamic_stack" => {
                kernel.uses_dynamic_stack = matches!(value, ValueRef::Boolean(true));
            }
            ".args" => {
                if let ValueRef::Array(arguments) = value {
                    kernel.arguments = arguments.iter().filter_map(argument).collect();
                }
            }
            _ => {}
        }
    }
    // A kernel without a name is useless, and would cost more memory than it has bytes in the file.
    (!kernel.symbol.is_empty()).then_some(kernel)
}

fn argument(value: &ValueRef<'_>) -> Option<Argument> {
    let ValueRef::Map(fields) = value else {
        return None;
    };
    let mut argument = Argument::default();
    for (key, value) in fields {
        match text(key)? {
            ".name" => argument.name = text(value).map(str::to_owned),
            ".type_name" => argument.type_name = text(value).map(str::to_owned),
            ".value_kind" => argument.value_kind = owned(value),
            ".offset" => argument.offset = number(value),
            ".size" => argument.size = number(value),
            _ => {}
        }
    }
    (!argument.value_kind.is_empty()).then_some(argument)
}

fn text<'a>(value: &ValueRef<'a>) -> Option<&'a str> {
    match value {
        ValueRef::String(text) => text.into_str(),
        _ => None,
    }
}

fn owned(value: &ValueRef<'_>) -> String {
    text(value).unwrap_or_default().to_owned()
}

fn number(value: &ValueRef<'_>) -> u32 {
    match value {
        ValueRef::Integer(number) => number.as_u64().and_then(|number| number.try_into().ok()),
        _ => None,
    }
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rmpv::Value;

    fn encode(value: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, value).unwrap();
        bytes
    }

    fn map(pairs: &[(&str, Value)]) -> Value {
        Value::Map(
            pairs
                .iter()
                .map(|(key, value)| ((*key).into(), value.clone()))
                .collect(),
        )
    }

    fn document() -> Value {
        let argument = map(&[
            (".offset", 8.into()),
            (".size", 8.into()),
            (".value_kind", "global_buffer".into()),
            (".address_space", "global".into()),
        ]);
        let kernel = map(&[
            (".name", "small_a".into()),
            (".symbol", "small_a.kd".into()),
            (".kernarg_segment_size", 56.into()),
            (".vgpr_count", (-1).into()),
            (".sgpr_count", "many".into()),
            (".agpr_count", 3.into()),
            (".uses_dynamic_stack", true.into()),
            (".args", Value::Array(vec![argument, Value::Nil])),
        ]);
        map(&[
            ("amdhsa.version", Value::Array(vec![1.into(), 2.into()])),
            ("amdhsa.target", "amdgcn-amd-amdhsa--gfx906".into()),
            ("amdhsa.kernels", Value::Array(vec![kernel, Value::Nil])),
            ("amdhsa.printf", Value::Array(vec!["1:1:4:%d".into()])),
        ])
    }

    #[test]
    fn a_document() {
        let metadata = Metadata::parse(&encode(&document())).unwrap();
        assert_eq!(metadata.version, (1, 2));
        assert_eq!(
            metadata.target.as_deref(),
            Some("amdgcn-amd-amdhsa--gfx906")
        );
        let [kernel] = &metadata.kernels[..] else {
            panic!()
        };
        assert_eq!(
            (kernel.name.as_str(), kernel.symbol.as_str()),
            ("small_a", "small_a.kd")
        );
        assert_eq!(
            (
                kernel.kernarg_segment_size,
                kernel.vgpr_count,
                kernel.sgpr_count
            ),
            (56, 0, 0)
        );
        assert_eq!(
            (kernel.agpr_count, kernel.uses_dynamic_stack),
            (Some(3), true)
        );
        let [argument] = &kernel.arguments[..] else {
            panic!()
        };
        assert_eq!(
            (argument.offset, argument.size, argument.value_kind.as_str()),
            (8, 8, "global_buffer")
        );
    }

    #[test]
    fn other_documents() {
        assert_eq!(
            Metadata::parse(&encode(&map(&[]))),
            Err(MetadataError::NotAmdhsa)
        );
        assert_eq!(
            Metadata::parse(&encode(&Value::Nil)),
            Err(MetadataError::NotAmdhsa)
        );
        assert_eq!(Metadata::parse(&[]), Err(MetadataError::NotAmdhsa));
        // Maps that claim billions of elements, and endlessly nested maps.
        for bytes in [&[0xdf, 0xff, 0xff, 0xff, 0xff][..], &[0x81; 100_000]] {
            assert!(matches!(
                Metadata::parse(bytes),
                Err(MetadataError::Encoding(_))
            ));
        }
        let mut kernels = encode(&map(&[("amdhsa.kernels", Value::Nil)]));
        kernels.pop();
        kernels.extend([0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0]);
        assert!(matches!(
            Metadata::parse(&kernels),
            Err(MetadataError::Encoding(_))
        ));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Metadata::parse(&bytes);
        }

        #[test]
        fn damaged(at: proptest::sample::Index, byte: u8, keep: proptest::sample::Index) {
            let mut bytes = encode(&document());
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(keep.index(bytes.len()) + 1);
            let _ = Metadata::parse(&bytes);
        }
    }
}
