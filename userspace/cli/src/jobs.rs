//! Recordings: the one of the command line, or those of an option file.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use clap::{ArgMatches, Command, FromArgMatches as _};

use crate::{
    args::Cli,
    controlled,
    effective::Options,
    input::{self, Job},
    record, say,
};

/// Makes the recordings. `command` parsed `arguments` into `matches`, and these into `cli`.
pub(crate) fn run(
    cli: &Cli,
    command: &Command,
    matches: &ArgMatches,
    arguments: &[OsString],
) -> Result<u8> {
    if let Some(kept) = cli.record.controlled {
        return controlled::run(&cli.record, kept);
    }
    let Some(path) = &cli.record.input else {
        return Ok(record::run(cli, &Options::of(command, matches))?.status);
    };
    let jobs = input::jobs(path, command, matches)?;
    let several = jobs.len() > 1;
    if several && cli.record.program.is_empty() {
        bail!(input::InputError::Several {
            path: path.clone(),
            jobs: jobs.len()
        });
    }
    // All jobs are checked before the first one runs.
    let mut parsed = Vec::new();
    for (job, number) in jobs.iter().zip(1..) {
        parsed.push(parse(
            path,
            command,
            job,
            arguments,
            several.then_some(number),
        )?);
    }
    let mut status = 0;
    for ((job, (cli, options)), number) in jobs.iter().zip(&parsed).zip(1..) {
        job.remarks.iter().for_each(|remark| say(remark));
        if several {
            say(&format!("job {number} of {}", jobs.len()));
        }
        let done = record::run(cli, options)?;
        if status == 0 {
            status = done.status;
        }
        if done.interrupted {
            break;
        }
    }
    Ok(status)
}

/// Adds a job's options to the command line; `pass` is the job's number if there are several.
fn parse(
    path: &Path,
    command: &Command,
    job: &Job,
    arguments: &[OsString],
    pass: Option<usize>,
) -> Result<(Cli, Options)> {
    let (name, rest) = arguments.split_at(1.min(arguments.len()));
    let all = [name, &job.arguments, rest].concat();
    let parsed = command.clone().try_get_matches_from(all);
    let parsed = parsed.and_then(|matches| {
        Ok((
            Cli::from_arg_matches(&matches)?,
            Options::of(command, &matches),
        ))
    });
    let (mut cli, options) =
        parsed.map_err(|error| input::contradiction(path, job.line, &error))?;
    if let Some(pass) = pass {
        let directory = cli.record.output.output_directory.take();
        let directory = directory.unwrap_or_else(|| PathBuf::from("."));
        cli.record.output.output_directory = Some(directory.join(format!("pass_{pass}")));
    }
    Ok((cli, options))
}
