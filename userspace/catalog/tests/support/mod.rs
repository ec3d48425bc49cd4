//! Headers as plain text, exported functions of libraries, and where tests find both.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gputrace_catalog::classify;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

/// Reads a file; `None` with a printed reason, in which case the test has nothing to check here.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    fs::read(path)
        .inspect_err(|error| gputrace_skip::skipped(&format!("{}: {error}", path.display())))
        .ok()
}

/// Prints that a requirement of this test is missing and skips it, or fails if it was required.
pub(crate) fn lacking(what: &str) {
    let promised = std::env::var_os("GPUTRACE_REQUIRE_ROCM").is_some_and(|value| value == "1");
    assert!(!promised, "{what}; `cargo xtask test` fetches it");
    gputrace_skip::skipped(&format!("{what}; `cargo xtask test` fetches it"));
}

/// The text of headers, each below one of `roots`, without comments and preprocessor lines.
pub(crate) fn declarations(roots: &[&Path], headers: &[&str]) -> Option<String> {
    let mut code = String::new();
    for header in headers {
        let mut places = roots.iter().map(|root| root.join(header));
        let place = places
            .clone()
            .find(|place| place.exists())
            .or_else(|| places.next_back());
        let text = String::from_utf8_lossy(&read(&place?)?).into_owned();
        let mut rest = text.as_str();
        while let Some((before, comment)) = rest.split_once("/*") {
            code += before;
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        }
        code += rest;
        code.push('\n');
    }
    let lines = code
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(before, _)| before));
    Some(
        lines
            .filter(|line| !line.trim_start().starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// The parameters in the declaration of `name`: the parts between commas inside its parentheses.
pub(crate) fn declared_parameters<'a>(code: &'a str, name: &str) -> Option<Vec<&'a str>> {
    code.match_indices(name).find_map(|(at, _)| {
        let before = code[..at].trim_end();
        let type_before = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '*');
        let parameters = code[at + name.len()..].trim_start().strip_prefix('(')?;
        if !type_before || before.ends_with("return") {
            return None;
        }
        let (mut depth, mut from, mut parts) = (1, 0, Vec::new());
        for (offset, c) in parameters.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => {
                    parts.push(parameters[from..offset].trim());
                    from = offset + 1;
                }
                _ => {}
            }
            if depth == 0 {
                let last = parameters[from..offset].trim();
                if !parts.is_empty() || !last.is_empty() && last != "void" {
                    parts.push(last);
                }
                let is_declaration = parameters[offset + 1..].trim_start().starts_with(';');
                return is_declaration.then_some(parts);
            }
        }
        None
    })
}

/// Names of the exported functions that belong to a domain, as exported.
pub(crate) fn exported_functions(library: &[u8]) -> BTreeSet<String> {
    let file = object::File::parse(library).expect("an ELF file");
    let functions = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    functions
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| classify(name).is_some())
        .collect()
}
