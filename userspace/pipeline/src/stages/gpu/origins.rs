//! Origins: what device kernels were compiled from, placed above each kernel in the tree.
//!
//! Owns: what is known of a process's kernels and of the generated files that launch them, and the open requests.
//! Because: a compiler-generated kernel says nothing about the program; the line of the generated file that launches
//! it does, or else its name. Does not: look anything up: requests are taken from here, and answers are delivered
//! here.

use deepctx_names::inductor::is_generated;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::kernels::RECOVERED;
use super::names::{KernelKey, Names};

/// Kernels and files remembered per process; when full, the tables are cleared and refilled.
const KNOWN_MAX: usize = 1 << 14;
/// Calls whose generated file is cached.
const CALLERS_MAX: usize = 1 << 16;
/// Most pending questions; the rest are asked at the next launch.
const QUESTIONS_MAX: usize = 1 << 12;
/// Most kernels of the same code that are passed with a question.
const SIBLINGS_MAX: usize = 64;
/// How many frames above a call a generated file is searched for.
const ABOVE_MAX: usize = 64;
/// An unanswered question is asked again after this long, then after twice as long, and so on.
const AGAIN_NS: u64 = 1_000_000_000;
const TRIES_MAX: u32 = 7;

/// A question about the origin of compiled code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Process.
    pub(crate) pid: u32,
    /// When it arose: `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    /// Its subject.
    pub(crate) about: OriginSubject,
}

/// The subject of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginSubject {
    /// A kernel, by its name.
    Kernel {
        /// Which one.
        kernel: KernelKey,
        /// Its name.
        name: String,
        /// Known names of other kernels in the same code.
        siblings: Vec<String>,
        /// How many handles its module has.
        handles: usize,
    },
    /// What a generated file launches.
    File {
        /// As a text of the profile.
        file: StrId,
        /// Its path.
        path: String,
    },
}

/// What a line of a generated file launches: the kernel's name, the line (0: unknown), and the frames above the kernel.
pub(crate) type Launch = (StrId, u32, Vec<FrameId>);

/// When a question is asked again.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    /// `None`: never.
    due_ns: Option<u64>,
    tries: u32,
}

impl Retry {
    fn answered(self, time_ns: u64, later: bool) -> Self {
        let due_ns = time_ns.saturating_add(AGAIN_NS << self.tries.min(TRIES_MAX));
        Self { due_ns: (later && self.tries < TRIES_MAX).then_some(due_ns), tries: self.tries + 1 }
    }

    fn is_due(self, time_ns: u64) -> bool {
        self.due_ns.is_some_and(|due| time_ns >= due)
    }
}

#[derive(Debug, Default)]
struct Kernel {
    frames: Vec<FrameId>,
    again: Retry,
    /// How many handles its module had when it was asked about.
    handles: usize,
}

#[derive(Debug, Default)]
struct File {
    launches: FxHashMap<StrId, Vec<(u32, Vec<FrameId>)>>,
    again: Retry,
}

/// Known facts about one process.
#[derive(Debug, Default)]
pub(super) struct Origins {
    kernels: FxHashMap<KernelKey, Kernel>,
    files: FxHashMap<StrId, File>,
    /// The innermost generated file above a call, and its line.
    above: FxHashMap<NodeId, Option<(StrId, u32)>>,
    questions: Vec<(u64, OriginSubject)>,
}

impl Origins {
    /// The frames above a kernel that this caller launches.
    pub(super) fn of(&mut self, caller: NodeId, kernel: KernelKey, profile: &mut Profile) -> &[FrameId] {
        let Some(name) = name_of(kernel.frame, profile) else { return &[] };
        let above = self.above(caller, profile);
        if let Some((file, line)) = above
            && let Some(launches) = self.files.get(&file).and_then(|file| file.launches.get(&name))
        {
            if let Some((_, frames)) = launches.iter().find(|(at, _)| line != 0 && *at == line) {
                return frames;
            }
            // It is not known which launch this is: keeps what all of them share.
            let Some(((_, first), rest)) = launches.split_first() else { return &[] };
            let common = |other: &[FrameId]| first.iter().zip(other).take_while(|(a, b)| a == b).count();
            let length = rest.iter().map(|(_, other)| common(other)).min().unwrap_or(first.len());
            return &first[..length];
        }
        self.kernels.get(&kernel).map_or(&[], |kernel| &kernel.frames)
    }

