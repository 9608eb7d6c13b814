//! Every fuzz target on its seeds, and on a few thousand seeds with small mutations: the same in every run, and on CI
//! others for half a minute per target.
//!
//! Owns: the mutations. Because: a target that is never compiled breaks unnoticed, and most parser bugs are one or two
//! mutations away from a valid file. Does not: follow coverage, or search for long: `cargo xtask fuzz` does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deepctx_fuzz_targets::{TARGETS, Target};

/// Mutated inputs per target.
const INPUTS: u64 = 3_000;
/// Limit on mutations per input.
const CHANGES_MAX: u64 = 4;
/// Bytes that are special to parsers.
const EDGES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'\n'];

/// Deterministic pseudo-random numbers (xorshift64*, Vigna 2016).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        number as usize % bound.max(1)
    }
}

/// Changes some bytes, truncates the input, or repeats a part.
fn change(input: &mut Vec<u8>, numbers: &mut Numbers) {
    if input.is_empty() {
        return input.push(EDGES[numbers.below(EDGES.len())]);
    }
    let at = numbers.below(input.len());
    match numbers.below(6) {
        0 => input[at] ^= 1 << numbers.below(8),
        1 => input[at] = EDGES[numbers.below(EDGES.len())],
        2 => input.truncate(at),
        3 => {
            let part = input[at..(at + 1 + numbers.below(64)).min(input.len())].to_vec();
            let to = numbers.below(input.len());
            input.splice(to..to, part);
        }
        4 => {
            let end = (at + 1 + numbers.below(16)).min(input.len());
            input.drain(at..end);
        }
        _ => {
            let end = (at + 8).min(input.len());
            input[at..end].fill(EDGES[numbers.below(5)]);
        }
    }
}

/// One of the seeds with a few mutations.
fn neighbour(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut input = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..=numbers.below(CHANGES_MAX as usize) {
        change(&mut input, numbers);
    }
    input
}

fn holds(target: &Target, input: &[u8], what: &str) {
    let run = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    assert!(run.is_ok(), "{}: {what}: {}", target.name, input.escape_ascii());
}

#[test]
fn seeds_and_their_neighbours_hold() {
    for target in TARGETS {
        let seeds = target.seeds().unwrap();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (n, seed) in seeds.iter().enumerate() {
            holds(target, seed, &format!("seed {n}"));
        }
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
        for n in 0..INPUTS {
            holds(target, &neighbour(&seeds, &mut numbers), &format!("input {n}"));
        }
    }
}

/// Seconds per target for inputs that differ from run to run; not set: there are none.
const SECONDS: &str = "DEEPCTX_FUZZ_SECONDS";

#[test]
fn new_neighbours_hold_for_the_time_given() {
    let Some(seconds) = std::env::var(SECONDS).ok().map(|text| text.parse().unwrap()) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for target in TARGETS {
        let seeds = target.seeds().unwrap();
        // Never 0, of which only zeros would follow.
        let mut numbers = Numbers(now.as_nanos() as u64 | 1);
        let (begin, mut inputs) = (Instant::now(), 0_u64);
        while begin.elapsed() < Duration::from_secs(seconds) {
            holds(target, &neighbour(&seeds, &mut numbers), "a new input");
            inputs += 1;
        }
        println!("{}: {inputs} new inputs", target.name);
    }
}

#[test]
fn every_target_is_run_by_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
}
