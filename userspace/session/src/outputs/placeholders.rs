//! Placeholders in the names of outputs: `-o run.%rank% -d 'out/%env{JOB}%'`.
//!
//! The keys and their meanings are those of rocprofv3 (`output_key.cpp` and `format_path.cpp` of
//! rocprofiler-sdk). There they refer to the process that contains the tool; here, to the first
//! process of the recording. Values are inserted only once: a placeholder inside a value stays as
//! it is.
//!
//! Whoever runs that process chooses the values, while root may create the files. So each value is
//! a part of one file name ([`Outside::file_name`]): it names no other directory, hides no file and
//! has a limited length, and a relative path stays relative. Only `%cwd%` and the dates may contain
//! directories: both are gputrace's own, and so are the variables with the formats of dates.
//!
//! | key | value |
//! |---|---|
//! | `%hostname%`, `%h` | name of this machine |
//! | `%pid%`, `%p`; `%ppid%`; `%pgid%`; `%psid%` | process, its parent, its group, its session |
//! | `%psize%` | number of its parent's children |
//! | `%job%`, `%j` | `SLURM_JOB_ID`, or 0 |
//! | `%rank%`, `%r`; `%size%`, `%s` | MPI rank, or 0; number of ranks, or 1 |
//! | `%nid%` | the rank if there is one, else the process id |
//! | `%cwd%` | gputrace's working directory |
//! | `%launch_time%`, `%launch_date%` | when gputrace started: `2026-01-31_23.59`, `2026-01-31`, or in the formats of `ROCPROF_TIME_FORMAT` and `ROCPROF_DATE_FORMAT` in gputrace's environment |
//! | `%tag%`, `%argv%`, `%args%`, `%argt%`, `%arg0%` ... | file name of the program; its command line, arguments, both, one argument; `/` becomes `_` |
//! | `%env{NAME}%`, `$env{NAME}`, `%q{NAME}` | an environment variable; `/` and blanks become `_` |
//!
//! `{key}` is the same as `%key%`.

use std::{
    env,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use gputrace_capture::meta::{Mode, Recording};
use gputrace_files::kernel;
use gputrace_text::{Outside, outside};
use jiff::{Zoned, fmt::strtime};
use regex::{Captures, Regex};

use crate::{request::Targets, system};

/// Matches a placeholder. Names of variables have the characters that rocprofv3 allows.
static PLACEHOLDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        % (?: env | ENV ) \{ (?<env> [A-Z0-9_]+ ) \} %
        | \$ (?: env | ENV ) \{ (?<cmake> [A-Z0-9_]+ ) \}
        | %q \{ (?<q> [A-Z0-9_]+ ) \}
        | % (?<percent> [a-z_]+ [0-9]* ) %
        | \{ (?<brace> [a-z_]+ [0-9]* ) \}
        | % (?<letter> [hpjrs] )
        ",
    )
    .ok()
});

/// Environment variables with the rank and the number of ranks; if several are set, the last one
/// counts.
const RANKS: [(&str, &str); 8] = [
    ("MPI_RANK", "MPI_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("MPI_RANKID", "MPI_NRANKS"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PBS_NODENUM", "PBS_O_TASKNUM"),
];

/// Keys whose values are known only once the process exists.
const OF_PROCESS: [&str; 6] = ["pid", "ppid", "pgid", "psid", "psize", "nid"];

/// The values of placeholders.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The process that the names refer to, if it exists already.
    pid: Option<u32>,
    command: Vec<Outside<'static>>,
    started: Zoned,
    /// Environment of the process, if it differs from gputrace's.
    environment: Option<Environment>,
}

/// Marks a place where a value was inserted. Values never contain it.
const MARK: char = '\u{1}';

