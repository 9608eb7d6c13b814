//! Markers: which names of ranges end a training step.
//!
//! Owns: the names that the user gave, and which of them have ended a training step. Because: a name that matches no
//! range is probably a typo, and the user should know. Does not: measure training steps.

/// Prefixes of the names of ranges that end a training step, and whether each was seen.
#[derive(Debug)]
pub(super) struct Markers(Vec<(String, bool)>);

impl Markers {
    /// Markers, none seen so far.
    pub(super) fn new(names: Vec<String>) -> Self {
        Self(names.into_iter().map(|name| (name, false)).collect())
    }

    /// Whether a range of this name ends a training step.
    pub(super) fn match_range(&mut self, range: &str) -> bool {
        let marker = self.0.iter_mut().find(|(name, _)| range.starts_with(&**name));
        marker.map(|(_, seen)| *seen = true).is_some()
    }

    /// The names that no range began with.
    pub(super) fn unseen(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, seen)| !seen).map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_matches_ranges_by_prefix_and_is_then_seen() {
        let mut markers = Markers::new(vec!["Optimizer.step#".into(), "train:step".into()]);
        assert!(markers.match_range("train:step 7") && markers.match_range("train:step"));
        assert!(!markers.match_range("aten::add") && !markers.match_range("train"));
        assert_eq!(markers.unseen().collect::<Vec<_>>(), ["Optimizer.step#"]);
    }
}
