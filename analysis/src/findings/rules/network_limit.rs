//! Network links near their capacity.

use std::collections::BTreeMap;

use super::pressure::no_system_metrics;
use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;
use crate::tables::system::rows;

pub(super) const RULE: Rule = Rule {
    id: "network-limit",
    what: "a network link that carries nearly all that it can for a part of the time",
    definition: "windows of time in which an interface received or sent > `busy_percent` of what its link carries \
                 (`/sys/class/net/*/speed`) / all windows ≥ `min_percent`",
    source: "SageMaker Debugger (`OverallSystemUsage` shows networks, and judges none); thresholds our own",
    origin: "–",
    needs: "system metrics, and interfaces that say how fast their links are",
    parameters: &[
        Parameter { name: "busy_percent", default: 80.0, source: "own" },
        Parameter { name: "min_percent", default: 10.0, source: "own" },
    ],
    check,
};

/// A direction of an interface.
struct Direction {
    interface: String,
    name: &'static str,
    /// Share of its link, window by window.
    percent: Vec<f64>,
}

/// Both directions of every link with known speed.
fn directions(facts: &Facts<'_>) -> Result<Vec<Direction>, Outcome> {
    let rows = rows(facts.whole(), facts.elapsed());
    let of = |figure: &'static str| rows.iter().filter(move |row| row.figure == figure);
    let links = of("network-link-megabits").filter(|row| row.max > 0.0);
    let bytes_per_second: BTreeMap<_, _> =
        links.map(|row| (row.resource.as_str(), row.max * 1e6 / 8.0)).collect();
    let mut directions = Vec::new();
    for (figure, name) in [("network-received-bytes", "receives"), ("network-sent-bytes", "sends")] {
        for row in of(figure) {
            let Some(most) = bytes_per_second.get(row.resource.as_str()) else { continue };
            let percent = row.by_time.iter().map(|rate| rate * 100.0 / most).collect();
            directions.push(Direction { interface: row.resource.clone(), name, percent });
        }
    }
    match (directions.is_empty(), of("network-sent-bytes").next()) {
        (false, _) => Ok(directions),
        (true, None) => Err(no_system_metrics()),
        (true, Some(_)) => Err(Outcome::missing(reason::NO_LINK_SPEED)),
    }
}

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let directions = match directions(facts) {
        Ok(directions) => directions,
        Err(missing) => return missing,
    };
    let limit = values.get("busy_percent");
    let busy = |of: &Direction| of.percent.iter().filter(|percent| **percent > limit).count() as u64;
    let datapoints = directions.iter().map(|of| of.percent.len() as u64).max().unwrap_or(0).max(1);
    let Some(fullest) = directions.iter().max_by_key(|of| busy(of)) else { return no_system_metrics() };
    let violations = busy(fullest).min(datapoints);
    let share = violations as f64 * 100.0 / datapoints as f64;
    if violations == 0 || share < values.get("min_percent") {
        return Outcome::Healthy { datapoints };
    }
    let peak = fullest.percent.iter().copied().fold(0.0, f64::max);
    let draft = Draft {
        title: format!(
            "For {} of the capture, {} {} more than {limit:.0}% of what its link carries",
            written(share),
            fullest.interface,
            fullest.name
        ),
        metric: "length of the capture",
        share_percent: share,
        gain: Gain::Bounded {
            at_most_percent: share,
            because: "a faster link is of use while this one is full".into(),
        },
        places: Vec::new(),
        evidence: vec![
            Figure::measured("windows with more than the limit", share, "percent"),
            Figure::measured("of the link, most", peak, "percent"),
            Figure::measured("directions of links that were looked at", directions.len() as f64, "count"),
        ],
        advice: "Send less (compress gradients, accumulate them over steps, keep data near its readers), overlap \
                 communication with computing, or use a faster link. Traffic of RDMA is not in these counts.",
        datapoints,
        violations,
    };
    Outcome::Findings(vec![draft.finding(values)])
}
