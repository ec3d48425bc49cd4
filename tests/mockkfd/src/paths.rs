//! Determines which paths lead to the mock.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use crate::kfd;
use crate::sysfs::{DIRECTORIES, FIRST_RENDER_MINOR};

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The path itself.
    Itself,
    /// `/dev/kfd`.
    Kfd,
    /// An agent's render node.
    Render(u32),
    /// A file or directory of the synthetic sysfs.
    Sysfs(CString),
}

/// The target of this path.
pub(crate) fn resolve(path: &CStr) -> Target {
    let Ok(path) = path.to_str() else {
        return Target::Itself;
    };
    if path == "/dev/kfd" {
        return Target::Kfd;
    }
    if let Some(minor) = path.strip_prefix("/dev/dri/renderD") {
        let agent = minor.parse().ok().and_then(agent_of_minor);
        return agent.map_or(Target::Itself, Target::Render);
    }
    for (prefix, directory) in DIRECTORIES {
        let Some(rest) = path.strip_prefix(prefix) else {
            continue;
        };
        if rest.is_empty() || rest.starts_with('/') {
            let place = kfd::get().sysfs.join(directory);
            let mut place = place.as_os_str().as_bytes().to_vec();
            place.extend_from_slice(rest.as_bytes());
            // Neither part contains a NUL: one is a path of the mock, the other was a C string.
            return CString::new(place).map_or(Target::Itself, Target::Sysfs);
        }
    }
    Target::Itself
}

/// The agent whose render node has this minor number.
pub(crate) fn agent_of_minor(minor: u32) -> Option<u32> {
    let agents = kfd::get().config.agent.len();
    let agent = minor.checked_sub(FIRST_RENDER_MINOR)?;
    ((agent as usize) < agents).then_some(agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_gpus_own_paths_are_redirected() {
        assert_eq!(resolve(c"/dev/kfd"), Target::Kfd);
        assert_eq!(resolve(c"/dev/dri/renderD128"), Target::Render(0));
        for path in [
            c"/dev/kfdx",
            c"/dev/dri/renderD129",
            c"/sys/class/kfd/kfdx",
            c"/sys/class",
            c"kfd",
            c"",
        ] {
            assert_eq!(resolve(path), Target::Itself, "{path:?}");
        }
        let Target::Sysfs(path) = resolve(c"/sys/class/kfd/kfd/topology/nodes/1/gpu_id") else {
            panic!("not redirected");
        };
        assert_eq!(
            std::fs::read_to_string(path.to_str().unwrap()).unwrap(),
            "31000\n"
        );
        assert!(matches!(resolve(c"/sys/module/amdgpu"), Target::Sysfs(_)));
    }
}
