//! Overview state: which row is chosen.
//!
//! Owns: [`OverviewState`], and how the choice follows its finding. Because: findings change places while a capture
//! runs. Does not: know the rows of a screen; see [`crate::page::overview`].

use deepctx_profile::view::conclusions::FindingRow;

/// The user's position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverviewState {
    /// Selected row: findings first, then contexts.
    pub(crate) chosen: usize,
    /// Function to be shown in the flame graph once the snapshot of its metric arrives.
    pub(crate) sought: Option<String>,
}

impl OverviewState {
    /// Finds the selected finding among newer ones. The first row stays selected until the user moves.
    pub(crate) fn carry_over(&mut self, before: &[FindingRow], after: &[FindingRow]) {
        let key = |row: &FindingRow| (row.rule.clone(), row.places.first().map(|place| place.label.clone()));
        match before.get(self.chosen) {
            Some(old) if self.chosen > 0 => {
                let same = after.iter().position(|row| key(row) == key(old));
                self.chosen = same.unwrap_or(0);
            }
            // Contexts are below the findings.
            None if !before.is_empty() || self.chosen > 0 => {
                self.chosen = (self.chosen + after.len()).saturating_sub(before.len());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_follows_its_row() {
        let rows = |rules: &[&'static str]| -> Vec<FindingRow> {
            rules
                .iter()
                .map(|rule| FindingRow { rule: (*rule).to_owned(), ..FindingRow::default() })
                .collect()
        };
        let check = |before: &[&'static str], chosen, after: &[&'static str], expect| {
            let mut state = OverviewState { chosen, sought: None };
            state.carry_over(&rows(before), &rows(after));
            assert_eq!(state.chosen, expect);
        };
        check(&["a", "b"], 1, &["b", "a", "c"], 0);
        check(&["a", "b"], 0, &["b", "a"], 0);
        check(&["a", "b"], 1, &["a"], 0);
        check(&["a"], 3, &["a", "b"], 4);
        check(&["a", "b"], 3, &[], 1);
        check(&[], 0, &["a"], 0);
    }
}
