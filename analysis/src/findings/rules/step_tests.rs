//! Rules on training steps whose single times are known by their histogram.

use deepctx_profile::metric::Metric;
use deepctx_profile::text;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use crate::findings::{Finding, Findings, Settings};
use crate::{Selection, Subset};

/// What `uneven-steps` says of steps of these lengths in milliseconds, by call path.
fn uneven_steps(paths: &[(&str, &[(u64, u64)])], n_outliers: Option<f64>) -> Option<Finding> {
    let mut profile = text::parse("").unwrap();
    for (path, steps) in paths {
        let mut node = NodeId::ROOT;
        for part in path.split(" / ") {
            let frame = text::parse_frame(&mut profile, part).unwrap();
            node = profile.tree.child(node, frame);
        }
        for (count, ms) in *steps {
            (0..*count).for_each(|_| profile.add_step(node, Nanos(ms * 1_000_000)));
        }
    }
    let mut settings = Settings::default();
    settings.only("uneven-steps").unwrap();
    n_outliers.into_iter().for_each(|most| settings.set("uneven-steps", "n_outliers", most).unwrap());
    let subset = Subset::new(&profile, &Selection::of(Metric::StepTime));
    Findings::compute(&subset, Nanos(10_000_000_000), &settings).findings.pop()
}

#[test]
fn steps_far_above_the_mean_are_counted_without_events() {
    const STEP: &str = "P py-7 / y /a/t.py:main:9 / r step";
    let of = |steps: &[(u64, u64)], most| uneven_steps(&[(STEP, steps)], most).map(|found| found.violations);
    assert_eq!(of(&[(980, 1), (20, 50)], None), Some(20));
    assert_eq!(of(&[(990, 1), (10, 50)], None), None);
    assert_eq!(of(&[(990, 1), (10, 50)], Some(9.0)), Some(10));
    // The limit is 22.795 ms, in the bucket of 22.020 to 23.069 ms.
    let straddling = uneven_steps(&[(STEP, &[(978, 1), (2, 23), (20, 50)])], None).unwrap();
    assert_eq!(straddling.violations, 20);
    let figures: Vec<String> = straddling.evidence.iter().map(ToString::to_string).collect();
    let expect = "steps as far above the mean, at least: 20 (bounded)";
    assert!(figures.iter().any(|figure| figure == expect), "{figures:?}");
}

#[test]
fn steps_of_one_line_are_judged_together_and_alone() {
    let paths: [(&str, &[(u64, u64)]); 3] = [
        ("P py-7 / y /a/t.py:main:9 / r step", &[(490, 1), (10, 50)]),
        ("P py-7 / n run / y /a/t.py:main:9 / r step", &[(490, 1), (10, 50)]),
        ("P py-7 / y /a/t.py:epoch:4 / r epoch", &[(40, 1000)]),
    ];
    let found = uneven_steps(&paths, None).unwrap();
    assert_eq!((found.datapoints, found.violations), (1000, 20));
    assert_eq!(found.title, "Of 1000 steps at t.py:main:9, the longest took 50.0 ms, the mean 1.98 ms");
}
