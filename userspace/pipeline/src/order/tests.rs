use proptest::prelude::*;

use super::*;

fn key(time_ns: u64, cpu: u16, sequence: u64) -> Key {
    Key { time_ns, cpu, sequence }
}

/// `input`: times, one record each; `|N` releases everything up to N. `expect`: the output, `!` for late records.
fn check(capacity: usize, input: &str, expect: &str) {
    let mut order = Order::new(capacity);
    let mut out = Vec::new();
    for (n, step) in input.split_whitespace().enumerate() {
        let watermark = match step.strip_prefix('|') {
            Some(watermark) => watermark.parse().unwrap(),
            None => {
                let time = step.parse().unwrap();
                if order.push(key(time, 0, n as u64), time).is_err() {
                    out.push(format!("!{time}"));
                }
                0
            }
        };
        while let Some((_, time)) = order.pop(watermark) {
            out.push(time.to_string());
        }
    }
    assert_eq!(out.join(" "), expect);
}

#[test]
fn records_leave_in_order_and_not_before_the_watermark() {
    check(9, "3 1 2 |2 |9", "1 2 3");
    check(9, "3 1 2 |2", "1 2");
    check(9, "7 |6", "");
}

#[test]
fn a_record_whose_place_has_passed_is_late() {
    check(9, "5 |5 4 6 |9", "5 !4 6");
    check(9, "5 |9 5 |9", "5 5");
}

#[test]
fn beyond_the_capacity_the_oldest_leaves_early() {
    check(2, "30 10 20", "10");
    check(2, "30 10 20 5 |99", "10 !5 20 30");
}

#[test]
fn records_of_one_time_are_ordered_by_cpu_and_number() {
    let mut order = Order::new(9);
    for k in [key(1, 1, 1), key(1, 0, 8), key(1, 0, 7)] {
        order.push(k, ()).unwrap();
    }
    let out: Vec<_> = std::iter::from_fn(|| order.pop(u64::MAX)).map(|(k, ())| (k.cpu, k.sequence)).collect();
    assert_eq!(out, [(0, 7), (0, 8), (1, 1)]);
}

proptest! {
    /// Whatever the interleaving of CPUs and watermarks, the output is sorted and nothing vanishes.
    #[test]
    fn every_record_is_given_once_in_order_or_is_late(
        steps in prop::collection::vec((0u64..50, 0u16..4, prop::option::weighted(0.3, 0u64..60)), 0..200), capacity in 1usize..64,
    ) {
        let mut order = Order::new(capacity);
        let (mut given, mut late) = (Vec::new(), 0);
        for (n, (time, cpu, watermark)) in steps.iter().enumerate() {
            late += usize::from(order.push(key(*time, *cpu, n as u64), n).is_err());
            if let Some(watermark) = watermark {
                given.extend(std::iter::from_fn(|| order.pop(*watermark)));
            }
            given.extend(std::iter::from_fn(|| order.is_over_capacity().then(|| order.pop(0)).flatten()));
            prop_assert!(order.len() <= capacity);
        }
        given.extend(std::iter::from_fn(|| order.pop(u64::MAX)));
        prop_assert!(given.is_sorted_by_key(|(key, _)| *key));
        let mut items: Vec<_> = given.iter().map(|(_, n)| *n).collect();
        items.sort_unstable();
        items.dedup();
        prop_assert_eq!(items.len(), given.len());
        prop_assert_eq!(given.len() + late, steps.len());
        prop_assert!(order.len() == 0);
    }

    /// Streams that are in order on each CPU, and not further apart than the slack, lose nothing.
    #[test]
    fn a_slack_larger_than_the_skew_makes_nothing_late(
        gaps in prop::collection::vec((0u16..4, 0u64..10), 1..300), skew in 0u64..100,
    ) {
        let mut order = Order::new(10_000);
        let mut newest = 0;
        for (n, (cpu, gap)) in gaps.iter().enumerate() {
            newest += gap;
            let time = 1000 + newest - skew.min(u64::from(*cpu) * 31 % (skew + 1));
            prop_assert_eq!(order.push(key(time, *cpu, n as u64), ()), Ok(()));
            while order.pop((1000 + newest).saturating_sub(skew + 1)).is_some() {}
        }
    }
}
