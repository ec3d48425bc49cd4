//! `cargo xtask package`: makes the packages that people install, from one release build.
//!
//! ```text
//! target/package/
//!   root/                                  what every package holds, as it lies below /
//!   gputrace-VERSION-x86_64.tar.gz         root/, for any distribution
//!   gputrace_VERSION_amd64.deb             where dpkg-deb is installed
//!   gputrace-VERSION-1.x86_64.rpm          where rpmbuild is installed
//!   gputrace-VERSION-image.tar             root/ and the libraries that the program loads: `docker import`
//!   gputrace.debug                         debug information, found by the program's build id
//!   check/                                 new Debian systems, while `--check` tries the packages there
//! ```
//!
//! The program is linked dynamically: `verify` and OTF2 archives load libraries at run time, which
//! a static program cannot do. So it needs the C library of the machine where it was built, or a
//! newer one; how new is read from its symbols, printed, and written into the packages. With
//! `--portable` it is compiled for an old C library and has its other libraries inside
//! ([`portable`]).

mod archives;
mod check;
mod licences;
mod portable;
mod symbols;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::builder::PossibleValuesParser;

use self::check::SUITES;
use crate::build::{self, Profile};
use crate::cache::remove;
use crate::exec;
use crate::progress::{self, Bytes};
use crate::setup::{self, Purpose, packaging};
use crate::workspace::Workspace;

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The systemd unit.
const SERVICE: &str = include_str!("package/gputrace.service");

/// Arguments of `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this program instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    /// Build for every x86-64 Linux with glibc 2.28 or newer, with libelf and zlib inside
    #[arg(long)]
    portable: bool,

    /// Install, run and remove the packages on new Debian systems; needs root
    #[arg(long)]
    check: bool,

    /// Debian suites to check on [default: all]
    #[arg(
        long,
        value_name = "SUITE",
        requires = "check",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(SUITES.iter().map(|suite| suite.name))
    )]
    on: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        packaging::packagers(workspace);
        if self.check {
            // Before a build of minutes.
            check::require_root()?;
            packaging::checkers(workspace)?;
        }
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => {
                setup::prepare(workspace, Purpose::Build).require(Purpose::Build)?;
                if self.portable {
                    portable::build(workspace)?
                } else {
                    build::build(workspace, Profile::Release)?;
                    workspace.gputrace("release")
                }
            }
        };
        let directory = workspace.target.join("package");
        remove(&directory)?;
        let root = directory.join("root");
        let program = root.join("usr/bin/gputrace");
        create(&root.join("usr/bin"))?;
        split(&binary, &program, &directory.join("gputrace.debug"))?;
        let needs = symbols::needs(&program)?;
        progress::note(format_args!(
            "the program needs glibc {} or newer, and {}",
            needs.glibc,
            needs.libraries.join(", ")
        ));
        if self.portable {
            needs.require_portable()?;
        }
        install_documents(workspace, &program, &root)?;
        for made in archives::all(&directory, &root, &needs)? {
            let size = fs::metadata(&made).map_or(0, |data| data.len());
            progress::note(format_args!(
                "{}, {}",
                workspace.relative(&made).display(),
                Bytes(size)
            ));
        }
        if !self.check {
            return Ok(());
        }
        let chosen = |suite: &&check::Suite| {
            self.on.is_empty() || self.on.iter().any(|name| name == suite.name)
        };
        let suites: Vec<&check::Suite> = SUITES.iter().filter(chosen).collect();
        check::run(workspace, &directory, &suites)
    }
}

/// Copies the program at `from` to `to` without debug information, which goes to `debug`.
fn split(from: &Path, to: &Path, debug: &Path) -> Result<()> {
    exec::capture(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(from)
            .arg(debug),
    )?;
    exec::capture(
        Command::new("strip")
            .arg("--strip-all")
            .arg("-o")
            .arg(to)
            .arg(from),
    )?;
    // For debuggers that do not use the build id.
    let mut link = Command::new("objcopy");
    link.arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(to);
    exec::capture(&mut link)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Installs manual pages, completions, licences, and the systemd unit.
fn install_documents(workspace: &Workspace, program: &Path, root: &Path) -> Result<()> {
    let pages = root.join("usr/share/man/man1");
    create(&pages)?;
    exec::capture(Command::new(program).arg("man").arg(&pages))?;
    for entry in fs::read_dir(&pages).context("cannot read the manual pages")? {
        // Without the time and name, so that builds are reproducible.
        let page = entry?.path();
        exec::capture(Command::new("gzip").args(["-9", "-n"]).arg(&page))?;
        // gputrace creates files that only their owner may read.
        let page = page.with_added_extension("gz");
        fs::set_permissions(&page, fs::Permissions::from_mode(0o644))?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/gputrace"),
        ("zsh", "usr/share/zsh/site-functions/_gputrace"),
        ("fish", "usr/share/fish/vendor_completions.d/gputrace.fish"),
    ] {
        let script = exec::capture(Command::new(program).args(["completions", shell]))?;
        write(&root.join(path), &script)?;
    }
    write(
        &root.join("usr/lib/systemd/system/gputrace.service"),
        SERVICE,
    )?;
    let documents = root.join("usr/share/doc/gputrace");
    for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        let from = workspace.root.join(name);
        let text =
            fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
        write(&documents.join(name), &text)?;
    }
    write(&documents.join("copyright"), &licences::texts(workspace)?)
}

/// Creates a directory and its parents.
fn create(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

/// Writes a file that everybody may read, and creates its parent directories.
fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        create(directory)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(())
}
