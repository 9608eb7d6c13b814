//! A figure: a number with its unit, the runs behind its median, its target and its peers.
//!
//! Owns: medians and the one JSON line per figure. Because: numbers that are compared over months must have one form
//! and state their origin. Does not: measure.

use serde_json::{Map, Value, json};

/// Target of a figure.
#[derive(Clone, Copy)]
pub(super) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// One figure before output.
pub(super) struct Figure {
    name: &'static str,
    case: String,
    unit: &'static str,
    runs: Vec<f64>,
    target: Option<Target>,
    peers: Map<String, Value>,
    notes: Map<String, Value>,
}

impl Figure {
    pub(super) fn new(
        name: &'static str,
        case: impl Into<String>,
        unit: &'static str,
        runs: Vec<f64>,
    ) -> Self {
        Self { name, case: case.into(), unit, runs, target: None, peers: Map::new(), notes: Map::new() }
    }

    pub(super) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Adds another tool's value, measured in the same run.
    pub(super) fn peer(mut self, name: &str, runs: &[f64]) -> Self {
        self.peers.insert(name.to_owned(), json!(rounded(median(runs))));
        self
    }

    pub(super) fn note(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.notes.insert(name.to_owned(), value.into());
        self
    }

    /// The figure as one line of JSON.
    pub(super) fn line(&self) -> Value {
        let value = median(&self.runs);
        let mut line = json!({
            "figure": self.name, "case": self.case, "value": rounded(value), "unit": self.unit,
            "runs": self.runs.iter().map(|run| rounded(*run)).collect::<Vec<_>>(),
        });
        if let Some(target) = self.target {
            let (sign, bound, met) = match target {
                Target::AtMost(bound) => ("<=", bound, value <= bound),
                Target::AtLeast(bound) => (">=", bound, value >= bound),
            };
            line["target"] = json!(format!("{sign} {bound}"));
            line["met"] = json!(met);
        }
        if !self.peers.is_empty() {
            line["peer"] = Value::Object(self.peers.clone());
        }
        for (name, note) in &self.notes {
            line[name] = note.clone();
        }
        line
    }

    pub(super) fn print(&self) {
        println!("{}", self.line());
    }
}

/// Median; the mean of the middle two for an even count; NaN for none.
pub(super) fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        n => sorted[n / 2],
    }
}

/// Parses a duration as printed by Rust: a number with its unit.
pub(super) fn in_seconds(text: &str) -> Option<f64> {
    let units = [("ns", 1e-9), ("µs", 1e-6), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

/// Rounds to six significant digits: no run is more precise.
fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let text = format!("{value:.5e}");
    text.parse::<f64>().map_or(Value::Null, |number| json!(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_the_median_run_with_target_and_peers() {
        let figure = Figure::new("sample-cost", "60 frames", "ns", vec![7.0, 5.0, 6.0])
            .target(Target::AtMost(6.5))
            .peer("other", &[1.0, 2.0]);
        let expect = json!({"figure": "sample-cost", "case": "60 frames", "value": 6.0, "unit": "ns", "runs": [7.0, 5.0, 6.0],
            "target": "<= 6.5", "met": true, "peer": {"other": 1.5}});
        assert_eq!(figure.line(), expect);
    }

    #[test]
    fn nothing_measured_is_null_and_meets_no_target() {
        let line = Figure::new("x", "", "s", vec![]).target(Target::AtLeast(1.0)).line();
        assert_eq!((&line["value"], &line["met"]), (&Value::Null, &json!(false)));
    }
}
