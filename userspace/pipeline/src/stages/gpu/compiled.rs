//! Compiled: what compilers generated kernels from, as frames of the profile.
//!
//! Owns: the form of these origins in the profile. Because: a kernel's context is created at its launch, so its
//! origin must be known by then. Does not: decide which origins to request ([`super::origin_requests`]).

use deepctx_profile::profile::Profile;

use super::Gpu;
use super::origins::{Launch, OriginSubject, Question};
use crate::name_frames::compiled_frame;
use crate::symbols::{DeviceKernel, ProcessFacts};

impl Gpu {
    /// Asks everything that is to be asked.
    pub(crate) fn ask_names(&mut self, facts: &mut dyn ProcessFacts, profile: &mut Profile) {
        for Question { pid, time_ns, about } in self.questions() {
            match about {
                OriginSubject::Kernel { kernel, name, siblings, handles } => {
                    let siblings: Vec<&str> = siblings.iter().map(String::as_str).collect();
                    let asked = DeviceKernel { pid, time_ns, name: &name, siblings: &siblings };
                    let mut frames = Vec::new();
                    let later = facts.device_kernel(&asked, &mut |frames_of| {
                        frames = frames_of.iter().map(|name| compiled_frame(name, profile)).collect();
                    });
                    self.kernel_known(pid, kernel, handles, frames, time_ns, later);
                }
                OriginSubject::File { file, path } => {
                    let mut launches: Vec<Launch> = Vec::new();
                    let later = facts.launched_by(pid, time_ns, &path, &mut |kernel, line, frames_of| {
                        let frames = frames_of.iter().map(|name| compiled_frame(name, profile)).collect();
                        launches.push((profile.text(kernel), line, frames));
                    });
                    self.file_known(pid, file, launches, time_ns, later);
                }
            }
        }
    }
}
