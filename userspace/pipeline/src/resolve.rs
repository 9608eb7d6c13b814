//! Resolve: raw words → the frames of a stack, root first.
//!
//! Owns: the addresses that are already resolved, and the order of frames: user frames from the thread's start
//! (Python frames where the walk put them), kernel frames on top. Because: names are slow to get and stacks are many:
//! each address is requested once, in a batch with all others that are missing, and costs one look-up from then on.
//! Does not: know where names come from ([`super::symbols`]), or lose a frame: a frame without a name carries the
//! reason.

use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::memory::table_bytes;
use deepctx_common::reason::Reason;
use deepctx_common::record::sample_flag;
use deepctx_names::framework::{self, Meaning};
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::owner::Owner;
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashMap;

use crate::account::{Accounts, MissingFrames, UnlistedCode};
use crate::cpython_calls::CpythonCalls;
use crate::decode::Sample;
use crate::input::ProcessRefusal;
use crate::name_frames::frame;
use crate::native_omitted;
use crate::reason::{MALFORMED_WORDS, NOT_ANSWERED};
use crate::stack_cache::StackKey;
use crate::stack_words::{Code, StackWord, group, kernel_stack_words, repaired, user_stack_words};
use crate::symbols::{Name, Symbols};
use crate::torch_calls::TorchCallWrappers;

/// Cached addresses: 96 Ki in a table of 5 MiB, which doubles at 112 Ki; a torch process has some ten thousand.
const ADDRESSES_MAX: usize = 96 << 10;
/// Most frames of one address: how deep compilers inline, with a wide margin.
const INLINED_MAX: usize = 64;
/// Most parts of an await chain: more than the reader ever returns.
const AWAIT_CHAIN_FRAMES_MAX: usize = 1 << 12;

/// A stack, ready for the tree. Frames are those below the thread, root first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallPath<'a> {
    /// Root first.
    pub(crate) frames: &'a [FrameId],
    /// What is missing in it.
    pub(crate) missing: MissingFrames,
    /// Undecodable words.
    pub(crate) malformed: u64,
}

/// The frames of a word: a run of [`ResolveStage::frames`], outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CachedFrames {
    begin: u32,
    /// 0 for frames that are not shown.
    len: u16,
    unnamed: u16,
    /// The address lies in code that is known by now, with or without a name.
    known_code: bool,
    /// Its mapping is one that the kernel programs never get.
    left_out: bool,
    /// Another stack had it since the last [`ResolveStage::trim`].
    hit: bool,
}

/// The role of a frame among the operators of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperatorFrameRole {
    /// Nothing.
    None,
    /// An operator that begins.
    Begins,
    /// An operator whose dispatch is on the stack: it begins here unless the stack is in it already.
    Dispatched,
    /// The origin of compiled code: shown once for all code of the same origin.
    Origin,
}

/// An address to be resolved.
#[derive(Clone, Copy, Debug)]
struct MissingCode {
    code: Code,
    /// Of the first stack that had it.
    owner: Owner,
    /// When that was taken.
    time_ns: u64,
}

/// Placeholder until the answer comes.
const ASKED: CachedFrames =
    CachedFrames { begin: u32::MAX, len: 0, unnamed: 0, known_code: false, left_out: false, hit: false };

/// The stage's state.
#[derive(Debug, Default)]
pub(crate) struct ResolveStage {
    known: FxHashMap<Code, CachedFrames>,
    frames: Vec<FrameId>,
    /// The role of each of `frames` among operators.
    parts: Vec<OperatorFrameRole>,
    missing: Vec<MissingCode>,
    gaps: [Option<CachedFrames>; WalkEnd::ALL.len()],
    kernel_gaps: [Option<CachedFrames>; KernelEnd::ALL.len()],
    python_gaps: [Option<CachedFrames>; PythonEnd::ALL.len()],
    malformed: Option<CachedFrames>,
    unlisted_gaps: [Option<CachedFrames>; UnlistedCode::ALL.len()],
    /// The frames of each word of the current sample, leaf first.
    elements: Vec<CachedFrames>,
    malformed_words: u64,
    /// The native walk of the current sample ended at code that the kernel programs did not know.
    unlisted: Option<UnlistedCode>,
    /// Why the kernel programs did not know the process of the current sample, if it was refused.
    refusal: Option<ProcessRefusal>,
    /// Time of the current sample.
    time_ns: u64,
    path: Vec<FrameId>,
    cpython_calls: CpythonCalls,
    torch_wrappers: TorchCallWrappers,
}

