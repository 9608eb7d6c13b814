//! One event of a Chrome trace, as the JSON has it.
//!
//! Owns: which fields and arguments are read, under all names that they have had since 2021. Because: everything else
//! about an event is skipped while it is parsed. Does not: decide what an event is.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A text that borrows where it can.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Text<'b>(#[serde(borrow)] pub(super) Cow<'b, str>);

/// A number or a word, as ids of processes and threads come.
#[derive(Clone, Debug, Default)]
pub(super) enum NumberOrText<'b> {
    /// A number that is zero or above.
    Number(u64),
    /// A number below zero.
    Negative(i64),
    /// A word.
    Word(Cow<'b, str>),
    /// Anything else, or nothing.
    #[default]
    Other,
}

impl NumberOrText<'_> {
    pub(super) fn to_text(&self) -> String {
        match self {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Negative(number) => number.to_string(),
            // Words of processes are short; a long one is no name.
            NumberOrText::Word(word) => word.chars().take(64).collect(),
            NumberOrText::Other => String::new(),
        }
    }

    /// The number, also that of a word (`"stream 7"`, `"16"`).
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            NumberOrText::Number(number) => Some(*number),
            NumberOrText::Word(word) => word.rsplit(' ').next()?.parse().ok(),
            NumberOrText::Negative(_) | NumberOrText::Other => None,
        }
    }

    pub(super) fn signed(&self) -> Option<i64> {
        match self {
            NumberOrText::Negative(number) => Some(*number),
            other => i64::try_from(other.number()?).ok(),
        }
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for NumberOrText<'b> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = NumberOrText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(NumberOrText::Number(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(u64::try_from(number).map_or(NumberOrText::Negative(number), NumberOrText::Number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
                // Above 2^53, a number with a point is no id.
                let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
                Ok(match is_whole {
                    true if number >= 0.0 => NumberOrText::Number(number as u64),
                    true => NumberOrText::Negative(number as i64),
                    false => NumberOrText::Other,
                })
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(NumberOrText::Word(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(NumberOrText::Word(Cow::Owned(text.to_owned())))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(NumberOrText::Other)
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(NumberOrText::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(NumberOrText::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(NumberOrText::Other)
            }
        }
        from.deserialize_any(Visit)
    }
}

/// An event.
#[derive(Deserialize)]
pub(super) struct RawEvent<'b> {
    #[serde(borrow)]
    pub(super) ph: Option<Text<'b>>,
    #[serde(borrow)]
    pub(super) cat: Option<Text<'b>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'b>>,
    #[serde(borrow, default)]
    pub(super) pid: NumberOrText<'b>,
    #[serde(borrow, default)]
    pub(super) tid: NumberOrText<'b>,
    #[serde(borrow)]
    pub(super) ts: Option<&'b RawValue>,
    #[serde(borrow)]
    pub(super) dur: Option<&'b RawValue>,
    #[serde(borrow, default)]
    pub(super) args: Arguments<'b>,
}

/// Arguments of events of all kinds.
#[derive(Debug, Default)]
pub(super) struct Arguments<'b> {
    pub(super) correlation: NumberOrText<'b>,
    pub(super) bytes: NumberOrText<'b>,
    pub(super) device: NumberOrText<'b>,
    pub(super) stream: NumberOrText<'b>,
    pub(super) graph_node: NumberOrText<'b>,
    pub(super) sync_kind: NumberOrText<'b>,
    pub(super) record: NumberOrText<'b>,
    pub(super) wait_on_stream: NumberOrText<'b>,
    pub(super) device_type: NumberOrText<'b>,
    pub(super) address: NumberOrText<'b>,
    pub(super) allocated: NumberOrText<'b>,
    pub(super) reserved: NumberOrText<'b>,
    pub(super) collective: NumberOrText<'b>,
    pub(super) group: NumberOrText<'b>,
    pub(super) group_size: NumberOrText<'b>,
    pub(super) elements_in: NumberOrText<'b>,
    pub(super) element: NumberOrText<'b>,
}

impl<'b> Arguments<'b> {
    fn field(&mut self, key: &str) -> Option<&mut NumberOrText<'b>> {
        Some(match key {
            "correlation" => &mut self.correlation,
            "bytes" | "Bytes" => &mut self.bytes,
            "device" | "Device Id" => &mut self.device,
            "stream" => &mut self.stream,
            "graph node id" => &mut self.graph_node,
            "cuda_sync_kind" => &mut self.sync_kind,
            "wait_on_cuda_event_record_corr_id" => &mut self.record,
            "wait_on_stream" => &mut self.wait_on_stream,
            "Device Type" => &mut self.device_type,
            "Addr" => &mut self.address,
            "Total Allocated" => &mut self.allocated,
            "Total Reserved" => &mut self.reserved,
            "Collective name" => &mut self.collective,
            "Process Group Name" => &mut self.group,
            "Group size" => &mut self.group_size,
            "In msg nelems" => &mut self.elements_in,
            "dtype" => &mut self.element,
            _ => return None,
        })
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Arguments<'b> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Arguments<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("arguments of an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut arguments = Arguments::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match arguments.field(&key.0) {
                        Some(field) => *field = map.next_value()?,
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(arguments)
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Arguments::default())
            }
        }
        from.deserialize_any(Visit)
    }
}
