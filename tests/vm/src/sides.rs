//! Compares two views of one program: its calls of the HSA runtime, and the runtime's requests to
//! the driver.
//!
//! [`check`] reads gputrace's NDJSON of a program that has called HSA on a machine with `/dev/kfd`
//! (`rocminfo`). It compares what two independent sets of probes have seen: uprobes on the runtime,
//! and programs on the driver's ioctls.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A call in NDJSON.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    function: String,
    is_ioctl: bool,
    tid: u64,
    /// ns
    begin: u64,
    /// ns
    end: u64,
    correlation: u64,
    parent: u64,
}

impl Call {
    /// Parses a line; `None` if it is not a call.
    fn parse(line: &str) -> Result<Option<Self>> {
        let line: Value = serde_json::from_str(line)?;
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("type") != "call" {
            return Ok(None);
        }
        let number = |name: &str| {
            line.get(name)
                .and_then(Value::as_u64)
                .with_context(|| format!("a call without {name}: {line}"))
        };
        Ok(Some(Self {
            function: text("function").to_owned(),
            is_ioctl: text("domain") == "KFD_IOCTL",
            tid: number("tid")?,
            begin: number("begin")?,
            end: number("end")?,
            correlation: number("correlation_id")?,
            parent: number("parent")?,
        }))
    }

    fn encloses(&self, other: &Self) -> bool {
        self.tid == other.tid && self.begin <= other.begin && other.end <= self.end
    }
}

/// Compares the ioctls in the NDJSON file `lines` with the calls of the runtime.
///
/// # Errors
///
/// When an ioctl is not enclosed by a call of its thread, or has another call as its parent, or
/// when `hsa_init` makes no request to the driver.
pub(crate) fn check(lines: &Path) -> Result<String> {
    compare(BufReader::new(File::open(lines)?))
}

fn compare(lines: impl BufRead) -> Result<String> {
    let mut calls = Vec::new();
    for line in lines.lines() {
        calls.extend(Call::parse(&line?)?);
    }
    let (ioctls, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.is_ioctl);
    let mut by_caller: BTreeMap<&str, usize> = BTreeMap::new();
    for ioctl in &ioctls {
        let innermost = calls
            .iter()
            .filter(|call| call.encloses(ioctl))
            .max_by_key(|call| call.begin)
            .with_context(|| format!("no call encloses {ioctl:?}"))?;
        ensure!(
            ioctl.parent == innermost.correlation,
            "{ioctl:?} should name {innermost:?}"
        );
        *by_caller.entry(&innermost.function).or_default() += 1;
    }
    for wanted in ["AMDKFD_IOC_GET_VERSION", "AMDKFD_IOC_GET_CLOCK_COUNTERS"] {
        ensure!(
            ioctls.iter().any(|ioctl| ioctl.function == wanted),
            "the runtime has not asked for {wanted}"
        );
    }
    ensure!(
        by_caller.contains_key("hsa_init"),
        "hsa_init has asked for nothing: {by_caller:?}"
    );
    Ok(format!(
        "{} ioctls lie in {} calls of the runtime: {by_caller:?}",
        ioctls.len(),
        calls.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(
        domain: &str,
        function: &str,
        [begin, end]: [u64; 2],
        [id, parent]: [u64; 2],
    ) -> String {
        format!(
            r#"{{"type":"call","domain":"{domain}","function":"{function}","pid":1,"tid":1,"begin":{begin},"end":{end},"correlation_id":{id},"parent":{parent}}}"#
        )
    }

    /// `hsa_init` from 10 to 50, one ioctl inside, and another one with these times and this
    /// parent.
    fn compared(times: [u64; 2], parent: u64) -> Result<String> {
        let lines = [
            r#"{"type":"function","name":"hsa_init"}"#.to_owned(),
            line("KFD_IOCTL", "AMDKFD_IOC_GET_VERSION", [20, 30], [2, 1]),
            line(
                "KFD_IOCTL",
                "AMDKFD_IOC_GET_CLOCK_COUNTERS",
                times,
                [3, parent],
            ),
            line("HSA_CORE_API", "hsa_init", [10, 50], [1, 0]),
        ];
        compare(lines.join("\n").as_bytes())
    }

    #[test]
    fn ioctls_lie_in_the_call_that_they_name() {
        assert_eq!(
            compared([31, 40], 1).unwrap(),
            r#"2 ioctls lie in 1 calls of the runtime: {"hsa_init": 2}"#
        );
        for (times, parent, complaint) in [
            ([31, 51], 1, "no call encloses"),
            ([5, 15], 1, "no call encloses"),
            ([31, 40], 2, "should name"),
        ] {
            let error = compared(times, parent).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
