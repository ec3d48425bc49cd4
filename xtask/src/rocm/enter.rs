//! Runs a program on a release: with the release's `/usr`, and everything else of this machine.
//!
//! ```text
//! /  (tmpfs, in a mount namespace of the program's own)
//! ├─ usr etc var opt bin lib ...     the release's
//! └─ dev home proc root sys tmp ...  this machine's, with all that is mounted there
//! ```
//!
//! So a path means the same inside and outside, except below the release's own directories. The
//! process that the user started becomes the program by `execve`, so its process id, exit status
//! and signals are the program's. Seen from outside, the program looks like one in a container:
//! `/proc/PID/root` is another root, and `/proc/PID/maps` names library files that are not those of
//! the same names on this machine.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use gputrace_releases::Release;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::workspace::Workspace;

/// The top-level directories that come from the release.
const OWN: [&str; 11] = [
    "bin", "etc", "lib", "lib32", "lib64", "libo32", "libx32", "opt", "sbin", "usr", "var",
];

/// Path of this machine's root while the new one is being assembled. No machine uses this name.
const HOST: &str = "/.gputrace-host";

/// A program to run.
pub(super) struct Program<'a> {
    /// A path, or a name to look up in the release's `PATH`.
    pub(super) program: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    /// A library to load before all others.
    pub(super) preload: Option<&'a Path>,
}

impl Program<'_> {
    /// Replaces this process by the program, on `release` in `root`; returns only on failure.
    ///
    /// # Errors
    ///
    /// When the program, the preloaded library or the current directory is not visible there, when
    /// the kernel does not allow the namespace, or when the program cannot be started.
    pub(super) fn run(&self, workspace: &Workspace, release: &Release, root: &Path) -> Result<()> {
        let directory = env::current_dir().context("the current directory cannot be found")?;
        require_visible(&directory, root, release)?;
        let mut command = Command::new(self.program);
        command.args(self.arguments);
        if self.program.as_bytes().contains(&b'/') {
            require_visible(&directory.join(self.program), root, release)?;
        }
        if let Some(library) = self.preload {
            let library = directory.join(library);
            require_visible(&library, root, release)?;
            command.env(
                "LD_PRELOAD",
                with_preload(&library, env::var_os("LD_PRELOAD"))?,
            );
        }
        if let Some(path) = env::var_os("LD_LIBRARY_PATH") {
            match without_cargos(&path, &workspace.target) {
                Some(path) => command.env("LD_LIBRARY_PATH", path),
                None => command.env_remove("LD_LIBRARY_PATH"),
            };
        }

        separate()?;
        assemble(root)?;
        // The same directory by the same name, but reached through the new root.
        env::set_current_dir(&directory)
            .with_context(|| format!("{} cannot be entered on {release}", directory.display()))?;
        let error = command.exec();
        let program = self.program.to_string_lossy();
        if error.kind() == ErrorKind::NotFound {
            bail!(
                "there is no program {program} on {release}: `--fetch --with PACKAGE` adds a package of {}, and a \
                 program of this machine needs its path",
                release.distribution
            )
        }
        Err(error).with_context(|| format!("{program} cannot be started on {release}"))
    }
}

/// # Errors
///
/// When the absolute `path` does not exist on the release.
fn require_visible(path: &Path, root: &Path, release: &Release) -> Result<()> {
    let own = own_directory(path);
    let place = match own {
        Some(_) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    };
    // A link counts as existing: its target may exist only on the release.
    if place.symlink_metadata().is_ok() {
        return Ok(());
    }
    match own {
        Some(own) if path.exists() => bail!(
            "{} is not to be seen by programs on {release}, to which /{own} is the release's\n-> use a copy elsewhere, \
             such as below /home or /tmp",
            path.display()
        ),
        _ => bail!("{} does not exist", path.display()),
    }
}

/// The top-level directory of `path` if it comes from the release.
fn own_directory(path: &Path) -> Option<&'static str> {
    let first = path.components().find_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })?;
    OWN.into_iter().find(|own| first == *own)
}

/// `LD_PRELOAD` with `library` in front.
fn with_preload(library: &Path, old: Option<OsString>) -> Result<OsString> {
    // ld.so(8): "The items of the list can be separated by spaces or colons, and there is no
    // support for escaping".
    if library
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b" :".contains(b))
    {
        bail!(
            "{} cannot be preloaded: its path contains a space or a colon",
            library.display()
        )
    }
    let mut list = library.as_os_str().to_owned();
    if let Some(old) = old.filter(|old| !old.is_empty()) {
        list.push(":");
        list.push(old);
    }
    Ok(list)
}

/// `LD_LIBRARY_PATH` without the entries that cargo adds for programs that it runs: the toolchain's
/// libraries, and those built in `target`, which include stand-ins for ROCm's. `None` if nothing is
/// left.
fn without_cargos(path: &OsStr, target: &Path) -> Option<OsString> {
    let kept: Vec<PathBuf> = env::split_paths(path)
        .filter(|entry| !entry.starts_with(target))
        .filter(|entry| {
            !entry.components().any(|c| c.as_os_str() == "rustlib")
                && !entry.join("rustlib").is_dir()
        })
        .filter(|entry| !entry.as_os_str().is_empty())
        .collect();
    // They come from such a list, so none contains a colon.
    (!kept.is_empty())
        .then(|| env::join_paths(kept).ok())
        .flatten()
}

