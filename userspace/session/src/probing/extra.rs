//! Functions other than ROCm's: those of libraries that the user names, and of the traced programs
//! themselves.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use gputrace_abi::domain::Domain;
use gputrace_files::target::{FileState, Place, Root};
use gputrace_text::tables::plural;
use gputrace_tracee::{
    elf::SymbolKind,
    functions::{self, Choice, Functions},
    library::{LibraryFile, LibraryPlan},
    process::{self, MappedFile},
};
use regex::Regex;

use super::named::LibraryName;
use crate::{SessionError, request::FunctionFilter};

/// Where distributions install separate debug information.
const DEBUG_ROOT: &str = "/usr/lib/debug";
/// Maximum number of function names listed in one message.
const NAMED: usize = 5;

/// Which functions other than ROCm's are traced.
#[derive(Clone, Debug)]
pub struct ExtraFunctions {
    /// Libraries whose exported functions are traced.
    pub libraries: Vec<LibraryName>,
    /// Functions of the traced programs.
    pub program: Option<ProgramFunctions>,
    /// Whether the callbacks of Kokkos tool libraries are traced, whatever the library's name.
    pub kokkos: bool,
    /// Maximum number of traced functions per file; a file with more is refused.
    pub max_functions: usize,
    /// Maximum number of recorded calls of one of these functions per second. Further calls are
    /// counted as lost. `None`: no limit.
    pub max_call_rate: Option<u64>,
    /// Maximum time that the probes of one of these functions may take, in percent of one CPU. A
    /// function that stays above it loses its probes. `None`: no limit.
    pub max_probe_time: Option<u32>,
}

impl ExtraFunctions {
    /// Whether the call rate or the probe time of functions is limited.
    pub(crate) fn is_limited(&self) -> bool {
        self.max_call_rate.is_some() || self.max_probe_time.is_some()
    }
}

impl Default for ExtraFunctions {
    fn default() -> Self {
        Self {
            libraries: Vec::new(),
            program: None,
            kokkos: false,
            max_functions: 2000,
            max_call_rate: None,
            max_probe_time: None,
        }
    }
}

/// Which functions of the traced programs are traced.
#[derive(Clone, Debug)]
pub struct ProgramFunctions {
    /// Includes functions whose mangled or demangled names match.
    pub include: Regex,
    /// Excludes functions whose names match.
    pub exclude: Option<Regex>,
    /// Minimum number of instructions of a function.
    pub min_instructions: usize,
    /// Also traces functions, exported or not, of libraries whose paths match.
    pub modules: Option<Regex>,
}

impl ProgramFunctions {
    /// Whether a function is included and not excluded. `named` says whether one of its names
    /// matches.
    fn admits(&self, named: impl Fn(&Regex) -> bool) -> bool {
        named(&self.include) && !self.exclude.as_ref().is_some_and(named)
    }
}

/// Why a file of a process is of interest, apart from ROCm's domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Role {
    /// Its exported functions are of interest.
    pub(crate) library: bool,
    /// All its functions are of interest.
    pub(crate) program: bool,
}

impl Role {
    pub(crate) fn any(self) -> bool {
        self.library || self.program
    }
}

