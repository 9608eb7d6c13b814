//! Exports: a profile in the formats of other tools.
//!
//! Owns: the writers, and the list of them. Because: people have viewers they know. Does not: open files; a writer is
//! handed in.
//!
//! Every format holds the same totals, to the unit: [`Contexts`](deepctx_profile::context::Contexts) folds what is
//! not asked for into its caller, and no writer leaves a context out. Formats with several metrics carry all that the
//! profile has; those with one carry the selected one.

mod base64;
pub mod chrome;
mod counters;
pub mod csv;
mod devices;
pub mod firefox;
pub mod folded;
pub mod hatchet;
pub mod html;
pub mod json;
mod json_text;
pub mod otlp;
mod outline;
mod packets;
mod page_events;
pub mod perfetto;
pub mod pprof;
mod short_names;
mod source_location;
pub mod speedscope;
pub mod svg;
mod trace_events;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

#[cfg(feature = "parquet")]
use crate::store;
use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::frame::FrameKind;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::Selection;

pub use trace_events::Events;

reasons! {
    class Gap, page "formats.md";
    const VALUE_TOO_LARGE = "value-too-large",
        "values are larger than the largest number of the format, which stands in their place";
    const WORK_SHORTENED = "work-shortened",
        "work of devices begins later than it did: more of it overlaps on its stream than there are rows for";
}

/// Work of devices that the formats with a time axis draw shortened, beside a profile's sums: how much, and why.
pub fn shortened_work(profile: &Profile) -> Option<(u64, &'static Reason)> {
    let count = devices::shortened(profile);
    (count > 0).then_some((count, WORK_SHORTENED))
}

/// [`shortened_work`] in words.
fn shortened_note(profile: &Profile) -> Option<String> {
    shortened_work(profile).map(|(count, reason)| format!("{count} {}: {reason}", reason.key))
}

/// How many values do not fit into 64 bits with a sign.
fn too_large(values: impl Iterator<Item = u64>) -> u64 {
    values.filter(|value| i64::try_from(*value).is_err()).count() as u64
}

/// Input of an export.
#[derive(Clone, Copy, Debug)]
pub struct Source<'p> {
    /// The profile.
    pub profile: &'p Profile,
    /// What to show.
    pub selection: Selection,
    /// Duration of the capture; zero when unknown.
    pub elapsed: Nanos,
    /// Whether pictures and pages omit uninformative frames; see [`deepctx_profile::view::fold`]. Formats for programs
    /// are always complete.
    pub folds: bool,
}

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident $([feature = $feature:literal])? = $name:literal, $extension:literal, $metrics:ident, $about:literal, $write:expr;)*) => {
        /// An export format for profiles.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Format { $($(#[$doc])* $(#[cfg(feature = $feature)])? $variant,)* }

        impl Format {
            /// Every format, in the order of the help.
            pub const ALL: &'static [Format] = &[$($(#[cfg(feature = $feature)])? Format::$variant,)*];

            /// Name as on the command line.
            pub const fn name(self) -> &'static str {
                match self { $($(#[cfg(feature = $feature)])? Format::$variant => $name,)* }
            }

            /// File name extension.
            pub const fn extension(self) -> &'static str {
                match self { $($(#[cfg(feature = $feature)])? Format::$variant => $extension,)* }
            }

            /// Description and readers, in one line.
            pub const fn about(self) -> &'static str {
                match self { $($(#[cfg(feature = $feature)])? Format::$variant => $about,)* }
            }

            /// Number of metrics in one file.
            pub const fn metrics(self) -> Metrics {
                match self { $($(#[cfg(feature = $feature)])? Format::$variant => Metrics::$metrics,)* }
            }

            /// Writes a profile.
            ///
            /// # Errors
            /// Those of `out`, and `InvalidData` if the format cannot hold this profile.
            pub fn write(self, source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
                match self { $($(#[cfg(feature = $feature)])? Format::$variant => ($write)(source, out),)* }
            }
        }
    };
}

/// Number of metrics in a file of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// The selected one.
    One,
    /// All with values in the profile.
    All,
}

formats! {
    /// Folded stacks.
    Folded = "folded", "folded", One, "one stack per line, for flame graph tools",
        |source: &Source<'_>, out| folded::write(source.profile, &source.selection, out);
    /// A flame graph.
    Svg = "svg", "svg", One, "a flame graph for the browser",
        |source: &Source<'_>, out| svg::write(source.profile, &source.selection, source.folds, out);
    /// A page.
    Html = "html", "html", All, "one page with flame graphs, tables and losses, for any browser", html::write;
    /// pprof.
    Pprof = "pprof", "pb.gz", All, "gzipped profile.proto, for `go tool pprof` and continuous profilers",
        pprof::write;
    /// speedscope.
    Speedscope = "speedscope", "speedscope.json", All, "JSON for speedscope.app", speedscope::write;
    /// Firefox Profiler.
    Firefox = "firefox", "firefox.json", All, "JSON for profiler.firefox.com", firefox::write;
    /// Chrome trace events.
    Chrome = "chrome", "trace.json", All, "trace events, for ui.perfetto.dev and PyTorch's trace tools", chrome::write;
    /// Perfetto.
    Perfetto = "perfetto", "pftrace", All, "protobuf trace, for ui.perfetto.dev and its SQL", perfetto::write;
    /// OpenTelemetry profiles.
    Otlp = "otlp", "otlp", All, "OpenTelemetry ProfilesData message", otlp::write;
    /// Hatchet and Proton.
    Hatchet = "hatchet", "hatchet", All, "nested JSON for hatchet and proton-viewer", hatchet::write;
    /// Our own format.
    Dctx [feature = "parquet"] = "dctx", "dctx", All, "our own format as one file (a tar of Parquet files)",
        |source: &Source<'_>, out| store::write_packed(source.profile, source.elapsed, out);
    /// All values as JSON.
    Json = "json", "json", All, "every figure of every context, as one document", json::write;
    /// Contexts as a table.
    Csv = "csv", "csv", All, "one row per context, one column per metric", csv::write;
}

/// Name of a kind of frame in files.
const fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Root => "root",
        FrameKind::Process => "process",
        FrameKind::Thread => "thread",
        FrameKind::Python => "python",
        FrameKind::Operator => "operator",
        FrameKind::Layer => "layer",
        FrameKind::Native => "native",
        FrameKind::Kernel => "kernel",
        FrameKind::GpuApi => "gpu_api",
        FrameKind::GpuKernel => "gpu_kernel",
        FrameKind::Unresolved => "unresolved",
    }
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`: expected one of {names}", names = Format::ALL.iter().map(|f| f.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Format::ALL.iter().copied().find(|format| format.name() == name);
        found.ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
#[cfg(feature = "parquet")]
mod tests;
