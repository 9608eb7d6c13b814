//! One event of a Chrome trace, as the JSON has it.
//!
//! Owns: which fields are read. Because: everything else about an event is skipped while it is parsed. Does not: decide
//! what an event is.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::import::arguments::{NumberOrText, Text};

/// An event.
#[derive(Deserialize)]
pub(super) struct RawEvent<'b> {
    #[serde(borrow, default, deserialize_with = "text")]
    pub(super) ph: Option<Text<'b>>,
    #[serde(borrow, default, deserialize_with = "text")]
    pub(super) cat: Option<Text<'b>>,
    #[serde(borrow, default, deserialize_with = "text")]
    pub(super) name: Option<Text<'b>>,
    /// Of a mark: whether it is of a thread (`t`, the default), a process or everything.
    #[serde(borrow, default, deserialize_with = "text")]
    pub(super) s: Option<Text<'b>>,
    #[serde(borrow, default)]
    pub(super) pid: NumberOrText<'b>,
    #[serde(borrow, default)]
    pub(super) tid: NumberOrText<'b>,
    #[serde(borrow)]
    pub(super) ts: Option<&'b RawValue>,
    #[serde(borrow)]
    pub(super) dur: Option<&'b RawValue>,
    #[serde(borrow)]
    pub(super) args: Option<&'b RawValue>,
}

/// A text; `None` for another value.
fn text<'de: 'b, 'b, D: Deserializer<'de>>(from: D) -> Result<Option<Text<'b>>, D::Error> {
    Ok(match NumberOrText::deserialize(from)? {
        NumberOrText::Word(word) => Some(Text(word)),
        _ => None,
    })
}

/// An entry in the list of events; `None` if it is not an event.
pub(super) struct ListedEvent<'b>(pub(super) Option<RawEvent<'b>>);

impl<'de: 'b, 'b> Deserialize<'de> for ListedEvent<'b> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = ListedEvent<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                RawEvent::deserialize(MapAccessDeserializer::new(map)).map(|event| ListedEvent(Some(event)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ListedEvent(None))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(ListedEvent(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(ListedEvent(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(ListedEvent(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(ListedEvent(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(ListedEvent(None))
            }

            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(ListedEvent(None))
            }
        }
        from.deserialize_any(Visit)
    }
}

/// The numeric values of a counter, by name.
pub(super) struct CounterValues<'b>(pub(super) Vec<(Cow<'b, str>, f64)>);

/// Maximum values of one counter.
const VALUES_MAX: usize = 64;

impl<'de: 'b, 'b> Deserialize<'de> for CounterValues<'b> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = CounterValues<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values of a counter")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    // As text: `serde_json` may convert decimals with an error in the last digit.
                    let number = value.get().trim_matches('"').parse::<f64>().ok().filter(|n| n.is_finite());
                    values.extend(number.filter(|_| values.len() < VALUES_MAX).map(|number| (key.0, number)));
                }
                Ok(CounterValues(values))
            }
        }
        from.deserialize_map(Visit)
    }
}
