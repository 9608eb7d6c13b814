//! `replay-raw`: resolves a raw capture into a profile now.
//!
//! Owns: opening the raw capture and storing its profile. Because: a wrong stack must be reproducible without its
//! process. Does not: resolve anything; see [`deepctx_session::replay`].

use std::fs::File;
use std::io::BufReader;

use deepctx_profile::profile::Meta;

use super::destination::Destination;
use super::failure::{Completion, Failure, store_failure};
use super::options::ReplayRawArgs;
use deepctx_session::{RawError, RawReader, ReplayResult, replay};

/// Runs the command.
///
/// # Errors
/// What stopped the command. Nothing is written then.
pub(crate) fn run(arguments: &ReplayRawArgs) -> Result<Completion, Failure> {
    let destination = Destination::of(&arguments.output, arguments.force)?;
    let name = arguments.raw.display();
    let failed = |error: RawError| Failure::new(format_args!("{name}: {error}"));
    let file = File::open(&arguments.raw).map_err(|error| Failure::io(&name, &error))?;
    let mut reader = RawReader::new(BufReader::new(file)).map_err(failed)?;
    let meta = Meta {
        target: format!("raw capture {name}"),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Meta::default()
    };
    let ReplayResult { profile, newest } = replay(&mut reader, meta, Default::default()).map_err(failed)?;
    let mut writer = destination.create(&profile.meta)?;
    writer.finish(&profile, newest).map_err(|error| store_failure(&error))?;
    Ok(Completion::Fully)
}
