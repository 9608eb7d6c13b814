//! Hottest: chooses the operators with most samples, so that only their tensors are recorded.
//!
//! Owns: when there is enough data to choose, and the choice, which is made once. Because: a user who wants to know
//! what is slow cannot name it yet, and recording the tensors of every operator is expensive. Does not: probe (the
//! capture does).

use deepctx_profile::order::SortRows as _;
use std::time::{Duration, Instant};

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

use deepctx_capture::TensorRequests;

/// Samples within operators before any is chosen. With so many, an operator with a tenth of them is among the first
/// five.
const SAMPLES_MIN: u64 = 100;
/// Interval at which the profile is checked until then.
const INTERVAL: Duration = Duration::from_secs(1);

/// A choice of operators that is still to be made.
#[derive(Debug)]
pub struct HottestOperators {
    most: usize,
    requests: TensorRequests,
    next_check: Instant,
}

impl HottestOperators {
    /// Chooses at most `most` operators and requests their tensors.
    pub fn new(most: usize, requests: TensorRequests) -> Self {
        Self { most, requests, next_check: Instant::now() + INTERVAL }
    }

    /// Chooses if a check is due and there are enough samples. Returns a notice for the user.
    pub(crate) fn choose_if_due(&mut self, profile: &Profile) -> Option<String> {
        let now = Instant::now();
        if now < self.next_check {
            return None;
        }
        self.next_check = now + INTERVAL;
        let chosen = choose(profile, self.most)?;
        request(chosen, |chosen| self.requests.ask(chosen))
    }
}

/// Requests the tensors of these operators. Returns a notice for the user; `None` if there is no room for the request,
/// which the next check makes again.
fn request(chosen: Vec<String>, ask: impl FnOnce(Vec<String>) -> bool) -> Option<String> {
    let notice = format!(
        "hottest operators: {}; their tensors are recorded once their probes are attached",
        chosen.join(", ")
    );
    ask(chosen).then_some(notice)
}

/// The operators with most exclusive samples (nested operators count for themselves), hottest first; `None` if there
/// are too few samples.
fn choose(profile: &Profile, most: usize) -> Option<Vec<String>> {
    // By node: the innermost operator, as an index of its name. Parents come before their children.
    let mut innermost: Vec<Option<usize>> = Vec::with_capacity(profile.tree.len());
    let mut found: Vec<(&str, u64)> = Vec::new();
    for node in profile.tree.nodes() {
        let operator = match profile.frames.get(node.frame) {
            Frame::Operator { name } => {
                Some(profile.strings.get(name)).filter(|name| name.starts_with("aten::"))
            }
            _ => None,
        };
        let place = match operator {
            Some(name) => Some(found.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                found.push((name, 0));
                found.len() - 1
            })),
            None => innermost.get(node.parent.index()).copied().flatten(),
        };
        innermost.push(place);
    }
    for (node, cell) in profile.tree.cells(Metric::Samples) {
        if let Some(place) = innermost.get(node.index()).copied().flatten() {
            found[place].1 += cell.sum;
        }
    }
    found.sort_rows_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
    let samples: u64 = found.iter().map(|(_, samples)| samples).sum();
    let hot = found.into_iter().filter(|(_, samples)| *samples > 0).take(most);
    (samples >= SAMPLES_MIN).then(|| hot.map(|(name, _)| name.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::{Limits, Meta};
    use deepctx_profile::tree::NodeId;

    use super::*;

    /// Stacks, root first, with samples each; `:` marks operators.
    fn check(stacks: &[(&str, u64)], most: usize, expect: Option<&[&str]>) {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        for (stack, samples) in stacks {
            let mut node = NodeId::ROOT;
            for name in stack.split(' ') {
                let text = profile.text(name);
                let frame = if name.contains("::") {
                    Frame::Operator { name: text }
                } else {
                    Frame::Unresolved { reason: text, origin: deepctx_profile::frame::Origin::Native }
                };
                let frame = profile.frame(frame);
                node = profile.tree.child(node, frame);
            }
            profile.tree.add(node, Metric::Samples, *samples);
        }
        let chosen = choose(&profile, most);
        assert_eq!(
            chosen.as_deref(),
            expect.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).as_deref()
        );
    }

    #[test]
    fn operators_are_ranked_by_exclusive_samples() {
        let stacks = [
            ("main aten::linear aten::addmm gemm", 60),
            ("main other aten::addmm gemm", 10),
            ("main aten::linear", 30),
            ("main aten::relu vector", 40),
            ("main aten::zero_", 1),
            ("main loop", 900),
            ("main xla::cpu::Dot", 800),
        ];
        check(&stacks, 3, Some(&["aten::addmm", "aten::relu", "aten::linear"]));
        check(&stacks, 9, Some(&["aten::addmm", "aten::relu", "aten::linear", "aten::zero_"]));
    }

    #[test]
    fn tensors_are_promised_once_they_are_requested() {
        let chosen = || vec!["aten::mm".to_owned()];
        assert_eq!(request(chosen(), |_| false), None);
        let notice = request(chosen(), |names| names == chosen());
        assert!(notice.unwrap().starts_with("hottest operators: aten::mm; "));
    }

    #[test]
    fn nothing_is_chosen_with_too_few_samples() {
        check(&[("main aten::mm gemm", SAMPLES_MIN - 1), ("main loop", 900)], 3, None);
        check(&[("main aten::mm gemm", SAMPLES_MIN)], 3, Some(&["aten::mm"]));
        check(&[], 3, None);
    }
}
