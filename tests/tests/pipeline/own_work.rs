//! The profiler's own processes: their time as ever, without their stacks.

use deepctx_pipeline::Pipeline;
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Meta;
use deepctx_profile::view::Selection;

use crate::pipeline_support::{
    NamesInAddresses, ReplayStep, config, folded, folded_as, losses, page, run, steps,
};

/// Runs a page to its end. Process 8 is the profiler.
fn run_with_own(records: &str) -> Pipeline<NamesInAddresses> {
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
    pipeline.symbols().own = Some(8);
    for step in steps(records) {
        match step {
            ReplayStep::Feed(input) => pipeline.feed(input),
            ReplayStep::Advance(time) => pipeline.advance(time),
        }
    }
    pipeline.finish();
    pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
    pipeline
}

const SAMPLES: &str = "
    10 sample 7/7 app f! main
    20 sample 8/8 prof inner! outer main period=3
    30 sample 8/9 prof k:read k:entry x! gap:no-row native=no-row python=torn kernel=failed
";

#[test]
fn own_samples_are_one_frame_below_their_thread() {
    let mut pipeline = run_with_own(SAMPLES);
    let expect = "
        app-7;main;f 1
        prof-8;[profiler's own work] 2
    ";
    assert_eq!(folded(pipeline.profile()), page(expect));
    let cpu_time = pipeline.profile().tree.total(Metric::CpuTime).sum;
    assert_eq!((cpu_time, pipeline.accounts().samples()), (5, 3));
}

#[test]
fn own_samples_ask_for_no_names() {
    let mut pipeline = run_with_own(SAMPLES);
    let asked = &pipeline.symbols().asked;
    assert_eq!((asked.get("user"), asked.get("kernel")), (Some(&(1, 2)), None));
}

#[test]
fn other_stacks_of_an_own_thread_add_no_contexts() {
    let contexts = |records: &str| run_with_own(records).profile().tree.len();
    let more = "40 sample 8/8 prof k:write other! main\n50 sample 8/9 prof y! x start";
    assert_eq!(contexts(&format!("{SAMPLES}{more}")), contexts(SAMPLES));
}

#[test]
fn stacks_left_out_on_purpose_lack_nothing() {
    let mut pipeline = run_with_own(SAMPLES);
    assert_eq!(losses(pipeline.profile()), "");
    assert_eq!(pipeline.accounts().stacks_and_complete(), (3, 3));
    assert!(losses(run(SAMPLES).profile()).contains("no-row"), "they are others' without that");
}

#[test]
fn own_waits_have_their_time_and_no_stack() {
    let mut pipeline = run_with_own(
        "
        10 block 8/8 prof k:futex_w f! main
        25 wake 8/8 prof since 10
        40 wake 8/8 prof since 30 1
        50 block 8/8 prof k:sched f! main flags=16
        57 wake 8/8 prof since 50
        ",
    );
    let expect = "
        prof-8;[profiler's own work];[off-cpu: blocked] 25
        prof-8;[profiler's own work];[off-cpu: waiting for a CPU] 7
    ";
    let profile = pipeline.profile();
    assert_eq!(folded_as(profile, Selection::of(Metric::OffCpuTime)), page(expect));
    // A stack that was not taken is not missed.
    assert_eq!(losses(profile), "");
}

#[test]
fn own_samples_do_not_wait_for_the_names_of_others() {
    let mut pipeline = run_with_own(
        "
        10 call 1 cuLaunchKernel 7/7 app function=0x100 : ! g main
        20 sample 8/8 prof f! main
        30 sample 7/7 app g! main
        ",
    );
    let expect = "
        app-7;main;g 1
        prof-8;[profiler's own work] 1
    ";
    assert_eq!(folded(pipeline.profile()), page(expect));
}
