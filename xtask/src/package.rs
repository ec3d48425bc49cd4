//! `cargo xtask package`: what people install, from one release build.
//!
//! ```text
//! target/package/
//!   root/                                  what every package holds, as it lies below /
//!   gputrace-VERSION-x86_64.tar.gz         root/, for any distribution
//!   gputrace_VERSION_amd64.deb             where dpkg-deb is installed
//!   gputrace-VERSION-1.x86_64.rpm          where rpmbuild is installed
//!   gputrace-VERSION-image.tar             root/ and the libraries that the program loads: `docker import`
//!   gputrace.debug                         debug information, found by the program's build id
//! ```
//!
//! The program is linked dynamically: `verify` and OTF2 archives load libraries at run time, which a static program
//! cannot do. So it needs the C library of the machine where it was built, or a newer one; how new is read from its
//! symbols, printed, and written into the packages.

mod archives;
mod licences;
mod symbols;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::build::{self, Profile};
use crate::cache::remove;
use crate::exec;
use crate::progress::{self, Bytes};
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The unit of systemd.
const SERVICE: &str = include_str!("package/gputrace.service");

/// Arguments of `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this program in place of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self, workspace: &Workspace) -> Result<()> {
        let binary = match self.binary {
            Some(binary) => binary,
            None => {
                setup::prepare(workspace, Purpose::Build).require(Purpose::Build)?;
                build::build(workspace, Profile::Release)?;
                workspace.gputrace("release")
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
        install_documents(workspace, &program, &root)?;
        for made in archives::all(&directory, &root, &needs)? {
            let size = fs::metadata(&made).map_or(0, |data| data.len());
            progress::note(format_args!(
                "{}, {}",
                workspace.relative(&made).display(),
                Bytes(size)
            ));
        }
        Ok(())
    }
}

/// Copies the program at `from` without debug information to `to`, and that to `debug`.
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
    // Where debuggers look if they do not go by the build id.
    let mut link = Command::new("objcopy");
    link.arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(to);
    exec::capture(&mut link)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Manual pages, completions, licences, and the unit of systemd.
fn install_documents(workspace: &Workspace, program: &Path, root: &Path) -> Result<()> {
    let pages = root.join("usr/share/man/man1");
    create(&pages)?;
    exec::capture(Command::new(program).arg("man").arg(&pages))?;
    for entry in fs::read_dir(&pages).context("cannot read the manual pages")? {
        // Its time and name would make every build another one.
        let page = entry?.path();
        exec::capture(Command::new("gzip").args(["-9", "-n"]).arg(&page))?;
        // gputrace's outputs are for their owner alone.
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

/// Makes a directory and those above it.
fn create(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

/// Writes a file that everybody may read, and makes the directories above it.
fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        create(directory)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(())
}
