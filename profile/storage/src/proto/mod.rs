//! Protobuf messages of other tools' formats, as far as they are written or read here.
//!
//! Owns: field numbers and types. Because: a few annotated structures need no compiler of interface files to build,
//! and a reader sees at once which fields are used. Does not: convert; that is `export` and `import`.
//!
//! Field numbers are the formats' own: `profile.proto` of pprof, `opentelemetry/proto/profiles/v1development`, and
//! `protos/perfetto/trace`. Fields that are not listed are skipped when read.

#[cfg(feature = "export")]
pub(crate) mod otlp;
#[cfg(feature = "export")]
pub(crate) mod perfetto;
pub(crate) mod pprof;
#[cfg(feature = "import")]
pub(crate) mod xplane;
