use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::profile::Executable;
use deepctx_profile::testing::{grow, selections};
use deepctx_profile::text::parse_frame;
use deepctx_profile::units::Bytes;
use deepctx_profile::view::GroupBy;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::render::text::write_comparison;

fn profile(lines: &str) -> Profile {
    deepctx_profile::text::parse(lines).unwrap()
}

/// A profile with the given number of 10 ms samples in each context.
fn samples(rows: &[(&str, u64)]) -> Profile {
    let lines: Vec<String> =
        rows.iter().map(|(path, n)| format!("{path} 10000000\n").repeat(*n as usize)).collect();
    profile(&lines.concat())
}

const CPU: Selection = Selection::of(Metric::CpuTime);

fn check(before: &[(&str, u64)], after: &[(&str, u64)], expect: Expect) {
    let mut out = Vec::new();
    write_comparison(&compare(&samples(before), &samples(after), &CPU).changes(3), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (_, rows) = text.split_once("\nfunctions\n").unwrap();
    expect.assert_eq(rows);
}

#[test]
fn short_names_of_templates_differ_where_their_names_do() {
    let of = |kind: &str| {
        format!("P app-1 / n std::vector<{kind}, std::allocator<{kind}> >::push_back({kind} const&)")
    };
    let (of_int, of_long) = (of("int"), of("long"));
    let (before, after) =
        ([(of_int.as_str(), 500), (&of_long, 500)], [(of_int.as_str(), 100), (&of_long, 900)]);
    let expect = expect![[r#"
            change        ±   before    after
           -40.00%    4.10%   50.00%   10.00%  std::vector::push_back<int>
           +40.00%    4.10%   50.00%   90.00%  std::vector::push_back<long>

        contexts
            change        ±   before    after
           -40.00%    4.10%   50.00%   10.00%  app;std::vector::push_back<int>
           +40.00%    4.10%   50.00%   90.00%  app;std::vector::push_back<long>
    "#]];
    check(&before, &after, expect);
    let changes = compare(&samples(&before), &samples(&after), &CPU).changes(3);
    let mut out = Vec::new();
    crate::render::markdown::write_comparison(&changes, &mut out).unwrap();
    let markdown = String::from_utf8(out).unwrap();
    assert!(markdown.contains("`std::vector::push_back<int>`"), "{markdown}");
    // Programs read full names.
    let mut out = Vec::new();
    crate::render::json::write(&changes, &mut out).unwrap();
    let json = String::from_utf8(out).unwrap();
    assert!(json.contains("std::vector<int, std::allocator<int> >::push_back(int const&)"), "{json}");
}

#[test]
fn shares_are_compared_and_the_largest_change_comes_first() {
    check(
        &[("P app-1 / n a", 500), ("P app-1 / n b", 500)],
        &[("P app-2 / n a", 1500), ("P app-2 / n c", 500)],
        expect![[r#"
                change        ±   before    after
               -50.00%    2.89%   50.00%    0.00%  b
               +25.00%    3.65%   50.00%   75.00%  a
               +25.00%    2.89%    0.00%   25.00%  c

            contexts
                change        ±   before    after
               -50.00%    2.89%   50.00%    0.00%  app;b
               +25.00%    3.65%   50.00%   75.00%  app;a
               +25.00%    2.89%    0.00%   25.00%  app;c
        "#]],
    );
}

#[test]
fn a_longer_run_of_the_same_is_no_difference() {
    check(
        &[("P app-1 / n a", 10)],
        &[("P app-9 / n a", 500)],
        expect![[r#"
          nothing differs

        contexts
          nothing differs
    "#]],
    );
}

#[test]
fn a_change_that_chance_may_explain_is_marked() {
    check(
        &[("P app-1 / n a", 10), ("P app-1 / n b", 10)],
        &[("P app-1 / n a", 11), ("P app-1 / n b", 9)],
        expect![[r#"
                change        ±   before    after
                +5.00%?  31.58%   50.00%   55.00%  a
                -5.00%?  31.58%   50.00%   45.00%  b

            contexts
                change        ±   before    after
                +5.00%?  31.58%   50.00%   55.00%  app;a
                -5.00%?  31.58%   50.00%   45.00%  app;b
        "#]],
    );
}

#[test]
fn another_build_of_the_same_program_is_no_difference() {
    let before = "P app-1 / T w-1/8 / y /v1/m.py:f:3 / n g.constprop.0@/l/libc.so.6 5";
    let after = "P app-2 / T w-2/9 / y /v2/m.py:f:7 / n g.part.3.cold@/l/libc.so.7 9";
    let selection = Selection { group_by: GroupBy::Thread, ..CPU };
    let comparison = compare(&profile(before), &profile(after), &selection);
    assert_eq!(comparison.contexts(), []);
    assert_eq!(comparison.stacks(), [(vec!["app", "w-*", "m.py:f", "g"], [5, 9])]);
}

#[test]
fn unnamed_offsets_distinguish_contexts_only_within_one_build() {
    let unnamed = |offset: u64, build_id: &str| {
        let mut profile = profile("");
        let (module, reason) = (profile.text("/l/libx.so.1"), profile.text("no-symbol"));
        let role = Role::Code;
        let frame = profile.frame(Frame::NativeUnnamed { module, offset, reason, role });
        profile.add(&[frame], Metric::CpuTime, 5);
        let build_id = build_id.to_owned();
        profile.executables.push(Executable { path: "/l/libx.so.1".to_owned(), build_id, size: Bytes(1) });
        profile
    };
    let names = |before: &Profile, after: &Profile| -> Vec<String> {
        let stacks = compare(before, after, &CPU);
        stacks.stacks().into_iter().map(|(path, values)| format!("{} {values:?}", path.join(";"))).collect()
    };
    let same = names(&unnamed(16, "aa"), &unnamed(32, "aa"));
    assert_eq!(same, ["libx.so+0x10 [5, 0]", "libx.so+0x20 [0, 5]"]);
    assert_eq!(names(&unnamed(16, "aa"), &unnamed(32, "bb")), ["libx.so+? [5, 5]"]);
    assert_eq!(names(&unnamed(16, ""), &unnamed(32, "")), ["libx.so+? [5, 5]"]);
}

#[test]
fn chances_are_those_of_the_normal_distribution() {
    for (z, expect) in [(0.0, 1.0), (1.0, 0.317_310_5), (1.959_964, 0.05), (3.0, 0.002_699_8)] {
        assert!((chance_beyond(z) - expect).abs() < 1e-6, "{z}: {}", chance_beyond(z));
    }
}

/// The given number of samples, drawn over equally likely contexts by a small generator.
fn draw(seed: &mut u64, contexts: u64, n: u64) -> Vec<u64> {
    let mut counts = vec![0; contexts as usize];
    for _ in 0..n {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        counts[(*seed % contexts) as usize] += 1;
    }
    counts
}

#[test]
fn random_differences_between_two_draws_stay_within_the_bounds() {
    let names: Vec<String> = (0..40).map(|n| format!("P app-1 / n f{n:02}")).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let (mut rows, mut beyond, mut significant) = (0, 0, 0);
    for _ in 0..20 {
        let [before, after] = [300, 900].map(|n| {
            let counts = draw(&mut seed, 40, n);
            let rows: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(counts).collect();
            samples(&rows)
        });
        for row in compare(&before, &after, &CPU).contexts() {
            rows += 1;
            beyond += u64::from(row.change.abs() > row.bound);
            significant += u64::from(row.significant);
        }
    }
    // Of 800 random changes, 40 may be beyond the bounds; nearly none may count as more than noise.
    assert!(rows > 700 && (10..70).contains(&beyond) && significant <= 3, "{rows} {beyond} {significant}");
}

#[test]
fn any_growth_from_zero_exceeds_every_percentage() {
    let grown = |before: u64, after: u64, limit: &str| {
        let of = |n| samples(&[("P app-1 / n a", n)]);
        let found = compare(&of(before), &of(after), &CPU).beyond(limit.parse().unwrap());
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for limit in ["total+0%", "total+5%", "total+1000000%"] {
        assert_eq!(grown(0, 1, limit), ["the total grew from 0"], "{limit}");
        assert!(grown(0, 0, limit).is_empty() && grown(100, 0, limit).is_empty(), "{limit}");
    }
    // A function has no share of nothing: it can neither grow nor shrink.
    assert!(grown(0, 0, "+0%").is_empty() && grown(100, 0, "+0%").is_empty());
}

#[test]
fn profiles_with_little_in_common_are_noted() {
    let notes = |before: &[(&str, u64)], after: &[(&str, u64)]| {
        compare(&samples(before), &samples(after), &CPU).changes(3).notes()
    };
    let of = |function: &str| format!("P app-1 / n main / n {function}");
    let (a, b, common) = (of("a"), of("b"), of("common"));
    let note = notes(&[(&a, 95), (&common, 5)], &[(&b, 97), (&common, 3)]);
    let expect = "only 5.0% of the values before and 3.0% after lie in contexts that both profiles have: these may \
                  be different programs";
    assert_eq!(note, [expect]);
    assert!(notes(&[(&a, 80), (&common, 20)], &[(&b, 97), (&common, 3)]).is_empty());
    // What is only called from one of them counts for the other one.
    let below = of("a / n deeper");
    assert!(notes(&[(&a, 10)], &[(&below, 10), (&a, 10)]).is_empty());
    assert!(notes(&[], &[(&a, 10)]).is_empty());
}

#[test]
fn totals_are_shown_where_the_old_one_is_zero() {
    let written = |rows: usize| {
        let after = samples(&[("P app-1 / n a", 50), ("P app-1 / n b", 50)]);
        let changes = compare(&samples(&[]), &after, &CPU).changes(rows);
        let (mut text, mut markdown) = (Vec::new(), Vec::new());
        write_comparison(&changes, &mut text).unwrap();
        crate::render::markdown::write_comparison(&changes, &mut markdown).unwrap();
        [text, markdown].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [text, markdown] = written(1);
    assert!(text.contains("\ntotal 0 ns before and 1.00 s after\n"), "{text}");
    assert!(text.contains("\n1 more differs, "), "{text}");
    assert!(markdown.contains("\nThe total was 0 ns before and 1.00 s after.\n"), "{markdown}");
    assert!(written(0)[0].contains("\n2 more differ, "));
}

#[test]
fn one_value_is_singular() {
    let [one, two] = [1, 2].map(|n| samples(&[("P app-1 / n a", n)]));
    let changes = compare(&one, &two, &CPU).changes(3);
    let (mut text, mut markdown) = (Vec::new(), Vec::new());
    write_comparison(&changes, &mut text).unwrap();
    crate::render::markdown::write_comparison(&changes, &mut markdown).unwrap();
    for written in [text, markdown] {
        let written = String::from_utf8(written).unwrap();
        assert!(written.contains(", 1 value before and 2 after\n"), "{written}");
    }
}

#[test]
fn options_that_change_what_is_shown_are_noted() {
    let with = |options: &[(&str, &str)]| {
        let mut profile = samples(&[("P app-1 / n a", 10)]);
        profile.meta.options = options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        profile
    };
    let before = with(&[
        ("freq", "99"),
        ("context", "python,native"),
        ("probe", "operators,modules"),
        ("event", "cpu-clock"),
        ("duration", "10s"),
    ]);
    let after = with(&[
        ("freq", "499"),
        ("context", "native,python"),
        ("probe", ""),
        ("shapes", "hottest:3"),
        ("event", "cpu-clock"),
        ("duration", "20s"),
    ]);
    let changes = compare(&before, &after, &CPU).changes(3);
    let expect = [
        "--freq was 99 before and 499 after: shares can be compared, numbers of samples cannot",
        "--probe was operators,modules before and nothing after: frames of it that one profile lacks look like changes",
    ];
    assert_eq!(changes.notes(), expect);
    let mut text = Vec::new();
    write_comparison(&changes, &mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains(&format!("\nnote: {}\n", expect[0])));
    let json = serde_json::to_value(&changes).unwrap();
    assert_eq!(json["matched"]["after"], 1.0);
    assert_eq!(json["options"][1]["option"], "probe");
    assert_eq!(json["options"][1]["effect"], "one-sided-frames");
    // An import stores no options.
    assert!(compare(&with(&[]), &after, &CPU).options.is_empty());
    let mut markdown = Vec::new();
    let hostile = compare(&before, &with(&[("probe", "`x`|\u{202e}<b>\u{7}")]), &CPU).changes(3);
    crate::render::markdown::write_comparison(&hostile, &mut markdown).unwrap();
    let markdown = String::from_utf8(markdown).unwrap();
    assert!(markdown.contains(r"\`x\`\|\?\<b\>\?"), "{markdown}");
}

/// A capture of one context with these options.
fn captured(context: &str, probe: &str, path: &str) -> Profile {
    let mut profile = samples(&[(path, 500)]);
    let options = [("context", context), ("probe", probe)];
    profile.meta.options = options.map(|(of, value)| (of.to_owned(), value.to_owned())).to_vec();
    profile
}

#[test]
fn frames_that_only_one_capture_could_have_are_no_change() {
    let check = |before: [&str; 3], after: [&str; 3], stack: &str, note: &str| {
        let [before, after] = [before, after].map(|[context, probe, path]| captured(context, probe, path));
        // The same from both sides.
        for (one, other) in [(&before, &after), (&after, &before)] {
            let comparison = compare(one, other, &CPU);
            assert_eq!(comparison.contexts(), []);
            let stacks = comparison.stacks();
            assert_eq!(stacks.iter().map(|(frames, _)| frames.join(";")).collect::<Vec<_>>(), [stack]);
            let notes = comparison.changes(3).notes();
            assert!(notes.len() == 1 && notes[0].ends_with(note), "{notes:?}");
        }
    };
    let all = "python,native,kernel";
    let plain = [all, "", "P app-1 / y t.py:f:1 / n work"];
    let ranged = [all, "ranges", "P app-1 / r step / y t.py:f:1 / r inner / n work / r end"];
    check(plain, ranged, "app;t.py:f;work", ": ranges are left out of both profiles");
    let both = [all, "ranges,modules", "P app-1 / r step / l h.0 (Block) / y t.py:f:1 / n work"];
    check(plain, both, "app;t.py:f;work", ": layers, ranges are left out of both profiles");
    let moved = [all, "ranges,backward", "P app-1 / r step / y t.py:f:1 / n work"];
    let and_others =
        ": ranges are left out of both profiles; other frames of it that one profile lacks look like changes";
    check(plain, moved, "app;t.py:f;work", and_others);
    let whole = [all, "", "P app-1 / y t.py:f:1 / i eval / o aten::mm / n work / k read"];
    let python = ["python", "", "P app-1 / y t.py:f:1"];
    let note = ": kernel frames, native frames, operators are left out of both profiles";
    check(python, whole, "app;t.py:f", note);
    let native = ["native,kernel", "", "P app-1 / n eval / o aten::mm / n work / k read"];
    let note = ": Python frames are left out of both profiles";
    check(native, whole, "app;eval;aten::mm;work;read_[k]", note);
}

#[test]
fn frames_that_both_captures_have_stay() {
    // The program of the first capture made no range, or the option did not differ.
    for (before, after) in [("ranges", "ranges"), ("modules", "modules")] {
        let before = captured("native", before, "P app-1 / n work");
        let after = captured("native", after, "P app-1 / r step / n work");
        assert_eq!(compare(&before, &after, &CPU).contexts().len(), 2);
    }
    // Both have operators, whatever the options say.
    let before = captured("native", "operators", "P app-1 / o aten::mm / n work");
    let after = captured("native", "", "P app-1 / o aten::add / n work");
    assert_eq!(compare(&before, &after, &CPU).contexts().len(), 2);
}

#[test]
fn wrappers_of_layers_are_left_out_with_them() {
    let call = |profile: &mut Profile, role: Role| {
        let function = profile.text("Module._call_impl");
        let file = profile.text("torch/nn/modules/module.py");
        profile.frame(Frame::Python { function, file, line: None, first_line: None, role })
    };
    let capture = |probe: &str, role: Role| {
        let mut profile = captured("python", probe, "P app-1 / y t.py:main:1");
        let mut stack = vec![parse_frame(&mut profile, "P app-1").unwrap()];
        if !probe.is_empty() {
            stack.push(parse_frame(&mut profile, "l h.0 (Block)").unwrap());
        }
        stack.push(call(&mut profile, role));
        stack.push(parse_frame(&mut profile, "y t.py:forward:7").unwrap());
        profile.add(&stack, Metric::CpuTime, 500);
        profile
    };
    let (before, after) = (capture("", Role::Code), capture("modules", Role::Dispatch));
    let comparison = compare(&before, &after, &CPU);
    let stacks: Vec<String> = comparison.stacks().iter().map(|(frames, _)| frames.join(";")).collect();
    assert_eq!(stacks, ["app;t.py:forward", "app;t.py:main"]);
}

#[test]
fn long_contexts_are_shortened_in_their_middle() {
    let deep = |leaf: &str| {
        let callers: Vec<String> = (0..30).map(|n| format!("n f{n}")).collect();
        format!("P app-1 / {} / n {leaf}", callers.join(" / "))
    };
    let [before, after] = ["a", "b"].map(|leaf| samples(&[(&deep(leaf), 500)]));
    let mut out = Vec::new();
    write_comparison(&compare(&before, &after, &CPU).changes(3), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("  app;…;f24;f25;f26;f27;f28;f29;a\n"), "{text}");
}

proptest! {
    #[test]
    fn every_value_stands_in_exactly_one_context(
        before in prop::collection::vec((prop::collection::vec(0u8..14, 0..10), 0u64..1000), 0..40),
        after in prop::collection::vec((prop::collection::vec(0u8..14, 0..10), 0u64..1000), 0..40),
        selection in selections(),
    ) {
        let grown = |stacks: &[(Vec<u8>, u64)]| {
            let mut all = profile("");
            grow(&mut all, stacks, Metric::CpuTime);
            all
        };
        let (before, after) = (grown(&before), grown(&after));
        let comparison = compare(&before, &after, &selection);
        let sums = comparison.stacks().iter().fold([0, 0], |sum, (_, v)| [sum[0] + v[0], sum[1] + v[1]]);
        prop_assert_eq!(sums, [&before, &after].map(|p| p.tree.total(Metric::CpuTime).sum));
        for row in comparison.contexts().iter().chain(&comparison.functions()) {
            prop_assert!(row.bound >= 0.0 && row.change.abs() <= 1.0 && row.change != 0.0);
        }
    }
}
