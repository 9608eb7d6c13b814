//! Resolve: raw words → the frames of a stack, root first.
//!
//! Owns: what the words mean, which addresses are known already, and the order of frames: user frames from the
//! thread's start (Python where the walk put it), kernel frames on top. Because: names are slow to get and stacks are
//! many: an address is asked for once, together with all others that are missing, and then costs one look-up.
//! Does not: know where names come from ([`super::symbols`]), or lose a frame: what has no name says why.
//!
//! ```text
//!  words, leaf first:  kernel… | native  PYTHON PYTHON  native(eval loop)  native …  GAP
//!                                           ▲ one run of Python frames belongs to the native frame after it
//! ```
//!
//! Where a native frame of the evaluation loop has no run, a marker stands in its place and says why ([`user_steps`]).

use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::record::{sample_flag, word};
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_symbolizer::framework::{self, Meaning};
use rustc_hash::{FxHashMap, FxHashSet};
use std::num::NonZeroU32;

use super::account::{Accounts, python_key};
use super::decode::{Sample, Words};
use super::glue::Glue;
use super::symbols::{CodeAddress, Name, NoName, PythonReference, SpaceId, Symbols};

/// Addresses remembered: 256 Ki at about 40 bytes are 10 MiB; a torch process shows some ten thousand.
const ADDRESSES_MAX: usize = 1 << 18;
/// Most frames of one address: how deep compilers inline, with a wide margin.
const INLINED_MAX: usize = 64;

const NOT_ANSWERED: NoName = NoName { key: "not-answered", sentence: "the symbolizer gave no answer" };
const MALFORMED: NoName =
    NoName { key: "malformed-words", sentence: "words of the stack had an unknown form" };

/// A stack, ready for the tree. Frames are those below the thread, root first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPath<'a> {
    /// Root first.
    pub frames: &'a [FrameId],
    /// Number of the reason why one of the frames has no name; 0 when all have ([`Accounts::unnamed_number`]).
    pub unnamed: u16,
    /// Words that had no meaning.
    pub malformed: u64,
}

/// What a word stands for: some frames in [`Resolve::frames`], outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    begin: u32,
    /// 0 for what is not shown.
    len: u16,
    unnamed: u16,
}

/// What a frame is to the operators of its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Nothing.
    None,
    /// An operator that begins.
    Begins,
    /// An operator in whose dispatch the stack is: it begins here unless it is the one that the stack is in already.
    Within,
}

/// Stands for the answer until there is one.
const ASKED: Known = Known { begin: u32::MAX, len: 0, unnamed: 0 };

/// A word with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Code {
    Native { space: SpaceId, address: CodeAddress, role: Role },
    Python { space: SpaceId, code: u64, detail: u64 },
    Kernel { address: CodeAddress },
}

/// The stage's state.
#[derive(Debug, Default)]
pub struct Resolve {
    known: FxHashMap<Code, Known>,
    frames: Vec<FrameId>,
    /// What each of `frames` is to the operators of a stack.
    parts: Vec<Part>,
    missing: Vec<Code>,
    gaps: [Option<Known>; WalkEnd::ALL.len()],
    kernel_gaps: [Option<Known>; KernelEnd::ALL.len()],
    python_gaps: [Option<Known>; PythonEnd::ALL.len()],
    malformed: Option<Known>,
    /// What the words of the sample at hand stand for, leaf first.
    steps: Vec<Known>,
    malformed_words: u64,
    path: Vec<FrameId>,
    glue: Glue,
    forgotten: u64,
}

/// Functions remembered by [`PythonSeen`]; at the bound all are forgotten and told again.
const SEEN_MAX: usize = 1 << 16;

/// Python functions that were met already, so that each is told once.
#[derive(Debug, Default)]
pub struct PythonSeen {
    seen: FxHashSet<(u32, u64, u32)>,
    new: Vec<PythonReference>,
}

