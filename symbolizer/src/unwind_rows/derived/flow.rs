//! Owns: the flow of control through one function, and what is known at each of its instructions.
//! Because: an instruction is reached in many ways, and a rule must be right for all of them.
//! Does not: know what an instruction does to what is known.
//!
//! ```text
//!   entries ─decode─▶ runs, operations, places jumped to ─blocks─▶ graph ─join until nothing changes─▶ states
//! ```

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::lower::{Lowering, Op};
use super::state::State;

/// Most instructions of one function. The largest kernels of numeric libraries, unrolled, have some 50 thousand.
pub(super) const INSTRUCTIONS_MAX: usize = 1 << 17;
/// Most bytes of one function. Generated ones may be stated to reach up to the next, far beyond their last instruction.
pub(super) const GROUP_BYTES_MAX: u64 = 16 << 20;
/// Most blocks looked at, for each block of a function: what is known of a place can become less some twenty times,
/// in practice it does so twice.
const VISITS_PER_BLOCK: usize = 16;

/// Places of one function where stack pointers that differ meet and that it is looked at anew for. Kernels that work
/// on one of two stacks have one.
const MEETINGS_MAX: usize = 4;

/// Why a function has no rows at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// More code than is looked at.
    TooLarge,
    /// Code is jumped to in the middle of an instruction, which means two things at a time.
    Overlapping,
    /// It returns with a stack on which the return address is not the uppermost: something was taken for what it
    /// is not.
    Contradiction,
}

/// What a byte is.
mod byte {
    pub(super) const BEGINS: u8 = 1;
    pub(super) const CONTINUES: u8 = 2;
    pub(super) const LEADS: u8 = 4;
}

/// An operation and the offset of the end of its instruction, where it has taken effect.
#[derive(Clone, Copy, Debug)]
struct Step {
    end: u32,
    op: Op,
}

/// Instructions that run one after the other.
#[derive(Clone, Copy, Debug)]
struct Block {
    begin: u32,
    end: u32,
    /// Its steps, by index.
    steps: (u32, u32),
    /// Whether the one at `end` may come next.
    falls: bool,
}

/// One function with all that overlaps it.
#[derive(Debug)]
pub(super) struct Graph {
    blocks: Vec<Block>,
    steps: Vec<Step>,
    /// Places that functions of the same group call by no convention.
    local: Vec<u32>,
    /// Instructions decoded.
    pub(super) instructions: usize,
    /// Jumps to places that are not known.
    pub(super) indirect: usize,
    bytes: u32,
}

impl Graph {
    /// Decodes all code that can be reached from the offsets `entries`.
    pub(super) fn decode(code: &[u8], begin: u64, entries: &[u32]) -> Result<Self, Failure> {
        let bytes = u32::try_from(code.len()).ok().filter(|&bytes| u64::from(bytes) <= GROUP_BYTES_MAX);
        let bytes = bytes.ok_or(Failure::TooLarge)?;
        let mut reading = Reading {
            decoder: Decoder::with_ip(64, code, begin, DecoderOptions::NONE),
            lowering: Lowering::new(begin, begin.wrapping_add(u64::from(bytes))),
            begin,
            map: vec![0; code.len()],
            leads: Vec::new(),
            pending: Vec::new(),
            runs: Vec::new(),
            graph: Self {
                blocks: Vec::new(),
                steps: Vec::new(),
                local: Vec::new(),
                instructions: 0,
                indirect: 0,
                bytes,
            },
        };
        for &entry in entries {
            reading.lead(entry)?;
        }
        while let Some(at) = reading.pending.pop() {
            reading.run(at)?;
        }
        Ok(reading.blocks())
    }

    /// What is known at the beginning of each block. `entries` are called, `lost` are come to in unknown ways.
    pub(super) fn solve(&self, entries: &[u32], lost: &[u32]) -> Result<Vec<Option<State>>, Failure> {
        // Where stack pointers differ is found late: what was said of the code behind in terms of one of them would
        // have to be taken back, so that it is said anew.
        let mut meetings = Vec::new();
        loop {
            match self.solve_once(entries, lost, &mut meetings)? {
                Some(states) => return Ok(states),
                None => continue,
            }
        }
    }

