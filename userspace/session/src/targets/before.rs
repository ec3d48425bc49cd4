//! The queues and memory that processes have when the recording begins, according to the driver. No
//! recorded call reports them.

use gputrace_kfd::{
    Paths,
    processes::{self, Detail, Process},
};
use gputrace_text::tables::{bytes, count};

/// `KFD_QUEUE_TYPE_COMPUTE`
const COMPUTE: u64 = 0;

/// Text on what a process has now; `None` if the driver does not know the process.
pub(crate) fn held(paths: &Paths, pid: u32) -> Option<String> {
    // Without the driver, or permission to read its files, nothing is known.
    let process = processes::process(paths, pid, Detail::Cheap)
        .ok()
        .flatten()?;
    let Process { queues, gpus, .. } = &process;
    let of_kernels = queues
        .iter()
        .filter(|queue| queue.kind == Some(COMPUTE))
        .count();
    let memory: Vec<String> = gpus
        .iter()
        .filter_map(|(gpu, held)| Some((gpu, held.vram_bytes.filter(|bytes| *bytes > 0)?)))
        .map(|(gpu, held)| format!("{} of the memory of GPU {gpu}", bytes(held)))
        .collect();
    let is_told = gpus.values().any(|held| held.vram_bytes.is_some());
    let memory = match (memory.is_empty(), is_told) {
        (false, _) => memory.join(", "),
        (true, true) => "no memory of a GPU".to_owned(),
        (true, false) => "memory of GPUs of which it does not say how much".to_owned(),
    };
    Some(format!(
        "According to the driver, process {pid} had {} for kernels, {} and {memory} when the \
         recording began. The recording has no events for these; queues are found when work \
         arrives in them.",
        count(of_kernels as u64, "queue"),
        count((queues.len() - of_kernels) as u64, "other")
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join("sys/class/kfd/kfd/proc/47").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn queues_and_memory_are_the_drivers() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let paths = Paths::under(root);
        assert_eq!(held(&paths, 47), None);
        write(root, "pasid", "32769\n");
        for (queue, kind) in [(0, 0), (1, 0), (2, 1)] {
            write(root, &format!("queues/{queue}/type"), &format!("{kind}\n"));
            write(root, &format!("queues/{queue}/gpuid"), "99\n");
            write(root, &format!("queues/{queue}/size"), "65536\n");
        }
        let text = held(&paths, 47).unwrap();
        assert!(
            text.contains("2 queues for kernels, 1 other and memory of GPUs of which it does not"),
            "{text}"
        );
        write(root, "vram_100", "0\n");
        let text = held(&paths, 47).unwrap();
        assert!(text.contains("1 other and no memory of a GPU"), "{text}");
        write(root, "vram_99", "4294967296\n");
        let text = held(&paths, 47).unwrap();
        assert!(
            text.contains("1 other and 4.29 GB of the memory of GPU 99 when"),
            "{text}"
        );
        assert_eq!(held(&paths, 48), None);
    }
}
