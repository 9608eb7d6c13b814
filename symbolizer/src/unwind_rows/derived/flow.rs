//! Control flow of one function.
//!
//! Owns: the control flow graph, and the state at each of its blocks. Because: an instruction is reached by several
//! paths, and a rule must be right for all of them. Does not: know how an instruction changes the state.
//!
//! ```text
//!   entries ─decode─▶ runs, operations, jump targets ─blocks─▶ graph ─join to a fixed point─▶ states
//! ```

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::lower::{Lowering, Op};
use super::state::State;

/// Most instructions of one function. The largest kernels of numeric libraries, unrolled, have some 50 thousand.
pub(super) const INSTRUCTIONS_MAX: usize = 1 << 17;
/// Most bytes of one function. Generated ones may be taken to extend to the next, far beyond their last instruction.
pub(super) const GROUP_BYTES_MAX: u64 = 16 << 20;
/// Most visits per block of a function on average: a state can lose facts some twenty times; in practice it does so
/// twice.
const VISITS_PER_BLOCK: usize = 16;

/// Most merge points of one function where different stack pointers meet. Kernels that use one of two stacks have one.
const MERGE_POINTS_MAX: usize = 4;

/// Why a function has no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Larger than the limits.
    TooLarge,
    /// A jump leads into the middle of an instruction.
    Overlapping,
    /// It returns with something above the return address on the stack, so some derived fact is wrong.
    Contradiction,
}

/// Flags of a byte of code.
mod byte {
    /// First byte of an instruction.
    pub(super) const FIRST: u8 = 1;
    /// Another byte of an instruction.
    pub(super) const INNER: u8 = 2;
    /// Start of a block.
    pub(super) const LEADER: u8 = 4;
}

/// An operation, and the offset of the end of its instruction.
#[derive(Clone, Copy, Debug)]
struct PlacedOp {
    end: u32,
    op: Op,
}

/// A basic block.
#[derive(Clone, Copy, Debug)]
struct Block {
    begin: u32,
    end: u32,
    /// Its operations, as a range of indices.
    ops: (u32, u32),
    /// Whether control may continue at `end`.
    falls: bool,
}

/// One function with all that overlaps it.
#[derive(Debug)]
pub(super) struct Graph {
    blocks: Vec<Block>,
    ops: Vec<PlacedOp>,
    /// Targets of calls within the group, which follow no calling convention.
    local: Vec<u32>,
    /// Instructions decoded.
    pub(super) instructions: usize,
    /// Jumps to unknown targets.
    pub(super) indirect: usize,
    bytes: u32,
}

impl Graph {
    /// Decodes all code reachable from the offsets `entries`.
    pub(super) fn decode(code: &[u8], begin: u64, entries: &[u32]) -> Result<Self, Failure> {
        let bytes = u32::try_from(code.len()).ok().filter(|&bytes| u64::from(bytes) <= GROUP_BYTES_MAX);
        let bytes = bytes.ok_or(Failure::TooLarge)?;
        let mut builder = GraphBuilder {
            decoder: Decoder::with_ip(64, code, begin, DecoderOptions::NONE),
            lowering: Lowering::new(begin, begin.wrapping_add(u64::from(bytes))),
            begin,
            map: vec![0; code.len()],
            leaders: Vec::new(),
            pending: Vec::new(),
            runs: Vec::new(),
            graph: Self {
                blocks: Vec::new(),
                ops: Vec::new(),
                local: Vec::new(),
                instructions: 0,
                indirect: 0,
                bytes,
            },
        };
        for &entry in entries {
            builder.add_leader(entry)?;
        }
        while let Some(at) = builder.pending.pop() {
            builder.run(at)?;
        }
        Ok(builder.into_graph())
    }

    /// The state at the start of each block. `entries` are reached by calls, `unknown_entries` in an unknown state.
    pub(super) fn solve(
        &self,
        entries: &[u32],
        unknown_entries: &[u32],
    ) -> Result<Vec<Option<State>>, Failure> {
        // Different stack pointers are found late, when the states after the merge point already use one of them.
        // Then the analysis starts again with that merge point.
        let mut merge_points = Vec::new();
        loop {
            match self.solve_once(entries, unknown_entries, &mut merge_points)? {
                Some(states) => return Ok(states),
                None => continue,
            }
        }
    }