/// Names and values of environment variables.
type Environment = Vec<(Vec<u8>, Outside<'static>)>;

/// Maximum length, in bytes, of a path component that contains values. Formats append their own
/// endings, and a name has at most 255 bytes (`NAME_MAX`).
const COMPONENT: usize = 192;

impl Names {
    /// Values for a launched program's `command`, a running process, or the node.
    #[must_use]
    pub fn of_targets(targets: &Targets) -> Self {
        let names = Self {
            started: Zoned::now(),
            ..Self::default()
        };
        match targets {
            Targets::Launch { command, .. } => Self {
                command: command
                    .iter()
                    .map(|word| outside(word).into_owned())
                    .collect(),
                ..names
            },
            Targets::Attach { pids, .. } => match pids.first() {
                Some(pid) => Self {
                    command: words(*pid, "cmdline")
                        .iter()
                        .map(|word| Outside::from_bytes(word).into_owned())
                        .collect(),
                    environment: Some(environment(*pid)),
                    ..names.with_process(*pid)
                },
                None => names,
            },
            Targets::Node => Self {
                command: vec![outside("node")],
                ..names.with_process(std::process::id())
            },
        }
    }

    /// Values for outputs of an earlier recording, of whose process only the id and the command are
    /// known.
    #[must_use]
    pub fn of_recording(recording: &Recording) -> Self {
        let command = match &recording.mode {
            Mode::Launch { command } => command
                .iter()
                .map(|word| outside(word).into_owned())
                .collect(),
            Mode::Attach { .. } | Mode::Node | Mode::Merged { .. } => Vec::new(),
        };
        Self {
            pid: Some(recording.main_pid.unwrap_or_default()),
            command,
            started: Zoned::now(),
            environment: None,
        }
    }

    /// Adds the process, once it exists.
    #[must_use]
    pub fn with_process(self, pid: u32) -> Self {
        Self {
            pid: Some(pid),
            ..self
        }
    }

    /// Replaces the placeholders in `template`; `None` if that needs the process and it does not
    /// exist yet.
    #[must_use]
    pub fn expand(&self, template: &str) -> Option<String> {
        let Some(placeholder) = &*PLACEHOLDER else {
            return Some(template.to_owned());
        };
        let mut text = String::with_capacity(template.len());
        let mut rest = template;
        let mut is_absolute = template.starts_with('/');
        if !placeholder.is_match(template) {
            return Some(template.to_owned());
        }
        while let Some(found) = placeholder.captures(rest) {
            let Some(whole) = found.get(0) else { break };
            let (before, after) = (rest.get(..whole.start()), rest.get(whole.end()..));
            text.push_str(before.unwrap_or_default());
            rest = after.unwrap_or_default();
            match self.value(&found)? {
                Value::Of(value) => {
                    text.push(MARK);
                    text.push_str(&value.file_name());
                }
                Value::Own(value) => {
                    is_absolute |= text.is_empty() && value.starts_with('/');
                    text.push_str(&value);
                }
                Value::Unknown => text.push_str(whole.as_str()),
                // If the program was not given this argument, the separator after the placeholder
                // is dropped, too.
                Value::NoArgument => rest = rest.trim_start_matches(['-', '/', '_']),
            }
        }
        text.push_str(rest);
        Some(kept_in_place(&text, is_absolute))
    }

    /// Like [`Names::expand`], for a path. A path that is not UTF-8 is returned unchanged.
    #[must_use]
    pub fn expand_path(&self, template: &Path) -> Option<PathBuf> {
        match template.to_str() {
            Some(text) => self.expand(text).map(PathBuf::from),
            None => Some(template.to_owned()),
        }
    }

    fn value(&self, found: &Captures<'_>) -> Option<Value> {
        let variable = ["env", "cmake", "q"]
            .iter()
            .find_map(|group| found.name(group));
        if let Some(variable) = variable {
            let value = self.variable(variable.as_str());
            let value = value.map(|value| value.trim_start(b"\t /").file_name());
            return Some(Value::of(&value.unwrap_or_default().replace(' ', "_")));
        }
        let key = ["percent", "brace", "letter"]
            .iter()
            .find_map(|group| found.name(group));
        let key = match key.map_or("", |key| key.as_str()) {
            "h" => "hostname",
            "p" => "pid",
            "j" => "job",
            "r" => "rank",
            "s" => "size",
            key => key,
        };
        if OF_PROCESS.contains(&key)
            && self.pid.is_none()
            && (key != "nid" || self.rank().is_none())
        {
            return None;
        }
        Some(self.of_key(key))
    }

    fn of_key(&self, key: &str) -> Value {
        let pid = self.pid.unwrap_or_default();
        let number = |number: Option<u32>| Value::of(&number.unwrap_or_default().to_string());
        match key {
            "hostname" => Value::of(&system::hostname()),
            "pid" => number(Some(pid)),
            "ppid" => number(status(pid, 1)),
            "pgid" => number(status(pid, 2)),
            "psid" => number(status(pid, 3)),
            "psize" => Value::of(&siblings(status(pid, 1).unwrap_or_default()).to_string()),
            "job" => Value::Of(
                self.variable("SLURM_JOB_ID")
                    .unwrap_or_else(|| outside("0")),
            ),
            "rank" => number(self.rank()),
            "size" => number(self.ranks().or(Some(1))),
            "nid" => number(self.rank().or(Some(pid))),
            "cwd" => Value::Own(match env::current_dir() {
                Ok(directory) => directory.to_string_lossy().into_owned(),
                Err(_) => ".".to_owned(),
            }),
            "launch_date" => Value::Own(self.time("ROCPROF_DATE_FORMAT", "%F")),
            "launch_time" => Value::Own(self.time("ROCPROF_TIME_FORMAT", "%F_%H.%M")),
            "tag" => Value::of(&self.tag()),
            "argv" => Value::of(&self.flat().join("_")),
            "args" => Value::of(&self.flat().split_off(1.min(self.command.len())).join("_")),
            "argt" => {
                let arguments = self.flat().split_off(1.min(self.command.len()));
                Value::of(&format!("{}{}", self.tag(), arguments.join("_")))
            }
            _ => match key
                .strip_prefix("arg")
                .and_then(|index| index.parse::<usize>().ok())
            {
                Some(index) => match self.flat().get(index) {
                    Some(argument) => Value::of(argument),
                    None => Value::NoArgument,
                },
                None => Value::Unknown,
            },
        }
    }

    /// File name of the program.
    fn tag(&self) -> String {
        let program = self.command.first().map(Outside::base_name);
        program.map_or_else(String::new, |name| name.file_name())
    }

    /// The command line as parts of a file name.
    fn flat(&self) -> Vec<String> {
        let flat = |word: &Outside<'_>| word.file_name().trim().trim_start_matches('_').to_owned();
        self.command.iter().map(flat).collect()
    }

    /// Formats gputrace's start time. The format comes from gputrace's own environment: whoever
    /// runs a target must not decide where files go.
    fn time(&self, variable: &str, default: &str) -> String {
        let format = env::var(variable).unwrap_or_else(|_| default.to_owned());
        let text = strtime::format(&format, &self.started);
        text.or_else(|_| strtime::format(default, &self.started))
            .unwrap_or_default()
    }

    fn rank(&self) -> Option<u32> {
        self.last_number(RANKS.iter().map(|(rank, _)| *rank))
    }

    fn ranks(&self) -> Option<u32> {
        self.last_number(RANKS.iter().map(|(_, size)| *size))
    }

    fn last_number<'a>(&self, variables: impl DoubleEndedIterator<Item = &'a str>) -> Option<u32> {
        let number = |value: Outside<'_>| value.file_name().parse().ok();
        variables
            .rev()
            .find_map(|name| self.variable(name).and_then(number))
    }

    fn variable(&self, name: &str) -> Option<Outside<'static>> {
        let given = self.environment.as_ref().and_then(|variables| {
            let found = variables
                .iter()
                .find(|(known, _)| known == name.as_bytes())?;
            Some(found.1.clone())
        });
        given.or_else(|| env::var_os(name).map(|value| outside(&value).into_owned()))
    }
}

