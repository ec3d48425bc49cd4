//! What tracing cost the traced programs.

use std::fmt::{self, Write};

use gputrace_export::costs::{Bill, Share};
use gputrace_text::{
    Page,
    tables::{
        Align::{Left, Right},
        duration, table,
    },
};

use super::Summary;
use crate::costs::{LITTLE, MUCH, percent};

/// Maximum number of processes, of threads, and of functions that are listed.
const LISTED: usize = 10;

/// Says the whole cost in a line. If a thread paid much, lists who paid, and for what.
pub(super) fn render(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let bill = summary.costs.bill();
    let Some(line) = line(&bill) else {
        return Ok(());
    };
    out.paragraph(format_args!(
        "Cost of tracing (an estimate: calls times the cost of their probes, {})",
        bill.how_known()
    ))?;
    out.line(format_args!("  {line}"))?;
    if bill
        .worst(LITTLE)
        .is_none_or(|thread| thread.share() <= MUCH)
    {
        return Ok(());
    }
    table(
        out,
        &[Left, Right, Left, Right, Right, Right, Right],
        &rows(summary, &bill),
    )?;
    out.line(format_args!("  not included: {}", bill.not_included_text()))
}

/// The whole cost in a line; `None` if there was none.
pub(super) fn line(bill: &Bill) -> Option<String> {
    (bill.cost_ns > 0).then(|| {
        format!(
            "{} in all; at most {} of a thread's time",
            duration(bill.cost_ns as f64),
            percent(bill.highest_share),
        )
    })
}

/// Rows for what is above the thresholds.
fn rows(summary: &Summary, bill: &Bill) -> Vec<Vec<String>> {
    let heading = ["Of", "Id", "Name", "Calls", "Each", "Cost", "Of its time"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let much = |share: &&Share| share.cost_ns >= LITTLE && share.share() > MUCH;
    let row = |what: &str, id: u32, name: String, share: &Share| {
        vec![
            what.to_owned(),
            id.to_string(),
            name,
            share.hits.to_string(),
            String::new(),
            duration(share.cost_ns as f64),
            percent(share.share()),
        ]
    };
    for process in bill.processes.iter().filter(much).take(LISTED) {
        let known = summary.processes.get(&process.pid);
        let name = known.map(|known| known.title().to_owned());
        rows.push(row(
            "process",
            process.pid,
            name.unwrap_or_default(),
            process,
        ));
    }
    for thread in bill.threads.iter().filter(much).take(LISTED) {
        let tid = thread.tid.unwrap_or(thread.pid);
        let name = summary.threads.get(&tid).cloned();
        rows.push(row("thread", tid, name.unwrap_or_default(), thread));
    }
    let functions = bill.functions.iter();
    let functions = functions.filter(|function| function.cost_ns >= LITTLE);
    rows.extend(functions.take(LISTED).map(|function| {
        vec![
            "function".to_owned(),
            String::new(),
            function.name.clone(),
            function.hits.to_string(),
            duration(function.each_ns as f64),
            duration(function.cost_ns as f64),
            String::new(),
        ]
    }));
    rows
}
