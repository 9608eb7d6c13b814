//! Device memory, and pinned host memory.
//!
//! Owns: what allocations and frees add to their contexts. Because: the address of an allocation is known only when
//! its call returns, and a free passes nothing but that address. Does not: store ranges ([`super::super::memory`]).

use deepctx_events::{MemoryCall, MemoryKind, Role};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

use super::super::counts::{Counts, Gap};
use super::super::memory::{self, Range};
use super::super::process::Process;
use super::api_call::ApiCall;
use super::pending::{Outcome, PendingAlloc, ReturnAction, ReturnedCall};

impl Process {
    pub(super) fn memory(
        &mut self,
        kind: MemoryCall,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        match kind {
            MemoryCall::Alloc(kind) => {
                let given = &call.given;
                let area = || Some(given.get(Role::Width)?.saturating_mul(given.get(Role::Height)?));
                let bytes = given.get(Role::Bytes).or_else(area).unwrap_or(0);
                let by_address = matches!(kind, MemoryKind::Registered | MemoryKind::Mapped);
                let address = given.get(Role::Address).filter(|_| by_address);
                let node = call.node(counts, profile);
                let alloc = PendingAlloc { bytes, kind, node, address };
                Outcome::on_return(Some(ReturnAction::Alloc(alloc)))
            }
            MemoryCall::Free(kind) => {
                self.free(kind, call, counts, profile);
                Outcome::default()
            }
        }
    }

    /// An allocation returned. False if there are too many ranges already.
    pub(super) fn allocated(
        &mut self,
        alloc: &PendingAlloc,
        returned: &ReturnedCall,
        profile: &mut Profile,
    ) -> bool {
        let PendingAlloc { bytes, kind, node, address } = *alloc;
        let Some(address) = address.filter(|_| returned.done).or(returned.out) else { return true };
        if memory::counts(kind) {
            profile.tree.add(node, Metric::AllocBytes, bytes);
        }
        self.memory.allocated(address, Range { bytes, kind, node })
    }

    fn free(&mut self, kind: MemoryKind, call: &mut ApiCall<'_>, counts: &mut Counts, profile: &mut Profile) {
        let handle = if kind == MemoryKind::Physical { Role::Handle } else { Role::Address };
        let Some(address) = call.given.get(handle).filter(|address| *address != 0) else { return };
        match self.memory.freed(address, kind) {
            Some(range) if memory::counts(range.kind) => {
                let node = call.node(counts, profile);
                profile.tree.add(node, Metric::FreeBytes, range.bytes);
                profile.tree.add(range.node, Metric::ReturnedBytes, range.bytes);
            }
            Some(_) => {}
            None => counts.gap(Gap::FreeUnknown, u64::from(memory::counts(kind))),
        }
    }
}