impl ExtraFunctions {
    /// Whether no such functions were requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.libraries.is_empty() && self.program.is_none() && !self.kokkos
    }

    /// The domains in which such functions are recorded.
    #[must_use]
    pub fn domains(&self) -> Vec<Domain> {
        let library = (!self.libraries.is_empty()).then_some(Domain::Library);
        let program = self.program.as_ref().map(|_| Domain::Function);
        library.into_iter().chain(program).collect()
    }

    /// Whether all functions of a mapped file are of interest, because it is the program that the
    /// process executes or a requested module; and for which processes.
    pub(crate) fn reach(&self, executable: &Executable, mapped: &MappedFile) -> Option<Reach> {
        let program = self.program.as_ref()?;
        if executable.is(mapped) {
            return Some(Reach::Everybody);
        }
        let modules = program.modules.as_ref()?;
        modules
            .is_match(&mapped.path.to_string_lossy())
            .then(|| executable.reach_of_path(mapped))
    }

    /// Requested exported functions that are indirect (IFUNC). They have no code of their own.
    fn indirect(&self, file: &LibraryFile, role: Role, filter: &FunctionFilter) -> Vec<String> {
        let wanted = |name: &str| {
            let shown = gputrace_demangle::demangle(name);
            let named = |regex: &Regex| {
                regex.is_match(name) || shown.as_deref().is_some_and(|name| regex.is_match(name))
            };
            let of_program = self
                .program
                .as_ref()
                .filter(|_| role.program)
                .is_some_and(|program| program.admits(named));
            let of_library = role.library
                && filter.admits(named)
                && gputrace_catalog::classify(gputrace_catalog::plain_name(name)).is_none();
            of_program || of_library
        };
        let symbols = file.elf().symbols().iter();
        symbols
            .filter(|symbol| symbol.kind == SymbolKind::Indirect && wanted(&symbol.name))
            .map(|symbol| {
                gputrace_demangle::demangle(&symbol.name).unwrap_or_else(|| symbol.name.clone())
            })
            .collect()
    }

    /// Plans probes on a file's functions.
    ///
    /// # Errors
    ///
    /// [`SessionError::NoFunction`], [`SessionError::TooManyFunctions`], or the error of reading
    /// the file.
    pub(crate) fn plan(
        &self,
        file: &LibraryFile,
        role: Role,
        filter: &FunctionFilter,
    ) -> Result<(LibraryPlan, Vec<String>), SessionError> {
        let all = functions::list(file, Path::new(DEBUG_ROOT));
        let exported = |name: &String| file.elf().symbol(name).is_some();
        let of_library = |function: &functions::Function| {
            role.library
                && filter.admits(|regex| is_named(function, regex))
                && function.names.iter().any(exported)
        };
        let mut choose = |function: &functions::Function| {
            let named = |regex: &Regex| is_named(function, regex);
            let program = self.program.as_ref().filter(|_| role.program);
            if let Some(program) = program
                && program.admits(named)
            {
                return Some(Choice {
                    domain: Domain::Function,
                    without_end: false,
                });
            }
            // ROCm's own functions are recorded only in their own domains.
            (of_library(function) && domain(function).is_none()).then_some(Choice {
                domain: Domain::Library,
                without_end: true,
            })
        };
        // Checked before any function is disassembled.
        let count = all.list.iter().filter_map(&mut choose).count();
        let path = || file.path().to_owned();
        if count > self.max_functions {
            return Err(SessionError::TooManyFunctions {
                path: path(),
                count,
                limit: self.max_functions,
                choice: match (role.library, role.program) {
                    (true, false) => "--include REGEX or --exclude REGEX",
                    (false, _) => "the regular expression of --functions or --min-instructions",
                    (true, true) => "--include REGEX and the regular expression of --functions",
                },
            });
        }
        let least = self
            .program
            .as_ref()
            .map_or(0, |program| program.min_instructions);
        let mut plan = functions::plan(file, &all, least, &mut choose)?;
        plan.indirect = self.indirect(file, role, filter);
        if plan.probes.is_empty() {
            let of_domains = by_option(all.list.iter().filter(|one| of_library(one)));
            let reason = own_domains(&of_domains)
                .filter(|_| plan.refused.is_empty())
                .unwrap_or_else(|| why_none(&all, &plan, count, self.program.as_ref()));
            return Err(SessionError::NoFunction {
                path: path(),
                reason,
            });
        }
        let remarks = self.remarks(file, role, &all);
        Ok((plan, remarks))
    }

    /// What a reader must know of the functions of a file.
    fn remarks(&self, file: &LibraryFile, role: Role, all: &Functions) -> Vec<String> {
        let mut remarks: Vec<String> = all
            .remarks
            .iter()
            .map(|remark| format!("{}: {remark}", file.path().display()))
            .collect();
        if role.program
            && let Some(program) = &self.program
        {
            let inlined = inlined(all, program);
            if !inlined.is_empty() {
                remarks.push(format!(
                    "{} only inlined into others and cannot be traced: {}: {}",
                    plural(inlined.len() as u64, "function exists", "functions exist"),
                    file.path().display(),
                    some(&inlined)
                ));
            }
        }
        remarks
    }
}

/// How many of the functions are ROCm's own, by the option of their domain.
fn by_option<'a>(
    functions: impl Iterator<Item = &'a functions::Function>,
) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for domain in functions.filter_map(domain) {
        *counts.entry(domain.option()).or_default() += 1;
    }
    counts
}

/// Why ROCm's own functions are not traced as functions of a library, as a clause that names the
/// option of their domain; `None` if there are none.
fn own_domains(functions: &BTreeMap<&str, usize>) -> Option<String> {
    if functions.is_empty() {
        return None;
    }
    let options: Vec<String> = functions
        .iter()
        .map(|(option, count)| format!("--{option} ({count})"))
        .collect();
    Some(format!(
        "the matching functions are ROCm's own, which other options than --library record: {}",
        options.join(", ")
    ))
}

