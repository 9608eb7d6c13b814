//! The list of all rules in docs/rules.md: from their declarations, from what they say without input, from tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use deepctx_analysis::findings::{Findings, RULES, Rule, Settings};
use deepctx_analysis::{Selection, Subset};
use deepctx_profile::{Metric, Nanos, text};

/// Where tests of rules are, from the root of the checkout, and what a reader looks for there.
const TESTS: [(&str, &str); 11] = [
    ("analysis/src/findings/rules/device_tests.rs", "findings/rules"),
    ("analysis/src/findings/rules/healthy_tests.rs", "findings/rules"),
    ("analysis/src/findings/rules/loader_tests.rs", "findings/rules"),
    ("analysis/src/findings/rules/machine_tests.rs", "findings/rules"),
    ("analysis/src/findings/rules/tests.rs", "findings/rules"),
    ("analysis/src/findings/rules/rank_tests.rs", "findings/rules"),
    ("tests/tests/torch/defects.rs", "torch"),
    ("tests/tests/jax/defects.rs", "jax"),
    ("tests/tests/gpu_cases_live.rs", "gpu"),
    ("tests/tests/gpu_ranks_live.rs", "gpu"),
    ("tests/tests/live_on_finding.rs", "live"),
];

/// Pages whose commands a test runs.
const PAGES: [&str; 3] = ["training-is-slow.md", "memory-grows.md", "gpu-is-idle.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Options that a rule asks for, by profiles that lack one thing after the other.
fn record_with(rule: &Rule) -> BTreeSet<String> {
    let lines = ["", "P py-7 / n f 3000000000", "P py-7 / T py/7 / y /a/t.py:f:1 / n f 3000000000"];
    let mut settings = Settings::default();
    settings.only(rule.id).unwrap();
    let of = |lines: &str| {
        let mut profile = text::parse(lines).unwrap();
        // As many samples as a rule needs.
        let nodes: Vec<_> = profile.tree.cells(Metric::CpuTime).map(|(node, _)| node).collect();
        nodes.iter().for_each(|node| profile.tree.add(*node, Metric::Samples, 300));
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let checks = Findings::compute(&subset, Nanos(10_000_000_000), &settings).checks;
        checks.into_iter().filter_map(|check| check.record_with.map(String::from))
    };
    lines.into_iter().flat_map(of).collect()
}

/// Tests that name a rule, by the function that does.
fn tests(rule: &Rule) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (file, group) in TESTS {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let mut function = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn ") {
                function = name.split('(').next().unwrap();
            }
            let names = [format!("\"{}\"", rule.id), format!("\"{}=", rule.id)];
            let names_it = names.iter().any(|name| line.contains(name)) && !line.contains("--skip");
            if names_it && !function.is_empty() {
                found.insert(format!("{group}: `{function}`"));
            }
        }
    }
    for page in PAGES {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        if text.contains(&format!("- `{}`", rule.id)) || text.contains(&format!("--only {}", rule.id)) {
            found.insert(format!("page [{page}]({page})"));
        }
    }
    found
}

fn cell(of: &str) -> String {
    if of.is_empty() { "–".to_owned() } else { of.replace('|', "\\|") }
}

#[test]
fn the_list_of_rules_is_that_of_their_declarations() {
    const BEGIN: &str = "<!-- list: begin -->\n";
    const END: &str = "<!-- list: end -->";
    let mut table = String::from(
        "| rule | source | its definition | ours | needs | record with | tests |\n|---|---|---|---|---|---|---|\n",
    );
    for rule in RULES {
        let options = record_with(rule).into_iter().map(|words| match words.starts_with("--") {
            true => format!("`{words}`"),
            false => words,
        });
        let options = options.collect::<Vec<_>>().join(", or ");
        let tests = tests(rule);
        assert!(!tests.is_empty(), "no test names {}", rule.id);
        let tests = tests.into_iter().collect::<Vec<_>>().join(", ");
        let cells = [rule.source, rule.origin, rule.definition, rule.needs, &options, &tests].map(cell);
        writeln!(table, "| `{}` | {} |", rule.id, cells.join(" | ")).unwrap();
    }
    let path = root().join("docs/rules.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    expect_test::expect_file![path].assert_eq(&format!("{before}{BEGIN}{table}{END}{after}"));
}
