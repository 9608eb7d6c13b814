//! The report: the hottest functions and contexts of a profile, and what was lost, as text for people.
//!
//! Owns: [`write()`]; a file for each table. Because: `report`, and a demo without a terminal, must say in one page where the
//! time went and how far to believe it. Does not: promise its layout to programs; that is what `export` is for.

pub mod compiled;
mod devices;
mod instructions;
mod kernels;
mod layers;
mod memory;
mod phases;
mod steps;

use std::io::{self, Write};

use crate::frame::clean;
use crate::ledger::{Stage, When};
use crate::metric::Unit;
use crate::profile::Profile;
use crate::units::{Bytes, Nanos};
use crate::view::{MergedTree, Resolution, Selection, losses};

/// How much to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Most functions and most contexts.
    pub rows: usize,
    /// Most frames of one context, counted from the leaf; the outermost one always shows.
    pub depth: usize,
}

impl Default for Extent {
    /// Ten of each, which fits a terminal.
    fn default() -> Self {
        Extent { rows: 10, depth: 8 }
    }
}

/// Widest function name in the table; longer ones lose their middle.
const NAME_WIDTH: usize = 56;
/// Widest place in the table; longer ones lose their beginning.
const PLACE_WIDTH: usize = 44;

/// Writes the report of a selection.
pub fn write(
    profile: &Profile,
    selection: &Selection,
    extent: Extent,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tree = MergedTree::new(*selection);
    tree.refresh(profile);
    head(profile, selection, &tree, out)?;
    functions(selection, &tree, extent, out)?;
    contexts(selection, &tree, extent, out)?;
    phases::write(profile, out)?;
    steps::write(profile, extent, out)?;
    layers::write(profile, selection, extent, out)?;
    compiled::write(profile, selection.metric, extent, out)?;
    devices::write(profile, extent, out)?;
    kernels::write(profile, extent, out)?;
    instructions::write(profile, extent, out)?;
    memory::write(profile, extent, out)?;
    account(profile, out)?;
    out.flush()
}

fn head(profile: &Profile, selection: &Selection, tree: &MergedTree, out: &mut dyn Write) -> io::Result<()> {
    let meta = &profile.meta;
    let target = if meta.target.is_empty() { "an unnamed target" } else { meta.target.as_str() };
    let total = profile.tree.total(selection.metric);
    write!(out, "{} of {}", selection.metric, clean(target))?;
    if !meta.host.is_empty() {
        write!(out, " on {}", clean(&meta.host))?;
    }
    write!(out, "\n{} in {}", amount(selection.metric.unit(), tree.total()), counted(total.count, "value"))?;
    if meta.frequency_hz > 0 {
        write!(out, ", {} Hz per CPU", meta.frequency_hz)?;
    }
    writeln!(out, ", {}", counted(profile.tree.len() as u64 - 1, "calling context"))?;
    match profile.ledger.watched_in_turns() {
        Some(sentence) => writeln!(out, "{}", clean(sentence)),
        None => Ok(()),
    }
}

