//! Lists what can be traced on this machine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;
use gputrace_abi::domain::Domain;
use gputrace_files::rights;
use gputrace_session::{FunctionFilter, observed_behind, plan};
use gputrace_text::{Page, tables::plural};
use gputrace_tracee::{
    candidates::{self, Search},
    library::{LibraryFile, LibraryPlan},
    process::{self, ProcessError},
};
use regex::Regex;

use crate::{args::ListArgs, say, stdout};

/// A library and the processes that have mapped it.
struct Listed {
    file: LibraryFile,
    processes: Vec<u32>,
}

/// Lists libraries, and with `--probes` their functions.
pub(crate) fn run(args: &ListArgs) -> Result<u8> {
    let libraries = if args.library.is_empty() {
        found()?
    } else {
        named(&args.library)?
    };
    if libraries.is_empty() {
        say(
            "no ROCm library is mapped by a process or installed in a usual place; name one with --library PATH",
        );
        return Ok(0);
    }
    for library in &libraries {
        let mut page = Page::new(String::new());
        show(&mut page, library, args.probes)?;
        stdout::print(&page.into_inner())?;
    }
    Ok(0)
}

fn named(paths: &[PathBuf]) -> Result<Vec<Listed>> {
    paths
        .iter()
        .map(|path| {
            let file = LibraryFile::open(path).map_err(ProcessError::from)?;
            Ok(Listed {
                file,
                processes: Vec::new(),
            })
        })
        .collect()
}

/// Libraries that processes have mapped, and installed ones that they could map.
fn found() -> Result<Vec<Listed>> {
    let mut libraries: BTreeMap<(u64, u64), Listed> = BTreeMap::new();
    let survey = process::survey()?;
    for found in survey.processes {
        for mapped in &found.libraries {
            // It has ended meanwhile, or its file is inaccessible: list the others.
            let Ok(file) = process::open_mapped(found.pid, mapped) else {
                continue;
            };
            let entry = libraries.entry((file.device(), file.inode()));
            entry
                .or_insert_with(|| Listed {
                    file,
                    processes: Vec::new(),
                })
                .processes
                .push(found.pid);
        }
    }
    if let Some(first) = survey.unreadable.first() {
        say(&format!(
            "no permission to look into {}, e.g. {first}; to see more, {}",
            plural(survey.unreadable.len() as u64, "process", "processes"),
            rights::remedy()
        ));
    }
    let search = Search {
        root: Path::new("/"),
        executable: None,
        library_path: None,
        current_dir: Path::new("/"),
    };
    for candidate in candidates::find(&search) {
        if let Ok(file) = candidate.into_library() {
            let entry = libraries.entry((file.device(), file.inode()));
            entry.or_insert_with(|| Listed {
                file,
                processes: Vec::new(),
            });
        }
    }
    Ok(libraries.into_values().collect())
}

fn show(out: &mut Page<String>, library: &Listed, probes: bool) -> Result<()> {
    let file = &library.file;
    // All functions, including those that have to be asked for.
    let everything = FunctionFilter {
        on_request: Some(Regex::new("")?),
        ..FunctionFilter::default()
    };
    let plan = plan(file, Domain::ALL, &everything)?;
    out.line(format_args!("{}", file.path().display()))?;
    out.line(format_args!(
        "  build id   {}",
        file.elf().build_id.as_deref().unwrap_or("none")
    ))?;
    if !library.processes.is_empty() {
        let pids: Vec<String> = library.processes.iter().map(u32::to_string).collect();
        out.line(format_args!("  mapped by  {}", pids.join(", ")))?;
    }
    let mut costs: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for probe in &plan.probes {
        *costs
            .entry((probe.domain.name(), probe.site.cost.name()))
            .or_default() += 1;
    }
    for ((domain, cost), count) in costs {
        let functions = if count == 1 { "function " } else { "functions" };
        out.line(format_args!("  {domain:<22} {count:>4} {functions} {cost}"))?;
    }
    if probes {
        table(out, file, &plan)
    } else {
        Ok(())
    }
}

fn table(out: &mut Page<String>, file: &LibraryFile, plan: &LibraryPlan) -> Result<()> {
    out.line(format_args!(
        "  {:>10} {:>4}  {:<15} {:<8} {:<22} FUNCTION (ALIASES)",
        "OFFSET", "SKIP", "COST", "END", "DOMAIN"
    ))?;
    for probe in &plan.probes {
        let aliases = if probe.aliases.is_empty() {
            String::new()
        } else {
            format!(" ({})", probe.aliases.join(", "))
        };
        let off = if gputrace_catalog::is_on_request(&probe.name) {
            " [off: --hsa-include]"
        } else {
            ""
        };
        let (what, site) = match &probe.behind {
            Some(behind) => ("behind its table; its stub", Some(behind.stub)),
            None => match observed_behind(file, probe) {
                Some(site) => ("if not traced as a call, behind its table", Some(site)),
                None => (
                    "not behind its table",
                    file.tables().site(file, probe.address),
                ),
            },
        };
        let behind = site.map_or_else(String::new, |site| {
            format!(" [{what}: {:#x}, {}]", site.file_offset, site.cost.name())
        });
        out.line(format_args!(
            "  {:>#10x} {:>4}  {:<15} {:<8} {:<22} {}{}{aliases}{off}{behind}",
            probe.site.file_offset,
            probe.site.skipped,
            probe.site.cost.name(),
            probe.end.name(),
            probe.domain.name(),
            probe.name,
            probe
                .version
                .as_ref()
                .map(|version| format!("@{version}"))
                .unwrap_or_default()
        ))?;
    }
    for refused in &plan.refused {
        out.line(format_args!(
            "  {:>10} {:>4}  {:<15} {:<8} {:<22} {}: {}",
            "-",
            "-",
            "none",
            "-",
            refused.domain.name(),
            refused.name,
            refused.reason
        ))?;
    }
    for name in &plan.indirect {
        out.line(format_args!(
            "  {:>10} {:>4}  {:<15} {:<8} {:<22} {name}: indirect function",
            "-", "-", "none", "-", ""
        ))?;
    }
    Ok(())
}
