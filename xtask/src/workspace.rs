//! The directories in use: the checkout, cargo's target directory, the cache of tools.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The directories that all commands work with; all absolute.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The checkout: the directory of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// The compiled eBPF objects. `userspace/loader/build.rs` finds them by the same rule.
    pub(crate) bpf: PathBuf,
    /// Tools that setup builds or downloads, one directory per version. Outside the checkout, so
    /// that a clean clone, a second checkout and CI can reuse them.
    pub(crate) tools: PathBuf,
}

impl Workspace {
    /// Determines the directories from the environment that `cargo run` sets.
    ///
    /// # Errors
    ///
    /// When neither `XDG_CACHE_HOME` nor `HOME` gives the user's cache directory.
    pub(crate) fn locate() -> Result<Self> {
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest)
            .parent()
            .context("xtask is not in a workspace")?
            .to_owned();
        Ok(Self {
            target: root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())),
            bpf: root.join(env::var_os("GPUTRACE_BPF_DIR").unwrap_or_else(|| "target/bpf".into())),
            tools: tools_directory(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")).context(
                "neither XDG_CACHE_HOME nor HOME is set: set one to say where tools may be cached",
            )?,
            root,
        })
    }

    /// A cargo command of the toolchain that runs xtask, in the checkout.
    pub(crate) fn cargo(&self) -> Command {
        self.cargo_of(&cargo_binary())
    }

    /// A command of the cargo at `program`, in the checkout.
    pub(crate) fn cargo_of(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        // These variables describe xtask, not what this command builds.
        for (name, _) in env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// `path` relative to the checkout if it is inside, for messages.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    /// The tool as built into the profile directory `profile` (`debug` or `release`).
    pub(crate) fn gputrace(&self, profile: &str) -> PathBuf {
        self.target.join(profile).join("gputrace")
    }

    /// Directory of the compiled programs that tests and the demo trace.
    pub(crate) fn workloads(&self) -> PathBuf {
        self.target.join("workloads")
    }
}

/// The real cargo, whose path cargo passes to the programs that it runs. Not the rustup shim, which
/// would choose the compiler itself.
pub(crate) fn cargo_binary() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// XDG base directory rule: a relative `XDG_CACHE_HOME` is ignored.
fn tools_directory(xdg_cache_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let cache = xdg_cache_home
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| {
            home.map(|home| Path::new(&home).join(".cache"))
                .filter(|path| path.is_absolute())
        })?;
    Some(cache.join("gputrace").join("tools"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_follows_the_xdg_rule() {
        let tools = |xdg: Option<&str>, home: Option<&str>| {
            tools_directory(xdg.map(Into::into), home.map(Into::into))
        };
        assert_eq!(
            tools(Some("/c"), Some("/home/u")),
            Some("/c/gputrace/tools".into())
        );
        assert_eq!(
            tools(None, Some("/home/u")),
            Some("/home/u/.cache/gputrace/tools".into())
        );
        assert_eq!(
            tools(Some("relative"), Some("/home/u")),
            Some("/home/u/.cache/gputrace/tools".into())
        );
        assert_eq!(tools(Some(""), None), None);
    }
}
