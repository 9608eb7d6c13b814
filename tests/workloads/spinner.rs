//! A Rust program that sorts, hashes and formats on two threads until killed.
//!
//! Owns: everyday Rust code (generics, closures, iterators, allocation). Because: rustc's unwind rows and symbol names
//! differ from those of a C++ compiler. Does not: need a crate; it is compiled by a bare `rustc -O`.

use std::collections::HashMap;
use std::hint::black_box;

fn words(seed: u64) -> Vec<String> {
    let next = |state: &u64| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    std::iter::successors(Some(seed), |state| Some(next(state))).take(5_000).map(|n| format!("{:x}", n % 9_973)).collect()
}

fn count(words: &[String]) -> HashMap<&str, usize> {
    words.iter().fold(HashMap::new(), |mut counts, word| {
        *counts.entry(word.as_str()).or_insert(0) += 1;
        counts
    })
}

fn hottest(words: &[String]) -> Vec<(&str, usize)> {
    let mut pairs: Vec<_> = count(words).into_iter().collect();
    pairs.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    pairs.truncate(10);
    pairs
}

fn main() {
    let workers: Vec<_> = (0..2)
        .map(|seed| {
            std::thread::spawn(move || {
                for round in seed.. {
                    black_box(hottest(&words(round)));
                }
            })
        })
        .collect();
    println!("ready {}", std::process::id());
    for worker in workers {
        if worker.join().is_err() {
            std::process::exit(1);
        }
    }
}
