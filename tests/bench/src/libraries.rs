//! Measures what a launched program pays for libraries that it loads by `dlopen`.

use std::{
    ffi::CString,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    Options,
    report::{Table, median},
};

/// Number of libraries without traced functions.
const COUNT: usize = 1_000;

/// Number of rounds in which the two variants alternate.
const TURNS: usize = 7;

/// A program that loads every file of a directory and prints how long that took, ns.
#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    directory: PathBuf,
}

impl Load {
    /// Loads the libraries and prints the time.
    ///
    /// # Errors
    ///
    /// When a file is no library.
    pub(crate) fn run(&self) -> Result<()> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            paths.push(CString::new(entry?.path().as_os_str().as_bytes())?);
        }
        let begin = Instant::now();
        for path in &paths {
            // SAFETY: libraries without constructors, built for this.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            ensure!(
                !library.is_null(),
                "{} cannot be loaded",
                path.to_string_lossy()
            );
        }
        #[expect(clippy::print_stdout, reason = "the figure")]
        {
            println!("{}", begin.elapsed().as_nanos());
        }
        Ok(())
    }
}

/// Prints how long a program takes to load a thousand small libraries, by itself and under
/// gputrace.
///
/// # Errors
///
/// When gcc is missing, or a program fails.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let libraries = directory.path().join("libraries");
    fs::create_dir(&libraries)?;
    let first = libraries.join("library0.so");
    let source = directory.path().join("library.c");
    fs::write(&source, "int nothing;\n")?;
    let mut gcc = Command::new("gcc");
    let built = gcc
        .args(["-shared", "-fPIC", "-o"])
        .arg(&first)
        .arg(&source)
        .status();
    ensure!(built.context("gcc")?.success(), "gcc failed");
    for number in 1..COUNT {
        fs::copy(&first, libraries.join(format!("library{number}.so")))?;
    }
    let me = std::env::current_exe()?;
    let load = |before: Option<&Path>| -> Result<f64> {
        let mut command = match before {
            Some(gputrace) => {
                let mut command = Command::new(gputrace);
                command.arg("--force").arg("-d").arg(directory.path());
                command.args(["-o", "run", "-f", "csv", "--"]).arg(&me);
                command
            }
            None => Command::new(&me),
        };
        let output = command.arg("load").arg(&libraries).output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let ns: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
        Ok(ns / 1000.0 / COUNT as f64)
    };
    let (mut alone, mut traced, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let (one, other) = (load(None)?, load(Some(&options.gputrace))?);
        alone.push(one);
        traced.push(other);
        ratios.push(other / one);
    }
    let mut table = Table::new(
        "Libraries of no interest, by dlopen",
        &["variant", "each, us"],
    );
    table.row(&[&"alone", &format!("{:.1}", median(&alone))]);
    table.row(&[&"launched by gputrace", &format!("{:.1}", median(&traced))]);
    table.row(&[&"ratio", &format!("{:.2}", median(&ratios))]);
    table.note(format!(
        "Medians of {TURNS} turns of {COUNT} libraries. Aim: a ratio of at most 1.5."
    ));
    table.print()
}
