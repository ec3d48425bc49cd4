//! Generates the table of rocprofv3's options for the documentation.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::{Entry, GROUPS, Status};

const HEAD: &str = "\
# Options of rocprofv3

This page lists every option of rocprofv3 (ROCm 7) and what gputrace does with it.
`gputrace list --rocprofv3` prints it.

* *works*: as in rocprofv3, on the command line and in input files (`-i`).
* *no effect*: accepted, with a remark.
* *not available*: refused with a sentence that names an alternative; the exit status is 2. With
  `=False`, gputrace accepts the option.

With `--counters[=HZ]`, gputrace writes `NAME_counter_collection.csv`,
`callback_records.counter_collection` in the JSON document, and the views `pmc_events` and
`counters_collection` in rocpd. They show what the driver exposes: power, clocks, temperatures,
memory, utilisation.

There is one value for each kernel whose times are known ([what is
drawn](guide/outputs.md#what-is-drawn)) and each counter of its GPU, or of its process on that GPU,
that was read from beginning to end while the kernel ran. The value is the mean of these readings.
For a counter that only grows, it is the growth from the first to the last reading, if there are
two. The driver counts for the whole GPU: kernels that run at the same time get the same value.
Kernels that ended before anything was read have no row; a remark says how many. Kernels of 10 ms
need `--counters=100`; the driver reveals little about shorter ones. Captures of versions that did
not record when they read have no such file.
";

/// The table as it is in `docs/rocprofv3.md`. `command` must be built.
pub(crate) fn markdown(command: &Command) -> String {
    let mut text = HEAD.to_owned();
    for (group, entries) in GROUPS {
        let _ = write!(
            text,
            "\n## {group}\n\n| option | status | here |\n|---|---|---|\n"
        );
        for entry in *entries {
            let (status, here) = match entry.status(command) {
                Status::Works(arg) => ("works", help(arg)),
                Status::NoEffect(why) => ("no effect", sentence(why)),
                Status::Instead(instead) => ("not available", sentence(instead)),
            };
            let here = [here.as_str(), entry.remark].join(" ");
            let _ = writeln!(
                text,
                "| {} | {status} | {} |",
                names(entry),
                here.trim().replace('|', "\\|")
            );
        }
    }
    text
}

fn names(entry: &Entry) -> String {
    let short = entry.short.map(|letter| format!("`-{letter}`"));
    let long = [entry.long].into_iter().chain(entry.also.iter().copied());
    let long = long.map(|name| format!("`--{name}`"));
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

/// The help of an option as one paragraph.
fn help(arg: &Arg) -> String {
    let text = arg.get_long_help().or_else(|| arg.get_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    sentence(&words.join(" "))
}

/// Capitalizes the first letter and adds a full stop. A name with capitals elsewhere (`hipFile`)
/// stays as it is.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    let is_name = text
        .split(' ')
        .next()
        .is_some_and(|word| word.contains(char::is_uppercase));
    let text = match first {
        Some(first) if !is_name => format!("{first}{}", letters.as_str()),
        _ => text.to_owned(),
    };
    if text.is_empty() || text.ends_with('.') {
        text
    } else {
        format!("{text}.")
    }
}