impl PythonSeen {
    /// The functions of a sample that were not met before in its process.
    pub fn new_in(&mut self, sample: &Sample<'_>) -> &[PythonReference] {
        self.new.clear();
        if sample.fixed.python_frames == 0 {
            return &self.new;
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let mut words = sample.user.iter();
        while let Some(current) = words.next() {
            if word::tag(current) == word::PYTHON
                && let Some(detail) = words.next()
            {
                let reference = python_reference(current & word::PAYLOAD, detail);
                if self.seen.insert((sample.fixed.pid, reference.code, reference.checksum)) {
                    self.new.push(reference);
                }
            }
        }
        &self.new
    }

    /// The process has another program now: its functions are new.
    pub fn forget(&mut self, pid: u32) {
        self.seen.retain(|(of, _, _)| *of != pid);
    }
}

fn python_reference(code: u64, detail: u64) -> PythonReference {
    let instruction = Some(detail as u32).filter(|instruction| *instruction != u32::MAX);
    PythonReference { code, checksum: (detail >> 32) as u32, instruction }
}

/// One step of a user stack as the words tell it.
enum Step {
    Code(Code),
    Gap(WalkEnd),
    PythonGap(PythonEnd),
    Malformed,
}

/// The steps of user words, leaf first.
fn user_steps(space: SpaceId, words: impl Iterator<Item = u64>) -> impl Iterator<Item = Step> {
    let mut words = words;
    let mut after_python = false;
    std::iter::from_fn(move || {
        let current = words.next()?;
        let payload = current & word::PAYLOAD;
        let mut native = |address| {
            let role = if std::mem::take(&mut after_python) { Role::Interpreter } else { Role::Code };
            Step::Code(Code::Native { space, address, role })
        };
        Some(match word::tag(current) {
            word::RETURN => native(CodeAddress::Return(payload)),
            word::EXACT => native(CodeAddress::Exact(payload)),
            word::PYTHON => match words.next() {
                Some(detail) => {
                    after_python = true;
                    Step::Code(Code::Python { space, code: payload, detail })
                }
                None => Step::Malformed,
            },
            word::GAP => {
                after_python = payload & word::PYTHON_GAP != 0;
                gap_step(payload)
            }
            // Nothing is shown for it.
            word::COROUTINE => Step::PythonGap(PythonEnd::Complete),
            _ => Step::Malformed,
        })
    })
}

fn gap_step(payload: u64) -> Step {
    let number = |payload| u8::try_from(payload).ok();
    let step = if payload & word::PYTHON_GAP == 0 {
        number(payload).and_then(WalkEnd::from_number).map(Step::Gap)
    } else {
        number(payload & !word::PYTHON_GAP).and_then(PythonEnd::from_number).map(Step::PythonGap)
    };
    step.unwrap_or(Step::Malformed)
}

const LACKING: u64 = word::tagged(word::GAP, word::PYTHON_GAP | PythonEnd::ChainShort as u64);

/// The words with each run of Python frames at the evaluation it belongs to. Up to 3.10 nothing in the stack says which
/// one that is, so the walk gives the first run to the innermost evaluation, and the outermost ones come out short. But
/// it is the innermost that have none: one that has not hung its frame on the chain yet, or those of a sub-interpreter.
/// `None` when nothing has to be moved.
fn repaired(words: Words<'_>) -> Option<Vec<u64>> {
    let lacking = words.iter().filter(|word| *word == LACKING).count();
    if lacking == 0 {
        return None;
    }
    let mut runs = std::collections::VecDeque::with_capacity(lacking);
    // The first runs are nobody's: silently that of one evaluation, which is just beginning or ending.
    let end = if lacking == 1 { PythonEnd::Complete } else { PythonEnd::OtherState };
    runs.extend(std::iter::repeat_n(vec![word::tagged(word::GAP, word::PYTHON_GAP | end as u64)], lacking));
    let (mut out, mut run) = (Vec::with_capacity(words.len()), Vec::new());
    let mut words = words.iter();
    while let Some(current) = words.next() {
        match word::tag(current) {
            word::PYTHON => run.extend(std::iter::once(current).chain(words.next())),
            _ if current == LACKING => {
                out.extend(runs.pop_front().unwrap_or_default());
            }
            _ => {
                if !run.is_empty() {
                    runs.push_back(std::mem::take(&mut run));
                    out.extend(runs.pop_front().unwrap_or_default());
                }
                out.push(current);
            }
        }
    }
    out.extend(run);
    Some(out)
}

/// The steps of kernel words, leaf first. All but the interrupted instruction are return addresses.
fn kernel_steps(words: Words<'_>) -> impl Iterator<Item = Code> + '_ {
    words.iter().enumerate().map(|(n, word)| Code::Kernel {
        address: if n == 0 { CodeAddress::Exact(word) } else { CodeAddress::Return(word) },
    })
}

impl Resolve {
    /// The path of a sample, if all its addresses are known; else takes note of those that are not.
    pub fn path_or_note(
        &mut self,
        space: SpaceId,
        sample: &Sample<'_>,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> Option<CallPath<'_>> {
        if self.gather(space, sample, false, profile, accounts) { Some(self.joined()) } else { None }
    }

    /// Addresses that [`Resolve::ask`] would ask for.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Asks for all missing addresses: one call per space and language.
    pub fn ask<S: Symbols>(&mut self, symbols: &mut S, profile: &mut Profile, accounts: &mut Accounts) {
        let mut missing = std::mem::take(&mut self.missing);
        missing.sort_unstable_by_key(group);
        for codes in missing.chunk_by(|a, b| group(a) == group(b)) {
            let mut answer = |n: usize, names: &[Name<'_>]| {
                if let Some(code) = codes.get(n) {
                    self.learn(*code, names, profile, accounts);
                }
            };
            match codes[0] {
                Code::Native { space, .. } => {
                    let addresses: Vec<_> = codes.iter().filter_map(Code::address).collect();
                    symbols.user(space, &addresses, &mut answer);
                }
                Code::Python { space, .. } => {
                    let references: Vec<_> = codes.iter().filter_map(Code::reference).collect();
                    symbols.python(space, &references, &mut answer);
                }
                Code::Kernel { .. } => {
                    let addresses: Vec<_> = codes.iter().filter_map(Code::address).collect();
                    symbols.kernel(&addresses, &mut answer);
                }
            }
            for code in codes {
                if self.known.get(code).is_none_or(|known| *known == ASKED) {
                    self.learn(*code, &[], profile, accounts);
                }
            }
        }
        missing.clear();
        self.missing = missing;
    }

    /// Forgets all addresses once there are too many. To be called when nothing is missing and no path is in use.
    pub fn trim(&mut self) {
        if self.known.len() > ADDRESSES_MAX && self.missing.is_empty() {
            self.forgotten += self.known.len() as u64;
            *self = Self {
                forgotten: self.forgotten,
                steps: std::mem::take(&mut self.steps),
                path: std::mem::take(&mut self.path),
                ..Self::default()
            };
        }
    }

    /// Addresses forgotten so far because more were met than are remembered.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The path of a sample, all of whose addresses have been noted and asked for.
    pub fn path(
        &mut self,
        space: SpaceId,
        sample: &Sample<'_>,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> CallPath<'_> {
        self.gather(space, sample, true, profile, accounts);
        self.joined()
    }

    /// Puts what the words stand for into `steps`, leaf first. Unknown addresses are noted, or, when `asked`, stand as
    /// not answered. False when one was noted.
    fn gather(
        &mut self,
        space: SpaceId,
        sample: &Sample<'_>,
        asked: bool,
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> bool {
        self.steps.clear();
        self.malformed_words = 0;
        let mut all_known = true;
        for code in kernel_steps(sample.kernel) {
            all_known &= self.add(code, asked, profile, accounts);
        }
        if let Some(gap) = self.kernel_gap(sample, profile) {
            self.steps.push(gap);
        }
        let mut gap_seen = false;
        let mut each = |step| match step {
            Step::Code(code) => all_known &= self.add(code, asked, profile, accounts),
            Step::Gap(end) => {
                gap_seen = true;
                let gap = self.gap(end, profile);
                self.steps.push(gap);
            }
            Step::PythonGap(PythonEnd::Complete) => {}
            Step::PythonGap(end) => {
                let gap = self.python_gap(end, profile);
                self.steps.push(gap);
            }
            Step::Malformed => {
                self.malformed_words += 1;
                let malformed = self.malformed(profile, accounts);
                self.steps.push(malformed);
            }
        };
        match repaired(sample.user) {
            None => user_steps(space, sample.user.iter()).for_each(&mut each),
            Some(words) => user_steps(space, words.into_iter()).for_each(&mut each),
        }
        if !gap_seen && let Some(end) = incomplete(sample) {
            let gap = self.gap(end, profile);
            self.steps.push(gap);
        }
        all_known
    }

    /// Adds one step; false when its address had to be noted.
    #[inline]
    fn add(&mut self, code: Code, asked: bool, profile: &mut Profile, accounts: &mut Accounts) -> bool {
        match self.known.get(&code) {
            Some(known) if *known != ASKED => {
                self.steps.push(*known);
                true
            }
            _ if asked => {
                let known = self.learn(code, &[], profile, accounts);
                self.steps.push(known);
                true
            }
            Some(_) => false,
            None => {
                // Nobody asks twice.
                self.known.insert(code, ASKED);
                self.missing.push(code);
                false
            }
        }
    }

    /// The gathered steps as one path, root first.
    fn joined(&mut self) -> CallPath<'_> {
        let Self { frames, parts, path, steps, glue, .. } = self;
        path.clear();
        let mut unnamed = 0;
        let mut operator = None;
        for step in steps.iter().rev() {
            let range = step.begin as usize..step.begin as usize + usize::from(step.len);
            for (&frame, part) in frames[range.clone()].iter().zip(&parts[range]) {
                if *part == Part::Within && operator == Some(frame) {
                    continue;
                }
                if *part != Part::None {
                    operator = Some(frame);
                }
                path.push(frame);
            }
            if unnamed == 0 {
                unnamed = step.unnamed;
            }
        }
        glue.mark(path);
        CallPath { frames: &self.path, unnamed, malformed: self.malformed_words }
    }

    /// Remembers the answer for an address. No names at all are an answer that must not make the frame vanish.
    fn learn(
        &mut self,
        code: Code,
        names: &[Name<'_>],
        profile: &mut Profile,
        accounts: &mut Accounts,
    ) -> Known {
        let none = [code.unnamed(NOT_ANSWERED)];
        let names: &[Name<'_>] = match names {
            [] => &none,
            [Name::PythonIncomplete] => &[],
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
            self.glue.learn(frame, profile);
            self.push(frame, Part::None);
        }
        let known = Known { begin, len: (self.frames.len() - begin as usize) as u16, unnamed };
        self.known.insert(code, known);
        known
    }

    fn push(&mut self, frame: FrameId, part: Part) {
        self.frames.push(frame);
        self.parts.push(part);
    }

    /// Adds the operator frame that stands before a function which belongs to one. Gives the function's own role.
    fn operator(&mut self, symbol: &str, profile: &mut Profile) -> Role {
        let (name, part) = match framework::meaning(symbol) {
            Meaning::Begins(name) => (name, Part::Begins),
            Meaning::Within(name) => (name, Part::Within),
            Meaning::Dispatch => return Role::Dispatch,
            Meaning::Ordinary => return Role::Code,
        };
        let name = profile.text(&name);
        let frame = profile.frame(Frame::Operator { name });
        self.push(frame, part);
        Role::Dispatch
    }

    fn gap(&mut self, end: WalkEnd, profile: &mut Profile) -> Known {
        if let Some(known) = self.gaps[end as usize] {
            return known;
        }
        let known = self.single(end.key(), Origin::Native, profile);
        self.gaps[end as usize] = Some(known);
        known
    }

    fn python_gap(&mut self, end: PythonEnd, profile: &mut Profile) -> Known {
        if let Some(known) = self.python_gaps[end as usize] {
            return known;
        }
        let known = self.single(python_key(end), Origin::Python, profile);
        self.python_gaps[end as usize] = Some(known);
        known
    }

    /// Stands between user and kernel frames when kernel frames are missing there.
    fn kernel_gap(&mut self, sample: &Sample<'_>, profile: &mut Profile) -> Option<Known> {
        let end = sample.kernel_end()?;
        let key = match end {
            KernelEnd::Truncated => "kernel-stack-truncated",
            KernelEnd::Failed if sample.fixed.flags & sample_flag::IN_KERNEL != 0 => "kernel-stack-failed",
            _ => return None,
        };
        if self.kernel_gaps[end as usize].is_none() {
            self.kernel_gaps[end as usize] = Some(self.single(key, Origin::Kernel, profile));
        }
        self.kernel_gaps[end as usize]
    }

    fn malformed(&mut self, profile: &mut Profile, accounts: &mut Accounts) -> Known {
        if let Some(known) = self.malformed {
            return known;
        }
        let unnamed = accounts.unnamed_number(MALFORMED);
        let known = Known { unnamed, ..self.single(MALFORMED.key, Origin::Native, profile) };
        self.malformed = Some(known);
        known
    }

    fn single(&mut self, key: &str, origin: Origin, profile: &mut Profile) -> Known {
        let reason = profile.text(key);
        let frame = profile.frame(Frame::Unresolved { reason, origin });
        self.glue.learn(frame, profile);
        self.push(frame, Part::None);
        Known { begin: self.frames.len() as u32 - 1, len: 1, unnamed: 0 }
    }
}

/// Why the user stack does not reach the thread's start; `None` when it does, or was not to be walked.
fn incomplete(sample: &Sample<'_>) -> Option<WalkEnd> {
    match sample.native_end() {
        Some(WalkEnd::Complete | WalkEnd::NotWalked | WalkEnd::NoUserStack) | None => None,
        end => end,
    }
}

/// Questions with equal groups go into one call.
fn group(code: &Code) -> (u8, u32) {
    match code {
        Code::Kernel { .. } => (0, 0),
        Code::Native { space, .. } => (1, space.0),
        Code::Python { space, .. } => (2, space.0),
    }
}

impl Code {
    fn address(&self) -> Option<CodeAddress> {
        match self {
            Code::Native { address, .. } | Code::Kernel { address } => Some(*address),
            Code::Python { .. } => None,
        }
    }

    fn reference(&self) -> Option<PythonReference> {
        let Code::Python { code, detail, .. } = *self else { return None };
        Some(python_reference(code, detail))
    }

    fn role(&self) -> Role {
        match self {
            Code::Native { role, .. } => *role,
            Code::Python { .. } | Code::Kernel { .. } => Role::Code,
        }
    }

    fn unnamed(&self, reason: NoName) -> Name<'static> {
        match self {
            Code::Native { address: CodeAddress::Exact(offset) | CodeAddress::Return(offset), .. } => {
                Name::NativeUnnamed { module: "", offset: *offset, reason }
            }
            Code::Python { .. } => Name::PythonUnnamed { reason },
            Code::Kernel { .. } => Name::KernelUnnamed { reason },
        }
    }
}

fn reason(name: &Name<'_>) -> Option<NoName> {
    match name {
        Name::NativeUnnamed { reason, .. }
        | Name::KernelUnnamed { reason }
        | Name::PythonUnnamed { reason } => Some(*reason),
        Name::Native { .. } | Name::Kernel { .. } | Name::Python { .. } | Name::PythonIncomplete => None,
    }
}

fn frame(name: &Name<'_>, role: Role, profile: &mut Profile) -> Frame {
    match *name {
        Name::Native { symbol, module, file, line, inlined } => Frame::Native {
            symbol: profile.text(symbol),
            module: profile.text(module),
            file: profile.text(file),
            line: NonZeroU32::new(line),
            inlined,
            role,
        },
        Name::NativeUnnamed { module, offset, reason } => Frame::NativeUnnamed {
            module: profile.text(module),
            offset,
            reason: profile.text(reason.key),
            role,
        },
        Name::Kernel { symbol } => Frame::Kernel { symbol: profile.text(symbol) },
        Name::KernelUnnamed { reason } => Frame::KernelUnnamed { reason: profile.text(reason.key) },
        Name::Python { function, file, line, first_line } => Frame::Python {
            function: profile.text(function),
            file: profile.text(file),
            line: NonZeroU32::new(line),
            first_line: NonZeroU32::new(first_line),
        },
        Name::PythonIncomplete => {
            Frame::Unresolved { reason: profile.text("incomplete"), origin: Origin::Python }
        }
        Name::PythonUnnamed { reason } => {
            Frame::Unresolved { reason: profile.text(reason.key), origin: Origin::Python }
        }
    }
}
