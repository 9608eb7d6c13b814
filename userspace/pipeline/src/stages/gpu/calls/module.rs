//! Device code: modules, and the handles and host stubs of their kernels.
//!
//! Owns: which call gives a name to which handle. Because: a launch passes a handle or a stub; its name was passed
//! when it was looked up or registered. Does not: store names ([`super::super::names`]).

use deepctx_events::{ModuleCall, Role};
use deepctx_profile::profile::Profile;

use super::super::counts::{Counts, Gap};
use super::super::names::NamedKernel;
use super::super::process::Process;
use super::api_call::ApiCall;
use super::pending::{ModuleReturn, Outcome, ReturnAction, ReturnedCall};

impl Process {
    pub(super) fn module(
        &mut self,
        kind: ModuleCall,
        call: &ApiCall<'_>,
        counts: &mut Counts,
        profile: &mut Profile,
    ) -> Outcome {
        let module = call.given.get(Role::Module).unwrap_or(0);
        let function = call.given.get(Role::Function);
        let on_return = match kind {
            ModuleCall::FunctionByName => {
                call.kernel(profile).map(|frame| ModuleReturn::Named { frame, module })
            }
            ModuleCall::FunctionOfKernel | ModuleCall::KernelOfStub | ModuleCall::FunctionOfStub => {
                function.map(|of| ModuleReturn::Alias { of })
            }
            ModuleCall::FunctionStub => {
                if let Some((frame, stub)) = call.kernel(profile).zip(function)
                    && !self.names.name(stub, NamedKernel::new(frame, module))
                {
                    counts.gap(Gap::StateFull, 1);
                }
                None
            }
            ModuleCall::Unload | ModuleCall::FatBinaryUnload => {
                self.names.unload(module);
                self.origins.unload(module);
                None
            }
            // These calls have no figures, and nothing depends on them.
            ModuleCall::Load
            | ModuleCall::ModuleOfLibrary
            | ModuleCall::FunctionList
            | ModuleCall::ProcAddress
            | ModuleCall::FatBinary => None,
        };
        Outcome::on_return(on_return.map(ReturnAction::Module))
    }

    /// A handle got its kernel. False if there are too many names already.
    pub(super) fn module_returned(&mut self, action: ModuleReturn, returned: &ReturnedCall) -> bool {
        let Some(handle) = returned.out else { return true };
        match action {
            ModuleReturn::Named { frame, module } => self.names.name(handle, NamedKernel::new(frame, module)),
            ModuleReturn::Alias { of } => self.names.alias(handle, of),
        }
    }
}
