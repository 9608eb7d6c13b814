//! One event of a Chrome trace, as the JSON has it.
//!
//! Owns: which fields are read. Because: everything else about an event is skipped while it is parsed. Does not: decide
//! what an event is.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::import::arguments::{NumberOrText, Text};

/// An event. Of a key that is written twice, the last value counts, as in browsers.
#[derive(Default)]
pub(super) struct RawEvent<'b> {
    pub(super) ph: Option<Text<'b>>,
    pub(super) cat: Option<Text<'b>>,
    pub(super) name: Option<Text<'b>>,
    /// Of a mark: whether it is of a thread (`t`, the default), a process or everything.
    pub(super) s: Option<Text<'b>>,
    pub(super) pid: NumberOrText<'b>,
    pub(super) tid: NumberOrText<'b>,
    pub(super) ts: Option<&'b RawValue>,
    pub(super) dur: Option<&'b RawValue>,
    pub(super) args: Option<&'b RawValue>,
}

impl<'b> RawEvent<'b> {
    fn read<A: MapAccess<'b>>(mut map: A) -> Result<Self, A::Error> {
        let mut event = RawEvent::default();
        while let Some(key) = map.next_key::<Text<'b>>()? {
            match &*key.0 {
                "ph" => event.ph = text(map.next_value()?),
                "cat" => event.cat = text(map.next_value()?),
                "name" => event.name = text(map.next_value()?),
                "s" => event.s = text(map.next_value()?),
                "pid" => event.pid = map.next_value()?,
                "tid" => event.tid = map.next_value()?,
                "ts" => event.ts = map.next_value()?,
                "dur" => event.dur = map.next_value()?,
                "args" => event.args = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(event)
    }
}

/// A text; `None` for another value.
fn text(value: NumberOrText<'_>) -> Option<Text<'_>> {
    match value {
        NumberOrText::Word(word) => Some(Text(word)),
        _ => None,
    }
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
                RawEvent::read(map).map(|event| ListedEvent(Some(event)))
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

/// The values of a counter.
pub(super) struct CounterValues<'b> {
    /// The numeric ones, by name.
    pub(super) numbers: Vec<(Cow<'b, str>, f64)>,
    /// How many are not numeric, or too many; an event without any is one of them.
    pub(super) left_out: usize,
}

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
                let (mut numbers, mut left_out) = (Vec::new(), 0);
                while let Some((key, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    // As text: `serde_json` may convert decimals with an error in the last digit.
                    let number = value.get().trim_matches('"').parse::<f64>().ok().filter(|n| n.is_finite());
                    match number.filter(|_| numbers.len() < VALUES_MAX) {
                        Some(number) => numbers.push((key.0, number)),
                        None => left_out += 1,
                    }
                }
                let left_out = left_out.max(usize::from(numbers.is_empty()));
                Ok(CounterValues { numbers, left_out })
            }
        }
        from.deserialize_map(Visit)
    }
}
