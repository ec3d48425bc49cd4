//! Processes: facts about them, and the ROCm libraries that they have mapped.

mod info;
mod libraries;
pub mod maps;
pub mod news;

use std::{
    io,
    path::{Path, PathBuf},
};

use gputrace_files::{
    kernel, rights,
    target::{OpenError, Place},
};

use crate::elf::{self, ElfError, ElfInfo, Linkage};

pub use info::{
    CodeState, Used, code_state, describe, has_ended, namespace_pid, pids, start_stack, used,
};
pub(crate) use info::{arguments, name};
pub(crate) use libraries::file_at;
pub use libraries::{MappedFile, locate_mapped, open_located, open_mapped};

use maps::Mapping;

/// Why a process cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no process with this id.
    #[error(
        "there is no process {pid}: it has ended, or the number is from another pid namespace \
         (gputrace needs the number that `ps` shows on the host)"
    )]
    NoSuchProcess {
        /// Process id.
        pid: u32,
    },
    /// The id is that of a thread, not of its process: `top -H` and debuggers show both.
    #[error("{tid} is a thread of process {pid}; give the process: {pid}")]
    Thread {
        /// Id of the thread.
        tid: u32,
        /// Id of its process.
        pid: u32,
    },
    /// The process maps no library that gputrace traces.
    #[error("process {pid} ({name}) has no ROCm library mapped: {hint}")]
    NoRocmLibraries {
        /// Process id.
        pid: u32,
        /// Name of the process.
        name: String,
        /// Possible reason, and what to do.
        hint: String,
    },
    /// The process's code is not 64-bit x86.
    #[error(
        "process {pid} runs {}, which is built for {architecture}; gputrace traces 64-bit x86 code",
        executable.display()
    )]
    WrongArchitecture {
        /// Process id.
        pid: u32,
        /// Program of the process.
        executable: PathBuf,
        /// Architecture that the program is built for.
        architecture: String,
    },
    /// The ROCm runtime is linked statically into the program.
    #[error(
        "process {pid} runs {}, which has the ROCm runtime linked into it statically; \
         link the program against libamdhip64.so to trace its calls",
        executable.display()
    )]
    StaticRuntime {
        /// Process id.
        pid: u32,
        /// Program of the process.
        executable: PathBuf,
    },
    /// gputrace may not inspect the process.
    #[error(
        "may not look into process {pid} ({what}); {}, or give it CAP_SYS_PTRACE (and \
         CAP_CHECKPOINT_RESTORE for deleted files)",
        rights::remedy()
    )]
    PermissionDenied {
        /// Process id.
        pid: u32,
        /// The refused access.
        what: String,
    },
    /// The mapped file was deleted or replaced, and the kernel provides no other way to it.
    #[error(
        "process {pid} uses a copy of {} that was deleted or replaced on disk since, and it cannot be \
         reached through /proc/{pid}/map_files; {}, or restart the program",
        path.display(),
        rights::remedy()
    )]
    LibraryReplaced {
        /// Process id.
        pid: u32,
        /// Former path of the file.
        path: PathBuf,
    },
    /// A file in `/proc` cannot be read.
    #[error("cannot read {}: {source}; is /proc mounted?", path.display())]
    Proc {
        /// Path of the file.
        path: PathBuf,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// A mapped file cannot be parsed.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// A process and its ROCm libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RocmProcess {
    /// Process id in gputrace's pid namespace.
    pub pid: u32,
    /// ROCm libraries, in order of address. Not empty.
    pub libraries: Vec<MappedFile>,
}

/// All processes with ROCm libraries at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The processes, in order of id.
    pub processes: Vec<RocmProcess>,
    /// Ids of processes that may not be inspected.
    pub unreadable: Vec<u32>,
}

/// The ROCm libraries of one process.
///
/// # Errors
/// [`ProcessError`], with the reason why there are none.
pub fn rocm_libraries(pid: u32) -> Result<RocmProcess, ProcessError> {
    let mappings = mappings(pid)?;
    let libraries = rocm_files(&mappings);
    if libraries.is_empty() {
        Err(why_none(pid, &mappings))
    } else {
        Ok(RocmProcess { pid, libraries })
    }
}

/// Checks that an id is that of a process, not of one of its other threads: `/proc` has a directory
/// for each of them. An id that nobody has is accepted.
///
/// # Errors
/// [`ProcessError::Thread`].
pub fn check_is_process(id: u32) -> Result<(), ProcessError> {
    match info::process_of(id) {
        Some(pid) if pid != id => Err(ProcessError::Thread { tid: id, pid }),
        _ => Ok(()),
    }
}

/// Every file with code that a process has mapped.
///
/// # Errors
/// [`ProcessError`] if its memory map cannot be read.
pub fn code_files(pid: u32) -> Result<Vec<MappedFile>, ProcessError> {
    Ok(libraries::code_files(&mappings(pid)?, Path::is_absolute))
}

/// Every mapping of code of a process, and the file of which it is a part.
///
/// # Errors
/// [`ProcessError`] if its memory map cannot be read.
pub fn code_mappings(pid: u32) -> Result<Vec<(Mapping, MappedFile)>, ProcessError> {
    let mappings = mappings(pid)?;
    let files = libraries::code_files(&mappings, Path::is_absolute);
    let code = mappings.into_iter().filter(|mapping| mapping.executable);
    let with_file = code.filter_map(|mapping| {
        let number =
            |file: &&MappedFile| (file.device, file.inode) == (mapping.device, mapping.inode);
        let file = files.iter().find(number)?.clone();
        Some((mapping, file))
    });
    Ok(with_file.collect())
}