    /// `None` when a place was found and added to `meetings` where stack pointers differ.
    fn solve_once(
        &self,
        entries: &[u32],
        lost: &[u32],
        meetings: &mut Vec<u32>,
    ) -> Result<Option<Vec<Option<State>>>, Failure> {
        let mut states: Vec<Option<State>> = vec![None; self.blocks.len()];
        let mut pending = Vec::new();
        for (&entry, state) in entries
            .iter()
            .map(|entry| (entry, State::entry()))
            .chain(lost.iter().chain(&self.local).map(|lost| (lost, State::lost())))
        {
            self.reach(entry, &state, meetings, &mut states, &mut pending);
        }
        let mut budget = self.blocks.len().saturating_mul(VISITS_PER_BLOCK);
        while let Some(index) = pending.pop() {
            budget = budget.checked_sub(1).ok_or(Failure::TooLarge)?;
            let Some(mut state) = states[index].clone() else { continue };
            let block = &self.blocks[index];
            for step in self.steps(block) {
                if let Op::Branch { target } | Op::Jump { target } = step.op
                    && self.reach(target, &state, meetings, &mut states, &mut pending)
                {
                    return Ok(None);
                }
                state.apply(&step.op, step.end);
            }
            if block.falls && self.reach(block.end, &state, meetings, &mut states, &mut pending) {
                return Ok(None);
            }
        }
        Ok(Some(states))
    }

    /// Comes to `at` with what is known there; true when `at` was added to `meetings`.
    fn reach(
        &self,
        at: u32,
        with: &State,
        meetings: &mut Vec<u32>,
        states: &mut [Option<State>],
        pending: &mut Vec<usize>,
    ) -> bool {
        let Ok(index) = self.blocks.binary_search_by_key(&at, |block| block.begin) else { return false };
        let moved;
        let with = if meetings.contains(&at) {
            moved = with.meeting(at);
            &moved
        } else {
            with
        };
        let changed = match &mut states[index] {
            Some(state) => state.join(with, at),
            none => {
                *none = Some(with.clone());
                true
            }
        };
        if changed {
            pending.push(index);
        }
        let meets = changed
            && meetings.len() < MEETINGS_MAX
            && !meetings.contains(&at)
            && states[index].as_ref().is_some_and(|state| state.is_meeting(at));
        if meets {
            meetings.push(at);
        }
        meets
    }

    fn steps(&self, block: &Block) -> &[Step] {
        &self.steps[block.steps.0 as usize..block.steps.1 as usize]
    }

    /// Follows every block from what is known at its beginning: `give` gets each stretch of code, ascending, with what
    /// is known all along it. Gives every way out to other code, as (address, whether rsp and rbp are as a called function
    /// expects them).
    pub(super) fn follow(
        &self,
        begin: u64,
        states: Vec<Option<State>>,
        mut give: impl FnMut(u32, u32, &State),
    ) -> Result<Vec<(u64, bool)>, Failure> {
        let mut exits = Vec::new();
        for (block, state) in self.blocks.iter().zip(states) {
            let Some(mut state) = state else { continue };
            let mut at = block.begin;
            let mut last = None;
            for step in self.steps(block) {
                if step.end > at {
                    give(at, step.end, &state);
                    at = step.end;
                }
                match step.op {
                    Op::Exit { target, .. } => exits.push((target, state.is_at_edge())),
                    Op::Return if state.contradicts_return() => return Err(Failure::Contradiction),
                    _ => {}
                }
                state.apply(&step.op, step.end);
                last = Some(*step);
            }
            if block.end > at {
                give(at, block.end, &state);
            }
            // A call at the very end does not return.
            let calls = last.is_some_and(|last| last.end == block.end && matches!(last.op, Op::Call { .. }));
            if block.falls && block.end == self.bytes && !calls {
                exits.push((begin.wrapping_add(u64::from(block.end)), state.is_at_edge()));
            }
        }
        Ok(exits)
    }
}

/// A graph being read.
struct Reading<'c> {
    decoder: Decoder<'c>,
    lowering: Lowering,
    begin: u64,
    /// What each byte of the code is: bits of [`byte`].
    map: Vec<u8>,
    /// Offsets that something else than the instruction before them leads to.
    leads: Vec<u32>,
    /// Offsets to decode from.
    pending: Vec<u32>,
    /// Stretches decoded in one go, and whether the code goes on after them.
    runs: Vec<(u32, u32, bool)>,
    graph: Graph,
}

