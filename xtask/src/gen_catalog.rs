//! `cargo xtask gen-catalog`: makes the data of `gputrace-catalog` from ROCm's public headers.
//!
//! Debian ships several ROCm releases, one per suite. Their header packages are fetched by apt into a
//! cache directory of their own (nothing is installed, the machine's apt settings are not touched) and
//! parsed by libclang, which knows what `hipStream_t` or `hsa_agent_t` is. Each declared function of a
//! traced domain becomes one line per signature in `userspace/catalog/data`.
//!
//! Releases that a suite no longer carries stay in the data: what is read is merged into the committed
//! file, not put in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clang::{Clang, Entity, EntityKind, EntityVisitResult, Index, Type, TypeKind, Unsaved};
use gputrace_abi::domain::Domain;
use gputrace_catalog::class::{Class, Eightbyte};
use gputrace_catalog::release::{Release, Releases};
use gputrace_catalog::signature::{Argument, CType, Signature};
use gputrace_catalog::table::Table;

use crate::workspace::Workspace;
use crate::{exec, progress};

/// Debian suites with different ROCm releases, and the archive's signing key.
const SUITES: &[&str] = &["bookworm", "trixie", "forky"];
const ARCHIVE: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One data file and the headers it is made from.
struct Library {
    /// File in `userspace/catalog/data`.
    file: &'static str,
    /// First line of that file.
    title: &'static str,
    /// Debian package of the headers; its version is the release.
    package: &'static str,
    /// Headers to read, relative to `usr/include`; those that a release does not have are skipped.
    headers: &'static [&'static str],
    /// Which functions belong in the file.
    domains: &'static [Domain],
}

const LIBRARIES: &[Library] = &[
    Library {
        file: "hip.txt",
        title: "HIP runtime and compiler API (libamdhip64).",
        package: "libamdhip64-dev",
        headers: &[
            "hip/hip_runtime_api.h",
            "hip/hip_ext.h",
            "hip/hip_gl_interop.h",
            "hip/hip_deprecated.h",
            "hip/amd_detail/amd_hip_gl_interop.h",
            "hip/amd_detail/hip_runtime_prof.h",
            // Types of every entry of HIP's dispatch tables: the only header with all of `__hip…`.
            "hip/amd_detail/hip_api_trace.hpp",
        ],
        domains: &[Domain::HipRuntime, Domain::HipCompiler],
    },
    Library {
        file: "hsa.txt",
        title: "HSA API with AMD's, the image and the finalizer extension (libhsa-runtime64).",
        package: "libhsa-runtime-dev",
        headers: &[
            "hsa/hsa.h",
            "hsa/hsa_ext_amd.h",
            "hsa/hsa_ext_image.h",
            "hsa/hsa_ext_finalize.h",
            "hsa/hsa_ven_amd_pc_sampling.h",
        ],
        domains: &[
            Domain::HsaCore,
            Domain::HsaAmdExt,
            Domain::HsaImageExt,
            Domain::HsaFinalizeExt,
        ],
    },
];

/// A function as one release declares it.
#[derive(Clone)]
struct Declaration {
    returns: OwnedType,
    arguments: Vec<(String, OwnedType)>,
}

#[derive(Clone, PartialEq)]
struct OwnedType {
    spelling: String,
    class: Class,
}

type Functions = BTreeMap<String, Declaration>;

/// `cargo xtask gen-catalog`.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    /// Fetches the headers and rewrites the data files.
    ///
    /// # Errors
    ///
    /// apt, libclang or a header that cannot be dealt with; nothing is written for that library.
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let cache = workspace.tools.join("rocm-headers");
        let clang = Clang::new().map_err(|error| {
            anyhow!(
                "cannot load libclang: {error}\ninstall it with `apt-get install libclang1-15` and try again"
            )
        })?;
        for library in LIBRARIES {
            let start = Instant::now();
            let file = workspace.root.join("userspace/catalog/data").join(library.file);
            progress::heading(format_args!("{}", workspace.relative(&file).display()));
            let mut releases = committed(&file)?;
            for suite in SUITES {
                let (release, include) = fetch(&cache, suite, library.package)?;
                let functions = declarations(&clang, library, &include)
                    .with_context(|| format!("reading the headers of {} {release}", library.package))?;
                progress::note(format_args!(
                    "{} {release}: {} functions",
                    library.package,
                    functions.len()
                ));
                releases.insert(release, functions);
            }
            let text = render(library, &releases);
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
            progress::line(
                "written",
                format_args!("{}", workspace.relative(&file).display()),
                start.elapsed(),
            );
        }
        Ok(())
    }
}