fn functions(
    selection: &Selection,
    tree: &MergedTree,
    extent: Extent,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\nHottest functions")?;
    let rows = tree.table(Resolution { rows: extent.rows, ..Resolution::default() });
    if rows.is_empty() {
        return writeln!(out, "  there are no values of {}", selection.metric);
    }
    let names: Vec<String> = rows.iter().map(|row| without_middle(&row.label, NAME_WIDTH)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("function".len());
    writeln!(out, "    self   total  {:width$}  where", "function")?;
    for (row, name) in rows.iter().zip(&names) {
        let [own, all] = [row.exclusive, row.inclusive].map(|value| share(value, tree.total()));
        let line = format!("  {own}  {all}  {name:width$}  {}", without_start(&row.detail, PLACE_WIDTH));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn contexts(selection: &Selection, tree: &MergedTree, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let contexts = tree.hottest(extent.rows);
    if contexts.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nHottest contexts, innermost call first")?;
    for (value, stack) in contexts {
        let (share, value) = (share(value, tree.total()), amount(selection.metric.unit(), value));
        let mut frames = stack.iter().rev();
        let leaf = frames.next().map_or("all", |leaf| leaf);
        writeln!(out, "  {share}  {value:>7}  {}", without_middle(leaf, 2 * NAME_WIDTH))?;
        let callers: Vec<&&str> = frames.collect();
        // A line that says "one more frame" could as well show it.
        let hidden = match callers.len().saturating_sub(extent.depth.max(1)) {
            1 => 0,
            hidden => hidden,
        };
        for (place, caller) in callers.iter().enumerate() {
            // The last one is the outermost: the process.
            if hidden > 0 && place + 1 < callers.len() && place + 1 >= callers.len() - hidden {
                if place + 1 == callers.len() - hidden {
                    writeln!(out, "{:21}… {}", "", counted(hidden as u64, "more frame"))?;
                }
                continue;
            }
            writeln!(out, "{:21}{}", "", without_middle(caller, 2 * NAME_WIDTH))?;
        }
    }
    Ok(())
}

/// What became of the records: the ledger, the losses and gaps, and whether it all adds up.
fn account(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let ledger = &profile.ledger;
    writeln!(out, "\nLosses and gaps")?;
    match ledger.lost_share() {
        None => writeln!(out, "  no records were counted")?,
        Some(share) => writeln!(
            out,
            "  {} of {} lost ({:.2}%)",
            ledger.lost(),
            counted(ledger.received(), "record"),
            share * 100.0
        )?,
    }
    for row in losses(profile) {
        let what = if row.lost { "lost" } else { "gap" };
        let (reason, sentence) = (clean(&row.reason), clean(&row.sentence));
        writeln!(out, "  {:10} {reason:22} {:>9}  {what:4}  {sentence}", row.stage, row.count)?;
    }
    // A profile that is cut short in the middle has records under way, which is no error.
    let unfinished = ledger.stage(Stage::Store).gaps.count("not-finished") > 0;
    let when = if unfinished { When::Running } else { When::Finished };
    if let Err(imbalance) = ledger.check(when) {
        writeln!(out, "  THE LEDGER DOES NOT ADD UP: {imbalance}")?;
    }
    Ok(())
}

fn amount(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Nanoseconds => Nanos(value).to_string(),
        Unit::Bytes => Bytes(value).to_string(),
        Unit::Count => value.to_string(),
    }
}

fn counted(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A share in percent, six columns wide.
fn share(part: u64, whole: u64) -> String {
    format!("{:5.1}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

fn without_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let (head, tail) = ((width - 1) / 2, width - 1 - (width - 1) / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

fn without_start(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(length + 1 - width)).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::frame::Frame;
    use crate::ledger::Reason;
    use crate::metric::Metric;
    use crate::testing::profile;

    fn check(profile: &Profile, expect: Expect) {
        let mut out = Vec::new();
        let extent = Extent { rows: 3, depth: 3 };
        write(profile, &Selection::of(Metric::CpuTime), extent, &mut out).unwrap();
        expect.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn a_page_tells_where_the_time_went_and_what_was_lost() {
        let mut profile = profile(
            "P python3-7 / n _start@python3 / y /srv/a/very/long/path/to/some/where/in/the/tree/train.py:main:9 / y /a/train.py:step:30 / o aten::addmm / n gemm@/l/libmkl.so 5000000000
             P python3-7 / n _start@python3 / y /srv/a/very/long/path/to/some/where/in/the/tree/train.py:main:9 / n read@/l/libc.so / k vfs_read 40000000
             P python3-7 / n std::vector<std::pair<std::string, std::map<int, std::string>>>::emplace_back<std::string> 7000000",
        );
        profile.meta.host = "gpu-1".to_owned();
        for stage in [Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute] {
            profile.ledger.stage_mut(stage).pass(3);
        }
        profile.ledger.stage_mut(Stage::Decode).received += 1;
        profile.ledger.dropped(Stage::Decode, Reason::new("short-record", "the record is too short"), 1);
        profile.ledger.gap(
            Stage::Resolve,
            Reason::new("no-row", "the unwind table has no row for this PC"),
            1,
        );
        check(
            &profile,
            expect![[r#"
                cpu-time of python train.py (pid 7) on gpu-1
                5.05 s in 3 values, 99 Hz per CPU, 9 calling contexts

                Hottest functions
                    self   total  function                                                  where
                   99.1%   99.1%  gemm                                                      /l/libmkl.so
                    0.8%    0.8%  vfs_read_[k]
                    0.1%    0.1%  std::vector<std::pair<std::…>::emplace_back<std::string>

                Hottest contexts, innermost call first
                   99.1%   5.00 s  gemm
                                     aten::addmm
                                     train.py:step
                                     … 2 more frames
                                     python3-7
                    0.8%  40.0 ms  vfs_read_[k]
                                     read
                                     train.py:main
                                     _start
                                     python3-7
                    0.1%  7.00 ms  std::vector<std::pair<std::string, std::map<int, std::string>>>::emplace_back<std::string>
                                     python3-7

                Losses and gaps
                  1 of 4 records lost (25.00%)
                  decode     short-record                   1  lost  the record is too short
                  resolve    no-row                         1  gap   the unwind table has no row for this PC
            "#]],
        );
    }

    #[test]
    fn phases_and_steps_are_told_together() {
        let mut profile = profile(
            "P python3-7 / y /a/train.py:main:9 / y /v/torch/utils/data/dataloader.py:Iter.__next__ 100000000
             P python3-7 / y /a/train.py:main:10 / y /v/torch/nn/modules/module.py:Module._call_impl 300000000
             P python3-7 / y /a/train.py:main:11 / y /v/torch/_tensor.py:Tensor.backward 500000000
             P python3-7 / y /a/train.py:main:12 / r Optimizer.step#SGD.step / y /v/torch/optim/sgd.py:SGD.step 100000000",
        );
        let range = profile.tree.cells(Metric::CpuTime).find_map(|(node, _)| {
            let parent = profile.tree.node(node).parent;
            let frame = profile.frames.get(profile.tree.node(parent).frame);
            matches!(frame, Frame::Range { .. }).then_some(parent)
        });
        for took in [10_000_000, 12_000_000] {
            profile.tree.add(range.unwrap(), Metric::RangeTime, took);
        }
        profile.tree.add(range.unwrap(), Metric::StepTime, 250_000_000);
        let mut out = Vec::new();
        phases::write(&profile, &mut out).unwrap();
        steps::write(&profile, Extent::default(), &mut out).unwrap();
        expect![[r#"

            Phases, over 1 step
                            cpu-time  phase
                      300 ms   30.0%  forward
                      100 ms   10.0%  optimizer
                      500 ms   50.0%  backward
                      100 ms   10.0%  data loading

            Steps, from the end of one to the end of the next
                 steps      mean   deviation       least        most  name and where it is entered
                     1    250 ms        0 ns      250 ms      250 ms  Optimizer.step#SGD.step  train.py:main:12

            Ranges that the program names, without those within them
                 times      mean   deviation       least        most  name and where it is entered
                     2   11.0 ms     1.00 ms     10.0 ms     12.0 ms  Optimizer.step#SGD.step  train.py:main:12
        "#]].assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn an_empty_profile_says_so() {
        check(
            &profile(""),
            expect![[r#"
            cpu-time of python train.py (pid 7)
            0 ns in 0 values, 99 Hz per CPU, 0 calling contexts

            Hottest functions
              there are no values of cpu-time

            Losses and gaps
              no records were counted
        "#]],
        );
    }

    #[test]
    fn a_ledger_that_does_not_add_up_is_told() {
        let mut profile = profile("P a-1 / n f 1");
        profile.ledger.stage_mut(Stage::Decode).received = 2;
        let mut out = Vec::new();
        write(&profile, &Selection::of(Metric::CpuTime), Extent::default(), &mut out).unwrap();
        assert!(
            String::from_utf8(out).unwrap().contains("THE LEDGER DOES NOT ADD UP: stage decode: received 2")
        );
    }

    #[test]
    fn long_texts_keep_what_tells_them_apart() {
        assert_eq!(without_middle("abcdefghij", 7), "abc…hij");
        assert_eq!(without_start("/a/b/train.py:12", 12), "…train.py:12");
        assert_eq!(without_start("ééé", 3), "ééé");
    }
}