    /// A caller is about to launch a kernel, `None` if its handle has no name: asks for what is not known of it.
    pub(super) fn launched(
        &mut self,
        caller: NodeId,
        kernel: Option<KernelKey>,
        names: &Names,
        time_ns: u64,
        profile: &mut Profile,
    ) {
        let above = self.above(caller, profile);
        if let Some((file, _)) = above
            && self.files.get(&file).is_none_or(|known| known.again.is_due(time_ns))
        {
            let path = profile.strings.get(file).to_owned();
            self.ask(time_ns, OriginSubject::File { file, path });
        }
        let Some(kernel) = kernel else { return };
        let in_file = |origins: &Self, profile: &mut Profile| {
            let known = above.and_then(|(file, _)| origins.files.get(&file));
            name_of(kernel.frame, profile)
                .zip(known)
                .is_some_and(|(name, file)| file.launches.contains_key(&name))
        };
        match self.kernels.get(&kernel) {
            Some(known) if known.again.due_ns.is_none() => {}
            // With more of its code known, its module may be distinguished from others.
            Some(known)
                if !known.again.is_due(time_ns) && names.handles_of(kernel.module) <= known.handles => {}
            _ if in_file(self, profile) => {}
            _ => self.named(kernel, names, time_ns, profile),
        }
    }

    /// A kernel got a name: asks for its origin.
    pub(super) fn named(&mut self, kernel: KernelKey, names: &Names, time_ns: u64, profile: &mut Profile) {
        let Some(name) = name_of(kernel.frame, profile) else { return };
        let known = self.kernels.get(&kernel);
        if known.is_some_and(|known| known.again.due_ns.is_none()) {
            return;
        }
        let mut siblings: Vec<String> = names
            .of_module(kernel.module)
            .filter(|other| *other != kernel.frame)
            .take(SIBLINGS_MAX)
            .filter_map(|other| {
                let name = name_of(other, profile)?;
                Some(profile.strings.get(name).to_owned())
            })
            .collect();
        siblings.sort_unstable();
        siblings.dedup();
        let name = profile.strings.get(name).to_owned();
        let handles = names.handles_of(kernel.module);
        self.ask(time_ns, OriginSubject::Kernel { kernel, name, siblings, handles });
    }

    fn ask(&mut self, time_ns: u64, about: OriginSubject) {
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push((time_ns, about));
        }
    }

    /// Whether there are questions.
    pub(super) fn asks(&self) -> bool {
        !self.questions.is_empty()
    }

    /// The questions since the last time.
    pub(super) fn questions(&mut self) -> Vec<(u64, OriginSubject)> {
        std::mem::take(&mut self.questions)
    }

    /// The answer about a kernel, whose module had so many handles: the frames above it. `later`: more may be known
    /// later.
    pub(super) fn kernel_known(
        &mut self,
        kernel: KernelKey,
        handles: usize,
        frames: Vec<FrameId>,
        time_ns: u64,
        later: bool,
    ) {
        if self.kernels.len() >= KNOWN_MAX {
            self.kernels.clear();
        }
        let known = self.kernels.entry(kernel).or_default();
        let again = known.again.answered(time_ns, later);
        *known = Kernel { frames, again, handles };
    }

    /// The answer about a file.
    pub(super) fn file_known(&mut self, file: StrId, launches: Vec<Launch>, time_ns: u64, later: bool) {
        if self.files.len() >= KNOWN_MAX {
            self.files.clear();
        }
        let known = self.files.entry(file).or_default();
        known.again = known.again.answered(time_ns, later);
        known.launches.clear();
        for (kernel, line, frames) in launches {
            known.launches.entry(kernel).or_default().push((line, frames));
        }
    }

    /// A module is gone: another one may take its place.
    pub(super) fn unload(&mut self, module: u64) {
        self.kernels.retain(|kernel, _| kernel.module == 0 || kernel.module != module);
    }

    fn above(&mut self, caller: NodeId, profile: &Profile) -> Option<(StrId, u32)> {
        if let Some(above) = self.above.get(&caller) {
            return *above;
        }
        if self.above.len() >= CALLERS_MAX {
            self.above.clear();
        }
        let above = generated_above(caller, profile);
        self.above.insert(caller, above);
        above
    }
}

