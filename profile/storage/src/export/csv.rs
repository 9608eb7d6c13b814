//! CSV: one row per calling context, one column per metric.
//!
//! Owns: [`write()`]. Because: a spreadsheet, `awk` and every data tool read it. Does not: name the whole stack in
//! each row; `parent` is the `id` of the caller's row, which always comes first.
//!
//! Columns: `id`, `parent` (empty for the outermost), `depth`, `process`, `thread` (ids), `kind`, `name`, `where`,
//! and for each metric its sum in this very context and, as `METRIC:inclusive`, with all that it called. Texts are
//! quoted and quotes in them doubled (RFC 4180); one that a spreadsheet would take for a formula begins with `'`.
//! Units are those of the metrics: nanoseconds, bytes, counts.

use std::io::{self, Write};

use super::outline::Outline;
use super::{Source, kind_name};

/// Writes the rows with a header.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let inclusive: Vec<Vec<u64>> =
        outline.metrics.iter().map(|&metric| outline.contexts.tree.inclusive(metric)).collect();
    write!(out, "id,parent,depth,process,thread,kind,name,where")?;
    for metric in &outline.metrics {
        write!(out, ",{metric},{metric}:inclusive")?;
    }
    writeln!(out)?;
    for &(node, depth) in &outline.order {
        let frame = outline.frame(node);
        let lane = &outline.lanes[outline.lane(node)];
        write!(out, "{},", node.number())?;
        if depth > 0 {
            write!(out, "{}", outline.contexts.tree.node(node).parent.number())?;
        }
        write!(out, ",{depth},")?;
        for id in [&lane.process, &lane.thread] {
            if let Some((_, id)) = id {
                write!(out, "{id}")?;
            }
            write!(out, ",")?;
        }
        let place = frame.detail(outline.contexts.strings, source.selection.lines);
        write!(out, "{},{},{}", kind_name(frame.kind()), quoted(outline.label(node)), quoted(&place))?;
        for (&metric, inclusive) in outline.metrics.iter().zip(&inclusive) {
            write!(out, ",{},{}", outline.own(node, metric), inclusive[node.index()])?;
        }
        writeln!(out)?;
    }
    out.flush()
}

/// Characters that start a formula in spreadsheets, which may open other programs.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

fn quoted(text: &str) -> String {
    let guard = if text.starts_with(FORMULA) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_are_disarmed() {
        let check = |text: &str, expect: &str| assert_eq!(quoted(text), expect);
        check("gemm", "\"gemm\"");
        check("a \"b\"", "\"a \"\"b\"\"\"");
        check("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\"");
        check("@SUM(1)", "\"'@SUM(1)\"");
        check("+1", "\"'+1\"");
        check("-1", "\"'-1\"");
        check("a=b", "\"a=b\"");
        check("", "\"\"");
    }
}