/// What the committed file says about each release it was made from.
fn committed(file: &Path) -> Result<BTreeMap<Release, Functions>> {
    let text = match fs::read_to_string(file) {
        Ok(text) if text.is_empty() => return Ok(BTreeMap::new()),
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let table = Table::parse(&text).with_context(|| {
        format!(
            "{} is damaged; restore it with `git checkout`, it may hold releases that Debian no longer has",
            file.display()
        )
    })?;
    let of_release = |release: &Release| {
        let declared = table
            .signatures
            .iter()
            .filter(|signature| signature.releases.contains(*release));
        declared
            .map(|signature| (signature.name.to_owned(), Declaration::from(signature)))
            .collect()
    };
    Ok(table
        .releases
        .iter()
        .map(|release| (*release, of_release(release)))
        .collect())
}

impl From<&Signature<'_>> for Declaration {
    fn from(signature: &Signature<'_>) -> Self {
        let owned = |c_type: &CType<'_>| OwnedType {
            spelling: c_type.spelling.to_owned(),
            class: c_type.class,
        };
        let argument = |argument: &Argument<'_>| (argument.name.to_owned(), owned(&argument.c_type));
        Self {
            returns: owned(&signature.returns),
            arguments: signature.arguments.iter().map(argument).collect(),
        }
    }
}

/// Downloads and unpacks a package, unless that was done before; gives its release and include directory.
///
/// What is in the cache is used as it is: to have a suite's newest package, delete the cache.
fn fetch(cache: &Path, suite: &str, package: &str) -> Result<(Release, PathBuf)> {
    let dir = cache.join(suite).join(package);
    if !dir.join("usr").is_dir() {
        progress::note(format_args!(
            "fetching {package} of Debian {suite} into {}",
            dir.display()
        ));
        let apt = Apt::new(cache.join(suite).join("apt"), suite)?;
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        exec::capture(apt.command("apt-get").arg("update"))?;
        exec::capture(
            apt.command("apt-get")
                .args(["download", package])
                .current_dir(&dir),
        )?;
        exec::capture(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(archive(&dir)?)
                .arg(&dir),
        )?;
    }
    let name = archive(&dir)?;
    Ok((release_of(&name)?, dir.join("usr/include")))
}

/// The one package file in a directory.
fn archive(dir: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .max()
        .with_context(|| {
            format!(
                "no package in {}; delete that directory and try again",
                dir.display()
            )
        })
}

/// The upstream release in a package's file name: `libhsa-runtime-dev_6.4.3+dfsg-5_amd64.deb` is 6.4.3.
fn release_of(archive: &Path) -> Result<Release> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let version = name.split('_').nth(1).unwrap_or_default();
    let end = version
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(version.len());
    let upstream = version.get(..end).unwrap_or_default();
    upstream.parse().with_context(|| format!("the version of {name}"))
}