/// Value of a placeholder.
enum Value {
    /// A value that others may have chosen.
    Of(Outside<'static>),
    /// A value of gputrace's own, which may contain directories.
    Own(String),
    /// There is no such placeholder.
    Unknown,
    /// An argument that the program was not given.
    NoArgument,
}

impl Value {
    fn of(text: &str) -> Self {
        Self::Of(outside(text).into_owned())
    }
}

/// Keeps a path with inserted values, each after a [`MARK`], in its place. The path stays relative
/// unless `is_absolute`, even where a value was empty (`%job%/x`). Its components are limited to
/// valid names, and those that became `.` or `..` through values (`%job%..`) name no directory.
fn kept_in_place(path: &str, is_absolute: bool) -> String {
    let kept = |component: &str| {
        let name = component.replace(MARK, "");
        if name.len() < component.len() && [".", ".."].contains(&name.as_str()) {
            return name.replace('.', "_");
        }
        let end = name.floor_char_boundary(COMPONENT);
        name.get(..end).unwrap_or_default().to_owned()
    };
    let components: Vec<String> = path.split('/').map(kept).collect();
    let path = components.join("/");
    if is_absolute {
        path
    } else {
        path.trim_start_matches('/').to_owned()
    }
}

/// The leading components of a path that contain no placeholder.
pub(crate) fn constant_part(template: &Path) -> PathBuf {
    let is_constant = |component: &Component<'_>| {
        let name = component.as_os_str().as_encoded_bytes();
        !name.iter().any(|byte| b"%{$".contains(byte))
    };
    let constant: PathBuf = template.components().take_while(is_constant).collect();
    if constant.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        constant
    }
}

