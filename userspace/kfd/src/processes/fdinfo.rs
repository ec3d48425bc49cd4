//! `/proc/PID/fdinfo` of DRM devices.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::files::{self, FileError};
use crate::paths::Paths;

/// A client of a DRM driver: an open DRM device. Several descriptors may share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrmClient {
    /// Its first descriptor.
    pub descriptor: u32,
    /// `drm-driver`: `amdgpu`.
    pub driver: String,
    /// `drm-pdev`: address of the PCI device, such as `0000:03:00.0`.
    pub device: Option<String>,
    /// `drm-client-id`: unique within the device.
    pub client_id: Option<u64>,
    /// amdgpu's `pasid`.
    pub pasid: Option<u64>,
    /// Memory by key, bytes: `drm-memory-vram`, `drm-total-gtt`, `amd-evicted-vram` and so on.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Engine time used by key, ns: `drm-engine-gfx` and so on. Only the kernel's own rings count:
    /// compute work submitted by KFD is always 0.
    pub engine_ns: BTreeMap<String, u64>,
}

/// The DRM clients of a process, each once, in order of descriptor; empty if the process is gone.
///
/// # Errors
///
/// [`FileError`] if the directory or a description cannot be read, or a description is invalid.
/// Descriptors that are closed meanwhile are left out.
pub fn drm_clients(paths: &Paths, pid: u32) -> Result<Vec<DrmClient>, FileError> {
    let directory = paths.proc.join(pid.to_string()).join("fdinfo");
    let mut clients = Vec::new();
    let mut seen = HashSet::new();
    for descriptor in files::numbered(&directory)? {
        let path = directory.join(descriptor.to_string());
        let Some(text) = files::text(&path)? else {
            continue;
        };
        let Some(client) = parse(descriptor, &text, &path)? else {
            continue;
        };
        let is_new = client
            .client_id
            .is_none_or(|id| seen.insert((client.device.clone(), id)));
        if is_new {
            clients.push(client);
        }
    }
    Ok(clients)
}

/// Parses a description; `None` if the descriptor is not a DRM device.
fn parse(descriptor: u32, text: &str, path: &Path) -> Result<Option<DrmClient>, FileError> {
    if !text.lines().any(|line| line.starts_with("drm-driver:")) {
        return Ok(None);
    }
    let mut client = DrmClient {
        descriptor,
        ..DrmClient::default()
    };
    for (line, content) in (1..).zip(text.lines()) {
        let Some((key, value)) = content.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        let lie = || FileError::malformed(path, line, format!("{key} is {value:?}"));
        match key {
            "drm-driver" => value.clone_into(&mut client.driver),
            "drm-pdev" => client.device = Some(value.to_owned()),
            "drm-client-id" => client.client_id = Some(value.parse().map_err(|_| lie())?),
            "pasid" => client.pasid = Some(value.parse().map_err(|_| lie())?),
            _ if is_memory(key) => {
                let bytes = bytes(value).ok_or_else(lie)?;
                client.memory_bytes.insert(key.to_owned(), bytes);
            }
            _ if key.starts_with("drm-engine-") && !key.starts_with("drm-engine-capacity-") => {
                let time = value.strip_suffix("ns").unwrap_or(value).trim();
                let time = time.parse().map_err(|_| lie())?;
                client.engine_ns.insert(key.to_owned(), time);
            }
            _ => {}
        }
    }
    Ok(Some(client))
}

fn is_memory(key: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "drm-memory-",
        "drm-total-",
        "drm-shared-",
        "drm-resident-",
        "drm-purgeable-",
        "drm-active-",
        "amd-evicted-",
        "amd-requested-",
    ];
    PREFIXES.iter().any(|prefix| key.starts_with(prefix)) || key == "amd-memory-visible-vram"
}

/// Parses a size: a number, alone or followed by `KiB` or `MiB`.
fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = match value.split_once(char::is_whitespace) {
        Some((number, unit)) => (number, unit.trim()),
        None => (value, ""),
    };
    let unit = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OF_LINUX_6_1: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t533\ndrm-driver:\tamdgpu\n\
        drm-pdev:\t0000:03:00.0\ndrm-client-id:\t17\npasid:\t32770\ndrm-memory-vram:\t2048 KiB\n\
        drm-memory-gtt: \t0 KiB\ndrm-engine-gfx:\t1234567 ns\ndrm-engine-capacity-gfx:\t2\n";

    #[test]
    fn a_render_node_is_understood_and_other_files_are_not_drms() {
        let path = Path::new("fdinfo/3");
        let client = parse(3, OF_LINUX_6_1, path).unwrap().unwrap();
        assert_eq!(client.driver, "amdgpu");
        assert_eq!(client.device.as_deref(), Some("0000:03:00.0"));
        assert_eq!((client.client_id, client.pasid), (Some(17), Some(32_770)));
        assert_eq!(client.memory_bytes["drm-memory-vram"], 2 << 20);
        assert_eq!(client.engine_ns.len(), 1);
        assert_eq!(client.engine_ns["drm-engine-gfx"], 1_234_567);
        assert_eq!(parse(3, "pos:\t0\nflags:\t0100000\n", path).unwrap(), None);
    }

    #[test]
    fn a_lie_is_an_error_with_its_line() {
        for lie in [
            "drm-memory-vram:\t2 potatoes",
            "drm-client-id:\t-1",
            "drm-engine-gfx:\tx ns",
        ] {
            let text = format!("drm-driver:\tamdgpu\n{lie}\n");
            match parse(3, &text, Path::new("fdinfo/3")) {
                Err(FileError::Malformed { line: 2, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bytes("18446744073709551615 KiB"), None);
    }

    #[test]
    fn this_process_has_no_clients_that_are_not_drms() {
        let clients = drm_clients(&Paths::default(), std::process::id()).unwrap();
        assert!(
            clients.iter().all(|client| !client.driver.is_empty()),
            "{clients:?}"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_description_or_an_error(text in "(drm-driver|drm-memory-vram|drm-engine-x|pasid|\\PC|[:\\s0-9]){0,60}") {
            let _ = parse(3, &text, Path::new("fdinfo/3"));
        }
    }
}
