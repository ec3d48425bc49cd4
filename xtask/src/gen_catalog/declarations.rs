//! Reads function declarations of C++ headers with libclang.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clang::{Entity, EntityKind, EntityVisitResult, Type, TypeKind};
use gputrace_catalog::class::{Class, Eightbyte};
use gputrace_catalog::enums::plain_type;
use gputrace_catalog::release::Releases;
use gputrace_catalog::signature::{Argument, CType, Signature};

use super::headers::Headers;

/// A function as declared in one release.
#[derive(Clone)]
pub(super) struct Declaration {
    returns: OwnedType,
    arguments: Vec<(String, OwnedType)>,
}

#[derive(Clone, PartialEq)]
struct OwnedType {
    spelling: String,
    class: Class,
    stored: Option<Class>,
}

/// Declarations in the headers of one release, by name.
pub(super) type Functions = BTreeMap<String, Declaration>;

/// Enumerators by name of the type, then by value; if several have the same value, the first one.
pub(super) type Enums = BTreeMap<String, BTreeMap<i64, String>>;

impl From<&Signature<'_>> for Declaration {
    fn from(signature: &Signature<'_>) -> Self {
        let owned = |c_type: &CType<'_>| OwnedType {
            spelling: c_type.spelling.to_owned(),
            class: c_type.class,
            stored: c_type.stored,
        };
        let argument =
            |argument: &Argument<'_>| (argument.name.to_owned(), owned(&argument.c_type));
        Self {
            returns: owned(&signature.returns),
            arguments: signature.arguments.iter().map(argument).collect(),
        }
    }
}

impl Declaration {
    /// Whether two releases declare the function with the same types; parameter names may differ.
    pub(super) fn same_types(&self, other: &Self) -> bool {
        let mine = self.arguments.iter().map(|(_, c_type)| c_type);
        let theirs = other.arguments.iter().map(|(_, c_type)| c_type);
        self.returns == other.returns && mine.eq(theirs)
    }

    /// The function's line in the data file.
    pub(super) fn signature<'a>(&'a self, name: &'a str, releases: Releases) -> Signature<'a> {
        let arguments = self.arguments.iter();
        Signature {
            name,
            releases,
            returns: self.returns.borrowed(),
            arguments: arguments
                .map(|(name, c_type)| Argument {
                    name,
                    c_type: c_type.borrowed(),
                })
                .collect(),
        }
    }
}

impl OwnedType {
    fn borrowed(&self) -> CType<'_> {
        CType {
            spelling: &self.spelling,
            class: self.class,
            stored: self.stored,
        }
    }
}

/// Reads all functions of the library's domains that its headers declare, and the enumerations
/// among their types.
///
/// # Errors
///
/// If headers do not compile, or if it is unknown how a type is passed: no data is better than
/// wrong positions of arguments.
pub(super) fn declarations(headers: &Headers<'_>) -> Result<(Functions, Enums)> {
    headers.read("", |unit| {
        let mut reader = Reader {
            headers,
            functions: Functions::new(),
            table_types: Functions::new(),
            enums: Enums::new(),
        };
        let mut failure = None;
        unit.visit_children(|entity, _| match reader.visit(&entity) {
            Ok(next) => next,
            Err(error) => {
                failure = Some(error);
                EntityVisitResult::Break
            }
        });
        match failure {
            Some(error) => Err(error),
            None => Ok(reader.finish()),
        }
    })
}

/// Parameters that point to input, although their types would allow functions to store there: lists
/// of kernel arguments and of options.
const INPUTS: &[&str] = &[
    "args",
    "extra",
    "kernelParams",
    "modules",
    "option_values",
    "optionValues",
    "options",
    "params",
];

struct Reader<'a> {
    headers: &'a Headers<'a>,
    /// Functions from declarations.
    functions: Functions,
    /// Functions from the types of dispatch-table entries, `t_NAME`.
    table_types: Functions,
    enums: Enums,
}

