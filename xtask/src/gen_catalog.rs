//! `cargo xtask gen-catalog`: generates the data of `gputrace-catalog` from ROCm's public headers.
//!
//! Debian ships several ROCm releases, one per suite. apt fetches their header packages into a
//! separate cache directory (nothing is installed, and the machine's apt settings are not touched).
//! libclang, which knows what `hipStream_t` or `hsa_agent_t` is, parses them. Each declared
//! function of a traced domain becomes one line per signature in `userspace/catalog/data`.
//!
//! Releases that a suite no longer carries stay in the data: new data is merged into the committed
//! file instead of replacing it; only structures always come from the releases that are read.
//! Cached packages are reused. Newer versions of libclang may spell types differently, so review
//! the diff before committing it.

mod declarations;
mod headers;
mod layouts;
mod packages;
mod sets;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use clang::Clang;
use gputrace_abi::domain::Domain;
use gputrace_catalog::release::{Release, Releases};
use gputrace_catalog::table::Table;

use self::declarations::{Declaration, Enums, Functions};
use self::headers::Headers;
use crate::progress;
use crate::workspace::Workspace;

/// A data file and the headers from which it is generated.
struct Library {
    /// Name of the file in `userspace/catalog/data`.
    file: &'static str,
    /// First line of the file.
    title: &'static str,
    /// Debian package of the headers; its version is the release.
    package: &'static str,
    /// Debian suites that carry the package.
    suites: &'static [&'static str],
    /// Package of headers that these headers include.
    includes: Option<&'static str>,
    /// Headers to read, relative to `usr/include`; headers that a release does not have are
    /// skipped.
    headers: &'static [&'static str],
    /// Domains whose functions belong in the file.
    domains: &'static [Domain],
}

const LIBRARIES: &[Library] = &[
    Library {
        file: "hip.txt",
        title: "HIP runtime and compiler API (libamdhip64).",
        package: "libamdhip64-dev",
        suites: packages::SUITES,
        includes: None,
        headers: &[
            "hip/hip_runtime_api.h",
            "hip/hip_ext.h",
            "hip/hip_gl_interop.h",
            "hip/hip_deprecated.h",
            "hip/amd_detail/amd_hip_gl_interop.h",
            "hip/amd_detail/hip_runtime_prof.h",
            // Types of all entries of HIP's dispatch tables: the only header with all `__hip…`
            // functions.
            "hip/amd_detail/hip_api_trace.hpp",
        ],
        domains: &[Domain::HipRuntime, Domain::HipCompiler],
    },
    Library {
        file: "hsa.txt",
        title: "HSA API with AMD's, the image and the finalizer extension (libhsa-runtime64).",
        package: "libhsa-runtime-dev",
        suites: packages::SUITES,
        includes: None,
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
    Library {
        file: "rccl.txt",
        title: "RCCL, the collectives (librccl).",
        package: "librccl-dev",
        suites: &["trixie"],
        includes: Some("libamdhip64-dev"),
        headers: &["rccl/rccl.h"],
        domains: &[Domain::Rccl],
    },
];

/// `cargo xtask gen-catalog`.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    /// Fetches the headers and rewrites the data files.
    ///
    /// # Errors
    ///
    /// If apt or libclang fails, or a header cannot be parsed; nothing is written for that library.
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let cache = headers(workspace);
        let clang = Clang::new().map_err(|error| {
            anyhow!(
                "cannot load libclang: {error}\ninstall it with `apt-get install libclang1-15` and try again"
            )
        })?;
        let data = workspace.root.join("userspace/catalog/data");
        let by_hand = |name| {
            let file = data.join(name);
            fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
        };
        let wanted = layouts::wanted(&by_hand("layouts.txt")?)?;
        let mut structures = Vec::new();
        let recipes = sets::recipes(&by_hand("sets.txt")?)?;
        let (mut enums, mut sets) = (Enumerations::default(), sets::Merged::default());
        for library in LIBRARIES {
            let start = Instant::now();
            let file = data.join(library.file);
            progress::heading(format_args!("{}", workspace.relative(&file).display()));
            let mut releases = committed(&file)?;
            let mut laid_out = layouts::Library::default();
            for suite in library.suites {
                let (release, include) = packages::fetch(&cache, suite, library.package)?;
                let more = library
                    .includes
                    .map(|package| packages::fetch(&cache, suite, package))
                    .transpose()?;
                let more = more.map(|(_, include)| include);
                let headers = Headers {
                    clang: &clang,
                    library,
                    include: &include,
                    more: more.as_deref(),
                };
                let reading = || format!("reading the headers of {} {release}", library.package);
                let (functions, found) =
                    declarations::declarations(&headers).with_context(reading)?;
                enums.add(found);
                sets.add(sets::sets(&headers, &recipes).with_context(reading)?);
                let (found, types) =
                    layouts::structures(&headers, &wanted).with_context(reading)?;
                laid_out.0.insert(release, found);
                enums.add(types);
                progress::note(format_args!(
                    "{} {release}: {} functions",
                    library.package,
                    functions.len()
                ));
                releases.insert(release, functions);
            }
            structures.push(laid_out);
            let text = render(library, &releases);
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
            progress::line(
                "written",
                format_args!("{}", workspace.relative(&file).display()),
                start.elapsed(),
            );
        }
        let file = data.join("structs.txt");
        fs::write(&file, layouts::render(&structures, &wanted)?)
            .with_context(|| format!("writing {}", file.display()))?;
        let (masks, values) = sets.by_value(&recipes)?;
        let file = data.join("enums.txt");
        let mut all = enums.with(committed_enums(&file)?);
        all.extend(values);
        let title = "Enumerations of the types in the other files, with those that extend them";
        write_enums(&file, title, &all)?;
        let title = "Bits of masks by name, by the sets of sets.txt";
        write_enums(&data.join("flags.txt"), title, &masks)
    }
}

