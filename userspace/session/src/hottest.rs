//! Hottest: the operators that most samples are in, so that their tensors are told and those of others cost nothing.
//!
//! Owns: when enough is known to choose, and the choice, which is made once. Because: who asks what is slow cannot name it yet.
//! Does not: probe (the capture does), or know what a tensor is.

use std::time::{Duration, Instant};

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

use deepctx_capture::probes::TensorWishes;

/// Samples within operators before any is chosen: an operator with a tenth of them is among the first five by then, whatever
/// chance does.
const SAMPLES_MIN: u64 = 100;
/// How often the profile is looked through until then.
const EVERY: Duration = Duration::from_secs(1);

/// The choice that is still to be made.
#[derive(Debug)]
pub struct Hottest {
    most: usize,
    wishes: TensorWishes,
    next: Instant,
}

impl Hottest {
    /// `most` operators are to be chosen, and told to `wishes`.
    pub fn new(most: usize, wishes: TensorWishes) -> Self {
        Self { most, wishes, next: Instant::now() + EVERY }
    }

    /// Chooses, when it is time and enough is known. Gives what the user should know of it.
    pub(crate) fn look(&mut self, profile: &Profile) -> Option<String> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let chosen = choose(profile, self.most)?;
        let said = format!("tensors are told from now on of {}", chosen.join(", "));
        self.wishes.ask(chosen);
        Some(said)
    }
}

/// The operators that most samples are in, those within them left out, hottest first; `None` when there are too few samples.
fn choose(profile: &Profile, most: usize) -> Option<Vec<String>> {
    // By node: the innermost operator, as the place of its name. Parents come before their children.
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
    found.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
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
    fn operators_are_ranked_by_what_is_in_them_and_in_no_operator_within() {
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
    fn nothing_is_chosen_before_enough_samples_are_in_operators() {
        check(&[("main aten::mm gemm", SAMPLES_MIN - 1), ("main loop", 900)], 3, None);
        check(&[("main aten::mm gemm", SAMPLES_MIN)], 3, Some(&["aten::mm"]));
        check(&[], 3, None);
    }
}
