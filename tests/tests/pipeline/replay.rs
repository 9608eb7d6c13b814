//! A capture that was copied to a file and read back gives the same profile as the capture itself.

use crate::pipeline_support::{NamesInAddresses, ReplayStep, config, folded, losses, page, run, steps};
use deepctx_pipeline::Pipeline;
use deepctx_pipeline::input::Source;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_session::{RawReader, RawWriter};
use deepctx_symbolizer::maps::{self, LineFilter, Maps};

const RECORDS: &str = "
    5 space 7 python3 v1
    10 sample 7/7 python3 k:read k:entry libc py:load@3 eval main
    11 sample 7/8 worker gem+mma! blas pool start cpu=1
    lose 1 2
    12 sample 7/8 worker gem+mma! blas pool start cpu=1
    20 fork 9 of 7 python3
    21 exec 9 tool
    25 sample 9/9 tool ?strip! main gap:no-row native=no-row
    30 exit 9
    40 sample 7/7 python3 py:train@9 eval main
";

/// The fake's description of mappings as a mapping: its name is the path.
fn as_maps(name: &str) -> Maps {
    maps::parse(format!("1000-2000 r-xp 00000000 fe:01 42 /{name}\n").as_bytes(), LineFilter::Executable)
}

fn as_name(maps: &Maps) -> String {
    maps.mappings[0].path().file_name().unwrap().to_str().unwrap().to_owned()
}

/// Writes the records as a raw capture.
fn captured() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RawWriter::new(&mut bytes).unwrap();
    for step in steps(RECORDS) {
        let ReplayStep::Feed(input) = step else { continue };
        writer.write(&input.with_maps(|_, maps| as_maps(&maps))).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn replayed(bytes: &[u8]) -> Profile {
    let mut reader = RawReader::new(bytes).unwrap();
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
    while let Some(input) = reader.next_input().unwrap() {
        pipeline.feed(input.with_maps(|_, maps| as_name(&maps)));
    }
    pipeline.into_profile()
}

#[test]
fn a_replay_gives_the_stacks_of_the_capture() {
    let profile = replayed(&captured());
    let expect = "
        python3-7;main~v1;eval~v1;m.py:load;libc~v1;entry_[k];read_[k] 1
        python3-7;main~v1;eval~v1;m.py:train 1
        python3-7;start~v1;pool~v1;blas~v1;gem~v1;mma~v1 2
        tool-9;[unknown: no-row];main;[unknown: stripped] 1
    ";
    assert_eq!(folded(&profile), page(expect));
    assert_eq!(losses(&profile), page("kernel sequence-gap 2 lost\nresolve no-row 1\nresolve stripped 1"));
    assert_eq!(folded(&profile), folded(run(RECORDS).profile()));
}