/// Fetches all headers from which the catalogue is generated, for tests that compare the two.
///
/// # Errors
///
/// Names the first package that cannot be fetched, and the reason.
pub(crate) fn fetch_headers(workspace: &Workspace) -> Result<()> {
    let cache = headers(workspace);
    for library in LIBRARIES {
        for suite in library.suites {
            for package in [Some(library.package), library.includes]
                .into_iter()
                .flatten()
            {
                packages::fetch(&cache, suite, package)
                    .with_context(|| format!("{package} of Debian {suite}"))?;
            }
        }
    }
    Ok(())
}

/// Directory of the header packages.
fn headers(workspace: &Workspace) -> PathBuf {
    workspace.tools.join("rocm-headers")
}

/// Enumerations of several releases.
#[derive(Default)]
struct Enumerations {
    /// `None` if the name differs between releases, because no name is better than one that may be
    /// wrong.
    types: BTreeMap<String, BTreeMap<i64, Option<String>>>,
}

impl Enumerations {
    fn add(&mut self, release: Enums) {
        for (name, values) in release {
            let known = self.types.entry(name).or_default();
            for (value, enumerator) in values {
                let stays = known
                    .get(&value)
                    .is_none_or(|before| before.as_ref() == Some(&enumerator));
                known.insert(value, stays.then_some(enumerator));
            }
        }
    }

    /// Everything that was read, plus the types in `committed` that no header has any more.
    fn with(self, committed: Enums) -> Enums {
        let mut enums = committed;
        for (name, values) in self.types {
            let known = values
                .into_iter()
                .filter_map(|(value, enumerator)| Some((value, enumerator?)));
            enums.insert(name, known.collect());
        }
        enums
    }
}

/// Parses the enumerations in the committed file.
fn committed_enums(file: &Path) -> Result<Enums> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("reading {}", file.display()))?,
    };
    let owned = |(name, values): (&str, Vec<(i64, &str)>)| {
        let values = values
            .into_iter()
            .map(|(value, name)| (value, name.to_owned()));
        (name.to_owned(), values.collect())
    };
    Ok(gputrace_catalog::enums::parse(&text)
        .into_iter()
        .map(owned)
        .collect())
}

/// Writes a data file of named values.
fn write_enums(file: &Path, title: &str, enums: &Enums) -> Result<()> {
    let mut text = format!("# {title}.\n# Made by `cargo xtask gen-catalog`; do not edit.\n");
    for (name, values) in enums {
        text.push_str(name);
        for (value, enumerator) in values {
            text.push_str(&format!(" | {value} {enumerator}"));
        }
        text.push('\n');
    }
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// Parses the functions of each release in the committed file.
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

/// Generates the data file. For each function, releases that declare it with the same types share a
/// line.
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
                // Parameter names come from the newest release.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of `render` for these lines of each release.
    fn merged(releases: &[(&str, &str)]) -> String {
        let functions = |release: &str, lines: &str| -> Functions {
            let text = format!("releases | {release}\n{lines}");
            let table = Table::parse(&text).unwrap();
            table
                .signatures
                .iter()
                .map(|s| (s.name.to_owned(), Declaration::from(s)))
                .collect()
        };
        let releases = releases
            .iter()
            .map(|(release, lines)| (release.parse().unwrap(), functions(release, lines)));
        let text = render(&LIBRARIES[0], &releases.collect());
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    #[test]
    fn releases_are_joined_while_the_types_stay() {
        let old =
            "hipA | 5.2.3- | int = int:4 | old: int = int:4\nhipGone | 5.2.3- | int = int:4\n";
        let middle = "hipA | 5.7.1- | int = int:4 | new: int = int:4\n";
        let new =
            "hipA | 6.4.3- | int = int:4 | new: long = int:8\nhipNew | 6.4.3- | int = int:4\n";
        let expected = "\
releases | 5.2.3 | 5.7.1 | 6.4.3
hipA | 5.2.3-5.7.1 | int = int:4 | new: int = int:4
hipA | 6.4.3- | int = int:4 | new: long = int:8
hipGone | 5.2.3-5.2.3 | int = int:4
hipNew | 6.4.3- | int = int:4
";
        assert_eq!(
            merged(&[("5.2.3", old), ("5.7.1", middle), ("6.4.3", new)]),
            expected
        );
    }

    #[test]
    fn committed_data_gives_back_its_releases() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR"))
            .with_file_name("userspace")
            .join("catalog/data");
        for library in LIBRARIES {
            let file = data.join(library.file);
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(render(library, &committed(&file).unwrap()), text);
        }
    }
}
