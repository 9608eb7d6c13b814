//! `diff`: what grew and what shrank between two profiles, by function and by calling context.
//!
//! Owns: the forms (text, JSON, a differential flame graph). Does not: compare; `profile` does.

use std::io::{self, Write};

use deepctx_profile::diff::{self, Comparison, Row};
use deepctx_storage::export::svg;
use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::options::{DiffArgs, DiffFormat};
use super::{look, output};

/// Runs it.
///
/// # Errors
/// One of the profiles could not be opened, or the output not be written.
pub fn run(arguments: &DiffArgs) -> Result<Done, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let before = look::open_filtered(&arguments.before, &arguments.look, false)?.profile;
    let after = look::open_filtered(&arguments.after, &arguments.look, false)?.profile;
    let selection = look::selection_of(&arguments.look, &after);
    let comparison = diff::compare(&before, &after, &selection);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        DiffFormat::Text => diff::text::write(&comparison, arguments.limit, out),
        DiffFormat::Json => write_json(&comparison, arguments.limit, out),
        DiffFormat::Svg => svg::write_diff(&comparison, out),
    })?;
    Ok(Done::Fully)
}

fn write_json(comparison: &Comparison, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let rows = |rows: Vec<Row>| -> Vec<Value> { rows.into_iter().take(limit).map(row).collect() };
    let document = json!({
        "metric": comparison.metric.name(),
        "before": { "total": comparison.totals[0].sum, "values": comparison.totals[0].count },
        "after": { "total": comparison.totals[1].sum, "values": comparison.totals[1].count },
        "functions": rows(comparison.functions()),
        "contexts": rows(comparison.contexts()),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn row(row: Row) -> Value {
    json!({
        "change": row.change(),
        "bound": row.bound,
        "significant": row.significant,
        "before": { "share": row.shares[0], "value": row.values[0] },
        "after": { "share": row.shares[1], "value": row.values[1] },
        "frames": row.path,
    })
}