/// A numeric field of `/proc/PID/stat`, counted from 0 after the command name (proc_pid_stat(5)).
fn status(pid: u32, field: usize) -> Option<u32> {
    let text = kernel::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(field)?.parse().ok()
}

/// Number of children of `parent`'s main thread.
fn siblings(parent: u32) -> usize {
    let path = format!("/proc/{parent}/task/{parent}/children");
    kernel::read_text(path).map_or(0, |list| list.split_whitespace().count())
}

/// Maximum size of a command line or environment that is read, bytes.
const MAX_WORDS: u64 = 8 << 20;

/// The zero-terminated strings of a file in `/proc/PID`.
fn words(pid: u32, name: &str) -> Vec<Vec<u8>> {
    let bytes = gputrace_reader::file(pid, name, MAX_WORDS).unwrap_or_default();
    let words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    words.map(<[u8]>::to_owned).collect()
}

fn environment(pid: u32) -> Environment {
    let split = |variable: Vec<u8>| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = variable.split_at_checked(at)?;
        let value = value.strip_prefix(b"=")?;
        Some((name.to_owned(), Outside::from_bytes(value).into_owned()))
    };
    words(pid, "environ")
        .into_iter()
        .filter_map(split)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(variables: &[(&str, &str)]) -> Names {
        let own = |(name, value): &(&str, &str)| {
            (name.as_bytes().to_owned(), outside(*value).into_owned())
        };
        Names {
            pid: None,
            command: ["./bin/app", "-n", "data/x y", "3"].map(outside).to_vec(),
            started: "2026-01-31T23:59:58[UTC]".parse().unwrap(),
            environment: Some(variables.iter().map(own).collect()),
        }
    }

    #[test]
    fn keys_have_the_meanings_of_rocprofv3() {
        let names = names(&[
            ("USER", "ann"),
            ("WHERE", "/data/run 7"),
            ("SLURM_JOB_ID", "815"),
            ("MPI_RANK", "9"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "16"),
        ])
        .with_process(4711);
        for (template, expected) in [
            ("plain", "plain"),
            ("a%pid%b", "a4711b"),
            ("{pid}.%p", "4711.4711"),
            (
                "%env{USER}%-$ENV{USER}-%q{USER}-$env{USER}-%ENV{USER}%",
                "ann-ann-ann-ann-ann",
            ),
            ("%env{WHERE}%/x", "data_run_7/x"),
            ("%env{UNSET_ANYWHERE}%x", "x"),
            ("%env{lower}%", "%env{lower}%"),
            ("%job%.%j", "815.815"),
            ("%rank%of%size% %r %s %nid%", "3of16 3 16 3"),
            ("%launch_date% %launch_time%", "2026-01-31 2026-01-31_23.59"),
            ("%tag%", "app"),
            ("%argv%", "bin_app_-n_data_x y_3"),
            ("%args%", "-n_data_x y_3"),
            ("%argt%", "app-n_data_x y_3"),
            ("%arg2%", "data_x y"),
            ("a/%arg9%-b", "a/b"),
            ("%unknown% {neither} 100%", "%unknown% {neither} 100%"),
        ] {
            assert_eq!(names.expand(template).unwrap(), expected, "{template}");
        }
        assert_eq!(names.expand("%hostname%"), names.expand("%h"));
        let here = env::current_dir().unwrap();
        assert_eq!(
            names.expand("%cwd%/x").unwrap(),
            format!("{}/x", here.display())
        );
    }

    #[test]
    fn what_needs_the_process_waits_for_it() {
        let alone = names(&[]);
        for template in ["%pid%", "x/{ppid}", "%p", "%nid%"] {
            assert_eq!(alone.expand(template), None, "{template}");
        }
        assert_eq!(alone.expand("%tag%").unwrap(), "app");
        assert_eq!(
            names(&[("SLURM_PROCID", "5")]).expand("%nid%").unwrap(),
            "5"
        );
        let me = alone.with_process(std::process::id());
        assert_eq!(me.expand("%nid%").unwrap(), std::process::id().to_string());
        assert_eq!(
            me.expand("%ppid%").unwrap(),
            std::os::unix::process::parent_id().to_string()
        );
        assert_ne!(me.expand("%psid% %pgid% %psize%").unwrap(), "0 0 0");
    }

    #[test]
    fn values_are_not_looked_into() {
        let names = names(&[("A", "%env{B}%"), ("B", "%env{A}%")]);
        assert_eq!(names.expand("%env{A}%").unwrap(), "%env{B}%");
    }

    #[test]
    fn values_name_no_directories() {
        let hostile = "x/../../victim/pwn";
        let clean = "x_.._.._victim_pwn";
        let mut names = names(&[
            ("SLURM_JOB_ID", hostile),
            ("SLURM_PROCID", "../1"),
            ("SLURM_NTASKS", "/2"),
            ("A", hostile),
            ("DOT", "."),
            ("NONE", ""),
            ("ROCPROF_DATE_FORMAT", "../victim/date"),
            ("ROCPROF_TIME_FORMAT", "../victim/time"),
        ])
        .with_process(1);
        names.command = ["/../..", "/etc/passwd", "..", "a\u{1b}[2J\n"]
            .map(outside)
            .to_vec();
        for (template, expected) in [
            ("run.%job%", &format!("run.{clean}")[..]),
            ("run.%j", &format!("run.{clean}")),
            (
                "%env{A}%/%q{A}/$env{A}",
                &format!("{clean}/{clean}/{clean}"),
            ),
            ("%rank% %size% %nid%", "0 1 1"),
            ("%env{DOT}%%env{DOT}%/x", "__/x"),
            ("%env{NONE}%/etc/x", "etc/x"),
            ("a/%env{NONE}%../%env{NONE}%./../x", "a/__/_/../x"),
            ("/out/%env{NONE}%/x", "/out//x"),
            ("%launch_date% %launch_time%", "2026-01-31 2026-01-31_23.59"),
            ("%tag%", "__"),
            ("%arg0%|%arg1%|%arg2%|%arg3%", "___..|etc_passwd||a_[2J_"),
        ] {
            assert_eq!(names.expand(template).unwrap(), expected, "{template}");
        }
        let long = "é".repeat(200);
        names.environment = Some(vec![(b"A".to_vec(), outside(&long).into_owned())]);
        let expanded = names.expand("%env{A}%%env{A}%%env{A}%").unwrap();
        assert!(
            expanded.len() <= COMPONENT && expanded.starts_with("éé"),
            "{expanded}"
        );
    }

    #[test]
    fn paths_are_known_up_to_the_first_placeholder() {
        for (template, constant) in [
            ("/data/out/%pid%/x", "/data/out"),
            ("%hostname%/x", "."),
            ("out", "out"),
            ("a/b{pid}/c", "a"),
        ] {
            assert_eq!(
                constant_part(Path::new(template)),
                Path::new(constant),
                "{template}"
            );
        }
    }

    proptest! {
        #[test]
        fn anything_can_be_expanded(template in ".*", value in ".*") {
            let names = names(&[("A", &value), ("SLURM_JOB_ID", &value)]).with_process(1);
            prop_assert!(names.expand(&template).is_some());
            let with_value = format!("%env{{A}}%{template}");
            prop_assert!(names.expand(&with_value).is_some());
            for template in ["out/%env{A}%/%job%", "%job%/%q{A}", "%env{A}%.%j"] {
                let path = names.expand_path(Path::new(template)).unwrap();
                let plain = |part: Component<'_>| matches!(part, Component::Normal(name) if name.len() <= COMPONENT);
                prop_assert!(path.components().all(plain), "{path:?}");
            }
        }
    }
}
