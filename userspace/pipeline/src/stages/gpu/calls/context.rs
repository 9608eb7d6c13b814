//! Contexts: the current context of each thread.
//!
//! Owns: what calls reveal about the current context. Because: a wait for a context ends the work of that context
//! only. Does not: know devices; activities name them.

use deepctx_events::{ContextCall, Family, Role};

use super::super::process::Process;
use super::api_call::ApiCall;
use super::pending::{Outcome, ReturnAction, ReturnedCall};

impl Process {
    pub(super) fn context_call(&mut self, kind: ContextCall, call: &ApiCall<'_>) -> Outcome {
        match kind {
            ContextCall::Create => {
                // Retaining the primary context does not make it current.
                let current = !call.symbol.contains("PrimaryCtxRetain");
                Outcome::on_return(Some(ReturnAction::Context { current }))
            }
            ContextCall::Current => {
                // A pushed context will be popped by a call that is not watched.
                let context = call.given.get(Role::Context).filter(|_| !call.symbol.contains("Push"));
                self.choose_context(call.at.tid, context.unwrap_or(0));
                Outcome::default()
            }
            // A wait of HIP is for the device of its thread. CUDA's driver chooses a context for the device.
            ContextCall::Device if call.site.family == Family::Hip => {
                let device = call.given.get(Role::Device).unwrap_or(0);
                self.choose_context(call.at.tid, device.saturating_add(1));
                Outcome::default()
            }
            // These calls have no figures, and nothing depends on them.
            ContextCall::Destroy | ContextCall::Device => Outcome::default(),
        }
    }

    /// A context was created.
    pub(super) fn context_returned(&mut self, current: bool, returned: &ReturnedCall) {
        self.context_seen |= returned.out.is_some();
        if let Some(context) = returned.out.filter(|_| current) {
            self.choose_context(returned.tid, context);
        }
    }
}