/// Puts this process into a mount namespace of its own; without root, into a user namespace in
/// which it may mount.
fn separate() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    let flags = if user.is_root() {
        UnshareFlags::NEWNS
    } else {
        UnshareFlags::NEWNS | UnshareFlags::NEWUSER
    };
    // SAFETY: the file descriptor table stays shared, and this is the only thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }.context(
        "a program on another release runs in a mount namespace, which this process may not make: run as root, in a \
         container with CAP_SYS_ADMIN, or allow user namespaces",
    )?;
    if !user.is_root() {
        // user_namespaces(7): a user may map only itself, and its group only after giving up
        // setgroups(2).
        let maps = [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{user} {user} 1")),
            ("gid_map", format!("{group} {group} 1")),
        ];
        for (file, text) in maps {
            fs::write(Path::new("/proc/self").join(file), text)
                .with_context(|| format!("/proc/self/{file} cannot be written"))?;
        }
    }
    // Mounts made here must not appear on the machine, but unmounts on the machine should take
    // effect here.
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .context("the mounts of this namespace cannot be separated from the machine's")
}

/// Makes the new root directory the root of this process, in its own mount namespace.
fn assemble(root: &Path) -> Result<()> {
    // Any directory will do: it is covered only in this namespace, and only until the next step.
    let stage = env::temp_dir();
    let host = Path::new(HOST);
    rustix::mount::mount("tmpfs", &stage, "tmpfs", MountFlags::empty(), c"mode=755")
        .with_context(|| format!("a tmpfs cannot be mounted on {}", stage.display()))?;
    let put_old = stage.join(host.strip_prefix("/").unwrap_or(host));
    fs::create_dir(&put_old)?;
    rustix::process::pivot_root(&stage, &put_old).context(
        "the root directory cannot be exchanged: this process is in a chroot or in an initramfs; run it outside",
    )?;
    env::set_current_dir("/")?;

    let release = host.join(root.strip_prefix("/").unwrap_or(root));
    for name in OWN {
        mirror(&release.join(name), &Path::new("/").join(name))?;
    }
    for entry in fs::read_dir(host).context("the machine's root directory cannot be read")? {
        let name = entry?.file_name();
        if !OWN.into_iter().any(|own| name == own) {
            mirror(&host.join(&name), &Path::new("/").join(&name))?;
        }
    }
    rustix::mount::unmount(host, UnmountFlags::DETACH)
        .context("the machine's root cannot be put away")?;
    fs::remove_dir(host).context("the machine's root cannot be put away")
}

/// Makes `source` visible at `place`: a directory with all mounts below it, or a copy of a link.
/// Files in a root directory are left out, and so is what does not exist.
fn mirror(source: &Path, place: &Path) -> Result<()> {
    let Ok(metadata) = source.symlink_metadata() else {
        return Ok(());
    };
    if metadata.is_symlink() {
        symlink(fs::read_link(source)?, place)?;
    } else if metadata.is_dir() {
        fs::create_dir(place)?;
        rustix::mount::mount_bind_recursive(source, place).with_context(|| {
            format!(
                "{} cannot be shown to programs on the release",
                place.display()
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_releases::RELEASES;

    #[test]
    fn only_the_releases_directories_hide_the_machines() {
        assert_eq!(own_directory(Path::new("/usr/bin/x")), Some("usr"));
        assert_eq!(own_directory(Path::new("/lib64")), Some("lib64"));
        assert_eq!(own_directory(Path::new("/user/x")), None);
        assert_eq!(own_directory(Path::new("/home/usr")), None);
        assert_eq!(own_directory(Path::new("/")), None);
    }

    #[test]
    fn what_cannot_be_seen_there_is_refused_in_words() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        let check = |path: &str| require_visible(Path::new(path), root.path(), &RELEASES[0]);
        check("/").unwrap();
        check("/usr/bin").unwrap();
        check(root.path().to_str().unwrap()).unwrap();
        let hidden = check("/etc/passwd").unwrap_err().to_string();
        assert!(hidden.contains("/etc is the release's"), "{hidden}");
        let missing = check("/nonexistent/app").unwrap_err().to_string();
        assert_eq!(missing, "/nonexistent/app does not exist");
    }

    #[test]
    fn a_preloaded_library_goes_before_others() {
        let list = |library: &str, old: Option<&str>| {
            with_preload(Path::new(library), old.map(Into::into))
        };
        assert_eq!(list("/a.so", None).unwrap(), "/a.so");
        assert_eq!(list("/a.so", Some("")).unwrap(), "/a.so");
        assert_eq!(list("/a.so", Some("/b.so")).unwrap(), "/a.so:/b.so");
        list("/a b.so", None).unwrap_err();
    }

    #[test]
    fn cargos_library_path_is_left_behind() {
        let clean = |path: &str| without_cargos(OsStr::new(path), Path::new("/w/target"));
        let cargos = "/w/target/debug/deps:/r/lib/rustlib/x86_64-unknown-linux-gnu/lib";
        assert_eq!(clean(cargos), None);
        assert_eq!(
            clean(&format!("{cargos}:/mine::/w/target2")).unwrap(),
            "/mine:/w/target2"
        );
    }
}
