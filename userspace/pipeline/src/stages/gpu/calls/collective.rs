//! Collectives and their communicators.
//!
//! Owns: where the bytes that a rank contributes to a collective are counted, and how communicators get their ids.
//! Because: kernels of collectives have launches of their own, which do not say what they exchange. Does not: know
//! which ranks exist ([`super::super::communicators`]).

use deepctx_events::{CollectiveCall, CollectiveOperation, GpuCall, Role};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;

use super::super::communicators::{Communicator, Exchange};
use super::super::counts::Counts;
use super::super::process::Process;
use super::api_call::ApiCall;
use super::pending::{Outcome, ReturnAction};

impl Process {
    /// The collective that a call is part of; must be called once for each such call. `None` for all other calls, and
    /// if the communicator is unknown.
    pub(super) fn exchange(&mut self, gpu: GpuCall, call: &ApiCall<'_>) -> Option<Exchange> {
        let GpuCall::Collective(CollectiveCall::Operation(operation)) = gpu else { return None };
        if !all_take_part(operation) {
            return None;
        }
        self.communicators.collective(call.given.get(Role::Communicator)?)
    }

    pub(super) fn collective(
        &mut self,
        kind: CollectiveCall,
        call: &mut ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        match kind {
            CollectiveCall::Operation(_) => {
                let bytes = call.exchanged_bytes();
                let node = call.node(counts, profile);
                profile.tree.add(node, Metric::CollectiveBytes, bytes);
            }
            CollectiveCall::CommunicatorCreate => {
                let made = self.communicator(call).map(ReturnAction::Communicator);
                return Outcome::on_return(made);
            }
            CollectiveCall::CommunicatorDestroy => {
                if let Some(handle) = call.given.get(Role::Communicator) {
                    self.communicators.destroyed(handle);
                }
            }
            // These calls have no figures, and nothing depends on them.
            CollectiveCall::GroupBegin | CollectiveCall::GroupEnd => {}
        }
        Outcome::default()
    }

    /// The communicator that a call creates; `None` if nothing distinguishes its ranks from those of another one.
    fn communicator(&mut self, call: &ApiCall<'_>) -> Option<Communicator> {
        let id = call.given.all(Role::UniqueId);
        if !id.is_empty() {
            let (ranks, rank) = (call.given.small(Role::Ranks), call.given.small(Role::Rank));
            return Some(Communicator::new(id, ranks, rank));
        }
        let (parent, color) = (call.given.get(Role::Communicator)?, call.given.get(Role::Color)?);
        self.communicators.split(parent, color)
    }
}

/// Whether all ranks of a communicator take part, so that their calls have one number.
fn all_take_part(operation: CollectiveOperation) -> bool {
    use CollectiveOperation as Op;
    !matches!(operation, Op::Send | Op::Receive | Op::PutSignal | Op::Signal | Op::WaitSignal)
}