    /// `None` when a merge point with different stack pointers was found and added to `merge_points`.
    fn solve_once(
        &self,
        entries: &[u32],
        unknown_entries: &[u32],
        merge_points: &mut Vec<u32>,
    ) -> Result<Option<Vec<Option<State>>>, Failure> {
        let mut states: Vec<Option<State>> = vec![None; self.blocks.len()];
        let mut pending = Vec::new();
        for (&entry, state) in entries
            .iter()
            .map(|entry| (entry, State::entry()))
            .chain(unknown_entries.iter().chain(&self.local).map(|entry| (entry, State::unknown())))
        {
            self.reach(entry, &state, merge_points, &mut states, &mut pending);
        }
        let mut budget = self.blocks.len().saturating_mul(VISITS_PER_BLOCK);
        while let Some(index) = pending.pop() {
            budget = budget.checked_sub(1).ok_or(Failure::TooLarge)?;
            let Some(mut state) = states[index].clone() else { continue };
            let block = &self.blocks[index];
            for placed in self.ops(block) {
                if let Op::Branch { target } | Op::Jump { target } = placed.op
                    && self.reach(target, &state, merge_points, &mut states, &mut pending)
                {
                    return Ok(None);
                }
                state.apply(&placed.op, placed.end);
            }
            if block.falls && self.reach(block.end, &state, merge_points, &mut states, &mut pending) {
                return Ok(None);
            }
        }
        Ok(Some(states))
    }