/// The innermost generated file that makes a call, and its line; 0 if unknown.
fn generated_above(caller: NodeId, profile: &Profile) -> Option<(StrId, u32)> {
    let mut node = caller;
    for _ in 0..ABOVE_MAX {
        let at = profile.tree.node(node);
        if let Frame::Python { file, line, .. } = profile.frames.get(at.frame)
            && is_generated(profile.strings.get(file))
        {
            return Some((file, line.map_or(0, |line| line.get())));
        }
        if node == NodeId::ROOT {
            break;
        }
        node = at.parent;
    }
    None
}

/// The name of a kernel, if a compiler of operators could give it: such names have no signature.
fn name_of(kernel: FrameId, profile: &mut Profile) -> Option<StrId> {
    let Frame::GpuKernel { name } = profile.frames.get(kernel) else { return None };
    let text = profile.strings.get(name);
    let plain = text.strip_suffix(RECOVERED).unwrap_or(text);
    let fits = !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain.len() == text.len() {
        return fits.then_some(name);
    }
    let plain = plain.to_owned();
    fits.then(|| profile.text(&plain))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use deepctx_profile::frame::Role;

    use super::super::kernels::kernel_frame;
    use super::super::names::NamedKernel;
    use super::*;

    const WRAPPER: &str = "/tmp/torchinductor_me/y7/cy7oyaxvmmvair25e3xb2owvvvhbgl4y2kdhqbk6dkmjogrpuddv.py";

    fn operator(text: &str, profile: &mut Profile) -> FrameId {
        let name = profile.text(text);
        profile.frame(Frame::Operator { name })
    }

    fn python(file: &str, line: u32, profile: &mut Profile) -> FrameId {
        let (function, file) = (profile.text("call"), profile.text(file));
        let line = NonZeroU32::new(line);
        profile.frame(Frame::Python { function, file, line, first_line: None, role: Role::Code })
    }

    #[test]
    fn launching_line_is_more_specific_than_the_kernel_name() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let kernel = kernel_frame("triton_poi_fused_add_0", &mut profile);
        let [unit, first, second, by_name] =
            ["[inductor x]", "aten::add a.py:1", "aten::add a.py:2", "[triton x]"]
                .map(|text| operator(text, &mut profile));
        let program = python("/srv/net.py", 3, &mut profile);
        let at = |line, profile: &mut Profile| {
            let wrapper = python(WRAPPER, line, profile);
            let library = python("/lib/triton_heuristics.py", 9, profile);
            profile.tree.path(NodeId::ROOT, [program, wrapper, library])
        };
        let callers = [10, 20, 15].map(|line| at(line, &mut profile));
        let elsewhere = profile.tree.path(NodeId::ROOT, [program]);
        let mut origins = Origins::default();
        let names = Names::default();
        for caller in callers {
            origins.launched(caller, Some(KernelKey { frame: kernel, module: 0 }), &names, 0, &mut profile);
        }
        let file = profile.text(WRAPPER);
        let name = profile.text("triton_poi_fused_add_0");
        assert!(origins.questions().contains(&(0, OriginSubject::File { file, path: WRAPPER.to_owned() })));
        origins.file_known(
            file,
            vec![(name, 10, vec![unit, first]), (name, 20, vec![unit, second])],
            0,
            false,
        );
        origins.kernel_known(KernelKey { frame: kernel, module: 0 }, 0, vec![by_name], 0, false);
        let mut of =
            |caller| origins.of(caller, KernelKey { frame: kernel, module: 0 }, &mut profile).to_vec();
        assert_eq!(callers.map(&mut of), [vec![unit, first], vec![unit, second], vec![unit]]);
        assert_eq!(of(elsewhere), [by_name]);
        for caller in callers {
            origins.launched(
                caller,
                Some(KernelKey { frame: kernel, module: 0 }),
                &names,
                u64::MAX,
                &mut profile,
            );
        }
        assert!(origins.questions().is_empty(), "all is known");
    }

    #[test]
    fn unknown_origins_are_requested_again_with_backoff_and_new_code() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let [kernel, sibling, other, signature] =
            ["loop_add_fusion", "loop_exp_fusion", "gemm", "gemm(float*, int)"]
                .map(|name| kernel_frame(name, &mut profile));
        let mut names = Names::default();
        names.name(1, NamedKernel::new(kernel, 100));
        names.name(3, NamedKernel::new(other, 200));
        let mut origins = Origins::default();
        let mut asked = Vec::new();
        for time_ns in (0..400).map(|n| n * 500_000_000) {
            origins.launched(
                NodeId::ROOT,
                Some(KernelKey { frame: kernel, module: 100 }),
                &names,
                time_ns,
                &mut profile,
            );
            origins.launched(
                NodeId::ROOT,
                Some(KernelKey { frame: signature, module: 100 }),
                &names,
                time_ns,
                &mut profile,
            );
            for (time_ns, about) in origins.questions() {
                let OriginSubject::Kernel { kernel: of, siblings, handles, .. } = about else {
                    panic!("{about:?}")
                };
                assert_eq!(of, KernelKey { frame: kernel, module: 100 });
                asked.push((time_ns / 1_000_000_000, siblings.len()));
                origins.kernel_known(of, handles, Vec::new(), time_ns, true);
            }
            if time_ns == 5_000_000_000 {
                names.name(2, NamedKernel::new(sibling, 100));
            }
        }
        assert_eq!(asked, [(0, 0), (1, 0), (3, 0), (5, 1), (13, 1), (29, 1), (61, 1), (125, 1)]);
    }

    #[test]
    fn requests_back_off_also_in_modules_with_many_handles() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let kernel = kernel_frame("loop_add_fusion", &mut profile);
        let key = KernelKey { frame: kernel, module: 100 };
        let mut names = Names::default();
        // More kernels than go with a question; and a kernel and its function have a handle each.
        for number in 1..=2 * SIBLINGS_MAX as u64 {
            let sibling = kernel_frame(&format!("loop_exp_fusion_{number}"), &mut profile);
            names.name(number, NamedKernel::new(sibling, 100));
        }
        names.name(1000, NamedKernel::new(kernel, 100));
        names.alias(1001, 1000);
        let mut origins = Origins::default();
        let mut asked = Vec::new();
        for time_ns in (0..10).map(|n| n * 100_000_000) {
            origins.launched(NodeId::ROOT, Some(key), &names, time_ns, &mut profile);
            for (time_ns, about) in origins.questions() {
                let OriginSubject::Kernel { kernel, handles, .. } = about else { panic!("{about:?}") };
                asked.push(time_ns);
                origins.kernel_known(kernel, handles, Vec::new(), time_ns, true);
            }
        }
        assert_eq!(asked, [0]);
    }

    #[test]
    fn equally_named_kernels_of_two_modules_differ_until_unload() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let kernel = kernel_frame("loop_add_fusion", &mut profile);
        let [f, g] = ["[xla jit_f]", "[xla jit_g]"].map(|text| operator(text, &mut profile));
        let mut origins = Origins::default();
        origins.kernel_known(KernelKey { frame: kernel, module: 100 }, 0, vec![f], 0, false);
        origins.kernel_known(KernelKey { frame: kernel, module: 200 }, 0, vec![g], 0, false);
        let mut of = |origins: &mut Origins, module| {
            origins.of(NodeId::ROOT, KernelKey { frame: kernel, module }, &mut profile).to_vec()
        };
        assert_eq!([100, 200, 0].map(|module| of(&mut origins, module)), [vec![f], vec![g], vec![]]);
        origins.unload(100);
        assert_eq!([100, 200].map(|module| of(&mut origins, module)), [vec![], vec![g]]);
    }
}