/// Whether a function's demangled name or one of its mangled names matches.
fn is_named(function: &functions::Function, regex: &Regex) -> bool {
    regex.is_match(&function.display_name())
        || function.names.iter().any(|name| regex.is_match(name))
}

/// The ROCm domain that a function belongs to.
fn domain(function: &functions::Function) -> Option<Domain> {
    let mut names = function.names.iter();
    names.find_map(|name| gputrace_catalog::classify(gputrace_catalog::plain_name(name)))
}

/// Names of the chosen functions that exist only inlined into others.
fn inlined(all: &Functions, program: &ProgramFunctions) -> Vec<String> {
    all.inlined
        .iter()
        .map(|name| gputrace_demangle::demangle(name).unwrap_or_else(|| name.clone()))
        .filter(|name| {
            program.include.is_match(name)
                && !program
                    .exclude
                    .as_ref()
                    .is_some_and(|exclude| exclude.is_match(name))
        })
        .collect()
}

/// How many functions match, as a clause.
fn matching(count: usize) -> String {
    plural(count as u64, "function matches", "functions match")
}

/// Why none of a file's functions can be traced, as a clause.
fn why_none(
    all: &Functions,
    plan: &LibraryPlan,
    count: usize,
    program: Option<&ProgramFunctions>,
) -> String {
    if let Some(refused) = plan.refused.first() {
        return format!(
            "{}, but {}: {}",
            matching(count),
            refused.name,
            refused.reason
        );
    }
    if !plan.indirect.is_empty() {
        return format!(
            "{}, but only as indirect (IFUNC), whose code is chosen in each process: {}",
            matching(plan.indirect.len()),
            some(&plan.indirect)
        );
    }
    if count != 0 {
        return format!(
            "{}, but with fewer instructions than --min-instructions asks for",
            matching(count)
        );
    }
    let inlined = program
        .map(|program| inlined(all, program))
        .unwrap_or_default();
    if !inlined.is_empty() {
        return format!(
            "the functions that match exist only inlined into others: {}; build it with -fno-inline, or choose \
             their callers",
            some(&inlined)
        );
    }
    match all.list.len() {
        0 => "it has no symbols and no debug information; install its debug package, or do not strip it"
            .to_owned(),
        known => format!("none of its {known} functions matches; see `nm -C` for their names"),
    }
}

/// Lists the first [`NAMED`] of many names.
pub(crate) fn some(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = if names.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

/// For which processes the calls into a file are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All traced processes.
    Everybody,
    /// Only the process that showed the file under its path. In a mount namespace of its own, that
    /// path can mean any file of the system.
    Process,
}

/// The program that a process executes.
pub(crate) struct Executable {
    pid: u32,
    /// State of the file; `None` if the process may not be inspected.
    state: Option<FileState>,
    name: Option<OsString>,
}

impl Executable {
    pub(crate) fn of(pid: u32) -> Self {
        let place = Place::of_executable(pid).ok();
        let link = place.as_ref().and_then(|place| place.link().ok());
        Self {
            pid,
            state: place.and_then(|place| place.state().ok()),
            name: link.and_then(|link| Some(link.file_name()?.to_owned())),
        }
    }

    /// Whether the file is this executable. Inode number and name alone do not suffice: other file
    /// systems use the same numbers.
    fn is(&self, mapped: &MappedFile) -> bool {
        let Some(state) = self.state else {
            return false;
        };
        state.inode == mapped.inode
            && self.name.as_deref() == mapped.path.file_name()
            && self.is_same(mapped, Some(state))
    }

    /// Whether the path of a file that the process has mapped means the same file to gputrace.
    fn reach_of_path(&self, mapped: &MappedFile) -> Reach {
        let seen = Root::own()
            .ok()
            .and_then(|root| root.locate(&mapped.path).ok())
            .and_then(|place| place.state().ok());
        if self.is_same(mapped, seen) {
            Reach::Everybody
        } else {
            Reach::Process
        }
    }

    fn is_same(&self, mapped: &MappedFile, as_seen: Option<FileState>) -> bool {
        let located = process::locate_mapped(self.pid, mapped).ok();
        let mapped = located.and_then(|place| place.state().ok());
        mapped
            .zip(as_seen)
            .is_some_and(|(a, b)| (a.device, a.inode) == (b.device, b.inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_process() {
        let pid = std::process::id();
        let executable = Executable::of(pid);
        let files = process::code_files(pid).unwrap();
        let programs: Vec<_> = files.iter().filter(|file| executable.is(file)).collect();
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].path, std::env::current_exe().unwrap());
    }
}
