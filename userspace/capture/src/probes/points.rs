//! Points: the places of one file's probes, sorted by how they are attached.
//!
//! Owns: giving each planned probe its site, and the order in which they are attached. Because: a call whose return
//! is needed must be seen to return, and one that ends something must not be missed. Does not: attach.

use deepctx_common::call::{self, site_flag};
use deepctx_events::{AutogradEvent, CuptiEvent, Event};
use deepctx_pipeline::input::SiteInfo;
use deepctx_uprobes::{ProbeRequest, Site};

use super::files::FileId;
use super::site_table::SiteTable;
use crate::duty_cycle::feature_of;
use crate::links::ProbeSite;
use crate::sites;

/// Options that sites depend on.
pub(super) struct SiteOptions<'a> {
    pub(super) request: &'a ProbeRequest,
    /// Operators that get a stack, per second.
    pub(super) operator_stacks: u32,
    /// Single events are recorded, so the ends of calls that give work or wait are needed.
    pub(super) call_returns: bool,
    /// Collectors give calls their ids.
    pub(super) correlate: bool,
    /// Read the records of other collections in the file's processes.
    pub(super) other_collections: bool,
    /// Some probes have a budget.
    pub(super) duty_cycle: bool,
    /// The probes of ranges and steps have no budget.
    pub(super) steps_stay: bool,
    /// The file.
    pub(super) file: FileId,
    /// The user charged for the probes.
    pub(super) account: u32,
}

/// The probe sites of one file.
#[derive(Default)]
pub(super) struct FilePoints {
    pub(super) calls: Vec<ProbeSite>,
    pub(super) returns: Vec<ProbeSite>,
    pub(super) messages: Vec<ProbeSite>,
    /// Calls that are attached while the budget lasts, and their features.
    pub(super) duty_cycled: Vec<ProbeSite>,
    pub(super) duty_cycled_events: Vec<Event>,
    /// The meaning of each site's calls.
    pub(super) infos: Vec<SiteInfo>,
    /// Cookies of probes that are attached last, and whether as the very last.
    last: Vec<(u64, bool)>,
}

impl FilePoints {
    /// Gives each of these probes its site.
    pub(super) fn new(planned: &[Site], options: &SiteOptions<'_>, table: &mut SiteTable) -> Self {
        let mut points = Self::default();
        for site in planned {
            if !options.other_collections && site.row.event == Event::Cupti(CuptiEvent::Record) {
                continue;
            }
            let Some(index) = table.number(options.file, options.account) else { continue };
            let (mut kernel, info) = sites::describe(index, site);
            if options.correlate {
                kernel = sites::with_correlation(kernel, info.event);
            }
            if options.call_returns {
                kernel = sites::with_return(kernel, info.event);
            }
            kernel = sites::of_operator(kernel, info.event, options.request, options.operator_stacks);
            if !table.write(index, &kernel) {
                continue;
            }
            if kernel.flags & site_flag::MESSAGE == 0 {
                table.add_call(index, kernel, info.event);
            }
            let stays = options.steps_stay && matches!(info.event, Event::Range(_));
            points.add(site, &kernel, info, options.duty_cycle && !stays);
        }
        // When a backward pass begins, none of its nodes may be missed; nor, at a node, anything before it.
        for probes in [&mut points.calls, &mut points.duty_cycled] {
            probes.sort_by_key(|probe| {
                points.last.iter().find(|(cookie, _)| *cookie == probe.cookie).map(|(_, end)| *end)
            });
        }
        points
    }

    fn add(&mut self, site: &Site, kernel: &call::Site, info: SiteInfo, duty_cycle: bool) {
        let counter = site.counter.map_or(0, |counter| counter.0);
        let cookie = u64::from(info.site);
        let point = ProbeSite { offset: site.offset.0, cookie, counter };
        let returns = kernel.flags & site_flag::RETURN != 0;
        if kernel.flags & site_flag::MESSAGE != 0 {
            self.messages.push(point);
        } else if duty_cycle && !returns && feature_of(info.event).is_some() {
            // One that is recorded at its return stays attached: detached in between, its call would stay pending.
            self.duty_cycled.push(point);
            self.duty_cycled_events.push(info.event);
        } else {
            self.calls.push(point);
        }
        if returns {
            // Before anything is pushed, the return address is still where the kernel looks for it, and one breakpoint
            // serves both.
            let offset = if site.point.frame == 0 { site.offset.0 } else { site.entry.0 };
            self.returns.push(ProbeSite { offset, ..point });
        }
        if let Event::Autograd(event @ (AutogradEvent::NodeBegins | AutogradEvent::BackwardBegins)) =
            info.event
        {
            self.last.push((cookie, event == AutogradEvent::BackwardBegins));
        }
        self.infos.push(info);
    }
}