/// apt with settings, lists and cache of its own, for one suite.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn new(dir: PathBuf, suite: &str) -> Result<Self> {
        for sub in ["sources", "lists/partial", "archives/partial"] {
            fs::create_dir_all(dir.join(sub)).with_context(|| format!("creating {}", dir.display()))?;
        }
        let source = format!(
            "Types: deb\nURIs: {ARCHIVE}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\nSigned-By: {KEYRING}\n"
        );
        fs::write(dir.join("sources/debian.sources"), source).context("writing apt's source list")?;
        fs::write(dir.join("status"), "").context("writing apt's status file")?;
        Ok(Self { dir })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let own = [
            ("Dir::Etc::sourceparts", "sources"),
            ("Dir::State", "."),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "."),
        ];
        for (setting, path) in own {
            command
                .arg("-o")
                .arg(format!("{setting}={}", self.dir.join(path).display()));
        }
        let fixed = [
            "Dir::Etc::sourcelist=/dev/null",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            // The cache is under the user's home, where apt's own user may not look.
            "APT::Sandbox::User=root",
        ];
        for setting in fixed {
            command.args(["-o", setting]);
        }
        command
    }
}

/// Every function of the library's domains that its headers declare.
fn declarations(clang: &Clang, library: &Library, include: &Path) -> Result<Functions> {
    let index = Index::new(clang, false, false);
    let include_all = |text: String, header: &&str| {
        text + &format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n")
    };
    let umbrella = library.headers.iter().fold(String::new(), include_all);
    let arguments = [
        "-xc++".to_owned(),
        "-std=c++17".to_owned(),
        "-target".to_owned(),
        "x86_64-linux-gnu".to_owned(),
        "-D__HIP_PLATFORM_AMD__=1".to_owned(),
        format!("-isystem{}", include.display()),
    ];
    let unit = index
        .parser("umbrella.cpp")
        .arguments(&arguments)
        .unsaved(&[Unsaved::new("umbrella.cpp", umbrella)])
        .skip_function_bodies(true)
        .parse()
        .map_err(|error| anyhow!("libclang: {error}"))?;
    for diagnostic in unit.get_diagnostics() {
        ensure!(
            diagnostic.get_severity() < clang::diagnostic::Severity::Error,
            "{diagnostic}"
        );
    }

    let mut reader = Reader {
        library,
        include,
        functions: Functions::new(),
        table_types: Functions::new(),
    };
    let mut failure = None;
    unit.get_entity()
        .visit_children(|entity, _| match reader.visit(&entity) {
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
}

struct Reader<'a> {
    library: &'a Library,
    include: &'a Path,
    /// From function declarations.
    functions: Functions,
    /// From the types of dispatch-table entries, `t_NAME`.
    table_types: Functions,
}

impl Reader<'_> {
    fn visit(&mut self, entity: &Entity<'_>) -> Result<EntityVisitResult> {
        match entity.get_kind() {
            // `extern "C" { … }`
            EntityKind::LinkageSpec | EntityKind::UnexposedDecl => return Ok(EntityVisitResult::Recurse),
            EntityKind::FunctionDecl if !entity.is_definition() && !entity.is_inline_function() => {
                let name = entity.get_name().unwrap_or_default();
                if self.wants(entity, &name) {
                    let declaration = function(entity).with_context(|| name.clone())?;
                    self.functions.insert(name, declaration);
                }
            }
            EntityKind::TypedefDecl => {
                let name = entity.get_name().unwrap_or_default();
                if let Some(name) = name.strip_prefix("t_").filter(|name| self.wants(entity, name)) {
                    let declaration = function_pointer(entity).with_context(|| name.to_owned())?;
                    self.table_types.insert(name.to_owned(), declaration);
                }
            }
            _ => {}
        }
        Ok(EntityVisitResult::Continue)
    }

    /// Whether a name belongs to the library's domains and comes from these headers, not from others
    /// that are installed on this machine.
    fn wants(&self, entity: &Entity<'_>, name: &str) -> bool {
        let ours = || {
            let file = entity.get_location()?.get_file_location().file?;
            Some(file.get_path().starts_with(self.include))
        };
        gputrace_catalog::classify(name).is_some_and(|domain| self.library.domains.contains(&domain))
            && ours().unwrap_or(false)
    }

    fn finish(mut self) -> Functions {
        for (name, declaration) in self.table_types {
            self.functions.entry(name).or_insert(declaration);
        }
        self.functions
    }
}

