//! Text of communicators: their cost, and the kind of parallelism that they serve.
//!
//! Owns: the columns of this table. Because: an inferred kind must not look like one that the program names. Does not:
//! compute.

use std::io::{self, Write};

use deepctx_profile::units::Nanos;

use super::{counted, more, without_middle};
use crate::over_time::{GroupSignature, KindBasis, Parallelism};

/// Widest name of a communicator.
const NAME_WIDTH: usize = 40;
/// Maximum number of named operations of a communicator.
const OPERATIONS: usize = 3;

/// Writes each communicator; nothing if no trace names one.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(found: &Parallelism, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let Parallelism { groups, operations_without_communicator } = found;
    if groups.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nParallelism: communicators over all ranks, exposed while a device runs nothing else")?;
    writeln!(out, "     ranks  stride      time   exposed   share  communicator: kind; operations")?;
    for row in groups.iter().take(rows) {
        let ranks = group_ranks_in_words(row);
        let stride = row.stride.map_or_else(|| "–".to_owned(), |stride| stride.to_string());
        let [time, exposed] = [row.time_ns, row.exposed_ns].map(|ns| Nanos(ns).to_string());
        let share = row.exposed_ns as f64 * 100.0 / row.time_ns.max(1) as f64;
        let name = without_middle(&row.communicator, NAME_WIDTH);
        let (kinds, operations) = (kinds_in_words(row), operations_in_words(row));
        write!(out, "  {ranks:>8}  {stride:>6}  {time:>8}  {exposed:>8}  {share:5.1}%  ")?;
        writeln!(out, "{name}: {kinds}; {operations}")?;
    }
    more(groups.len(), rows, "communicator", out)?;
    if *operations_without_communicator > 0 {
        let count = counted(*operations_without_communicator as u64, "operation");
        writeln!(out, "  without {count} of which the trace does not name the communicator")?;
    }
    Ok(())
}

/// How many ranks of a communicator have traces, and how many it has.
fn group_ranks_in_words(row: &GroupSignature) -> String {
    let size = row.group_size.map_or_else(|| "?".to_owned(), |size| size.to_string());
    format!("{} of {size}", row.ranks.len())
}

/// The kinds of parallelism of a communicator, and whether they are inferred.
pub(in crate::render) fn kinds_in_words(row: &GroupSignature) -> String {
    let names: Vec<&str> = row.kinds.iter().map(|kind| kind.name()).collect();
    let kinds = match row.kinds_basis {
        KindBasis::Named => names.join(" and "),
        KindBasis::Inferred => format!("{} (inferred)", names.join(" or ")),
        KindBasis::Unknown => "kind not known".to_owned(),
    };
    let are_several = row.group_size.is_some_and(|size| row.ranks.len() > size as usize);
    if are_several { format!("{kinds}, several groups of this name") } else { kinds }
}

/// The most frequent operations of a communicator.
pub(in crate::render) fn operations_in_words(row: &GroupSignature) -> String {
    let operations = row.operations.iter().take(OPERATIONS);
    let mut parts: Vec<String> =
        operations.map(|of| format!("{}× {}", of.count, without_middle(&of.name, NAME_WIDTH))).collect();
    if row.operations.len() > OPERATIONS {
        parts.push("…".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over_time::{GroupOperation, ParallelKind};

    fn group(communicator: &str, kinds: Vec<ParallelKind>, kinds_basis: KindBasis) -> GroupSignature {
        let operation =
            |name: &str| GroupOperation { name: name.to_owned(), count: 5, elements_in: 8, sizes: 1 };
        GroupSignature {
            communicator: communicator.to_owned(),
            ranks: vec![0, 4],
            group_size: Some(4),
            stride: None,
            time_ns: 40_000,
            exposed_ns: 10_000,
            kinds,
            kinds_basis,
            operations: ["allreduce", "broadcast", "barrier", "gather"].map(operation).to_vec(),
        }
    }

    #[test]
    fn inferred_kinds_are_said_to_be() {
        let both = || vec![ParallelKind::Data, ParallelKind::Tensor];
        let groups = vec![
            group("1 dp_tp", both(), KindBasis::Named),
            group("2", both(), KindBasis::Inferred),
            group("3", Vec::new(), KindBasis::Unknown),
        ];
        let found = Parallelism { groups, operations_without_communicator: 1 };
        let mut out = Vec::new();
        write(&found, 3, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let operations = "5× allreduce, 5× broadcast, 5× barrier, …";
        for kind in ["1 dp_tp: data and tensor", "2: data or tensor (inferred)", "3: kind not known"] {
            assert!(shown.contains(&format!(" 25.0%  {kind}; {operations}\n")), "{kind} in {shown}");
        }
        assert!(shown.contains("  2 of 4       –  ") && shown.contains("without 1 operation of"), "{shown}");
        let mut out = Vec::new();
        write(&Parallelism::default(), 3, &mut out).unwrap();
        assert!(out.is_empty());
    }
}
