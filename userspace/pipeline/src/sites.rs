//! Sites: the probes that belong to one stage.
//!
//! Owns: the purpose of each site, reading its arguments by meaning, and the number of its calls that were lost.
//! Because: each question to a framework has its own stage, and all stages get their answers from calls. Does not:
//! know what a call means.

use deepctx_common::call::Call;
use deepctx_events::Role;
use rustc_hash::FxHashMap;

use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::stage::SiteTable;

/// Sites by number; `W` is the purpose of each.
#[derive(Debug)]
pub(crate) struct Sites<W> {
    by_number: FxHashMap<u32, Site<W>>,
    /// Lost calls of probes that are gone.
    lost_before: u64,
}

#[derive(Debug)]
struct Site<W> {
    what: W,
    roles: Vec<Role>,
    seen: u64,
    counted: u64,
}

impl<W> Default for Sites<W> {
    fn default() -> Self {
        Self { by_number: FxHashMap::default(), lost_before: 0 }
    }
}

impl<W> Sites<W> {
    /// Adds the probes to which `what` assigns a purpose; the others are not this stage's.
    pub(crate) fn learn(&mut self, sites: Vec<SiteInfo>, mut what: impl FnMut(&SiteInfo) -> Option<W>) {
        for info in sites {
            if let Some(what) = what(&info) {
                let site = Site { what, roles: info.roles, seen: 0, counted: 0 };
                self.by_number.insert(info.site, site);
            }
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// The purpose of a call's site; `None` if it is another stage's.
    #[inline]
    pub(crate) fn what(&self, call: &Call) -> Option<&W> {
        self.by_number.get(&call.site).map(|site| &site.what)
    }

    /// Counts a call, and returns the purpose of its site.
    pub(crate) fn record(&mut self, call: &Call) -> Option<&W> {
        let site = self.by_number.get_mut(&call.site)?;
        site.seen += 1;
        Some(&site.what)
    }

    /// The values read from a call, each with its meaning; `None` for one that could not be read.
    pub(crate) fn arguments<'a>(
        &'a self,
        arguments: &'a Arguments<'_>,
    ) -> impl Iterator<Item = (Role, Option<u64>)> + Clone + 'a {
        let roles = self.by_number.get(&arguments.call.site).map_or(&[][..], |site| &site.roles);
        let unread = arguments.call.unread;
        let values = arguments.values.iter().enumerate();
        let values = values.map(move |(at, value)| (at < 32 && unread & 1 << at == 0).then_some(value));
        roles.iter().copied().zip(values)
    }

    /// The argument with a meaning; `None` if it could not be read, or there is none.
    pub(crate) fn argument(&self, arguments: &Arguments<'_>, role: Role) -> Option<u64> {
        self.arguments(arguments).find(|(other, _)| *other == role)?.1
    }

    /// Calls that the probe counted but that never arrived.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.by_number.values().map(|site| site.counted.saturating_sub(site.seen));
        lost.fold(self.lost_before, u64::saturating_add)
    }
}

impl<W> SiteTable for Sites<W> {
    fn counted(&mut self, counts: &[u64]) {
        for (number, site) in &mut self.by_number {
            site.counted = counts.get(*number as usize).copied().unwrap_or(site.counted);
        }
    }

    fn freed(&mut self, numbers: &[u32]) {
        for site in numbers.iter().filter_map(|number| self.by_number.remove(number)) {
            let lost = site.counted.saturating_sub(site.seen);
            self.lost_before = self.lost_before.saturating_add(lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_events::{Event, Family};

    use super::*;

    #[test]
    fn a_number_that_is_used_again_keeps_what_was_lost() {
        let site = |site| SiteInfo {
            site,
            event: Event::User,
            symbol: "f".into(),
            family: Family::User,
            roles: Vec::new(),
        };
        let mut sites = Sites::default();
        sites.learn(vec![site(0), site(1)], |_| Some(()));
        sites.record(&Call { site: 1, ..Call::default() });
        sites.counted(&[2, 4]);
        assert_eq!(sites.lost(), 5);
        sites.freed(&[1, 7]);
        assert_eq!(sites.what(&Call { site: 1, ..Call::default() }), None);
        sites.learn(vec![site(1)], |_| Some(()));
        assert_eq!(sites.lost(), 5, "three of the first probe");
        sites.counted(&[2, 1]);
        assert_eq!(sites.lost(), 6);
    }
}
