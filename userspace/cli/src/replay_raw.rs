//! `replay-raw`: a profile of a raw capture, resolved now.
//!
//! Owns: feeding the file to a pipeline. Because: a stack that came out wrong must be repeatable without its process;
//! names are looked up in the files as they are now, and Python names, which only the process knew, stay unknown.
//! Does not: differ from a live capture in anything else.

use std::fs::File;
use std::io::BufReader;

use deepctx_profile::profile::Meta;
use deepctx_profile::units::Time;
use deepctx_storage::store::Writer;

use super::failure::{Done, Failure, store_failure};
use super::options::ReplayRawArgs;
use super::record::{refuse_or_check_old, remove_old};
use deepctx_pipeline::input::Source as _;
use deepctx_pipeline::{Config, Pipeline};
use deepctx_session::raw::{RawError, RawReader};
use deepctx_session::resolver::Resolver;
use deepctx_session::session::SKEW_NS;

/// Runs it.
///
/// # Errors
/// What stopped it. Nothing is written then.
pub fn run(arguments: &ReplayRawArgs) -> Result<Done, Failure> {
    refuse_or_check_old(&arguments.output, arguments.force)?;
    let name = arguments.raw.display();
    let failed = |error: RawError| Failure::new(format_args!("{name}: {error}"));
    let file = File::open(&arguments.raw).map_err(|error| Failure::io(&name, &error))?;
    let mut reader = RawReader::new(BufReader::new(file)).map_err(failed)?;
    let meta = Meta {
        target: format!("raw capture {name}"),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Meta::default()
    };
    let mut pipeline = Pipeline::new(Resolver::new(Default::default()), meta, Config::default());
    while let Some(input) = reader.next_input().map_err(failed)? {
        let input = input.with_maps(|pid, maps| pipeline.symbols().admit(pid, maps));
        pipeline.feed(input);
        let newest_ns = pipeline.newest_ns();
        pipeline.advance(newest_ns.saturating_sub(SKEW_NS));
    }
    let newest_ns = pipeline.newest_ns();
    let profile = pipeline.into_profile();
    if arguments.force {
        remove_old(&arguments.output)?;
    }
    let mut writer =
        Writer::create(&arguments.output, &profile.meta).map_err(|error| store_failure(&error))?;
    writer.finish(&profile, Time::from_nanos(newest_ns)).map_err(|error| store_failure(&error))?;
    Ok(Done::Fully)
}