    /// Reaches `at` in a state; true when `at` was added to `merge_points`.
    fn reach(
        &self,
        at: u32,
        with: &State,
        merge_points: &mut Vec<u32>,
        states: &mut [Option<State>],
        pending: &mut Vec<usize>,
    ) -> bool {
        let Ok(index) = self.blocks.binary_search_by_key(&at, |block| block.begin) else { return false };
        let moved;
        let with = if merge_points.contains(&at) {
            moved = with.at_merge_point(at);
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
        let is_new = changed
            && merge_points.len() < MERGE_POINTS_MAX
            && !merge_points.contains(&at)
            && states[index].as_ref().is_some_and(|state| state.is_merge_point(at));
        if is_new {
            merge_points.push(at);
        }
        is_new
    }

    fn ops(&self, block: &Block) -> &[PlacedOp] {
        &self.ops[block.ops.0 as usize..block.ops.1 as usize]
    }

    /// Runs every block from the state at its start. `emit` gets each range of code with its state, ascending.
    /// Returns every exit to other code, as (address, whether rsp and rbp are as at the entry of a function).
    pub(super) fn follow(
        &self,
        begin: u64,
        states: Vec<Option<State>>,
        mut emit: impl FnMut(u32, u32, &State),
    ) -> Result<Vec<(u64, bool)>, Failure> {
        let mut exits = Vec::new();
        for (block, state) in self.blocks.iter().zip(states) {
            let Some(mut state) = state else { continue };
            let mut at = block.begin;
            let mut last = None;
            for placed in self.ops(block) {
                if placed.end > at {
                    emit(at, placed.end, &state);
                    at = placed.end;
                }
                match placed.op {
                    Op::Exit { target, .. } => exits.push((target, state.is_at_edge())),
                    Op::Return if state.contradicts_return() => return Err(Failure::Contradiction),
                    _ => {}
                }
                state.apply(&placed.op, placed.end);
                last = Some(*placed);
            }
            if block.end > at {
                emit(at, block.end, &state);
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

/// Builds a graph.
struct GraphBuilder<'c> {
    decoder: Decoder<'c>,
    lowering: Lowering,
    begin: u64,
    /// Flags of [`byte`] for each byte of the code.
    map: Vec<u8>,
    /// Starts of blocks.
    leaders: Vec<u32>,
    /// Offsets to decode from.
    pending: Vec<u32>,
    /// Ranges decoded without interruption, and whether control continues after them.
    runs: Vec<(u32, u32, bool)>,
    graph: Graph,
}

impl GraphBuilder<'_> {
    /// Marks `at` as the start of a block.
    fn add_leader(&mut self, at: u32) -> Result<(), Failure> {
        let Some(flags) = self.map.get_mut(at as usize) else { return Ok(()) };
        if *flags & byte::INNER != 0 {
            return Err(Failure::Overlapping);
        }
        if *flags & (byte::LEADER | byte::FIRST) == 0 {
            self.pending.push(at);
        }
        if *flags & byte::LEADER == 0 {
            self.leaders.push(at);
        }
        *flags |= byte::LEADER;
        Ok(())
    }

    /// Decodes from `first` on until known code, or the end of control flow.
    fn run(&mut self, first: u32) -> Result<(), Failure> {
        let mut at = first;
        let mut falls = true;
        let mut instruction = Instruction::default();
        while let Some(&flags) = self.map.get(at as usize) {
            if flags & byte::INNER != 0 {
                return Err(Failure::Overlapping);
            }
            if flags & byte::FIRST != 0 {
                if flags & byte::LEADER == 0 {
                    self.leaders.push(at);
                }
                self.map[at as usize] |= byte::LEADER;
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
            self.claim(at, end)?;
            let before = self.graph.ops.len();
            let ops = &mut self.graph.ops;
            self.lowering.lower(&instruction, |op| ops.push(PlacedOp { end, op }));
            let new = self.graph.ops.get(before..).unwrap_or_default();
            let last = new.last().map(|placed| placed.op);
            at = end;
            match last {
                Some(Op::Call { local: true }) => {
                    if let Some(callee) = self.lowering.local_callee(&instruction) {
                        self.graph.local.push(callee);
                        self.add_leader(callee)?;
                    }
                }
                Some(Op::Branch { target } | Op::Jump { target }) => self.add_leader(target)?,
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

    /// Marks the bytes of an instruction, which belong to no other one.
    fn claim(&mut self, at: u32, end: u32) -> Result<(), Failure> {
        self.map[at as usize] |= byte::FIRST;
        for flags in &mut self.map[at as usize + 1..end as usize] {
            if *flags != 0 {
                return Err(Failure::Overlapping);
            }
            *flags = byte::INNER;
        }
        Ok(())
    }

    /// Splits runs at the starts of blocks.
    fn into_graph(mut self) -> Graph {
        self.runs.sort_unstable();
        self.leaders.sort_unstable();
        let mut leaders = self.leaders.iter().copied().peekable();
        self.graph.ops.sort_by_key(|placed| placed.end);
        let all = std::mem::take(&mut self.graph.ops);
        let mut all = all.iter().copied().peekable();
        for &(first, end, falls) in &self.runs {
            let mut begin = first;
            while begin < end {
                while leaders.next_if(|leader| *leader <= begin).is_some() {}
                let to = leaders.peek().copied().filter(|leader| *leader < end).unwrap_or(end);
                let from = self.graph.ops.len();
                while let Some(placed) = all.next_if(|next| next.end <= to) {
                    push(&mut self.graph.ops, from, placed);
                }
                let ops = (from as u32, self.graph.ops.len() as u32);
                self.graph.blocks.push(Block { begin, end: to, ops, falls: to < end || falls });
                begin = to;
            }
        }
        self.graph
    }
}

/// Adds an operation to a block. Most clobbered registers hold no relevant value, so that consecutive clobbers are
/// merged into one, at the first position.
fn push(ops: &mut Vec<PlacedOp>, first: usize, placed: PlacedOp) {
    const KEPT: u16 = 1 << super::lower::RSP | 1 << super::lower::RBP;
    if let Op::Clobber { mask } = placed.op
        && mask & KEPT == 0
        && let Some(PlacedOp { op: Op::Clobber { mask: before }, .. }) =
            ops.get_mut(first..).and_then(<[PlacedOp]>::last_mut)
        && *before & KEPT == 0
    {
        *before |= mask;
        return;
    }
    ops.push(placed);
}
