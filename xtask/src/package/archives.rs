//! Makes archives and packages from one directory, with the tools that distributions use for
//! theirs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::symbols::{Needs, of_glibc};
use super::{VERSION, create, write};
use crate::exec;
use crate::progress;

/// One-line description.
const SUMMARY: &str = "Trace AMD GPU work on a running Linux system, from outside the process";

/// Release number of the packages within a version.
const RELEASE: &str = "1";

/// Contact of the packages.
const MAINTAINER: &str = "The gputrace developers <https://github.com/gputrace/gputrace>";

/// Options of tar that make archives reproducible.
const REPRODUCIBLE: [&str; 5] = [
    "--sort=name",
    "--mtime=@0",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
];

/// Makes all archives that can be made on this machine; returns their paths.
///
/// # Errors
///
/// When a tool fails. If a tool is not installed, that is reported and its package left out.
pub(super) fn all(directory: &Path, root: &Path, needs: &Needs) -> Result<Vec<PathBuf>> {
    let mut made = vec![tarball(directory, root)?];
    if installed("dpkg-deb", "the .deb") {
        made.push(deb(directory, root, needs)?);
    }
    if installed("rpmbuild", "the .rpm") {
        made.push(rpm(directory, root, needs)?);
    }
    made.push(image(directory, root)?);
    Ok(made)
}

fn installed(tool: &str, what: &str) -> bool {
    let installed = exec::find_program(tool).is_some();
    if !installed {
        progress::note(format_args!("SKIPPED: {what}: {tool} is not installed"));
    }
    installed
}

