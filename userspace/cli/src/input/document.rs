//! Parses a YAML or JSON file into a tree with line numbers.

use std::{io, path::Path};

use gputrace_files::own;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde::de::IgnoredAny;

use super::InputError;

/// Maximum size in bytes: a longer file does not contain options.
const MAX_FILE: u64 = 1 << 20;

/// Maximum nesting of lists and mappings; options need three levels.
const MAX_DEPTH: usize = 16;

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Line, counted from 1.
    pub(super) line: usize,
    pub(super) content: Content,
}

/// The content of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// `null`, `~`, or nothing at all.
    Null,
    /// Text, a number or a boolean, as written.
    Text(String),
    List(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

/// A key and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) line: usize,
    pub(super) name: String,
}

/// Reads a file. Its extension determines the format.
pub(super) fn read(path: &Path) -> Result<Node, InputError> {
    let failed = |cause: io::Error| InputError::Read {
        path: path.to_owned(),
        cause,
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_json = match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("yaml" | "yml") => false,
        Some("json") => true,
        Some("txt" | "text") => {
            return Err(InputError::Counters {
                path: path.to_owned(),
            });
        }
        _ => {
            return Err(InputError::Extension {
                path: path.to_owned(),
            });
        }
    };
    if own::metadata(path).map_err(failed)?.len() > MAX_FILE {
        return Err(failed(io::Error::other(
            "it is larger than 1 MiB, too large for options",
        )));
    }
    let text = own::read_text(path).map_err(failed)?;
    parse(&text, is_json).map_err(|Fault { line, reason }| InputError::at(path, line, reason))
}

/// An error in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) reason: String,
}

fn fault(line: usize, reason: impl Into<String>) -> Fault {
    Fault {
        line,
        reason: reason.into(),
    }
}

/// Parses a text.
pub(super) fn parse(text: &str, is_json: bool) -> Result<Node, Fault> {
    if is_json {
        // Every JSON document is a YAML document, but not vice versa.
        serde_json::from_str::<IgnoredAny>(text)
            .map_err(|error| fault(error.line(), format!("this is not JSON: {error}")))?;
    }
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let column = error.marker().col() + 1;
            let reason = format!("this is not YAML: {}, in column {column}", error.info());
            fault(error.marker().line(), reason)
        })?;
        let line = span.start.line();
        let complete = match event {
            Event::Scalar(text, style, ..) => {
                let null = style == ScalarStyle::Plain
                    && ["", "~", "null", "Null", "NULL"].contains(&&*text);
                let content = if null {
                    Content::Null
                } else {
                    Content::Text(text.into_owned())
                };
                Node { line, content }
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if open.len() == MAX_DEPTH {
                    return Err(fault(line, "this is nested too deeply for options"));
                }
                let inside = match event {
                    Event::SequenceStart(..) => Inside::List(Vec::new()),
                    _ => Inside::Mapping(Vec::new(), None),
                };
                open.push(Open { line, inside });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open { line, inside }) => Node {
                    line,
                    content: match inside {
                        Inside::List(list) => Content::List(list),
                        Inside::Mapping(pairs, _) => Content::Mapping(pairs),
                    },
                },
                None => continue,
            },
            // Aliases would let a short file expand without end.
            Event::Alias(_) => {
                return Err(fault(
                    line,
                    "aliases (*name) are not supported; repeat the value",
                ));
            }
            Event::DocumentStart(_) if root.is_some() => {
                return Err(fault(
                    line,
                    "there is a second document; put all jobs into one",
                ));
            }
            _ => continue,
        };
        match open.last_mut().map(|open| &mut open.inside) {
            None => root = Some(complete),
            Some(Inside::List(list)) => list.push(complete),
            Some(Inside::Mapping(pairs, key)) => match key.take() {
                Some(name) => pairs.push((name, complete)),
                None => *key = Some(as_key(complete)?),
            },
        }
    }
    Ok(root.unwrap_or(Node {
        line: 1,
        content: Content::Null,
    }))
}

/// An open list or mapping.
struct Open {
    line: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    /// The pairs so far, and the key whose value comes next.
    Mapping(Vec<(Key, Node)>, Option<Key>),
}

fn as_key(node: Node) -> Result<Key, Fault> {
    match node.content {
        Content::Text(name) => Ok(Key {
            line: node.line,
            name,
        }),
        _ => Err(fault(node.line, "a key must be the name of an option")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(line: usize, text: &str) -> Node {
        Node {
            line,
            content: Content::Text(text.to_owned()),
        }
    }

    fn pair(line: usize, name: &str, node: Node) -> (Key, Node) {
        let name = name.to_owned();
        (Key { line, name }, node)
    }

    #[test]
    fn yaml_and_json_are_read_with_their_lines() {
        let yaml =
            "jobs:\n  - output_file: \"out\"\n    formats: [csv,\n      json]\n    nothing: ~\n";
        let json = "{\"jobs\":\n [{\"output_file\": \"out\",\n \"formats\": [\"csv\",\n\"json\"],\n \"nothing\": null}]}";
        for (given, is_json) in [(yaml, false), (json, true)] {
            let null = Node {
                line: 5,
                content: Content::Null,
            };
            let formats = Node {
                line: 3,
                content: Content::List(vec![text(3, "csv"), text(4, "json")]),
            };
            let job = Content::Mapping(vec![
                pair(2, "output_file", text(2, "out")),
                pair(3, "formats", formats),
                pair(5, "nothing", null),
            ]);
            let jobs = Content::List(vec![Node {
                line: 2,
                content: job,
            }]);
            let expected = Content::Mapping(vec![pair(
                1,
                "jobs",
                Node {
                    line: 2,
                    content: jobs,
                },
            )]);
            assert_eq!(
                parse(given, is_json).unwrap(),
                Node {
                    line: 1,
                    content: expected
                }
            );
        }
        assert_eq!(parse("", false).unwrap().content, Content::Null);
    }

    #[test]
    fn mistakes_have_lines() {
        for (given, is_json, line, part) in [
            ("jobs:\n  - a: 1\n   b: 2\n", false, 3, "not YAML"),
            ("jobs:\n  - a: [1, 2\n", false, 3, "not YAML"),
            ("{\"jobs\":\n[{\"a\": 1},]}", true, 2, "not JSON"),
            ("{jobs: []}", true, 1, "not JSON"),
            ("a: &x [1]\nb: *x\n", false, 2, "aliases"),
            ("a: 1\n---\nb: 1\n", false, 2, "second document"),
            ("a: 1\n[b]: 1\n", false, 2, "key"),
        ] {
            let fault = parse(given, is_json).unwrap_err();
            assert!(fault.reason.contains(part), "{given}: {fault:?}");
            assert_eq!(fault.line, line, "{given}: {fault:?}");
        }
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(parse(&deep, false).unwrap_err().reason.contains("deeply"));
    }

    proptest! {
        #[test]
        fn anything_can_be_read(text in "[-:\\[\\]{}\"'&*|>,# a1\n]{0,64}", is_json: bool) {
            if let Err(fault) = parse(&text, is_json) {
                prop_assert!(fault.line <= text.lines().count() + 1);
            }
        }
    }
}
