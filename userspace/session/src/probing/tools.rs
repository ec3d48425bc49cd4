//! Other tracers in the processes that are traced.
//!
//! A tool inside a process puts itself between the program and the runtime: it wraps functions, adds packets to queues,
//! gives signals to dispatches. All of that happens in the process and is recorded as what it is; none of it is counted
//! twice, because functions are probed where the runtime has them, once. But who reads the recording must know of it: a
//! call may have been made by the tool, and takes longer for it.

use std::collections::HashSet;

use gputrace_tracee::process::MappedFile;

/// Beginnings of names of libraries by which tools trace, and what they are. `librocprofiler-register` is none: it is
/// loaded by every newer runtime, and only looks for tools.
const TOOLS: [(&str, &str); 9] = [
    ("librocprofiler-sdk-tool.so", "rocprofv3"),
    ("librocprofiler-sdk.so", "rocprofiler-sdk"),
    ("librocprofiler64.so", "rocprofiler"),
    ("librocprofiler64v2.so", "rocprofiler"),
    ("libroctracer64.so", "roctracer"),
    ("libroctracer_tool.so", "rocprof"),
    ("librocprof-sys.so", "rocprofiler-systems"),
    ("librocprof-sys-dl.so", "rocprofiler-systems"),
    ("libomnitrace.so", "Omnitrace"),
];

/// Remarks on tools in one recording; nobody reads more.
const MOST: usize = 4096;

/// The tools that have been told of.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// Process and tool.
    told: HashSet<(u32, &'static str)>,
}

impl Tools {
    /// What the user is to hear of the tools among a process's files; each once.
    pub(crate) fn news(&mut self, pid: u32, files: &[MappedFile]) -> Vec<String> {
        let found = files.iter().filter_map(|file| {
            let name = file.path.file_name()?.to_str()?.to_owned();
            let tool = tool(&name)?;
            Some((name, tool))
        });
        found
            .filter(|(_, tool)| self.told.len() < MOST && self.told.insert((pid, *tool)))
            .map(|(name, tool)| text(pid, &name, tool))
            .collect()
    }
}

/// The tool that a library of this name belongs to.
fn tool(name: &str) -> Option<&'static str> {
    let (_, tool) = TOOLS
        .iter()
        .find(|(library, _)| name.starts_with(library))?;
    Some(tool)
}

/// Whether a library of this name belongs to a tool.
pub(crate) fn is_tool(name: &str) -> bool {
    tool(name).is_some()
}

fn text(pid: u32, library: &str, tool: &str) -> String {
    format!(
        "process {pid} has loaded {library} of {tool}, which may trace it from inside: calls can be that tool's, and \
         take longer for it"
    )
}

#[cfg(test)]
mod tests {
    use super::is_tool;

    #[test]
    fn the_broker_is_no_tool() {
        assert!(is_tool("librocprofiler-sdk.so.1.0.0"));
        assert!(is_tool("libroctracer64.so.4"));
        for other in [
            "librocprofiler-register.so.0",
            "libroctx64.so.4",
            "librocprofiler-sdk-roctx.so",
        ] {
            assert!(!is_tool(other), "{other}");
        }
    }
}
