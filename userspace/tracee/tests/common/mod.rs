//! Small programs and libraries built with the machine's C compiler; tests are skipped where it is
//! absent.
#![allow(dead_code, reason = "each test program uses its part of this module")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use gputrace_tracee::{elf::SymbolKind, library::LibraryFile};

/// Prints why a test is skipped, or fails if the machine is required to be complete.
pub(crate) fn skip(reason: &str) {
    assert_ne!(
        std::env::var("GPUTRACE_REQUIRE_BPF").as_deref(),
        Ok("1"),
        "must not be skipped: {reason}"
    );
    gputrace_skip::skipped(reason);
}

/// Output of a tool; `None` (and a printed reason) if it is not installed.
pub(crate) fn tool(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .env("LC_ALL", "C")
        .output();
    let Ok(output) = output else {
        skip(&format!("{program} is not installed"));
        return None;
    };
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compiles C source in a directory; `None` (and a printed reason) without a compiler.
pub(crate) fn compile(
    directory: &Path,
    output: &str,
    source: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    let file = directory.join(format!("{output}.c"));
    std::fs::write(&file, source).unwrap();
    let output = directory.join(output);
    // Flags last: libraries must follow the code that uses them.
    let compiler = Command::new("gcc")
        .current_dir(directory)
        .arg("-o")
        .arg(&output)
        .arg(&file)
        .args(flags)
        .output();
    let Ok(compiler) = compiler else {
        skip("gcc is not installed");
        return None;
    };
    assert!(
        compiler.status.success(),
        "{}",
        String::from_utf8_lossy(&compiler.stderr)
    );
    Some(output)
}

/// A child process that has printed `ready` and waits; killed when dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads its arguments with `dlopen`, prints `ready` and waits for the end of its input.
pub(crate) const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW)) { puts(dlerror()); return 1; }
    puts("ready");
    fflush(stdout);
    return getchar() != EOF;
}
"#;

/// A stand-in for the HIP runtime.
pub(crate) const FAKE_HIP: &str =
    "int hipMalloc(void **p, unsigned long n) { *p = 0; return n != 0; }\n";

/// A line of `readelf --dyn-syms -W`: name, version, default version, kind, address, size.
type Line = (String, Option<String>, bool, SymbolKind, u64, u64);

fn readelf_symbols(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [
            number,
            address,
            size,
            kind,
            bind,
            visibility,
            index,
            name,
            ..,
        ] = fields[..]
        else {
            return None;
        };
        if !number.ends_with(':') || number == "Num:" || index == "UND" || index == "ABS" {
            return None;
        }
        let kind = match kind {
            "FUNC" => SymbolKind::Function,
            "IFUNC" => SymbolKind::Indirect,
            "OBJECT" => SymbolKind::Object,
            _ => return None,
        };
        assert!(
            matches!(bind, "GLOBAL" | "WEAK" | "UNIQUE")
                && matches!(visibility, "DEFAULT" | "PROTECTED"),
            "{line}"
        );
        let (name, version, default) = match name.split_once("@@") {
            Some((name, version)) => (name, Some(version), true),
            None => match name.split_once('@') {
                Some((name, version)) => (name, Some(version), false),
                None => (name, None, true),
            },
        };
        let size = size
            .strip_prefix("0x")
            .map_or_else(|| size.parse(), |hex| u64::from_str_radix(hex, 16));
        let address = u64::from_str_radix(address, 16).unwrap();
        Some((
            name.to_owned(),
            version.map(str::to_owned),
            default,
            kind,
            address,
            size.unwrap(),
        ))
    };
    // readelf's name for an indirect function if stripping has removed the mark of GNU's extensions
    // from the file.
    text.replace("<OS specific>: 10", "IFUNC")
        .lines()
        .filter_map(line)
        .collect()
}

/// Compares names, versions, kinds, addresses and sizes with `readelf`'s.
pub(crate) fn check_against_readelf(library: &LibraryFile) {
    let Some(text) = tool("readelf", &["--dyn-syms", "-W"], library.path()) else {
        return;
    };
    let all = readelf_symbols(&text);
    let defaults: BTreeSet<_> = all
        .iter()
        .filter(|line| line.2)
        .map(|line| line.0.as_str())
        .collect();
    // Old versions count if there is no default one.
    let mut expected = BTreeMap::<&str, BTreeSet<_>>::new();
    for (name, version, default, kind, address, size) in &all {
        if *default || !defaults.contains(name.as_str()) {
            expected
                .entry(name)
                .or_default()
                .insert((version.as_deref(), *kind, *address, *size));
        }
    }
    let symbols = library.elf().symbols();
    assert!(symbols.len() >= 10);
    let names: Vec<_> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    assert_eq!(names, expected.keys().copied().collect::<Vec<_>>());
    for symbol in symbols {
        let found = (
            symbol.version.as_deref(),
            symbol.kind,
            symbol.address,
            symbol.size,
        );
        assert!(
            expected[symbol.name.as_str()].contains(&found),
            "{symbol:?}"
        );
    }
    let functions: BTreeSet<_> = symbols
        .iter()
        .filter(|s| s.kind == SymbolKind::Function)
        .map(|s| s.address)
        .collect();
    assert_eq!(library.elf().functions().len(), functions.len());
}
