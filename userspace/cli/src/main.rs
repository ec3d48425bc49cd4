//! The `gputrace` command: arguments in, a recording or its outputs out. The work is done in
//! `gputrace-session`; this crate is the user interface.

#![warn(clippy::print_stderr)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod args;
mod controlled;
#[cfg(test)]
mod documented;
mod domains;
mod effective;
mod exit;
mod export;
mod flight;
mod input;
mod inspect;
mod interrupt;
mod jobs;
mod kernels;
mod list;
mod post;
mod progress;
mod record;
mod recorders;
mod rocprofv3;
mod shell;
mod stdout;
mod summary;
mod top;

use std::process::ExitCode;

use clap::FromArgMatches as _;
use gputrace_text::{Line, terminal};
use tracing_subscriber::{EnvFilter, fmt};

use crate::args::{Cli, Command, LogLevel};

fn main() -> ExitCode {
    // Helper processes that read other processes run this same program.
    gputrace_reader::serve_if_asked();
    gputrace_reader::install();
    ignore_file_size_signal();
    let command = args::command();
    let mut translated = match rocprofv3::translate(&command, std::env::args_os()) {
        Ok(translated) => translated,
        Err(refused) => {
            say(&format!("error: {refused}"));
            return ExitCode::from(exit::USAGE);
        }
    };
    if translated.arguments.len() <= 1 && top::has_a_terminal() {
        translated.arguments.push("top".into());
    }
    let matches = command.clone().try_get_matches_from(&translated.arguments);
    let matches = matches.unwrap_or_else(|mut error| {
        let advice = args::advise(&mut error, &command, &translated.arguments);
        let printed = stdout::print_parsers(&error);
        if let Err(error) = &printed {
            say(&format!("error: {error}"));
        }
        if let Some(advice) = advice {
            say(&advice);
        }
        std::process::exit(match printed {
            Ok(()) => error.exit_code(),
            Err(_) => exit::OUTPUT.into(),
        });
    });
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if cli.command.is_none()
        && let Some(missing) = args::lacks_program(&translated.arguments)
    {
        say(&format!("error: {missing}"));
        return ExitCode::from(exit::USAGE);
    }
    for remark in &translated.remarks {
        say(remark);
    }
    start_log(&cli);
    if cli.command.as_ref().is_some_and(Command::reads_captures) {
        interrupt::leave_nothing();
    }
    let result = match &cli.command {
        Some(Command::Export(args)) => export::run(args),
        Some(Command::Summary(args)) => post::summary(args),
        Some(Command::Report(args)) => post::report(args),
        Some(Command::Query(args)) => post::query(args),
        Some(Command::Diff(args)) => post::diff(args),
        Some(Command::Merge(args)) => post::merge(args),
        Some(Command::Dump(args)) => post::dump(args),
        Some(Command::List(args)) if args.rocprofv3 => shell::print(&rocprofv3::markdown(&command)),
        Some(Command::List(args)) => list::run(args),
        Some(Command::Topology(args)) => inspect::topology(args),
        Some(Command::Ps(args)) => inspect::ps(args),
        Some(Command::Status(args)) => inspect::status(args),
        Some(Command::Top(args)) => top::run(args),
        Some(Command::DumpFlight(args)) => flight::run(args),
        Some(Command::Kfd(args)) => inspect::kfd(args),
        Some(Command::Doctor(args)) => inspect::doctor(args),
        Some(Command::Verify(args)) => inspect::verify(args),
        Some(Command::VerifyWork(args)) => inspect::verify_work(args),
        Some(Command::Completions { shell }) => shell::completions(*shell, command),
        Some(Command::Man { directory }) => shell::man(directory.as_deref(), command),
        None => jobs::run(&cli, &command, &matches, &translated.arguments),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: {}", exit::text(&error)));
            ExitCode::from(exit::code(&error))
        }
    }
}

/// gputrace's own log goes to stderr; messages that the user must see are printed, not logged.
fn start_log(cli: &Cli) {
    let tuning = &cli.record.tuning;
    let mut level = match tuning.log_level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning | LogLevel::Env | LogLevel::Config => "warn",
        LogLevel::Error => "error",
        LogLevel::Fatal => "off",
    };
    if tuning.debug_ebpf && !matches!(tuning.log_level, LogLevel::Trace) {
        // The eBPF programs log at level debug.
        level = "debug";
    }
    // This only fails if there already is a logger, which is not the case.
    let _ = fmt()
        .with_env_filter(EnvFilter::new(level))
        .with_writer(|| terminal::Log)
        .with_ansi(false)
        .without_time()
        .try_init();
}

/// SIGXFSZ (a file grows beyond `ulimit -f`) must not kill the recorder: the failed write is
/// reported like a full disk. Rust already ignores SIGPIPE.
fn ignore_file_size_signal() {
    // SAFETY: sets a disposition, before there are threads.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Prints a line for the user, with any text escaped. Errors are ignored: if nobody reads any more
/// (`gputrace … 2>&1 | head`), a recording still goes on.
fn say(text: &str) {
    terminal::say(&Line::new(format_args!("gputrace: {text}")));
}
