//! Folded stacks: `comm-pid;caller;callee 123`, one line per calling context, as flame graph tools read them.
//!
//! Owns: [`write()`]. Because: it is the one profile format that every tool and every shell pipeline reads. Does not:
//! define the text of frames; see [`deepctx_profile::frame`].
//!
//! Lines are sorted frame by frame from the root, every context stands once, and lines of value zero are left out.

use std::fmt::Write as _;
use std::io::{self, Write};

use deepctx_profile::context::selection::Selection;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::MergedTree;

/// Writes the folded stacks of a selection.
pub fn write(profile: &Profile, selection: &Selection, out: &mut dyn Write) -> io::Result<()> {
    let mut merged = MergedTree::by_text(*selection);
    merged.refresh(profile);
    each_line(&merged, |line| out.write_all(line.as_bytes()))?;
    out.flush()
}

/// Calls `take` with each line, its newline included.
fn each_line<E>(merged: &MergedTree, mut take: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let mut line = String::new();
    // Length of the line up to and including the frame at each depth.
    let mut ends: Vec<usize> = vec![0];
    for (node, depth) in merged.walk(1) {
        let depth = depth as usize;
        if depth > 0 {
            ends.truncate(depth);
            line.truncate(ends[depth - 1]);
            if depth > 1 {
                line.push(';');
            }
            line.push_str(&merged.label(node).text);
            ends.push(line.len());
        }
        let value = merged.exclusive[node as usize];
        if value > 0 {
            let end = line.len();
            if depth == 0 {
                line.push_str(&merged.label(node).text);
            }
            line.push(' ');
            _ = write!(line, "{value}");
            line.push('\n');
            take(&line)?;
            line.truncate(end);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::write;
    use deepctx_profile::context::selection::{GroupBy, Selection, View};
    use deepctx_profile::metric::Metric;
    use deepctx_profile::testing::{grow, profile, selections, stacks};

    const CPU: Selection = Selection::of(Metric::CpuTime);

    const TRAINING: &str = "
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / y /a/train.py:step:30 / o aten::addmm / n gemm@/l/libmkl.so 500
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / y /a/train.py:step:31 / o aten::addmm / n gemm@/l/libmkl.so 200
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / n read@/l/libc.so / k vfs_read 40
    P python3-7 / T pt_data/8 / n clone@/l/libc.so / i eval@python3 / y /a/data.py:load:5 / y /a/data.py:load:6 60
    P python3-7 / T pt_data/8 / ? no-row / n memcpy@/l/libc.so 7
";

    fn check(selection: Selection, expect: Expect) {
        let mut out = Vec::new();
        write(&profile(TRAINING), &selection, &mut out).unwrap();
        expect.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn grouping_by_device_puts_kernels_below_their_device() {
        let profile = profile(
            "P a-1 / T a/1 / y m.py:f / a cuLaunchKernel / s 0/7 / g gemm 5
         P a-1 / T a/1 / y m.py:f / a cuLaunchKernel / s 0/9 / g gemm 3
         P a-1 / T a/1 / y m.py:f / a cuLaunchKernel / s 1/7 / g gemm 2
         P a-1 / T a/1 / y m.py:f 100",
        );
        let check = |group_by, expect: Expect| {
            let mut out = Vec::new();
            write(&profile, &Selection { group_by, ..CPU }, &mut out).unwrap();
            expect.assert_eq(&String::from_utf8(out).unwrap());
        };
        check(
            GroupBy::Process,
            expect![[r#"
        a-1;m.py:f 100
        a-1;m.py:f;cuLaunchKernel;[gpu] gemm 10
    "#]],
        );
        check(
            GroupBy::Device,
            expect![[r#"
        a-1;[device 0];m.py:f;cuLaunchKernel;[gpu] gemm 8
        a-1;[device 1];m.py:f;cuLaunchKernel;[gpu] gemm 2
        a-1;m.py:f 100
    "#]],
        );
        check(
            GroupBy::Stream,
            expect![[r#"
        a-1;[device 0, stream 7];m.py:f;cuLaunchKernel;[gpu] gemm 5
        a-1;[device 0, stream 9];m.py:f;cuLaunchKernel;[gpu] gemm 3
        a-1;[device 1, stream 7];m.py:f;cuLaunchKernel;[gpu] gemm 2
        a-1;m.py:f 100
    "#]],
        );
    }

    #[test]
    fn the_full_view_shows_functions_of_all_languages_by_process() {
        check(
            CPU,
            expect![[r#"
        python3-7;[unknown: no-row];memcpy 7
        python3-7;_start;train.py:main;read;vfs_read_[k] 40
        python3-7;_start;train.py:main;train.py:step;aten::addmm;gemm 700
        python3-7;clone;data.py:load;data.py:load 60
    "#]],
        );
    }

    #[test]
    fn the_python_view_gives_hidden_values_to_the_python_caller() {
        check(
            Selection { view: View::Python, ..CPU },
            expect![[r#"
        python3-7 7
        python3-7;data.py:load;data.py:load 60
        python3-7;train.py:main 40
        python3-7;train.py:main;train.py:step;aten::addmm 700
    "#]],
        );
    }

    #[test]
    fn the_native_view_shows_the_interpreter_too() {
        check(
            Selection { view: View::Native, ..CPU },
            expect![[r#"
        python3-7;[unknown: no-row];memcpy 7
        python3-7;_start;eval;gemm 700
        python3-7;_start;eval;read;vfs_read_[k] 40
        python3-7;clone;eval 60
    "#]],
        );
    }

    #[test]
    fn lines_threads_and_the_interpreter_are_shown_when_asked_for() {
        let selection = Selection { lines: true, group_by: GroupBy::Thread, interpreter: true, ..CPU };
        check(
            selection,
            expect![[r#"
        python3-7;pt_data/8;[unknown: no-row];memcpy 7
        python3-7;pt_data/8;clone;eval;data.py:load:5;data.py:load:6 60
        python3-7;python3/7;_start;eval;train.py:main:9;read;vfs_read_[k] 40
        python3-7;python3/7;_start;eval;train.py:main:9;train.py:step:30;aten::addmm;gemm 500
        python3-7;python3/7;_start;eval;train.py:main:9;train.py:step:31;aten::addmm;gemm 200
    "#]],
        );
    }

    #[test]
    fn a_metric_without_values_folds_to_nothing() {
        check(Selection::of(Metric::GpuTime), expect![[""]]);
    }

    #[test]
    fn names_ending_in_a_number_are_not_mistaken_for_values() {
        let profile = profile("P a-1 / n odd 12 34");
        let mut out = Vec::new();
        write(&profile, &CPU, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a-1;odd_12 34\n");
    }

    proptest! {
        #[test]
        fn folded_totals_are_tree_totals_and_every_context_stands_once(stacks in stacks(), selection in selections()) {
            let mut profile = profile("");
            grow(&mut profile, &stacks, Metric::CpuTime);
            let mut out = Vec::new();
            write(&profile, &selection, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let lines: Vec<(&str, u64)> =
                text.lines().map(|l| l.rsplit_once(' ').unwrap()).map(|(s, v)| (s, v.parse().unwrap())).collect();
            prop_assert_eq!(lines.iter().map(|l| l.1).sum::<u64>(), profile.tree.total(Metric::CpuTime).sum);
            // Values of the root itself come first, whatever the root is named.
            let contexts = lines.iter().filter(|l| l.0 != "all");
            let paths: Vec<Vec<&str>> = contexts.map(|l| l.0.split(';').collect()).collect();
            prop_assert!(paths.windows(2).all(|pair| pair[0] < pair[1]), "not sorted, or twice:\n{}", text);
        }
    }
}