fn tarball(directory: &Path, root: &Path) -> Result<PathBuf> {
    let path = directory.join(format!("gputrace-{VERSION}-x86_64.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(REPRODUCIBLE)
        .args(["--use-compress-program", "gzip -9 -n"]);
    tar.arg("-cf").arg(&path);
    // With a top-level directory, as everybody expects.
    tar.arg(format!("--transform=s,^\\.,gputrace-{VERSION},"));
    tar.arg("-C").arg(root).arg(".");
    exec::capture(&mut tar)?;
    Ok(path)
}

fn deb(directory: &Path, root: &Path, needs: &Needs) -> Result<PathBuf> {
    let tree = directory.join("deb");
    exec::capture(Command::new("cp").arg("-a").arg(root).arg(&tree))?;
    write(
        &tree.join("DEBIAN/control"),
        &control(needs, size_in_kib(root)?)?,
    )?;
    let path = directory.join(format!("gputrace_{VERSION}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "--build"])
        .arg(&tree)
        .arg(&path);
    exec::capture(build.env("SOURCE_DATE_EPOCH", "0"))?;
    fs::remove_dir_all(&tree)?;
    Ok(path)
}

/// Content of `DEBIAN/control`. Newer releases of Debian have one library in another package.
fn control(needs: &Needs, kib: u64) -> Result<String> {
    let mut depends = vec![format!("libc6 (>= {})", needs.glibc)];
    for library in &needs.libraries {
        match library.as_str() {
            "libelf.so.1" => depends.push("libelf1t64 | libelf1".to_owned()),
            "libz.so.1" => depends.push("zlib1g".to_owned()),
            "libgcc_s.so.1" => depends.push("libgcc-s1".to_owned()),
            name if of_glibc(name) => {}
            name => bail!("no package of Debian is known for {name}, which the program needs"),
        }
    }
    Ok(format!(
        "Package: gputrace\nVersion: {VERSION}-{RELEASE}\nArchitecture: amd64\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {kib}\nDepends: {}\nSection: devel\nPriority: optional\n\
         Homepage: https://github.com/gputrace/gputrace\nDescription: {SUMMARY}\n \
         Records calls of HIP and HSA, kernels, copies and memory of unmodified programs by eBPF,\n \
         and writes Perfetto traces and rocprofv3's formats.\n",
        depends.join(", ")
    ))
}

fn size_in_kib(root: &Path) -> Result<u64> {
    let printed = exec::capture(Command::new("du").args(["-sk"]).arg(root))?;
    let size = printed.split_whitespace().next().unwrap_or_default();
    size.parse()
        .with_context(|| format!("du printed {printed:?}"))
}

fn rpm(directory: &Path, root: &Path, needs: &Needs) -> Result<PathBuf> {
    let tree = directory.join("rpm");
    create(&tree)?;
    let spec = tree.join("gputrace.spec");
    write(&spec, &spec_text(root, &files(root)?, needs))?;
    let mut build = Command::new("rpmbuild");
    build.args(["-bb", "--quiet", "--target", "x86_64-linux"]);
    for definition in [
        format!("_topdir {}", tree.display()),
        format!("_rpmdir {}", tree.display()),
        // Read by every rpm that is in use.
        "_binary_payload w9.gzdio".to_owned(),
        // The same files make the same package.
        "_buildhost gputrace".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
    ] {
        build.arg("--define").arg(definition);
    }
    build.arg(&spec).env("SOURCE_DATE_EPOCH", "0");
    exec::capture(&mut build)?;
    let name = format!("gputrace-{VERSION}-{RELEASE}.x86_64.rpm");
    let path = directory.join(&name);
    fs::rename(tree.join("x86_64").join(&name), &path)
        .with_context(|| format!("rpmbuild has made no {name}"))?;
    fs::remove_dir_all(&tree)?;
    Ok(path)
}

/// The spec file for rpmbuild. The program is finished, so nothing must be stripped or compressed
/// again. rpmbuild determines the required shared libraries by itself.
fn spec_text(root: &Path, files: &[String], needs: &Needs) -> String {
    format!(
        "%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n%global _build_id_links none\n\
         Name: gputrace\nVersion: {VERSION}\nRelease: {RELEASE}\nSummary: {SUMMARY}\n\
         License: MIT OR Apache-2.0\nURL: https://github.com/gputrace/gputrace\nRequires: glibc >= {}\n\n\
         %description\nRecords calls of HIP and HSA, kernels, copies and memory of unmodified programs by eBPF,\n\
         and writes Perfetto traces and rocprofv3's formats.\n\n\
         %install\nmkdir -p %{{buildroot}}\ncp -a '{}'/. %{{buildroot}}/\n\n%files\n{}\n",
        needs.glibc,
        root.display(),
        listed(files)
    )
}

/// Directories that a system may lack. They belong to every package that puts something there, so
/// that the last one takes them away.
const SHARED: [&str; 4] = [
    "/usr/share/bash-completion",
    "/usr/share/doc/gputrace",
    "/usr/share/fish",
    "/usr/share/zsh",
];

/// The lines of `%files`: directories, then files.
fn listed(files: &[String]) -> String {
    let directories: BTreeSet<&Path> = files
        .iter()
        .flat_map(|file| Path::new(file).ancestors().skip(1))
        .filter(|directory| SHARED.iter().any(|shared| directory.starts_with(shared)))
        .collect();
    let directories = directories
        .iter()
        .map(|directory| format!("%dir {}", directory.display()));
    let lines: Vec<String> = directories.chain(files.iter().cloned()).collect();
    lines.join("\n")
}

/// Sorted paths of all files below `root`, as installed.
fn files(root: &Path) -> Result<Vec<String>> {
    let printed = exec::capture(
        Command::new("find")
            .arg(root)
            .args(["-type", "f", "-printf", "/%P\\n"]),
    )?;
    let mut files: Vec<String> = printed.lines().map(str::to_owned).collect();
    files.sort();
    Ok(files)
}

/// Makes the root directory of a container: the packages' files, and the libraries that the program
/// loads, where it looks for them. `docker import` and `podman import` turn it into an image.
fn image(directory: &Path, root: &Path) -> Result<PathBuf> {
    let tree = directory.join("image");
    exec::capture(Command::new("cp").arg("-a").arg(root).arg(&tree))?;
    let linked = exec::capture(Command::new("ldd").arg(root.join("usr/bin/gputrace")))?;
    for library in loaded(&linked) {
        let to = tree.join(library.trim_start_matches('/'));
        create(to.parent().unwrap_or(&tree))?;
        // Copies the files themselves, because links may lead out of the image.
        fs::copy(&library, &to).with_context(|| format!("cannot copy {library}"))?;
    }
    create(&tree.join("tmp"))?;
    let path = directory.join(format!("gputrace-{VERSION}-image.tar"));
    let mut tar = Command::new("tar");
    tar.args(REPRODUCIBLE)
        .arg("-cf")
        .arg(&path)
        .arg("-C")
        .arg(&tree)
        .arg(".");
    exec::capture(&mut tar)?;
    fs::remove_dir_all(&tree)?;
    Ok(path)
}

/// Paths in the output of ldd: `libz.so.1 => /lib/libz.so.1 (0x…)`, `/lib64/ld-linux-x86-64.so.2
/// (0x…)`.
fn loaded(linked: &str) -> BTreeSet<String> {
    let words = linked.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        path.split_whitespace().next()
    });
    words
        .filter(|path| path.starts_with('/'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_image_are_those_that_are_loaded() {
        let linked = "\tlinux-vdso.so.1 (0x00007f)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let loaded: Vec<String> = loaded(linked).into_iter().collect();
        assert_eq!(
            loaded,
            [
                "/lib/x86_64-linux-gnu/libz.so.1",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }

    #[test]
    fn a_package_has_the_directories_that_others_may_lack() {
        let files = ["/usr/bin/gputrace", "/usr/share/zsh/functions/_gputrace"];
        assert_eq!(
            listed(&files.map(str::to_owned)),
            "%dir /usr/share/zsh\n%dir /usr/share/zsh/functions\n/usr/bin/gputrace\n\
             /usr/share/zsh/functions/_gputrace"
        );
    }

    #[test]
    fn a_library_without_a_package_is_refused() {
        let needs = |library: &str| Needs {
            glibc: super::super::symbols::Version::default(),
            libraries: vec![library.to_owned()],
        };
        let control_of = |library| control(&needs(library), 1);
        assert!(
            control_of("libz.so.1")
                .unwrap()
                .contains("Depends: libc6 (>= 0.0), zlib1g\n")
        );
        assert!(
            control_of("libm.so.6")
                .unwrap()
                .contains("Depends: libc6 (>= 0.0)\n")
        );
        assert!(control_of("libfoo.so.1").is_err());
    }
}
