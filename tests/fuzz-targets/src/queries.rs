//! Queries over call paths, as arbitrary text, over a small profile.
//!
//! Beyond "no panic, no hang, bounded memory": an error points into the query, and a query and its inverse together
//! pass every value exactly once.

use std::sync::LazyLock;

use deepctx_analysis::Query;
use deepctx_profile::{Metric, Profile, text};

static PROFILE: LazyLock<Profile> = LazyLock::new(|| {
    text::parse(
        "P python3-7 / T main/7 / y /app/train.py:Model.f:3 / i eval / o aten::mm [2x2, 2x2] f32 / n gemm@/l/libmkl.so 1
         P python3-7 / y /app/train.py:g / a cuLaunchKernel / s 0/7 / g gemm<float> 2
         P python3-7 / r step 1 / k do_sys_poll 4
         ? no-row 8",
    )
    .expect("these are stacks")
});

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let query = match Query::parse(text) {
        Ok(query) => query,
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.column()));
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let total = |query: &Query| query.part_of(&PROFILE).tree.total(Metric::CpuTime).sum;
    let text = text.trim_start();
    let inverse = text.strip_prefix('!').map_or_else(|| format!("!{text}"), str::to_owned);
    // The additional byte may exceed the length limit.
    if let Ok(inverse) = Query::parse(&inverse) {
        assert_eq!(total(&query) + total(&inverse), PROFILE.tree.total(Metric::CpuTime).sum);
    }
}