impl ResolveStage {
    /// The path of a sample if all its addresses are known; otherwise notes the unknown ones.
    pub(crate) fn path_or_note(
        &mut self,
        key: &StackKey,
        sample: &Sample<'_>,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> Option<CallPath<'_>> {
        if self.gather(key, sample, false, profile, accounts) { Some(self.joined()) } else { None }
    }

    /// Addresses that [`ResolveStage::ask`] would resolve.
    pub(crate) fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Resolves all missing addresses: one call per space and language.
    pub(crate) fn ask<S: Symbols>(
        &mut self,
        symbols: &mut S,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) {
        let mut missing = std::mem::take(&mut self.missing);
        missing.sort_unstable_by_key(|missing| group(&missing.code));
        for of_group in missing.chunk_by(|a, b| group(&a.code) == group(&b.code)) {
            let codes = || of_group.iter().map(|missing| missing.code);
            profile.grow_for(of_group[0].owner);
            let mut left_out: Vec<usize> = Vec::new();
            let mut answer = |n: usize, names: &[Name<'_>]| {
                if let Some(MissingCode { code, .. }) = of_group.get(n) {
                    self.learn(*code, names, profile, accounts);
                }
            };
            match of_group[0].code {
                Code::Native { space, .. } => {
                    let addresses: Vec<_> = codes().filter_map(|code| code.address()).collect();
                    let times_ns: Vec<_> = of_group.iter().map(|missing| missing.time_ns).collect();
                    symbols.user(space, &addresses, &times_ns, &mut answer);
                    symbols.left_out(space, &addresses, &times_ns, &mut |n| left_out.push(n));
                }
                Code::Python { space, .. } => {
                    let references: Vec<_> = codes().filter_map(|code| code.reference()).collect();
                    symbols.python(space, &references, &mut answer);
                }
                Code::Kernel { .. } => {
                    let addresses: Vec<_> = codes().filter_map(|code| code.address()).collect();
                    symbols.kernel(&addresses, &mut answer);
                }
                Code::Module { space, .. } => {
                    let modules: Vec<_> = codes().filter_map(|code| code.module()).collect();
                    symbols.modules(space, &modules, &mut answer);
                }
                Code::AwaitChain(_) => {
                    let chains: Vec<_> = codes().filter_map(|code| code.await_chain()).collect();
                    symbols.await_chain_parts(&chains, &mut answer);
                }
            }
            for code in codes() {
                if self.known.get(&code).is_none_or(|known| *known == ASKED) {
                    self.learn(code, &[], profile, accounts);
                }
            }
            for MissingCode { code, .. } in left_out.into_iter().filter_map(|n| of_group.get(n)) {
                if let Some(known) = self.known.get_mut(code) {
                    known.left_out = true;
                }
            }
        }
        missing.clear();
        self.missing = missing;
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let frames = self.frames.capacity() * size_of::<FrameId>()
            + self.parts.capacity() * size_of::<OperatorFrameRole>();
        frames
            + table_bytes(self.known.capacity(), size_of::<(Code, CachedFrames)>())
            + self.missing.capacity() * size_of::<MissingCode>()
    }

    /// Once the cache is too large, removes what only one stack had since the last time: mostly addresses of processes
    /// that ended. Call it when nothing is missing and no path is in use.
    pub(crate) fn trim(&mut self) {
        if self.known.len() <= ADDRESSES_MAX || !self.missing.is_empty() {
            return;
        }
        self.known.retain(|_, known| std::mem::take(&mut known.hit));
        if self.known.len() > ADDRESSES_MAX / 2 {
            // Removing a few each time would cost more than resolving all again.
            self.known.clear();
        }
        self.compact();
    }

    /// Names of kernel addresses changed: they are resolved again. Call it when nothing is missing and no path is in
    /// use.
    pub(crate) fn forget_kernel(&mut self) {
        if self.missing.is_empty() {
            self.known.retain(|code, _| !matches!(code, Code::Kernel { .. }));
            self.compact();
        }
    }

    /// Drops the frames of addresses that are not known any more, and gives back their memory. The table is made anew:
    /// removed entries leave marks in it, for which it would double later, although it had room, and stay so.
    fn compact(&mut self) {
        let (mut frames, mut parts) = (Vec::new(), Vec::new());
        for known in self.known.values_mut() {
            let range = known.begin as usize..known.begin as usize + usize::from(known.len);
            known.begin = frames.len() as u32;
            frames.extend_from_slice(&self.frames[range.clone()]);
            parts.extend_from_slice(&self.parts[range]);
        }
        self.known.shrink_to_fit();
        *self = Self {
            known: std::mem::take(&mut self.known),
            frames,
            parts,
            elements: std::mem::take(&mut self.elements),
            path: std::mem::take(&mut self.path),
            cpython_calls: std::mem::take(&mut self.cpython_calls),
            torch_wrappers: std::mem::take(&mut self.torch_wrappers),
            ..Self::default()
        };
    }

    /// The path of a sample whose addresses have all been resolved.
    pub(crate) fn path(
        &mut self,
        key: &StackKey,
        sample: &Sample<'_>,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> CallPath<'_> {
        self.gather(key, sample, true, profile, accounts);
        self.joined()
    }

    /// Fills `elements` with the frames of the words, leaf first. Unknown addresses are noted or, when `asked`, count
    /// as unanswered. False if one was noted.
    fn gather(
        &mut self,
        key: &StackKey,
        sample: &Sample<'_>,
        asked: bool,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> bool {
        self.elements.clear();
        self.malformed_words = 0;
        (self.unlisted, self.refusal) = (None, key.refusal);
        self.time_ns = sample.fixed.header.time_ns;
        let mut all_known = true;
        for code in kernel_stack_words(sample.kernel) {
            all_known &= self.add(code, asked, profile, accounts);
        }
        if let Some(gap) = self.kernel_gap(sample, profile) {
            self.elements.push(gap);
        }
        let mut gap_seen = false;
        // The native frame at which the walk may end.
        let mut outermost = None;
        let mut each = |element| match element {
            StackWord::Code(code) => {
                let is_known = self.add(code, asked, profile, accounts);
                if let (true, Code::Native { .. }) = (is_known, code) {
                    outermost = self.elements.last().copied();
                }
                all_known &= is_known;
            }
            StackWord::Gap(end) => {
                gap_seen |= end != WalkEnd::LeftOut;
                let gap = self.gap_behind(outermost, end, profile);
                self.elements.push(gap);
            }
            StackWord::PythonGap(PythonEnd::Complete) => {}
            StackWord::Coroutine(frame) => {
                if let Some((_, chain)) = key.await_chain.filter(|(of, _)| *of == frame) {
                    all_known &= self.add(Code::AwaitChain(chain), asked, profile, accounts);
                }
            }
            StackWord::PythonGap(end) => {
                let gap = self.python_gap(end, profile);
                self.elements.push(gap);
            }
            StackWord::Malformed => {
                self.malformed_words += 1;
                let malformed = self.malformed(profile);
                self.elements.push(malformed);
            }
        };
        match repaired(sample.user) {
            None => user_stack_words(key.space, sample.user.iter()).for_each(&mut each),
            Some(words) => user_stack_words(key.space, words.into_iter()).for_each(&mut each),
        }
        if !gap_seen && let Some(end) = incomplete(sample) {
            let gap = self.gap_behind(outermost, end, profile);
            self.elements.push(gap);
        }
        all_known
    }

    /// Adds one element; false if its address had to be noted.
    #[inline]
    fn add(&mut self, code: Code, asked: bool, profile: &mut Profile, accounts: &mut Accounts) -> bool {
        match self.known.get_mut(&code) {
            Some(known) if *known != ASKED => {
                // The second look-up of the stack that was resolved is not another stack.
                known.hit |= !asked;
                self.elements.push(*known);
                true
            }
            _ if asked => {
                let known = self.learn(code, &[], profile, accounts);
                self.elements.push(known);
                true
            }
            Some(_) => false,
            None => {
                // Unanswered: not to be resolved again.
                self.known.insert(code, ASKED);
                let (owner, time_ns) = (profile.owner(), self.time_ns);
                self.missing.push(MissingCode { code, owner, time_ns });
                false
            }
        }
    }

    /// The gathered elements as one path, root first.
    fn joined(&mut self) -> CallPath<'_> {
        let Self { frames, parts, path, elements, cpython_calls, torch_wrappers, .. } = self;
        path.clear();
        let mut unnamed = 0;
        let mut operator = None;
        let mut origin: &[FrameId] = &[];
        for element in elements.iter().rev() {
            let mut range = element.begin as usize..element.begin as usize + usize::from(element.len);
            let of_origin =
                parts[range.clone()].iter().take_while(|part| **part == OperatorFrameRole::Origin).count();
            if of_origin > 0 {
                let here = &frames[range.start..range.start + of_origin];
                if here == origin {
                    range.start += of_origin;
                }
                origin = here;
            }
            for (&frame, part) in frames[range.clone()].iter().zip(&parts[range]) {
                if *part == OperatorFrameRole::Dispatched && operator == Some(frame) {
                    continue;
                }
                if matches!(part, OperatorFrameRole::Begins | OperatorFrameRole::Dispatched) {
                    operator = Some(frame);
                }
                path.push(frame);
            }
            if unnamed == 0 {
                unnamed = element.unnamed;
            }
        }
        cpython_calls.mark(path);
        torch_wrappers.mark(path);
        let missing = MissingFrames { unnamed, unlisted: self.unlisted };
        CallPath { frames: &self.path, missing, malformed: self.malformed_words }
    }

    /// Caches the answer for an address. An answer without names must still yield a frame.
    fn learn(
        &mut self,
        code: Code,
        names: &[Name<'_>],
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> CachedFrames {
        let none = [code.unnamed(NOT_ANSWERED)];
        let names: &[Name<'_>] = match names {
            [] => &none,
            [Name::PythonIncomplete] => &[],
            names if matches!(code, Code::AwaitChain(_)) => &names[..names.len().min(AWAIT_CHAIN_FRAMES_MAX)],
            names => &names[..names.len().min(INLINED_MAX)],
        };
        let begin = self.frames.len() as u32;
        let mut unnamed = 0;
        for name in names {
            if let (0, Some(reason)) = (unnamed, reason(name)) {
                unnamed = accounts.unnamed_number(reason);
            }
            let mut role = code.role();
            if let (Role::Code, Name::Native { symbol, .. }) = (role, name) {
                role = self.operator(symbol, profile);
            }
            let frame = frame(name, role, profile);
            let frame = profile.frame(frame);
            if matches!(name, Name::Compiled { .. } | Name::Traced { .. }) {
                self.push(frame, OperatorFrameRole::Origin);
                continue;
            }
            self.cpython_calls.learn(frame, profile);
            self.torch_wrappers.learn(frame, profile);
            self.push(frame, OperatorFrameRole::None);
        }
        let len = (self.frames.len() - begin as usize) as u16;
        let known_code = names.iter().any(is_of_known_code);
        let known = CachedFrames { begin, len, unnamed, known_code, left_out: false, hit: false };
        self.known.insert(code, known);
        known
    }

    fn push(&mut self, frame: FrameId, part: OperatorFrameRole) {
        self.frames.push(frame);
        self.parts.push(part);
    }

    /// Adds the operator frame that precedes a function of an operator. Returns the function's own role.
    fn operator(&mut self, symbol: &str, profile: &mut Profile) -> Role {
        let (name, part) = match framework::meaning(symbol) {
            Meaning::Entry(name) => (name, OperatorFrameRole::Begins),
            Meaning::Inner(name) => (name, OperatorFrameRole::Dispatched),
            Meaning::Dispatch => return Role::Dispatch,
            Meaning::Ordinary => return Role::Code,
        };
        let name = profile.text(&name);
        let frame = profile.frame(Frame::Operator { name });
        self.push(frame, part);
        Role::Dispatch
    }

    /// The gap behind the frame where a native walk ended. If the kernel programs did not know the code's mapping or
    /// its process, and it is known here why, that is the reason.
    fn gap_behind(
        &mut self,
        outermost: Option<CachedFrames>,
        end: WalkEnd,
        profile: &mut Profile,
    ) -> CachedFrames {
        let code = match (end, outermost, self.refusal) {
            (WalkEnd::NoMapping, Some(frame), _) if frame.left_out => UnlistedCode::LeftOut,
            (WalkEnd::NoMapping, Some(frame), _) if frame.known_code => UnlistedCode::TooNew,
            (WalkEnd::UnknownProcess, _, Some(refusal)) => refusal.into(),
            _ => return self.gap(end, profile),
        };
        self.unlisted = Some(code);
        if let Some(known) = self.unlisted_gaps[code as usize] {
            return known;
        }
        let known = self.single(code.reason().key, Origin::Native, profile);
        self.unlisted_gaps[code as usize] = Some(known);
        known
    }

    fn gap(&mut self, end: WalkEnd, profile: &mut Profile) -> CachedFrames {
        if let Some(known) = self.gaps[end as usize] {
            return known;
        }
        let known = match end {
            WalkEnd::LeftOut => self.one(native_omitted::left_out(profile), profile),
            end => self.single(end.key(), Origin::Native, profile),
        };
        self.gaps[end as usize] = Some(known);
        known
    }

    fn python_gap(&mut self, end: PythonEnd, profile: &mut Profile) -> CachedFrames {
        if let Some(known) = self.python_gaps[end as usize] {
            return known;
        }
        let known = self.single(end.key(), Origin::Python, profile);
        self.python_gaps[end as usize] = Some(known);
        known
    }

    /// The gap between user and kernel frames if kernel frames are missing there.
    fn kernel_gap(&mut self, sample: &Sample<'_>, profile: &mut Profile) -> Option<CachedFrames> {
        let end = sample.kernel_end()?;
        let in_kernel = sample.fixed.flags & sample_flag::IN_KERNEL != 0;
        if end != KernelEnd::Truncated && (end != KernelEnd::Failed || !in_kernel) {
            return None;
        }
        if self.kernel_gaps[end as usize].is_none() {
            self.kernel_gaps[end as usize] = Some(self.single(end.key(), Origin::Kernel, profile));
        }
        self.kernel_gaps[end as usize]
    }

    fn malformed(&mut self, profile: &mut Profile) -> CachedFrames {
        if let Some(known) = self.malformed {
            return known;
        }
        let known = self.single(MALFORMED_WORDS.key, Origin::Native, profile);
        self.malformed = Some(known);
        known
    }

    fn single(&mut self, key: &str, origin: Origin, profile: &mut Profile) -> CachedFrames {
        let reason = profile.text(key);
        let frame = profile.frame(Frame::Unresolved { reason, origin });
        self.one(frame, profile)
    }

    fn one(&mut self, frame: FrameId, profile: &mut Profile) -> CachedFrames {
        self.cpython_calls.learn(frame, profile);
        self.push(frame, OperatorFrameRole::None);
        let begin = self.frames.len() as u32 - 1;
        CachedFrames { begin, len: 1, unnamed: 0, known_code: false, left_out: false, hit: false }
    }
}

/// Why the user stack does not reach the thread's start; `None` if it does, or if it was not walked.
fn incomplete(sample: &Sample<'_>) -> Option<WalkEnd> {
    match sample.native_end() {
        Some(WalkEnd::Complete | WalkEnd::NotWalked | WalkEnd::NoUserStack | WalkEnd::LeftOut) | None => None,
        end => end,
    }
}

/// Whether an address lies in code with a known mapping.
fn is_of_known_code(name: &Name<'_>) -> bool {
    match name {
        Name::Native { .. } => true,
        // Reasons for generated code without a file have this prefix.
        Name::NativeUnnamed { module, reason, .. } => !module.is_empty() || reason.key.starts_with("jit-"),
        _ => false,
    }
}

fn reason(name: &Name<'_>) -> Option<&'static Reason> {
    match name {
        Name::NativeUnnamed { reason, .. }
        | Name::KernelUnnamed { reason }
        | Name::PythonUnnamed { reason } => Some(*reason),
        Name::Native { .. }
        | Name::Kernel { .. }
        | Name::Python { .. }
        | Name::Compiled { .. }
        | Name::Traced { .. }
        | Name::Task { .. }
        | Name::Layer { .. }
        | Name::PythonIncomplete => None,
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use deepctx_profile::profile::{Limits, Meta};

    use super::*;
    use crate::symbols::CodeAddress;

    /// Resolves these addresses. Returns the memory that the stage has by then.
    fn see(resolve: &mut ResolveStage, profile: &mut Profile, addresses: Range<usize>) -> usize {
        let mut accounts = Accounts::default();
        for address in addresses {
            let code = Code::Kernel { address: CodeAddress::Exact(address as u64) };
            resolve.learn(code, &[], profile, &mut accounts);
        }
        resolve.held_bytes()
    }

    #[test]
    fn memory_of_a_burst_of_addresses_is_given_back() {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let mut resolve = ResolveStage::default();
        let burst = see(&mut resolve, &mut profile, 0..2 * ADDRESSES_MAX);
        resolve.trim();
        let after = resolve.held_bytes();
        assert!(after < burst / 16, "{burst} bytes, then {after}");
    }

    #[test]
    fn new_addresses_for_hours_take_bounded_memory() {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let mut resolve = ResolveStage::default();
        for hour in 1..=12 {
            let begin = hour * (ADDRESSES_MAX + 1);
            let held = see(&mut resolve, &mut profile, begin..begin + ADDRESSES_MAX + 1);
            assert!(held < 6 << 20, "{held} bytes after {hour}");
            resolve.trim();
        }
    }
}