fn function(entity: &Entity<'_>) -> Result<Declaration> {
    ensure!(!entity.is_variadic(), "is variadic");
    let returns = entity.get_result_type().context("has no return type")?;
    declaration(returns, &entity.get_arguments().unwrap_or_default())
}

fn function_pointer(entity: &Entity<'_>) -> Result<Declaration> {
    let pointer = entity.get_typedef_underlying_type().context("is no typedef")?;
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
        let name = parameter.get_name().unwrap_or_else(|| format!("arg{index}"));
        let c_type = parameter
            .get_type()
            .with_context(|| format!("{name} has no type"))?;
        Ok((name, owned_type(c_type)?))
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
    Ok(OwnedType { spelling, class })
}

fn class_of(c_type: Type<'_>) -> Result<Class> {
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
            Some(to) if to.get_kind() == TypeKind::CharS && to.is_const_qualified() => Class::CString,
            _ => Class::Pointer,
        },
        TypeKind::LValueReference | TypeKind::ConstantArray | TypeKind::IncompleteArray => Class::Pointer,
        TypeKind::CharS
        | TypeKind::SChar
        | TypeKind::Short
        | TypeKind::Int
        | TypeKind::Long
        | TypeKind::LongLong => Class::Signed(u8::try_from(size()?)?),
        TypeKind::UChar | TypeKind::UShort | TypeKind::UInt | TypeKind::ULong | TypeKind::ULongLong => {
            Class::Unsigned(u8::try_from(size()?)?)
        }
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
    let used = found
        .iter()
        .take(size.div_ceil(8))
        .map(|part| part.unwrap_or(Eightbyte::Sse));
    let used: Vec<_> = used.collect();
    Class::SMALL_STRUCTS
        .iter()
        .find(|known| **known == used)
        .map(|known| Class::Small(known))
        .with_context(|| format!("is a struct of {size} bytes with no fields"))
}

/// Merges the class of every scalar in a type at byte `offset` into the eightbyte it lies in: INTEGER
/// wins over SSE.
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
            let sse = matches!(kind, TypeKind::Float | TypeKind::Double) && *part != Some(Eightbyte::Integer);
            *part = Some(if sse { Eightbyte::Sse } else { Eightbyte::Integer });
        }
    }
    Ok(())
}

/// The data file: for each function the releases joined that declare it with the same types.
fn render(library: &Library, releases: &BTreeMap<Release, Functions>) -> String {
    let newest = releases.keys().next_back().copied();
    let names: BTreeSet<&String> = releases.values().flat_map(BTreeMap::keys).collect();
    let mut signatures = Vec::new();
    for name in names {
        let declared = releases
            .iter()
            .filter_map(|(release, functions)| Some((*release, functions.get(name)?)));
        let mut runs: Vec<(Release, Release, &Declaration)> = Vec::new();
        for (release, declaration) in declared {
            match runs.last_mut() {
                // Parameter names are the newest release's.
                Some((_, last, previous)) if previous.same_types(declaration) => {
                    (*last, *previous) = (release, declaration);
                }
                _ => runs.push((release, release, declaration)),
            }
        }
        let open = |last: Release| (Some(last) != newest).then_some(last);
        signatures.extend(runs.into_iter().map(|(first, last, declaration)| {
            declaration.signature(
                name,
                Releases {
                    first,
                    last: open(last),
                },
            )
        }));
    }
    let table = Table {
        releases: releases.keys().copied().collect(),
        signatures,
    };
    format!(
        "# {}\n# Made by `cargo xtask gen-catalog` from the headers of Debian's {}; do not edit.\n{table}",
        library.title, library.package
    )
}

impl Declaration {
    fn same_types(&self, other: &Self) -> bool {
        let types = |declaration: &Self| -> Vec<OwnedType> {
            declaration
                .arguments
                .iter()
                .map(|(_, c_type)| c_type.clone())
                .collect()
        };
        self.returns == other.returns && types(self) == types(other)
    }

    fn signature<'a>(&'a self, name: &'a str, releases: Releases) -> Signature<'a> {
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
        }
    }
}
