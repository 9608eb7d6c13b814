//! Options: the differences between two captures that affect their figures.
//!
//! Owns: [`OptionChange`], and which options change what. Because: a frame that only one capture can have looks like a
//! change of the program. Does not: interpret values; profiles store options by their command-line names.

use std::fmt;

use deepctx_profile::frame::clean;
use deepctx_profile::profile::Meta;
use serde::Serialize;

/// An option that differs between two captures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OptionChange {
    /// Its name: `context`.
    pub option: &'static str,
    /// Its value in the profile that was compared with; empty where it was not given.
    pub before: String,
    /// Its value in the profile that was compared.
    pub after: String,
    /// Effect of the difference.
    pub effect: Effect,
    /// Frames that are left out of both profiles because of it, as users call them.
    pub left_out: Vec<&'static str>,
}

/// Effect of different options on a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Some frames can be in one profile only, so contexts of the same code differ.
    OneSidedFrames,
    /// The same, and all such frames are left out of both profiles.
    FramesLeftOut,
    /// Values measure different things, or different parts of them.
    IncomparableFigures,
    /// Shares can be compared, sums of samples cannot.
    OtherRate,
}

/// Options that change what a comparison shows.
const EFFECTS: [(&str, Effect); 17] = [
    ("event", Effect::IncomparableFigures),
    ("freq", Effect::OtherRate),
    ("context", Effect::OneSidedFrames),
    ("probe", Effect::OneSidedFrames),
    ("probe-file", Effect::OneSidedFrames),
    ("shapes", Effect::OneSidedFrames),
    ("debug-info", Effect::OneSidedFrames),
    ("step-marker", Effect::OneSidedFrames),
    ("launch-stacks", Effect::OneSidedFrames),
    ("operator-stacks", Effect::OneSidedFrames),
    ("off-cpu", Effect::OneSidedFrames),
    ("no-gpu", Effect::OneSidedFrames),
    ("gpu-activity", Effect::IncomparableFigures),
    ("pc-sampling", Effect::IncomparableFigures),
    ("pc-sampling-mode", Effect::IncomparableFigures),
    ("probe-budget", Effect::IncomparableFigures),
    ("no-children", Effect::IncomparableFigures),
];

/// Options that both profiles store and whose difference has an effect.
pub(super) fn changed(before: &Meta, after: &Meta) -> Vec<OptionChange> {
    let all = EFFECTS.into_iter().filter_map(|(option, effect)| {
        let [before, after] = [value(before, option)?, value(after, option)?];
        let differ = items(before) != items(after);
        let [before, after] = [before, after].map(clean);
        differ.then_some(OptionChange { option, before, after, effect, left_out: Vec::new() })
    });
    all.collect()
}

fn value<'m>(meta: &'m Meta, option: &str) -> Option<&'m str> {
    let found = meta.options.iter().find(|(name, _)| name == option);
    found.map(|(_, value)| value.as_str())
}

/// Parts of a list; their order has no meaning.
pub(super) fn items(value: &str) -> Vec<&str> {
    let mut items: Vec<&str> = value.split(',').collect();
    items.sort_unstable();
    items
}

impl fmt::Display for OptionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |value: &str| if value.is_empty() { "nothing".to_owned() } else { value.to_owned() };
        let (option, before, after) = (self.option, said(&self.before), said(&self.after));
        write!(f, "--{option} was {before} before and {after} after: ")?;
        if !self.left_out.is_empty() {
            write!(f, "{} are left out of both profiles", self.left_out.join(", "))?;
        }
        f.write_str(match self.effect {
            Effect::OneSidedFrames if self.left_out.is_empty() => {
                "frames of it that one profile lacks look like changes"
            }
            Effect::OneSidedFrames => "; other frames of it that one profile lacks look like changes",
            Effect::FramesLeftOut => "",
            Effect::IncomparableFigures => "figures that depend on it cannot be compared",
            Effect::OtherRate => "shares can be compared, numbers of samples cannot",
        })
    }
}
