//! `opentelemetry.proto.profiles.v1development`, which is still alpha, and the parts of `common` and `resource` it
//! needs.
//!
//! Owns: its messages. Because: see the folder. Does not: know the rules between them (entry 0 of every table is the
//! zero value, the leaf is first in a stack, a profile has one kind of value).

use prost::{Message, Oneof};

/// Profiles with the tables they share.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub(crate) dictionary: Option<ProfilesDictionary>,
}

/// Tables that profiles refer to by index.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfilesDictionary {
    #[prost(message, repeated, tag = "1")]
    pub(crate) mapping_table: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) location_table: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) function_table: Vec<Function>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) link_table: Vec<Link>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) attribute_table: Vec<KeyValueAndUnit>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) stack_table: Vec<Stack>,
}

/// Profiles of one process.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_profiles: Vec<ScopeProfiles>,
}

/// The subject of the profiles.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// Profiles of one program.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) profiles: Vec<Profile>,
}

/// The program that measured.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

/// Samples of one kind of value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(message, optional, tag = "1")]
    pub(crate) sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) duration_nano: u64,
    #[prost(message, optional, tag = "5")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "6")]
    pub(crate) period: i64,
}

/// Kind of values, and their unit.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int32, tag = "1")]
    pub(crate) type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub(crate) unit_strindex: i32,
}

/// Values of one stack.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    #[prost(int32, tag = "1")]
    pub(crate) stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    pub(crate) attribute_indices: Vec<i32>,
    #[prost(int64, repeated, tag = "4")]
    pub(crate) values: Vec<i64>,
}

/// Code locations, leaf first.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stack {
    #[prost(int32, repeated, tag = "1")]
    pub(crate) location_indices: Vec<i32>,
}

/// A code location.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(int32, tag = "1")]
    pub(crate) mapping_index: i32,
    #[prost(uint64, tag = "2")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) lines: Vec<Line>,
    #[prost(int32, repeated, tag = "4")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// A function and the line in it.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Line {
    #[prost(int32, tag = "1")]
    pub(crate) function_index: i32,
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(int32, tag = "1")]
    pub(crate) name_strindex: i32,
    #[prost(int32, tag = "2")]
    pub(crate) system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    pub(crate) filename_strindex: i32,
    #[prost(int64, tag = "4")]
    pub(crate) start_line: i64,
}

/// An executable or library.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(int32, tag = "4")]
    pub(crate) filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) attribute_indices: Vec<i32>,
}

/// A span of a trace. Only the empty one is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
}

/// An attribute in the table.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValueAndUnit {
    #[prost(int32, tag = "1")]
    pub(crate) key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
    #[prost(int32, tag = "3")]
    pub(crate) unit_strindex: i32,
}

/// An attribute in place.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

/// Value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Kind", tags = "1, 3")]
    pub(crate) kind: Option<Kind>,
}

/// Kinds of values.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Kind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl AnyValue {
    pub(crate) fn text(text: &str) -> Option<Self> {
        Some(AnyValue { kind: Some(Kind::Text(text.to_owned())) })
    }

    pub(crate) fn number(number: i64) -> Option<Self> {
        Some(AnyValue { kind: Some(Kind::Number(number)) })
    }
}
