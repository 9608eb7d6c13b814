//! What goes wrong on request.
//!
//! Owns: the words of `DEEPCTX_SIM_CUPTI`, separated by commas. Because: a profiler must survive all of it, and a real
//! CUPTI does it only now and then. Does not: do anything unless asked.

use std::sync::OnceLock;
use std::time::Duration;

/// The requested faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Misbehaviour {
    /// `busy`: another tool has already subscribed.
    pub(crate) busy: bool,
    /// `denied`: the user may not profile.
    pub(crate) denied: bool,
    /// `garbage=N`: every N-th buffer contains noise.
    pub(crate) garbage: Option<u64>,
    /// `wild=N`: every N-th record has an invalid name pointer and absurd times.
    pub(crate) wild: Option<u64>,
    /// `lose=N`: every N-th record is dropped and counted.
    pub(crate) lose: Option<u64>,
    /// `late=MS`: buffers arrive this much later.
    pub(crate) late: Duration,
    /// `reorder`: full buffers are delivered latest first.
    pub(crate) reorder: bool,
    /// `unsampled=ERROR`: instructions cannot be sampled: 35 not allowed, 27 not supported, 26 another tool samples.
    pub(crate) unsampled: Option<u64>,
    /// `overrun=N`: at every N-th read, the device's sample buffer was full.
    pub(crate) overrun: Option<u64>,
    /// `drop=N`: the device drops and counts every N-th sample.
    pub(crate) drop: Option<u64>,
    /// `astray=N`: every N-th instruction's sample is garbage: an invalid name pointer, no image, absurd numbers.
    pub(crate) astray: Option<u64>,
    /// `no-devices`: no device records.
    pub(crate) no_devices: bool,
    /// `skew`: a future version with longer records, mixed with unknown kinds.
    pub(crate) skew: bool,
}

impl Misbehaviour {
    fn parse(words: &str) -> Self {
        let mut asked = Self::default();
        for word in words.split(',').map(str::trim) {
            let (word, number) = word.split_once('=').unwrap_or((word, ""));
            let number = number.parse::<u64>().ok().filter(|&n| n > 0);
            match word {
                "busy" => asked.busy = true,
                "denied" => asked.denied = true,
                "garbage" => asked.garbage = number.or(Some(2)),
                "wild" => asked.wild = number.or(Some(10)),
                "lose" => asked.lose = number.or(Some(10)),
                "late" => asked.late = Duration::from_millis(number.unwrap_or(500)),
                "reorder" => asked.reorder = true,
                "unsampled" => asked.unsampled = number.or(Some(35)),
                "overrun" => asked.overrun = number.or(Some(3)),
                "drop" => asked.drop = number.or(Some(10)),
                "astray" => asked.astray = number.or(Some(5)),
                "no-devices" => asked.no_devices = true,
                "skew" => asked.skew = true,
                // An unknown word must fail, or a test would pass without its fault.
                "" => {}
                other => {
                    eprintln!("DEEPCTX_SIM_CUPTI: unknown word {other:?}");
                    std::process::abort();
                }
            }
        }
        asked
    }
}

/// The requested faults.
pub(crate) fn get() -> &'static Misbehaviour {
    static ASKED: OnceLock<Misbehaviour> = OnceLock::new();
    ASKED.get_or_init(|| Misbehaviour::parse(&std::env::var("DEEPCTX_SIM_CUPTI").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_have_numbers() {
        assert_eq!(Misbehaviour::parse(""), Misbehaviour::default());
        let asked = Misbehaviour::parse("late=20, lose=3,reorder");
        let expect = Misbehaviour {
            late: Duration::from_millis(20),
            lose: Some(3),
            reorder: true,
            ..Misbehaviour::default()
        };
        assert_eq!(asked, expect);
    }
}
