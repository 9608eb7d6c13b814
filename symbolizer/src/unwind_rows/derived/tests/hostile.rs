//! Tests with arbitrary bytes: the work is bounded and the rows are valid.

use deepctx_address_space::Arch;
use proptest::prelude::*;

use crate::unwind_rows::derived::{
    Bounds, Code, DerivedTable, derive, derive_all, entries_of_generated_code,
};

fn check_valid(derived: &DerivedTable, begin: u64, end: u64) {
    let mut last = begin;
    for &(from, to, _) in &derived.rows {
        assert!(last <= from && from < to && to <= end, "{from:#x}..{to:#x} after {last:#x} within {end:#x}");
        last = to;
    }
}

/// The rows of `code` as one function.
fn whole(code: &[u8]) -> DerivedTable {
    let function = 0x1000..0x1000 + code.len() as u64;
    derive(code, 0x1000, std::slice::from_ref(&function))
}

proptest! {
    #[test]
    fn rows_of_random_bytes_are_ascending_and_disjoint(
        code in proptest::collection::vec(any::<u8>(), 0..400),
        address in any::<u64>(),
        cuts in proptest::collection::vec((0..500_u64, 0..500_u64), 0..6),
    ) {
        let entries: Vec<_> =
            cuts.iter().map(|&(from, bytes)| {
                let from = address.saturating_add(from);
                from..from.saturating_add(bytes)
            }).collect();
        check_valid(&derive(&code, address, &entries), address, address.saturating_add(code.len() as u64));
    }

    /// Random sequences of relevant instructions.
    #[test]
    fn rows_of_random_stack_code_are_ascending_and_disjoint(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                &b"\x55"[..], b"\x5d", b"\x48\x89\xe5", b"\x48\x83\xe4\xc0", b"\x48\x83\xec\x20", b"\xc9", b"\xc3",
                b"\x48\x89\x44\x24\x08", b"\x48\x8b\x64\x24\x08", b"\x48\x89\xe0", b"\x75\xf0", b"\xeb\x05",
                b"\xe8\x02\x00\x00\x00", b"\xff\xe0", b"\x4c\x8d\x54\x24\x08", b"\x41\xff\x72\xf8", b"\x48\x29\xc4",
            ]),
            0..120,
        ),
        at in any::<u8>(),
    ) {
        let code = words.concat();
        let address = 0x1000;
        let end = address + code.len() as u64;
        let entries = [address..end, address + u64::from(at)..end];
        check_valid(&derive(&code, address, &entries), address, end);
    }

    #[test]
    fn entries_of_random_bytes_are_ascending_and_disjoint(
        code in proptest::collection::vec(any::<u8>(), 0..20_000),
        address in any::<u64>(),
    ) {
        let mut last = address;
        for entry in entries_of_generated_code(Arch::X86_64, &code, address) {
            prop_assert!(entry.start.is_multiple_of(4096) && last <= entry.start && entry.start < entry.end);
            last = entry.end;
        }
    }
}

#[test]
fn a_stack_of_two_gigabytes_is_not_followed() {
    // sub $0x7ffffff8, %rsp; nop; ud2: with the return address, that leads to the least number of 32 bits.
    let derived = whole(&[0x48, 0x81, 0xec, 0xf8, 0xff, 0xff, 0x7f, 0x90, 0x0f, 0x0b]);
    let rows: Vec<_> = derived.rows.iter().map(|(from, to, _)| (*from, *to)).collect();
    assert_eq!(rows, [(0x1000, 0x1007)]);
}

#[test]
fn jumps_to_very_many_addresses_stay_linear() {
    const JUMPS: usize = 100_000;
    const FUNCTIONS: usize = 8;
    // Functions of `jne` only, each to another byte of the `nop`s behind them.
    let nops = FUNCTIONS * JUMPS * 6;
    let jump = |n: usize| {
        let distance = (nops + n) as u32 - (n * 6 + 6) as u32;
        [&[0x0f, 0x85], &distance.to_le_bytes()[..]].concat()
    };
    let mut code: Vec<u8> = (0..FUNCTIONS * JUMPS).flat_map(jump).collect();
    code.resize(nops + (1 << 20), 0x90);
    let begins = (0..=FUNCTIONS).map(|n| 0x1000 + (n * JUMPS * 6) as u64);
    let ends = begins.clone().skip(1).chain([0x1000 + code.len() as u64]);
    let entries: Vec<_> = begins.zip(ends).map(|(begin, end)| begin..end).collect();
    // Comparing each target with all before it would take many minutes.
    let derived = derive(&code, 0x1000, &entries);
    assert_eq!(derived.stats.functions, FUNCTIONS as u64 + 1);
}

#[test]
fn a_function_beyond_the_limits_has_no_rows() {
    let code = vec![0x90; 3 << 20];
    let derived = whole(&code);
    assert_eq!((derived.rows.len(), derived.stats.too_large), (0, 1));
}

#[test]
fn functions_beyond_the_bounds_are_counted() {
    let code = [0xc3; 64];
    let entries: Vec<_> = (0..64).map(|at| at..at + 1).collect();
    let pieces = [Code { address: 0, bytes: &code }];
    let of = |functions, code_bytes| derive_all(&pieces, &entries, &Bounds { functions, code_bytes }).stats;
    assert_eq!((of(10, 100).functions, of(10, 100).beyond_bounds), (10, 54));
    assert_eq!((of(100, 7).functions, of(100, 7).beyond_bounds), (7, 57));
}

#[test]
fn a_jump_into_an_instruction_gives_no_rows() {
    // jmp into the immediate of the mov before it.
    let code = [0xb8, 0x01, 0x02, 0x03, 0x04, 0xeb, 0xfb];
    let derived = whole(&code);
    assert_eq!((derived.rows.len(), derived.stats.overlapping), (0, 1));
}

#[test]
fn a_loop_that_pushes_has_no_row() {
    // 1: push rax; jmp 1b
    let derived = whole(&[0x50, 0xeb, 0xfd]);
    assert_eq!(derived.rows, []);
    assert_eq!(derived.stats.unknown_bytes, 3);
}
