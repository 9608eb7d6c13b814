//! `report`: hotspots and losses of a stored profile.
//!
//! Owns: the form for programs (JSON). Does not: find anything; the text form is the profile's own.

use std::io::{self, Write};

use deepctx_profile::ledger::{Stage, Tally};
use deepctx_profile::profile::Profile;
use deepctx_profile::report::{self, Extent};
use deepctx_profile::view::{MergedTree, Resolution, Selection, losses};
use deepctx_storage::store::Opened;
use serde_json::json;

use super::failure::{Done, Failure};
use super::options::{ReportArgs, TextOrJson};
use super::{look, output};

/// Runs it.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &ReportArgs) -> Result<Done, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let opened = look::open_filtered(&arguments.profile, &arguments.look, false)?;
    let selection = Selection {
        group_by: look::group_by(&arguments.group_by),
        ..look::selection_of(&arguments.look, &opened.profile)
    };
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        TextOrJson::Text => {
            let extent = Extent { rows: arguments.limit, ..Extent::default() };
            report::write(&opened.profile, &selection, extent, out)
        }
        TextOrJson::Json => json(&opened, selection, arguments.limit, out),
    })?;
    Ok(Done::Fully)
}

fn json(opened: &Opened, selection: Selection, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let profile: &Profile = &opened.profile;
    let mut tree = MergedTree::new(selection);
    tree.refresh(profile);
    let functions: Vec<_> = tree
        .table(Resolution { rows: limit, ..Resolution::default() })
        .into_iter()
        .map(|row| {
            json!({
                "function": row.label,
                "at": row.detail,
                "kind": format!("{:?}", row.kind).to_lowercase(),
                "exclusive": row.exclusive,
                "inclusive": row.inclusive,
            })
        })
        .collect();
    let contexts: Vec<_> = tree
        .hottest(limit)
        .into_iter()
        .map(|(value, frames)| json!({ "exclusive": value, "frames": frames }))
        .collect();
    let losses: Vec<_> = losses(profile)
        .into_iter()
        .map(|row| {
            json!({ "stage": row.stage, "reason": row.reason, "sentence": row.sentence, "count": row.count, "lost": row.lost })
        })
        .collect();
    let tally = |tally: &Tally| -> serde_json::Map<_, _> {
        tally.iter().map(|(reason, n)| (reason.key.clone().into_owned(), json!(n))).collect()
    };
    let ledger: Vec<_> = Stage::ALL
        .iter()
        .map(|&stage| {
            let account = profile.ledger.stage(stage);
            json!({
                "stage": stage.name(),
                "received": account.received,
                "kept": account.kept,
                "merged": account.merged,
                "dropped": tally(&account.dropped),
                "gaps": tally(&account.gaps),
            })
        })
        .collect();
    let report = json!({
        "target": profile.meta.target,
        "elapsed_ns": opened.elapsed.0,
        "finished": opened.finished,
        "metric": selection.metric.name(),
        "total": tree.total(),
        "received": profile.ledger.received(),
        "lost": profile.ledger.lost(),
        "functions": functions,
        "contexts": contexts,
        "devices": profile.gpu.processes,
        "losses": losses,
        "ledger": ledger,
    });
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}
