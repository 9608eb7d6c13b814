//! The instructions of a piece of code, in the order of their addresses.
//!
//! Owns: decoding them; which of them call what. Because: several kinds of rows are derived from what a function
//! does. Does not: follow jumps, or know what the code is.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

/// All instructions; those after an invalid one are meaningless.
pub(super) fn instructions(code: &[u8], begin: u64) -> impl Iterator<Item = Instruction> {
    Decoder::with_ip(64, code, begin, DecoderOptions::NONE).into_iter()
}

/// Direct calls: the end of each, and its target.
pub(super) fn calls(code: &[u8], begin: u64) -> impl Iterator<Item = (u64, u64)> {
    let direct =
        |now: &Instruction| now.mnemonic() == Mnemonic::Call && now.op0_kind() == OpKind::NearBranch64;
    instructions(code, begin).filter(direct).map(|now| (now.next_ip(), now.near_branch64()))
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn only_direct_calls_are_followed() {
        // call *%rax; call +0x10; nop
        let code = [0xff, 0xd0, 0xe8, 0x10, 0, 0, 0, 0x90];
        assert_eq!(calls(&code, 0x1000).collect::<Vec<_>>(), [(0x1007, 0x1017)]);
    }
}
