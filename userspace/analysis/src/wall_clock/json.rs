//! Writes the report as JSON with the keys of timemory's documents: each process is a rank.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Part, Row, text::label};

/// Writes the document.
pub(super) fn write(
    to: &mut impl Write,
    merged: &[Part],
    single: &[Part],
    remarks: &[String],
) -> io::Result<()> {
    let ranks: Vec<Value> = merged
        .iter()
        .zip(0_usize..)
        .map(|(part, rank)| {
            let threads: Vec<&Part> = single
                .iter()
                .filter(|thread| thread.pid == part.pid)
                .collect();
            json!({
                "rank": rank,
                "pid": part.pid,
                "graph_size": part.rows.len(),
                "graph": graph(part),
                "threads": threads.iter().map(|thread| json!({
                    "tid": thread.thread.map(|(tid, _)| tid),
                    "thread": thread.thread.map(|(_, number)| number),
                    "graph_size": thread.rows.len(),
                    "graph": graph(thread),
                })).collect::<Vec<_>>(),
            })
        })
        .collect();
    let document = json!({
        "timemory": {
            "wall_clock": {
                "type": "wall_clock",
                "description": "Real-clock timer (i.e. wall-clock timer)",
                "unit_value": 1_000_000_000,
                "unit_repr": "sec",
                "thread_count": single.len(),
                "ranks": ranks,
                "remarks": remarks,
            }
        }
    });
    serde_json::to_writer_pretty(&mut *to, &document)?;
    writeln!(to)
}

fn graph(part: &Part) -> Vec<Value> {
    part.rows.iter().map(|row| node(part, row)).collect()
}

/// A row. `accum` and all of `stats` except `count` are ns; `repr_data` is in seconds.
fn node(part: &Part, row: &Row) -> Value {
    let stats = &row.stats;
    json!({
        "prefix": label(part, row),
        "label": row.label,
        "depth": row.depth,
        "entry": {
            "laps": stats.count,
            "value": stats.sum,
            "accum": stats.sum,
            "repr_data": stats.sum as f64 / 1e9,
            "repr_display": stats.sum as f64 / 1e9,
        },
        "stats": {
            "sum": stats.sum,
            "count": stats.count,
            "min": stats.min,
            "max": stats.max,
            // Too large for an exact number in JSON.
            "sqr": stats.squares as f64,
            "mean": stats.mean(),
            "stddev": stats.deviation(),
        },
        "self": row.own,
        "self_percent": row.self_percent(),
    })
}
