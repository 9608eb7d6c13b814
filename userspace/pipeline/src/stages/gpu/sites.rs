//! Sites: the meaning of each probe's calls, and their arguments by meaning.
//!
//! Owns: the table of probes. Because: records carry numbers, while handlers of a call need its stream, not its
//! eighth argument. Does not: know how arguments were fetched.

use deepctx_common::activity;
use deepctx_events::{CuptiEvent, Event, Family, Role};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;

use super::counts::Gap;
use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::stage::SiteTable;

/// The probes that calls come from.
#[derive(Debug, Default)]
pub(super) struct Sites {
    sites: Vec<Option<SiteState>>,
    /// Lost calls of probes that are gone.
    lost_before: u64,
}

/// One of them.
#[derive(Debug)]
struct SiteState {
    info: SiteInfo,
    /// Its frame; made with the first call.
    frame: Option<FrameId>,
    /// Its calls' returns are recorded.
    returns: bool,
    /// Calls that came as records.
    calls: u64,
    /// Calls that the kernel programs counted.
    counted: u64,
}

impl SiteState {
    /// Calls that were counted and never came as records.
    fn lost(&self) -> u64 {
        // Records of another tool's collection arrive as messages.
        let are_calls = self.info.event != Event::Cupti(CuptiEvent::Record);
        if are_calls { self.counted.saturating_sub(self.calls) } else { 0 }
    }
}

/// The part of a probe that a call needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// The meaning of the call; `None` for a number unknown to this version.
    pub(super) event: Option<Event>,
    /// The library.
    pub(super) family: Family,
    /// The function, as a frame.
    pub(super) frame: FrameId,
    /// The function uses the default stream of each thread if given none.
    pub(super) own_default_stream: bool,
}

impl Sites {
    /// Adds probes, replacing those with the same index.
    pub(super) fn learn(&mut self, sites: Vec<SiteInfo>) {
        for info in sites {
            let at = info.site as usize;
            if at >= self.sites.len() {
                self.sites.resize_with(at + 1, || None);
            }
            self.sites[at] = Some(SiteState { info, frame: None, returns: false, calls: 0, counted: 0 });
        }
    }

    /// Calls that were counted but never came as records.
    pub(super) fn lost(&self) -> u64 {
        self.sites.iter().flatten().map(SiteState::lost).fold(self.lost_before, u64::saturating_add)
    }

    /// The exported name of a probe's function; empty if the probe is unknown.
    pub(super) fn symbol(&self, site: u32) -> &str {
        self.sites.get(site as usize).and_then(Option::as_ref).map_or("", |known| known.info.symbol.as_str())
    }

    /// A call of a probe returned: this probe records returns.
    pub(super) fn returned(&mut self, site: u32) {
        if let Some(known) = self.sites.get_mut(site as usize).and_then(Option::as_mut) {
            known.returns = true;
        }
    }

    /// Whether returns of a probe's calls were seen.
    pub(super) fn returns(&self, site: u32) -> bool {
        self.sites.get(site as usize).and_then(Option::as_ref).is_some_and(|known| known.returns)
    }

    /// The probe of a call. An unknown probe still has the facts in its record.
    pub(super) fn site(&mut self, arguments: &Arguments<'_>, profile: &mut Profile) -> Site {
        let event = Event::from_number(arguments.call.event);
        let Some(known) = self.sites.get_mut(arguments.call.site as usize).and_then(Option::as_mut) else {
            let name = profile.text(&format!("[unknown: {}]", Gap::SiteUnknown.reason().key));
            let frame = profile.frame(Frame::GpuApi { name });
            return Site { event, family: Family::User, frame, own_default_stream: false };
        };
        known.calls += 1;
        let frame = match known.frame {
            Some(frame) => frame,
            None => {
                let name = profile.text(&known.info.symbol);
                *known.frame.insert(profile.frame(Frame::GpuApi { name }))
            }
        };
        let symbol = &known.info.symbol;
        let own_default_stream = ["_ptsz", "_ptds", "_spt"].iter().any(|suffix| symbol.ends_with(suffix));
        Site { event: event.or(Some(known.info.event)), family: known.info.family, frame, own_default_stream }
    }

    /// The arguments of a call by their meaning.
    pub(super) fn given<'a>(&'a self, arguments: &Arguments<'a>) -> CallArguments<'a> {
        let known = self.sites.get(arguments.call.site as usize).and_then(Option::as_ref);
        CallArguments { roles: known.map_or(&[], |known| &known.info.roles), arguments: *arguments }
    }
}

impl SiteTable for Sites {
    fn counted(&mut self, counts: &[u64]) {
        for (known, count) in self.sites.iter_mut().zip(counts) {
            if let Some(known) = known {
                known.counted = *count;
            }
        }
    }

    fn freed(&mut self, numbers: &[u32]) {
        for number in numbers {
            let gone = self.sites.get_mut(*number as usize).and_then(Option::take);
            self.lost_before = self.lost_before.saturating_add(gone.as_ref().map_or(0, SiteState::lost));
        }
    }
}

/// Arguments of a call by their meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallArguments<'a> {
    roles: &'a [Role],
    arguments: Arguments<'a>,
}

impl<'a> CallArguments<'a> {
    /// The value; `None` if the call has none of this meaning, or if it could not be read.
    pub(super) fn get(&self, role: Role) -> Option<u64> {
        let at = self.roles.iter().position(|other| *other == role)?;
        let read = at < 32 && self.arguments.call.unread & 1 << at == 0;
        self.arguments.values.iter().nth(at).filter(|_| read)
    }

    /// All values of a meaning; none if one of them could not be read.
    pub(super) fn all(&self, role: Role) -> Vec<u64> {
        self.values(role).collect::<Option<_>>().unwrap_or_default()
    }

    /// The values of a meaning; `None` for one that could not be read.
    fn values(&self, role: Role) -> impl Iterator<Item = Option<u64>> {
        let Self { roles, arguments } = *self;
        let places = roles.iter().enumerate().filter(move |(_, other)| **other == role);
        places.map(move |(at, _)| {
            let read = at < 32 && arguments.call.unread & 1 << at == 0;
            arguments.values.iter().nth(at).filter(|_| read)
        })
    }

    /// The first values of a meaning, as of an array; `None` if fewer were read.
    pub(super) fn first(&self, role: Role, count: u64) -> Option<Vec<u64>> {
        let read = self.values(role).take(usize::try_from(count).ok()?);
        let values: Vec<u64> = read.collect::<Option<_>>()?;
        (values.len() as u64 == count).then_some(values)
    }

    /// The text; `None` if there is none.
    pub(super) fn text(&self) -> Option<&'a [u8]> {
        Some(self.arguments.text).filter(|text| !text.is_empty())
    }

    /// A number of 32 bits, 0 if absent.
    pub(super) fn small(&self, role: Role) -> u32 {
        small(self.get(role))
    }

    /// The handle of the kernel: a function, or a kernel object.
    pub(super) fn kernel_handle(&self) -> Option<u64> {
        if self.get(Role::NodeKind).is_some_and(|kind| kind != activity::node::KERNEL) {
            return None;
        }
        self.get(Role::Function).filter(|handle| *handle != 0).or(self.get(Role::Handle))
    }
}

/// A number of 32 bits; the maximum for a larger one, 0 for none.
pub(super) fn small(value: Option<u64>) -> u32 {
    value.map_or(0, |value| u32::try_from(value).unwrap_or(u32::MAX))
}
