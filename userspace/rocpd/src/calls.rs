//! API calls: each is a region with an event and arguments.

use std::{borrow::Cow, fmt::Write as _};

use gputrace_export::{ExportError, functions::UNKNOWN_FUNCTION};
use gputrace_timeline::{
    args::{self, ArgValue, Argument},
    event::Call,
};
use rusqlite::params;
use serde::Serialize;

use crate::{
    database::Database,
    exporter::{Context, category, int, json},
    rows::{Rows, cells},
    schema::Identity,
};

/// `extdata` of a call's event.
#[derive(Serialize)]
struct Ext<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<u64>,
}

#[derive(Serialize)]
struct StreamExt {
    stream_id: i64,
}

/// Writes calls.
#[derive(Debug)]
pub(crate) struct Calls {
    regions: i64,
    region_rows: Rows<8>,
    argument_rows: Rows<6>,
    unfinished_sql: String,
    /// Buffer for the text of values.
    text: String,
}

impl Calls {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self {
            regions: 0,
            region_rows: Rows::new(
                identity,
                "rocpd_region",
                "id, nid, pid, tid, start, \"end\", name_id, event_id",
            ),
            argument_rows: Rows::new(
                identity,
                "rocpd_arg",
                "event_id, position, type, name, value, extdata",
            ),
            unfinished_sql: identity
                .fill("INSERT INTO gputrace_unfinished_call{uuid} (id, reason) VALUES (?, ?)"),
            text: String::new(),
        }
    }

    pub(crate) fn call(&mut self, context: &mut Context, call: &Call) -> Result<(), ExportError> {
        context.who.seen(call.pid, call.tid);
        let unfinished = call.how.reason();
        self.text.clear();
        let returned = context
            .functions
            .get(call.function)
            .and_then(|info| args::returned(info, call));
        if let Some(value) = returned {
            let _ = write!(self.text, "{value}");
        }
        let extdata = json(&Ext {
            returned: returned.is_some().then_some(&self.text),
            unfinished,
            external_id: call.external,
        });
        let event = context.event(category(call), (call.correlation, call.parent), &extdata)?;
        let info = context.functions.get(call.function);
        let name = info.map_or(UNKNOWN_FUNCTION, |info| info.function.name.as_str());
        let name = context.strings.id(&context.database, name)?;
        self.regions += 1;
        let (node, begin, end) = (context.node, int(call.begin), int(call.end));
        let row = cells![
            self.regions,
            node,
            call.pid,
            call.tid,
            begin,
            end,
            name,
            event
        ];
        self.region_rows.add(&context.database, row)?;
        self.arguments(context, call, event)?;
        match unfinished {
            Some(reason) => context
                .database
                .insert(&self.unfinished_sql, params![self.regions, reason]),
            None => Ok(()),
        }
    }

    /// Inserts the waiting rows.
    pub(crate) fn finish(&mut self, database: &Database) -> Result<(), ExportError> {
        self.region_rows.finish(database)?;
        self.argument_rows.finish(database)
    }

    fn arguments(
        &mut self,
        context: &mut Context,
        call: &Call,
        event: i64,
    ) -> Result<(), ExportError> {
        let Context {
            functions,
            database,
            ..
        } = context;
        let Some(info) = functions.get(call.function) else {
            return Ok(());
        };
        for Argument {
            position,
            c_type,
            name,
            value,
            ..
        } in args::typed(info, call)
        {
            self.text.clear();
            let _ = write!(self.text, "{value}");
            let position = position as i64;
            let extdata = match value {
                ArgValue::Hex(_) if name == "stream" => {
                    let stream_id = call.stream_id.into();
                    Cow::Owned(json(&StreamExt { stream_id }))
                }
                _ => Cow::Borrowed("{}"),
            };
            let row = cells![event, position, c_type, name, self.text.as_str(), &*extdata];
            self.argument_rows.add(database, row)?;
        }
        Ok(())
    }
}
