//! Calls and collector messages from arbitrary bytes: records, the messages in them, and device code.
//!
//! The first byte selects the format of the rest. Beyond "no panic, no hang, bounded memory": every record is accounted
//! for, no value is entered twice, and an image never unpacks to more than its declared size.

use deepctx_pipeline::input::{Input, SiteInfo, SpaceUpdate};
use deepctx_pipeline::symbols::{CodeAddress, NameReceiver, ProcessFacts, PythonReference, SpaceId, Symbols};
use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::profile::Meta;
use deepctx_symbolizer::cubin::{self, fatbin, lines, scoreboard};
use deepctx_uprobes::rows;

/// A resolver without names.
pub(crate) struct NoNames;

impl ProcessFacts for NoNames {}

impl Symbols for NoNames {
    type Space = ();

    fn replacement_seen(&mut self, _: u32) {}
    fn python_seen(&mut self, _: u32, _: &[PythonReference]) {}
    fn space_changed(&mut self, _: SpaceUpdate<()>) {}
    fn forked(&mut self, _: &deepctx_common::record::ProcessEvent) {}
    fn replaced(&mut self, _: &deepctx_common::record::ProcessEvent) {}
    fn on_exit(&mut self, _: &deepctx_common::record::ProcessEvent) {}
    fn retire(&mut self, _: u64) {}
    fn space(&mut self, _: u32, _: u64) -> SpaceId {
        SpaceId(0)
    }
    fn process_name(&mut self, _: u32, _: u64) -> Option<&str> {
        None
    }
    fn user(&mut self, _: SpaceId, _: &[CodeAddress], _: &[u64], _: &mut NameReceiver<'_>) {}
    fn python(&mut self, _: SpaceId, _: &[PythonReference], _: &mut NameReceiver<'_>) {}
    fn kernel(&mut self, _: &[CodeAddress], _: &mut NameReceiver<'_>) {}
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 3 {
        0 => {
            let config =
                Config { mapping_lookahead_ns: 0, launches: 64, waiting_records: 256, ..Config::default() };
            let mut pipeline = Pipeline::new(NoNames, Meta::default(), config);
            let sites = (0u32..).zip(rows()).map(|(site, row)| SiteInfo {
                site,
                event: row.event,
                symbol: row.names[0].symbol.clone().into_owned(),
                family: row.family,
                roles: row.arguments().iter().map(|argument| argument.role).collect(),
            });
            pipeline.feed(Input::Sites(sites.collect()));
            for batch in data.chunks(4096) {
                pipeline.feed(Input::Records(batch.to_vec()));
            }
            pipeline.finish();
            pipeline.profile().ledger.check(CheckTime::Finished).expect("every record is accounted for");
        }
        1 => {
            if let Ok(cubin) = cubin::read(data) {
                assert!(cubin.kernels.len() <= cubin::KERNELS_MAX);
            }
            if let Ok(lines) = lines::read(data) {
                let rows: usize = lines.functions.values().map(Vec::len).sum();
                assert!(rows <= lines::ROWS_MAX);
                assert!(lines.functions.values().all(|rows| rows.is_sorted_by_key(|row| row.offset)));
            }
            if let Ok(waits) = scoreboard::read(data) {
                let all = waits.functions.values().flatten();
                assert!(all.clone().count() <= scoreboard::WAITS_MAX);
                for wait in all {
                    assert!(wait.producers.len() <= scoreboard::PRODUCERS_MAX);
                    assert!(wait.producers.iter().all(|producer| *producer < wait.offset));
                }
            }
        }
        _ => {
            for image in fatbin::images(data) {
                if image.decompressed_bytes() < 1 << 24
                    && let Ok(decompressed) = image.decompress()
                {
                    _ = cubin::read(&decompressed);
                }
            }
        }
    }
}
