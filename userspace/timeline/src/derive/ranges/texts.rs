//! Functions that stand for what markers say: one for each text, and one for each marker without a
//! text.

use std::collections::HashMap;

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::{Function, ValueKind};
use gputrace_catalog::markers::Marker;

use super::Markers;
use crate::model::{
    event::{Call, Event, FunctionInfo, RangeKind},
    values::PointeeData,
};

/// Id of the first function that stands for a range's text; a capture's own ids are far below.
const FIRST_TEXT: u32 = 1 << 31;

/// Maximum number of distinct texts that become functions. Ranges with further texts are shown
/// under the function that began them, with the text as an argument: memory must not grow with the
/// texts that a program invents.
pub(super) const MOST_TEXTS: usize = 1 << 16;

/// What annotations are called whose texts were too many.
const MORE_NOTES: &str = "(annotation)";

/// Separator between the names of a copy's destination and source.
const FROM: &str = " <- ";

/// The functions that stand for texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// By kind of range and text.
    functions: HashMap<String, u32>,
    /// Functions that stand for markers without a text, by called function and kind of range.
    textless: HashMap<(u32, RangeKind), u32>,
    /// Markers whose texts were too many.
    unnamed: u64,
}

impl Texts {
    /// The function that stands for the text of a marker, and whether there is a text.
    pub(super) fn text(
        &mut self,
        markers: &Markers,
        call: &Call,
        kind: RangeKind,
        ready: &mut impl Extend<Event>,
    ) -> (u32, bool) {
        let text = match markers.get(&call.function) {
            Some((Marker::MarkAs(text), _)) => Some((*text).to_owned()),
            Some((Marker::PushCopy, _)) => copy(call),
            _ => said(call, 0),
        };
        let Some(text) = text else {
            return (self.textless(markers, call, kind, ready), false);
        };
        // Ranges of several kinds may have the same text.
        let key = format!("{}{text}", kind as u8);
        if let Some(known) = self.functions.get(&key) {
            return (*known, true);
        }
        if self.functions.len() >= MOST_TEXTS {
            self.unnamed += 1;
            return (self.textless(markers, call, kind, ready), false);
        }
        let function = self.stand_in(markers, call, kind, Some(text), ready);
        self.functions.insert(key, function);
        (function, true)
    }

    /// The function that stands for a text that no call of a program says. Beyond [`MOST_TEXTS`],
    /// all further texts have one function.
    pub(super) fn note(
        &mut self,
        text: &str,
        kind: RangeKind,
        ready: &mut impl Extend<Event>,
    ) -> u32 {
        let is_full = self.functions.len() >= MOST_TEXTS;
        let text = if is_full { MORE_NOTES } else { text };
        let key = format!("{}{text}", kind as u8);
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        self.unnamed += u64::from(is_full);
        let id = self.next();
        let info = FunctionInfo {
            function: Function {
                id,
                name: text.to_owned(),
                domain: Domain::MarkerCore.id(),
                parameters: Some(Vec::new()),
                returns: ValueKind::Void,
                ..Function::default()
            },
            domain: Some(Domain::MarkerCore),
            library: String::new(),
            build_id: String::new(),
            range: Some(kind),
        };
        ready.extend([Event::Function(Box::new(info))]);
        self.functions.insert(key, id);
        id
    }

    /// Number for a new function.
    fn next(&self) -> u32 {
        // At most `MOST_TEXTS`, plus a few for each marker function and for notes.
        FIRST_TEXT + (self.functions.len() + self.textless.len()) as u32
    }

    /// The function that stands for markers without a text: named like the called function, with
    /// its parameters.
    pub(super) fn textless(
        &mut self,
        markers: &Markers,
        call: &Call,
        kind: RangeKind,
        ready: &mut impl Extend<Event>,
    ) -> u32 {
        let key = (call.function, kind);
        if let Some(known) = self.textless.get(&key) {
            return *known;
        }
        let function = self.stand_in(markers, call, kind, None, ready);
        self.textless.insert(key, function);
        function
    }

    /// Describes a function that stands for markers.
    fn stand_in(
        &self,
        markers: &Markers,
        call: &Call,
        kind: RangeKind,
        text: Option<String>,
        ready: &mut impl Extend<Event>,
    ) -> u32 {
        let Some((_, api)) = markers.get(&call.function) else {
            return call.function;
        };
        let id = self.next();
        let function = match text {
            Some(name) => Function {
                name,
                aliases: vec![api.function.name.clone()],
                domain: api.function.domain,
                parameters: Some(Vec::new()),
                returns: ValueKind::Void,
                ..Function::default()
            },
            None => api.function.clone(),
        };
        let info = FunctionInfo {
            function: Function { id, ..function },
            range: Some(kind),
            ..api.clone()
        };
        ready.extend([Event::Function(Box::new(info))]);
        id
    }

    /// Markers whose texts were too many.
    pub(super) fn unnamed(&self) -> u64 {
        self.unnamed
    }
}

/// The text that an argument points to.
pub(super) fn said(call: &Call, word: u8) -> Option<String> {
    let given = call.pointees.iter().find(|pointee| pointee.word == word)?;
    match &given.data {
        PointeeData::Text { text, cut: false } => Some(text.clone()),
        PointeeData::Text { text, cut: true } => Some(format!("{text}…")),
        _ => None,
    }
}

/// The name of a copy, from its destination and source.
fn copy(call: &Call) -> Option<String> {
    let (destination, source) = (said(call, 0), said(call, 2));
    if destination.is_none() && source.is_none() {
        return None;
    }
    let name = |name: Option<String>| name.unwrap_or_else(|| "?".to_owned());
    Some(format!(
        "Kokkos::deep_copy {}{FROM}{}",
        name(destination),
        name(source)
    ))
}