/// The ROCm libraries of all processes. Processes that start or end during the call may be missing.
///
/// # Errors
///
/// [`ProcessError::Proc`] if `/proc` itself cannot be read.
pub fn survey() -> Result<Survey, ProcessError> {
    let mut survey = Survey::default();
    for pid in pids()? {
        match mappings(pid) {
            Ok(mappings) => {
                let libraries = rocm_files(&mappings);
                if !libraries.is_empty() {
                    survey.processes.push(RocmProcess { pid, libraries });
                }
            }
            Err(ProcessError::PermissionDenied { .. }) => survey.unreadable.push(pid),
            // The process has ended since it was listed.
            Err(_) => {}
        }
    }
    Ok(survey)
}

/// File mappings of a process.
pub(crate) fn mappings(pid: u32) -> Result<Vec<Mapping>, ProcessError> {
    maps::of_process(pid).map_err(|error| refused(pid, format!("/proc/{pid}/maps"), error))
}

/// Converts a failure to read a file of `/proc/PID`.
pub(crate) fn refused(pid: u32, path: String, source: io::Error) -> ProcessError {
    match source
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error)
    {
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => {
            ProcessError::NoSuchProcess { pid }
        }
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            ProcessError::PermissionDenied { pid, what: path }
        }
        _ => ProcessError::Proc {
            path: path.into(),
            source,
        },
    }
}

/// The ROCm libraries among file mappings, recognised by the file names in the catalogue.
fn rocm_files(mappings: &[Mapping]) -> Vec<MappedFile> {
    libraries::code_files(mappings, |path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| !gputrace_catalog::library_domains(name).is_empty())
    })
}

/// Functions that only the runtime itself defines.
const RUNTIME_FUNCTIONS: [&str; 3] = ["hsa_init", "hipLaunchKernel", "hipMalloc"];

/// Determines why a process has no ROCm library.
fn why_none(pid: u32, mappings: &[Mapping]) -> ProcessError {
    let name = info::comm(pid).unwrap_or_default();
    let none = |hint: &str| ProcessError::NoRocmLibraries {
        pid,
        name: name.clone(),
        hint: hint.to_owned(),
    };
    if mappings.is_empty() {
        return match info::state(pid) {
            None => ProcessError::NoSuchProcess { pid },
            Some('Z' | 'X') => none("it has ended and waits for its parent to collect it"),
            Some(_) => none(
                "it has no files mapped at all, so it is a thread of the kernel or about to end",
            ),
        };
    }
    let link = format!("/proc/{pid}/exe");
    let path = kernel::read_link(&link).unwrap_or_else(|_| PathBuf::from(&link));
    let file = match Place::of_executable(pid).and_then(|place| place.shown_as(&path).open()) {
        Ok(file) => file,
        Err(OpenError::Open { source, .. }) => return refused(pid, link, source),
        Err(error) => return ElfError::from(error).into(),
    };
    match ElfInfo::from_file(&file) {
        Err(ElfError::WrongArchitecture { path, architecture }) => {
            ProcessError::WrongArchitecture {
                pid,
                executable: path,
                architecture,
            }
        }
        Ok(elf)
            if RUNTIME_FUNCTIONS
                .iter()
                .any(|name| elf.symbol(name).is_some()) =>
        {
            ProcessError::StaticRuntime {
                pid,
                executable: path,
            }
        }
        Ok(_) if elf::file_defines(&file, |name| RUNTIME_FUNCTIONS.contains(&name)) => {
            ProcessError::StaticRuntime {
                pid,
                executable: path,
            }
        }
        Ok(elf) if elf.linkage == Linkage::Static => none(
            "its program is statically linked and no ROCm function is among its symbols, so it does not use ROCm, \
             or its symbols were stripped; link the program dynamically",
        ),
        Ok(_) => none(
            "it may load them later: try again then, or let gputrace wait for them with --wait",
        ),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_thread_is_no_process() {
        let own = std::process::id();
        assert!(check_is_process(own).is_ok());
        assert!(check_is_process(u32::MAX).is_ok());
        // The thread must live as long as it is asked about.
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let tid = rustix::thread::gettid().as_raw_pid().cast_unsigned();
                (tid, check_is_process(tid).unwrap_err().to_string())
            });
            let (tid, said) = asked.join().unwrap();
            assert_eq!(
                said,
                format!("{tid} is a thread of process {own}; give the process: {own}")
            );
        });
    }

    #[test]
    fn refusals_name_the_next_step() {
        let refusal = |errno: Errno| refused(7, "/proc/7/maps".to_owned(), errno.into());
        for errno in [Errno::NOENT, Errno::SRCH] {
            assert!(matches!(
                refusal(errno),
                ProcessError::NoSuchProcess { pid: 7 }
            ));
        }
        for errno in [Errno::ACCESS, Errno::PERM] {
            let message = refusal(errno).to_string();
            let remedy = format!("{}, or give it CAP_SYS_PTRACE", rights::remedy());
            assert!(message.contains(&remedy), "{message}");
        }
        assert!(matches!(refusal(Errno::IO), ProcessError::Proc { .. }));
    }
}
