//! A big profile of a training that nobody ran: `training_profile NODES FOLDER`.
//!
//! Owns: its contexts and their values. Because: `cargo xtask bench analyze` needs as many contexts as a profile may
//! have, with every kind of frame that rules look at. Does not: measure.
//!
//! A stack is: process, thread, two Python functions, a layer, a Python function, an operator, native functions; every
//! other one ends in a launch with its kernel. Most of a stack is that of the one before, as in a running program.

use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::units::Time;
use deepctx_storage::Writer;
use std::error::Error;
use std::num::NonZeroU32;
use std::path::Path;

/// Frames of native code in each stack.
const NATIVE: usize = 24;
/// Frames of a stack without those of native code and of the device.
const ABOVE: usize = 7;

/// A pseudo-random sequence (xorshift64*): the same profile on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound as u64) as usize
    }
}

/// The frames that may stand at each place of a stack.
struct Frames {
    above: [Vec<FrameId>; ABOVE],
    native: Vec<FrameId>,
    launch: FrameId,
    kernels: Vec<FrameId>,
}

fn python(profile: &mut Profile, file: &str, function: &str, line: u32) -> FrameId {
    let (function, file) = (profile.text(function), profile.text(file));
    let (line, first_line) = (NonZeroU32::new(line), NonZeroU32::new(1));
    profile.frame(Frame::Python { function, file, line, first_line, role: Role::Code })
}

impl Frames {
    fn new(profile: &mut Profile) -> Self {
        let comm = profile.text("python3");
        let process = profile.frame(Frame::Process { comm, pid: 1 });
        let thread = |tid| {
            let name = profile.text("pt_autograd");
            profile.frame(Frame::Thread { name, tid })
        };
        let threads = (1..=8).map(thread).collect();
        let main = (10..14).map(|line| python(profile, "/app/train.py", "main", line)).collect();
        let steps = ["train_step", "backward", "optimizer.step", "validate"];
        let steps = steps.iter().flat_map(|name| (20..60).map(move |line| (name, line)));
        let steps = steps.map(|(name, line)| python(profile, "/app/train.py", name, line)).collect();
        let layer = |number| {
            let (path, class) = (profile.text(&format!("GPT.h.{number}.attn")), profile.text("Attention"));
            profile.frame(Frame::Layer { path, class })
        };
        let layers = (0..96).map(layer).collect();
        let forwards = (1..400).map(|line| python(profile, "/app/model.py", "forward", line)).collect();
        let operator = |number| {
            let name = profile.text(&format!("aten::operator_{number}"));
            profile.frame(Frame::Operator { name })
        };
        let operators = (0..200).map(operator).collect();
        let module = profile.text("/usr/lib/libtorch_cpu.so");
        let file = profile.text("");
        let function = |number| {
            let symbol = profile.text(&format!("at::native::function_{number}(at::Tensor const&, long)"));
            profile.frame(Frame::Native {
                symbol,
                module,
                file,
                line: None,
                inlined: false,
                role: Role::Code,
            })
        };
        let native = (0..20_000).map(function).collect();
        let name = profile.text("cudaLaunchKernel");
        let launch = profile.frame(Frame::GpuApi { name });
        let kernel = |number| {
            let name = profile.text(&format!("void at::native::elementwise_kernel<{number}, 4>(int)"));
            profile.frame(Frame::GpuKernel { name })
        };
        let kernels = (0..500).map(kernel).collect();
        let above = [vec![process], threads, main, steps, layers, forwards, operators];
        Frames { above, native, launch, kernels }
    }
}

fn profile(nodes: usize) -> Profile {
    let deepest = ABOVE + NATIVE + 2;
    let mut profile = Profile::new(Meta::default(), Limits { nodes: nodes + deepest, ..Limits::default() });
    let frames = Frames::new(&mut profile);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut stack: Vec<FrameId> = frames.above.iter().map(|some| some[0]).collect();
    stack.resize(ABOVE + NATIVE, frames.native[0]);
    while profile.tree.len() < nodes {
        let keep = numbers.below(ABOVE + NATIVE);
        for (place, frame) in stack.iter_mut().enumerate().skip(keep) {
            let some = frames.above.get(place).unwrap_or(&frames.native);
            *frame = some[numbers.below(some.len())];
        }
        profile.add(&stack, Metric::CpuTime, 10_101_010);
        profile.add(&stack, Metric::Samples, 1);
        if numbers.below(2) == 0 {
            stack.extend([frames.launch, frames.kernels[numbers.below(frames.kernels.len())]]);
            profile.add(&stack, Metric::GpuTime, 20_000 + numbers.below(1_000_000) as u64);
            profile.add(&stack, Metric::Kernels, 1);
            stack.truncate(ABOVE + NATIVE);
        }
    }
    profile
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, folder] = arguments.as_slice() else {
        return Err("usage: training_profile NODES FOLDER".into());
    };
    let profile = profile(nodes.parse()?);
    let mut writer = Writer::create(Path::new(folder), &profile.meta)?;
    writer.finish(&profile, Time::from_nanos(600_000_000_000))?;
    Ok(())
}
