//! Determines the GPU of the demo: a real one if there is one, otherwise the software GPU.

use std::fmt;
use std::fs;
use std::path::Path;

/// Where the kernel's amdgpu driver describes the available GPUs (`kfd_topology.c`).
pub(super) const TOPOLOGY: &str = "/sys/class/kfd/kfd/topology";

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gpu {
    /// A GPU of this machine, with its instruction set, such as `gfx90a`.
    Real(String),
    /// The software GPU, presented to a program by a library that is loaded into it.
    Software,
}

/// The software GPU's default instruction set.
const SOFTWARE: &str = "gfx906";

impl Gpu {
    /// The first GPU of the topology below `topology`; the software GPU if there is none.
    pub(super) fn find(topology: &Path) -> Self {
        let mut nodes: Vec<_> = fs::read_dir(topology.join("nodes"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        nodes.sort();
        nodes
            .iter()
            .filter_map(|node| fs::read_to_string(node.join("properties")).ok())
            .find_map(|properties| instruction_set(&properties))
            .map_or(Self::Software, Self::Real)
    }

    /// The instruction set to compile kernels for.
    pub(super) fn instruction_set(&self) -> &str {
        match self {
            Self::Real(name) => name,
            Self::Software => SOFTWARE,
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(name) => write!(f, "this machine's own, {name}"),
            Self::Software => f.write_str(
                "a software GPU for demonstration; it runs everything that is submitted,\n                but kernels compute nothing, and how long they take is made up",
            ),
        }
    }
}

/// The instruction set of a node, from its `properties`; `None` for a CPU, whose version is 0.
///
/// `gfx_target_version` is major × 10000 + minor × 100 + stepping, in decimal. Names write the last
/// two as hexadecimal digits: 90010 is gfx90a.
fn instruction_set(properties: &str) -> Option<String> {
    let version: u32 = properties
        .lines()
        .find_map(|line| line.strip_prefix("gfx_target_version "))?
        .trim()
        .parse()
        .ok()?;
    (version != 0).then(|| {
        format!(
            "gfx{}{:x}{:x}",
            version / 10_000,
            version / 100 % 100,
            version % 100
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_sets_are_named_as_compilers_do() {
        for (version, name) in [
            (90_006, "gfx906"),
            (90_010, "gfx90a"),
            (90_402, "gfx942"),
            (100_300, "gfx1030"),
        ] {
            let properties =
                format!("simd_count 256\ngfx_target_version {version}\nvendor_id 4098\n");
            assert_eq!(instruction_set(&properties).as_deref(), Some(name));
        }
        assert_eq!(
            instruction_set("cpu_cores_count 8\ngfx_target_version 0\n"),
            None
        );
        assert_eq!(instruction_set("gfx_target_version x\n"), None);
        assert_eq!(instruction_set(""), None);
    }

    #[test]
    fn a_real_gpu_is_preferred() {
        let topology = tempfile::tempdir().unwrap();
        assert_eq!(Gpu::find(topology.path()), Gpu::Software);
        for (node, version) in [("0", 0), ("1", 110_000)] {
            let node = topology.path().join("nodes").join(node);
            fs::create_dir_all(&node).unwrap();
            fs::write(
                node.join("properties"),
                format!("gfx_target_version {version}\n"),
            )
            .unwrap();
        }
        assert_eq!(Gpu::find(topology.path()), Gpu::Real("gfx1100".to_owned()));
    }
}
