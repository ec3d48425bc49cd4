//! Other tracing tools inside the traced processes.
//!
//! A tool inside a process puts itself between the program and the runtime: it wraps functions,
//! adds packets to queues, and attaches signals to dispatches. All of this happens in the process
//! and is recorded as it is. Nothing is counted twice, because each function is probed once, in the
//! runtime. But readers of the recording must know about the tool: it may have made some of the
//! calls itself, and it makes calls slower.

use std::collections::HashSet;

use gputrace_tracee::process::MappedFile;

/// Prefixes of the names of tools' libraries, and the tools' names. `librocprofiler-register` is
/// not listed: every newer runtime loads it, and it only looks for tools.
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

/// Maximum number of remarks on tools per recording.
const MOST: usize = 4096;

/// The tools that have been reported.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// Process id and tool.
    told: HashSet<(u32, &'static str)>,
}

impl Tools {
    /// New remarks on tools among a process's files, each reported once.
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
        "process {pid} has loaded {library} of {tool}, which may trace it from inside: some calls \
         may be that tool's, and calls take longer because of it"
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