impl Reading<'_> {
    /// Notes that `at` can be come to by something else than the instruction before it.
    fn lead(&mut self, at: u32) -> Result<(), Failure> {
        let Some(flags) = self.map.get_mut(at as usize) else { return Ok(()) };
        if *flags & byte::CONTINUES != 0 {
            return Err(Failure::Overlapping);
        }
        if *flags & (byte::LEADS | byte::BEGINS) == 0 {
            self.pending.push(at);
        }
        if *flags & byte::LEADS == 0 {
            self.leads.push(at);
        }
        *flags |= byte::LEADS;
        Ok(())
    }

    /// Decodes from `at` until code is known already, or the flow ends.
    fn run(&mut self, first: u32) -> Result<(), Failure> {
        let mut at = first;
        let mut falls = true;
        let mut instruction = Instruction::default();
        while let Some(&flags) = self.map.get(at as usize) {
            if flags & byte::CONTINUES != 0 {
                return Err(Failure::Overlapping);
            }
            if flags & byte::BEGINS != 0 {
                if flags & byte::LEADS == 0 {
                    self.leads.push(at);
                }
                self.map[at as usize] |= byte::LEADS;
                break;
            }
            if self.decoder.set_position(at as usize).is_err() {
                break;
            }
            self.decoder.set_ip(self.begin.wrapping_add(u64::from(at)));
            self.decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                falls = false;
                break;
            }
            self.graph.instructions += 1;
            if self.graph.instructions > INSTRUCTIONS_MAX {
                return Err(Failure::TooLarge);
            }
            let end = at + instruction.len() as u32;
            self.map[at as usize] |= byte::BEGINS;
            for flags in &mut self.map[at as usize + 1..end as usize] {
                if *flags != 0 {
                    return Err(Failure::Overlapping);
                }
                *flags = byte::CONTINUES;
            }
            let before = self.graph.steps.len();
            let steps = &mut self.graph.steps;
            self.lowering.lower(&instruction, |op| steps.push(Step { end, op }));
            let new = self.graph.steps.get(before..).unwrap_or_default();
            let last = new.last().map(|step| step.op);
            at = end;
            match last {
                Some(Op::Call { local: true }) => {
                    if let Some(callee) = self.lowering.local_callee(&instruction) {
                        self.graph.local.push(callee);
                        self.lead(callee)?;
                    }
                }
                Some(Op::Branch { target } | Op::Jump { target }) => self.lead(target)?,
                Some(Op::Stop) => self.graph.indirect += usize::from(instruction.is_jmp_near_indirect()),
                _ => {}
            }
            if last.is_some_and(|op| op.ends()) {
                falls = false;
                break;
            }
        }
        if at > first {
            self.runs.push((first, at, falls));
        }
        Ok(())
    }

    /// Cuts runs where code is jumped to.
    fn blocks(mut self) -> Graph {
        self.runs.sort_unstable();
        self.leads.sort_unstable();
        let mut leads = self.leads.iter().copied().peekable();
        self.graph.steps.sort_by_key(|step| step.end);
        let all = std::mem::take(&mut self.graph.steps);
        let mut all = all.iter().copied().peekable();
        for &(first, end, falls) in &self.runs {
            let mut begin = first;
            while begin < end {
                while leads.next_if(|lead| *lead <= begin).is_some() {}
                let to = leads.peek().copied().filter(|lead| *lead < end).unwrap_or(end);
                let from = self.graph.steps.len();
                while let Some(step) = all.next_if(|next| next.end <= to) {
                    push(&mut self.graph.steps, from, step);
                }
                let steps = (from as u32, self.graph.steps.len() as u32);
                self.graph.blocks.push(Block { begin, end: to, steps, falls: to < end || falls });
                begin = to;
            }
        }
        self.graph
    }
}

/// Adds a step of a block. Registers that change often hold nothing of interest, so that changes of several of them in
/// a row are one change, of all of them at the first place.
fn push(steps: &mut Vec<Step>, first: usize, step: Step) {
    const KEPT: u16 = 1 << super::lower::RSP | 1 << super::lower::RBP;
    if let Op::Clobber { mask } = step.op
        && mask & KEPT == 0
        && let Some(Step { op: Op::Clobber { mask: before }, .. }) =
            steps.get_mut(first..).and_then(<[Step]>::last_mut)
        && *before & KEPT == 0
    {
        *before |= mask;
        return;
    }
    steps.push(step);
}
