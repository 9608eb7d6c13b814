use proptest::prelude::*;

use super::*;

/// Described in `lines.rs`.
const CUDA_12: &[u8] = include_bytes!("../../../tests/fixtures/cubin/lines12.cubin");
const CUDA_13: &[u8] = include_bytes!("../../../tests/fixtures/cubin/lines13.cubin");
/// Described in `mod.rs`.
const SHARED: &[u8] = include_bytes!("../../../tests/fixtures/cubin/cuda13.cubin");

const LOAD: u128 = 0x981;
const ADD: u128 = 0x221;
const BRANCH: u128 = 0x947;
const BRANCH_INDIRECT: u128 = 0x949;
const EXIT: u128 = 0x94d;
/// No scoreboard.
const NONE: u128 = 7;

/// An instruction that takes two scoreboards and waits for those of a mask.
fn word(operation: u128, written: u128, read: u128, mask: u128) -> u128 {
    operation | 7 << 12 | written << 110 | read << 113 | mask << 116
}

fn load(scoreboard: u128) -> u128 {
    word(LOAD, scoreboard, NONE, 0)
}

fn add(mask: u128) -> u128 {
    word(ADD, NONE, NONE, mask)
}

fn waits(words: &[u128]) -> Vec<Wait> {
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (waits, left_out) = of_code(&code, WAITS_MAX);
    assert_eq!(left_out, 0);
    waits
}

fn found(offset: u32, producers: &[u32]) -> Wait {
    Wait { offset, producers: producers.to_vec(), unknown: None }
}

fn unknown(offset: u32, producers: &[u32], because: NoProducer) -> Wait {
    Wait { unknown: Some(because), ..found(offset, producers) }
}

/// By what others found out, and as `nvdisasm` prints them: `LDG` takes scoreboard 2, the addition waits for it.
#[test]
fn producers_in_code_of_ptxas_are_its_loads() {
    for image in [CUDA_12, CUDA_13] {
        let waits = read(image).unwrap();
        let mut functions: Vec<_> = waits.functions.into_iter().collect();
        functions.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let expect = [
            ("_Z3sumPf".to_owned(), vec![found(0x60, &[0x50, 0x40])]),
            // Two special registers, and a load after a conditional exit.
            ("_Z5scalePfi".to_owned(), vec![found(0x30, &[0x20, 0x10]), found(0xa0, &[0x90])]),
        ];
        assert_eq!((functions, waits.left_out), (expect.to_vec(), 0));
    }
    // A special register, and a load from shared memory behind a barrier.
    let waits = read(SHARED).unwrap();
    assert_eq!(waits.functions["_Z4gemmPfi"], [found(0x60, &[0x10]), found(0x90, &[0x80])]);
    assert!(!waits.functions.contains_key("_Z4reluPf"), "it waits for nothing");
}

#[test]
fn a_scoreboard_that_was_waited_for_is_free() {
    let words = [load(0), load(0), add(1), load(0), add(1), add(1)];
    assert_eq!(waits(&words), [found(0x20, &[0x10, 0]), found(0x40, &[0x30])]);
}

#[test]
fn the_nearest_three_producers_are_named() {
    let words = [load(0), load(0), load(5), load(0), add(0b10_0001)];
    assert_eq!(waits(&words), [found(0x40, &[0x30, 0x20, 0x10])]);
}

#[test]
fn operands_that_are_still_read_hold_up_too() {
    let store = word(LOAD, NONE, 4, 0);
    assert_eq!(waits(&[store, add(1 << 4)]), [found(0x10, &[0])]);
    let both = word(LOAD, 0, 1, 0);
    assert_eq!(waits(&[both, add(0b11)]), [found(0x10, &[0])]);
}

#[test]
fn nothing_is_known_from_before_the_block() {
    assert_eq!(
        waits(&[load(0), word(EXIT, NONE, NONE, 0), add(1)]),
        [unknown(0x20, &[], NoProducer::BeforeBlock)]
    );
    assert_eq!(waits(&[add(1)]), [unknown(0, &[], NoProducer::BeforeBlock)]);
    // What is known of one scoreboard does not explain the other.
    assert_eq!(waits(&[load(0), add(0b11)]), [unknown(0x10, &[0], NoProducer::BeforeBlock)]);
}

#[test]
fn a_block_begins_at_the_target_of_a_branch() {
    let in_one = (-8i64 as u64 as u128 & ((1 << 48) - 1)) << 34;
    let in_two = (-1i64 as u64 as u128 & ((1 << 48) - 1)) << 34 | 0xf8 << 16;
    for target in [in_one, in_two] {
        let words = [load(0), add(1), word(BRANCH, NONE, NONE, 0) | target];
        assert_eq!(waits(&words), [unknown(0x10, &[], NoProducer::BeforeBlock)], "{target:#x}");
    }
    // Forwards, over an instruction: `BRA 0x160` at 0x120 of a listing has 12 words.
    for target in [4u128 << 34, 4 << 16] {
        let words = [word(BRANCH, NONE, NONE, 0) | target, load(0), add(1)];
        assert_eq!(waits(&words), [unknown(0x20, &[], NoProducer::BeforeBlock)], "{target:#x}");
    }
}

#[test]
fn indirect_branches_leave_every_block_unknown() {
    let words = [load(0), add(1), word(BRANCH_INDIRECT, NONE, NONE, 0)];
    assert_eq!(waits(&words), [unknown(0x10, &[], NoProducer::UnknownTargets)]);
}

#[test]
fn code_of_odd_size_is_not_decoded() {
    let code: Vec<u8> = [load(0), add(1)].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(of_code(&code, 9).0.len(), 1);
    assert_eq!(of_code(&code[..31], 9), (Vec::new(), 0));
    assert_eq!(of_code(&code, 0), (Vec::new(), 1), "it is counted");
}

#[test]
fn other_architectures_have_no_producers() {
    let mut bytes = CUDA_12.to_vec();
    for (architecture, functions) in [(60, 0), (70, 2), (121, 2), (122, 0)] {
        bytes[0x30] = architecture;
        assert_eq!(read(&bytes).unwrap().functions.len(), functions, "sm_{architecture}");
    }
    assert_eq!(read(b"not one"), Err(NoCubin::NotElf));
}

fn check(waits: &[Wait]) {
    assert!(waits.is_sorted_by_key(|wait| wait.offset));
    for Wait { offset, producers, unknown } in waits {
        assert!(producers.len() <= PRODUCERS_MAX && (unknown.is_some() || !producers.is_empty()));
        assert!(producers.iter().all(|producer| producer < offset && producer.is_multiple_of(16)));
    }
}

proptest! {
    #[test]
    fn any_code_is_decoded_without_panic(words in prop::collection::vec(any::<u128>(), 0..64), cut in 0usize..16) {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        check(&of_code(&code[..code.len().saturating_sub(cut)], 8).0);
    }

    #[test]
    fn corrupt_images_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12), cut: prop::sample::Index,
    ) {
        for whole in [CUDA_12, CUDA_13, SHARED] {
            let mut bytes = whole.to_vec();
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if let Ok(waits) = read(&bytes) {
                waits.functions.values().for_each(|waits| check(waits));
            }
            bytes.truncate(cut.index(bytes.len()));
            let _ = read(&bytes);
        }
    }
}