impl Reader<'_> {
    fn visit(&mut self, entity: &Entity<'_>) -> Result<EntityVisitResult> {
        match entity.get_kind() {
            // `extern "C" { … }`
            EntityKind::LinkageSpec | EntityKind::UnexposedDecl => {
                return Ok(EntityVisitResult::Recurse);
            }
            EntityKind::FunctionDecl if !entity.is_definition() && !entity.is_inline_function() => {
                let name = entity.get_name().unwrap_or_default();
                if self.wants(entity, &name) {
                    let parameters = entity.get_arguments().unwrap_or_default();
                    let types = parameters.iter().filter_map(Entity::get_type);
                    learn(&mut self.enums, types.chain(entity.get_result_type()));
                    let declaration = function(entity).with_context(|| name.clone())?;
                    self.functions.insert(name, declaration);
                }
            }
            EntityKind::TypedefDecl => {
                let name = entity.get_name().unwrap_or_default();
                if let Some(name) = name
                    .strip_prefix("t_")
                    .filter(|name| self.wants(entity, name))
                {
                    let declaration = function_pointer(entity).with_context(|| name.to_owned())?;
                    self.table_types.insert(name.to_owned(), declaration);
                }
            }
            _ => {}
        }
        Ok(EntityVisitResult::Continue)
    }

    /// Whether a function belongs to the library's domains and is declared in these headers.
    fn wants(&self, entity: &Entity<'_>, name: &str) -> bool {
        gputrace_catalog::classify(name)
            .is_some_and(|domain| self.headers.library.domains.contains(&domain))
            && self.headers.have(entity)
    }

    fn finish(mut self) -> (Functions, Enums) {
        for (name, declaration) in self.table_types {
            self.functions.entry(name).or_insert(declaration);
        }
        (self.functions, self.enums)
    }
}

/// Whether an enumerator only marks the begin of a range and shares its value with the first one in
/// it.
pub(super) fn marks_range(name: &str) -> bool {
    name.ends_with("Begin") || name == "HSA_AMD_FIRST_EXTENSION"
}

/// Collects the enumerators of types.
pub(super) fn learn<'t>(enums: &mut Enums, types: impl Iterator<Item = Type<'t>>) {
    for c_type in types {
        let c_type = stored_type(c_type).unwrap_or(c_type);
        let canonical = c_type.get_canonical_type();
        let name = plain_type(&c_type.get_display_name()).to_owned();
        if canonical.get_kind() != TypeKind::Enum || enums.contains_key(&name) {
            continue;
        }
        let mut values = BTreeMap::new();
        for entry in canonical
            .get_declaration()
            .map(|entity| entity.get_children())
            .unwrap_or_default()
        {
            if let (Some((value, _)), Some(name)) =
                (entry.get_enum_constant_value(), entry.get_name())
                && !marks_range(&name)
            {
                values.entry(value).or_insert(name);
            }
        }
        if !values.is_empty() {
            enums.insert(name, values);
        }
    }
}

fn function(entity: &Entity<'_>) -> Result<Declaration> {
    ensure!(!entity.is_variadic(), "is variadic");
    let returns = entity.get_result_type().context("has no return type")?;
    declaration(returns, &entity.get_arguments().unwrap_or_default())
}

fn function_pointer(entity: &Entity<'_>) -> Result<Declaration> {
    let pointer = entity
        .get_typedef_underlying_type()
        .context("is no typedef")?;
    let function = pointer
        .get_canonical_type()
        .get_pointee_type()
        .context("is no pointer")?;
    let returns = function
        .get_result_type()
        .context("is no pointer to a function")?;
    let parameters: Vec<_> = entity
        .get_children()
        .into_iter()
        .filter(|child| child.get_kind() == EntityKind::ParmDecl)
        .collect();
    declaration(returns, &parameters)
}

