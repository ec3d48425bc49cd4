//! Selects the few kernel modules that a guest needs from the thousands in a package.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cache::remove;
use crate::exec;

/// Modules that the guest's first program loads to reach this machine's files and streams. A module
/// that is not in the package is built into the kernel.
const BOOT: [&str; 4] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p"];

/// Name of the list of [`BOOT`] and their dependencies, in the order of loading.
pub(super) const BOOT_LIST: &str = "boot.list";

/// The driver that provides `/dev/kfd`.
const DRIVER: &str = "amdgpu";

/// Name of the list of [`DRIVER`] and its dependencies beyond [`BOOT_LIST`].
pub(super) const DRIVER_LIST: &str = "driver.list";

/// Copies the modules from `release`, a `/lib/modules/VERSION`, to `to`, decompressed by `busybox`,
/// with the lists.
///
/// # Errors
///
/// When a file cannot be read or written, or the driver is not among them.
pub(super) fn collect(release: &Path, to: &Path, busybox: &Path) -> Result<()> {
    remove(to)?;
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let mut available = HashMap::new();
    index(&release.join("kernel"), &mut available)?;
    if !available.contains_key(DRIVER) {
        bail!("{} has no {DRIVER}", release.display());
    }
    let mut loaded = Vec::new();
    for (list, wanted) in [(BOOT_LIST, &BOOT[..]), (DRIVER_LIST, &[DRIVER])] {
        let before = loaded.len();
        for name in wanted {
            add(name, &available, to, busybox, &mut loaded)?;
        }
        let names = loaded
            .iter()
            .skip(before)
            .map(|name| format!("{name}.ko\n"));
        fs::write(to.join(list), names.collect::<String>())?;
    }
    Ok(())
}

/// Finds all modules below `directory`, by name.
fn index(directory: &Path, available: &mut HashMap<String, PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            index(&entry.path(), available)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            available.insert(normal(name), entry.path());
        }
    }
    Ok(())
}

/// The name of a module: file `gpu-sched.ko` is module `gpu_sched`.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// Copies the module `name`, after its dependencies, unless that has been done.
fn add(
    name: &str,
    available: &HashMap<String, PathBuf>,
    to: &Path,
    busybox: &Path,
    loaded: &mut Vec<String>,
) -> Result<()> {
    let name = normal(name);
    let Some(from) = available.get(&name) else {
        return Ok(());
    };
    if loaded.contains(&name) {
        return Ok(());
    }
    let module = to.join(format!("{name}.ko"));
    fs::copy(from, &module).with_context(|| format!("cannot copy {}", from.display()))?;
    if from.extension().is_some_and(|extension| extension == "xz") {
        let compressed = module.with_extension("ko.xz");
        fs::rename(&module, &compressed)?;
        exec::capture(Command::new(busybox).args(["unxz", "-f"]).arg(&compressed))?;
    }
    let bytes = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    for dependency in depends(&bytes) {
        add(&dependency, available, to, busybox, loaded)?;
    }
    loaded.push(name);
    Ok(())
}

/// The dependencies of a module: the string `depends=a,b` of its section `.modinfo`, whose strings
/// end with NULs.
fn depends(module: &[u8]) -> Vec<String> {
    module
        .split(|byte| *byte == 0)
        .find_map(|string| string.strip_prefix(b"depends="))
        .map(|names| String::from_utf8_lossy(names).into_owned())
        .unwrap_or_default()
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        assert_eq!(
            depends(b"\x7fELF\0\0license=GPL\0depends=9pnet,netfs\0name=9p\0"),
            ["9pnet", "netfs"]
        );
        assert!(depends(b"\0depends=\0").is_empty());
        assert!(depends(b"").is_empty());
    }

    #[test]
    fn modules_are_listed_after_what_they_need() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = directory.path().join("release/kernel/drivers");
        fs::create_dir_all(&kernel).unwrap();
        for (name, info) in [
            ("9p.ko", "depends=9pnet\0"),
            ("9pnet.ko", "depends=\0"),
            ("amdgpu.ko", "depends=gpu-sched,9pnet\0"),
            ("gpu-sched.ko", "depends=\0"),
            ("other.ko", "depends=\0"),
        ] {
            fs::write(kernel.join(name), format!("\0{info}")).unwrap();
        }
        let to = directory.path().join("modules");
        collect(
            &directory.path().join("release"),
            &to,
            Path::new("/nonexistent"),
        )
        .unwrap();
        let list = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        assert_eq!(list(BOOT_LIST), "9pnet.ko\n9p.ko\n");
        assert_eq!(list(DRIVER_LIST), "gpu_sched.ko\namdgpu.ko\n");
        assert!(!to.join("other.ko").exists());
    }

    #[test]
    fn a_package_without_the_driver_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("kernel")).unwrap();
        let error = collect(
            directory.path(),
            &directory.path().join("to"),
            Path::new("busybox"),
        )
        .unwrap_err();
        assert!(error.to_string().contains("no amdgpu"), "{error}");
    }
}
