//! `gputrace report`: an HTML page about a recording.
//!
//! The page needs neither a network nor other files: it contains its style, script and data, and
//! its content security policy forbids to load or execute anything else. Everything that comes from
//! traced programs (names, command lines, remarks) is data in a JSON document, which the script
//! shows as text, never as markup.
//!
//! The tables are those of the [`Summary`]. The overview of the whole recording (module `lanes`) is
//! made in bounded memory: how busy each row was, in a few thousand time steps, and the longest
//! spans one by one.

mod data;
mod lanes;
mod memory;

use std::io::Write;

use gputrace_text::{json, outside};
use gputrace_timeline::event::Event;
use sha2::{Digest as _, Sha256};

use crate::summary::{Destination, Summary};
use gputrace_export::{
    exporter::{ExportError, Exporter, Output},
    output::{OutputDir, OutputFile},
};
use lanes::Overview;
use memory::MemoryUse;

const FORMAT: &str = "report";
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const BODY: &str = include_str!("page.html");

/// Exporter of the page.
///
/// Memory grows with the number of functions, kernels, agents, queues, processes and threads, but
/// not with the number of calls, dispatches or copies.
pub struct ReportExporter {
    to: Destination,
    title: String,
    summary: Summary,
    overview: Overview,
    memory: MemoryUse,
}

impl ReportExporter {
    /// Starts the page in a file. `title` is the name of its recording.
    #[must_use]
    pub fn new(file: OutputFile, title: &str) -> Self {
        Self::to(Destination::File(file), title)
    }

    /// Starts the page on a stream, e.g. standard output.
    pub fn to_stream(stream: impl Write + 'static, title: &str) -> Self {
        Self::to(Destination::Stream(Box::new(stream)), title)
    }

    fn to(to: Destination, title: &str) -> Self {
        Self {
            to,
            title: title.to_owned(),
            summary: Summary::default(),
            overview: Overview::default(),
            memory: MemoryUse::default(),
        }
    }
}

impl Exporter for ReportExporter {
    fn format(&self) -> &'static str {
        FORMAT
    }

    fn event(&mut self, event: &Event) -> Result<(), ExportError> {
        self.summary.event(event);
        self.overview.event(event);
        self.memory.event(event);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Output>, ExportError> {
        self.summary.finish();
        let data = data::Page::new(&self.title, &self.summary, &self.overview, &self.memory);
        let json = json::to_string(&data).map_err(|error| ExportError::Encode {
            format: FORMAT,
            reason: error.to_string(),
        })?;
        self.to.write(page(&self.title, &json).as_bytes(), "report")
    }
}

/// A line that every page has near its beginning.
const GENERATOR: &str = "<meta name=\"generator\" content=\"gputrace\">\n";

/// Number of bytes at the beginning that contain [`GENERATOR`].
const HEAD: u64 = 256;

/// Whether the file called `name` is a page of a [`ReportExporter`].
#[must_use]
pub fn is_page(directory: &OutputDir, name: &str) -> bool {
    let head = directory.head(name, HEAD).unwrap_or_default();
    String::from_utf8_lossy(&head).contains(GENERATOR)
}

/// The page around its data.
fn page(title: &str, json: &str) -> String {
    // Only this script runs, whatever else gets into the page.
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'",
        base64(&Sha256::digest(SCRIPT))
    );
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{GENERATOR}\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} - gputrace</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        outside(title).html(),
        inert(json)
    )
}

/// Escapes JSON so that it cannot end the HTML element that contains it. Outside of strings, JSON
/// has none of these characters.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Base64 by RFC 4648, as content security policies require it.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let value = bits >> (18 - 6 * digit) & 63;
                text.extend(DIGITS.get(value as usize).map(|digit| char::from(*digit)));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn nothing_in_data_is_markup() {
        let hostile = "</script><script>alert(1)</script><!--&amp;\u{1}'\"";
        let json = serde_json::to_string(hostile).unwrap();
        let safe = inert(&json);
        assert!(!safe.contains(['<', '>', '&']));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
    }

    #[test]
    fn the_page_loads_nothing() {
        for part in [STYLE, SCRIPT, BODY] {
            assert!(!part.contains("http:") && !part.contains("https:") && !part.contains("url("));
        }
        assert!(
            !SCRIPT.contains("innerHTML") && !SCRIPT.contains("</"),
            "text only"
        );
    }

    #[test]
    fn the_page_begins_with_what_went_wrong() {
        let mut summary = Summary::default();
        for event in gputrace_export::synthetic::events() {
            if matches!(event, Event::Recording(_) | Event::End(_)) {
                summary.event(&event);
            }
        }
        let text = format!(
            "{} 43 of 43 HIP calls returned an error.",
            gputrace_timeline::FAILED_CALLS
        );
        summary.event(&Event::Notice(gputrace_capture::meta::Notice {
            time: 0,
            text: text.clone(),
        }));
        summary.finish();
        let (overview, memory) = (Overview::default(), MemoryUse::default());
        let page = data::Page::new("run.gtcap", &summary, &overview, &memory);
        let page = serde_json::to_value(page).unwrap();
        assert_eq!(page["failed"][0], text);
        assert!(
            page["notices"].as_array().unwrap().is_empty(),
            "it is told once"
        );
        let nothing = page["nothing"]["text"].as_str().unwrap();
        assert!(nothing.starts_with("NOTHING WAS RECORDED"), "{nothing}");
        assert_eq!(page["nothing"]["hints"].as_array().unwrap().len(), 3);
        let shown = summary.to_string();
        assert_eq!(shown.lines().nth(1), Some(text.as_str()), "{shown}");
        // What filters leave out was recorded.
        for event in gputrace_export::synthetic::events() {
            if matches!(event, Event::Ledger(_)) {
                summary.event(&event);
            }
        }
        let shown = summary.to_string();
        assert!(shown.contains("NOTHING IS SHOWN") && !shown.contains("NOTHING WAS RECORDED"));
    }
}