fn declaration(returns: Type<'_>, parameters: &[Entity<'_>]) -> Result<Declaration> {
    let argument = |(index, parameter): (usize, &Entity<'_>)| {
        let name = parameter
            .get_name()
            .unwrap_or_else(|| format!("arg{index}"));
        let c_type = parameter
            .get_type()
            .with_context(|| format!("{name} has no type"))?;
        let mut owned = owned_type(c_type)?;
        if INPUTS.contains(&name.as_str()) {
            owned.stored = None;
        }
        Ok((name, owned))
    };
    Ok(Declaration {
        returns: owned_type(returns)?,
        arguments: parameters
            .iter()
            .enumerate()
            .map(argument)
            .collect::<Result<_>>()?,
    })
}

fn owned_type(c_type: Type<'_>) -> Result<OwnedType> {
    let spelling = c_type.get_display_name();
    let class = class_of(c_type).with_context(|| format!("the type {spelling}"))?;
    let stored = stored_type(c_type).and_then(stored_class);
    Ok(OwnedType {
        spelling,
        class,
        stored,
    })
}

/// The type that a function may store through a parameter of this type: the type that it points to,
/// unless that is constant.
fn stored_type(c_type: Type<'_>) -> Option<Type<'_>> {
    let pointer = c_type.get_canonical_type();
    // The type as written, for names of enumerations; not every spelling has one.
    let written = c_type
        .get_pointee_type()
        .or_else(|| pointer.get_pointee_type())?;
    (pointer.get_kind() == TypeKind::Pointer && !written.is_const_qualified()).then_some(written)
}

/// The class of a stored value, if it is a single value: pointers to bytes and to structs may point
/// to anything, in any number.
fn stored_class(c_type: Type<'_>) -> Option<Class> {
    let canonical = c_type.get_canonical_type();
    match canonical.get_kind() {
        TypeKind::CharS => Some(Class::CString),
        TypeKind::Pointer
            if canonical
                .get_pointee_type()
                .is_some_and(|to| to.get_kind() == TypeKind::FunctionPrototype) =>
        {
            None
        }
        TypeKind::Void | TypeKind::SChar | TypeKind::UChar => None,
        _ => match class_of(c_type).ok()? {
            Class::CString => Some(Class::Pointer),
            class @ (Class::Pointer
            | Class::Handle
            | Class::Bool
            | Class::Signed(_)
            | Class::Unsigned(_)
            | Class::Float(_)
            | Class::Dim3
            | Class::HipError
            | Class::HsaStatus) => Some(class),
            _ => None,
        },
    }
}

pub(super) fn class_of(c_type: Type<'_>) -> Result<Class> {
    let canonical = c_type.get_canonical_type();
    let size = || {
        canonical
            .get_sizeof()
            .map_err(|error| anyhow!("has no size: {error}"))
    };
    Ok(match canonical.get_kind() {
        TypeKind::Void => Class::Void,
        TypeKind::Bool => Class::Bool,
        TypeKind::Pointer => match canonical.get_pointee_type() {
            Some(to) if to.get_kind() == TypeKind::CharS && to.is_const_qualified() => {
                Class::CString
            }
            _ => Class::Pointer,
        },
        TypeKind::LValueReference | TypeKind::ConstantArray | TypeKind::IncompleteArray => {
            Class::Pointer
        }
        TypeKind::CharS
        | TypeKind::SChar
        | TypeKind::Short
        | TypeKind::Int
        | TypeKind::Long
        | TypeKind::LongLong => Class::Signed(u8::try_from(size()?)?),
        TypeKind::UChar
        | TypeKind::UShort
        | TypeKind::UInt
        | TypeKind::ULong
        | TypeKind::ULongLong => Class::Unsigned(u8::try_from(size()?)?),
        TypeKind::Float | TypeKind::Double => Class::Float(u8::try_from(size()?)?),
        TypeKind::Enum => match canonical.get_display_name().as_str() {
            "hipError_t" => Class::HipError,
            "hsa_status_t" => Class::HsaStatus,
            _ => {
                let entity = canonical
                    .get_declaration()
                    .context("is an enum without declaration")?;
                class_of(
                    entity
                        .get_enum_underlying_type()
                        .context("has no underlying type")?,
                )?
            }
        },
        TypeKind::Record => record_class(canonical, size()?)?,
        other => bail!("is of a kind ({other:?}) that this program does not know how to pass"),
    })
}

fn record_class(record: Type<'_>, size: usize) -> Result<Class> {
    let entity = record
        .get_declaration()
        .context("is a struct without declaration")?;
    let passed_by_reference = entity.get_children().iter().any(|child| {
        child.get_kind() == EntityKind::Destructor
            || child.is_copy_constructor()
            || child.is_move_constructor()
    });
    ensure!(
        !passed_by_reference,
        "is a C++ object that is not copied bytewise, so it is passed by reference"
    );
    let alignment = record
        .get_alignof()
        .map_err(|error| anyhow!("has no alignment: {error}"))?;
    ensure!(
        alignment <= 8,
        "is aligned to {alignment} bytes, which moves it on the stack"
    );
    if entity.get_name().as_deref() == Some("dim3") {
        return Ok(Class::Dim3);
    }
    if size > 16 {
        return Ok(Class::Memory(u16::try_from(size)?));
    }
    let fields = record.get_fields().context("has no fields")?;
    if let ([field], 8) = (fields.as_slice(), size)
        && field.get_type().map(class_of).transpose()? == Some(Class::Unsigned(8))
    {
        return Ok(Class::Handle);
    }
    let mut found = [None; 2];
    eightbytes(record, 0, &mut found)?;
    let used: Option<Vec<_>> = found.into_iter().take(size.div_ceil(8)).collect();
    let used =
        used.context("has eight bytes of padding, which this program does not know how to pass")?;
    let small = Class::SMALL_STRUCTS.iter().find(|known| **known == used);
    small
        .map(|known| Class::Small(known))
        .with_context(|| format!("is a struct of {size} bytes"))
}

/// Merges the class of every scalar in a type at byte `offset` into the eightbyte that contains it:
/// INTEGER takes precedence over SSE.
fn eightbytes(c_type: Type<'_>, offset: usize, found: &mut [Option<Eightbyte>; 2]) -> Result<()> {
    let canonical = c_type.get_canonical_type();
    match canonical.get_kind() {
        TypeKind::Record => {
            for field in canonical.get_fields().unwrap_or_default() {
                let bits = field
                    .get_offset_of_field()
                    .map_err(|error| anyhow!("a field: {error}"))?;
                let field_type = field.get_type().context("a field has no type")?;
                eightbytes(field_type, offset + bits / 8, found)?;
            }
        }
        TypeKind::ConstantArray => {
            let element = canonical
                .get_element_type()
                .context("an array has no element type")?;
            let step = element
                .get_sizeof()
                .map_err(|error| anyhow!("an array: {error}"))?;
            for index in 0..canonical.get_size().unwrap_or(0) {
                eightbytes(element, offset + index * step, found)?;
            }
        }
        kind => {
            let part = found
                .get_mut(offset / 8)
                .context("a field lies outside its struct")?;
            let sse = matches!(kind, TypeKind::Float | TypeKind::Double)
                && *part != Some(Eightbyte::Integer);
            *part = Some(if sse {
                Eightbyte::Sse
            } else {
                Eightbyte::Integer
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clang::Clang;
    use gputrace_abi::domain::Domain;

    use super::*;
    use crate::gen_catalog::Library;

    const HEADER: &str = r#"
        #include <stddef.h>
        #include <stdint.h>
        typedef enum hipError_t { hipSuccess, hipErrorNoDevice = 100 } hipError_t;
        typedef enum { NEGATIVE = -1, POSITIVE } signed_enum;
        typedef struct { uint64_t handle; } agent;
        typedef struct { float x; int y; double z; } mixed;
        typedef struct { double x[2]; } two_doubles;
        typedef struct { size_t x, y, z; } extent;
        struct dim3 { uint32_t x, y, z; dim3(uint32_t n = 1) : x(n), y(n), z(n) {} };
        extern "C" {
        hipError_t hipStores(void **memory, int *count, signed_enum *which, const int *in, agent *a, mixed *m, uint8_t *data);
        hipError_t hipScalars(const char *name, char *out, bool on, uint16_t port, long offset, float ratio);
        signed_enum hipStructs(agent a, mixed m, two_doubles d, extent e, dim3 grid);
        void hipNameless(void (*)(int, void *), int[4]);
        int other(int);
        static inline int hipInline(int value) { return value; }
        }
        template <class T> hipError_t hipTemplate(T *pointer);
        typedef void *(*t___hipRegister)(const void *data);
        typedef int (*t_hipNameless)(int from_the_table);
    "#;

    const LINES: &str = "\
__hipRegister | 1.0.0- | void * = pointer | data: const void * = pointer
hipNameless | 1.0.0- | void = void | arg0: void (*)(int, void *) = pointer | arg1: int[4] = pointer
hipScalars | 1.0.0- | hipError_t = hip_error | name: const char * = string | out: char * = pointer > string | on: bool = bool \
| port: uint16_t = uint:2 | offset: long = int:8 | ratio: float = float:4
hipStores | 1.0.0- | hipError_t = hip_error | memory: void ** = pointer > pointer | count: int * = pointer > int:4 \
| which: signed_enum * = pointer > int:4 | in: const int * = pointer | a: agent * = pointer > handle | m: mixed * = pointer \
| data: uint8_t * = pointer
hipStructs | 1.0.0- | signed_enum = int:4 | a: agent = handle | m: mixed = struct:is | d: two_doubles = struct:ss \
| e: extent = memory:24 | grid: dim3 = dim3
";

    /// The lines of the data file for a header's declarations.
    fn lines(clang: &Clang, header: &str) -> Result<String> {
        let include = tempfile::tempdir()?;
        std::fs::write(include.path().join("api.h"), header)?;
        let library = Library {
            file: "",
            title: "",
            package: "",
            suites: &[],
            includes: None,
            headers: &["api.h", "absent.h"],
            domains: &[Domain::HipRuntime, Domain::HipCompiler],
        };
        let (functions, enums) = declarations(&Headers {
            clang,
            library: &library,
            include: include.path(),
            more: None,
        })?;
        let signed = enums
            .get("signed_enum")
            .map(|values| values.iter().collect::<Vec<_>>());
        assert_eq!(
            signed
                .map(|values| format!("{values:?}"))
                .unwrap_or_default(),
            if header == HEADER {
                r#"[(-1, "NEGATIVE"), (0, "POSITIVE")]"#
            } else {
                ""
            }
        );
        let releases: Releases = "1.0-".parse()?;
        let line = |(name, declaration): (&String, &Declaration)| {
            format!("{}\n", declaration.signature(name, releases))
        };
        Ok(functions.iter().map(line).collect())
    }

    #[test]
    fn headers_become_lines() {
        let clang = match Clang::new() {
            Ok(clang) => clang,
            Err(error) => return eprintln!("skipped: libclang cannot be loaded: {error}"),
        };
        assert_eq!(lines(&clang, HEADER).unwrap(), LINES);

        let refused = [
            (
                "struct deep { ~deep(); int *x; }; void hipDeep(deep by_value);",
                "passed by reference",
            ),
            ("void hipWide(long double value);", "LongDouble"),
            ("void hipPrint(const char *format, ...);", "variadic"),
            ("void hipBroken(no_such_type value);", "no_such_type"),
        ];
        for (header, reason) in refused {
            let error = format!("{:#}", lines(&clang, header).unwrap_err());
            assert!(error.contains(reason), "{header}: {error}");
        }
    }
}
