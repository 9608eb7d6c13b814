//! One event of a Chrome trace, as the JSON has it.
//!
//! Owns: which fields are read. Because: everything else about an event is skipped while it is parsed. Does not: decide
//! what an event is.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::import::arguments::{NumberOrText, Text};

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
    #[serde(borrow)]
    pub(super) args: Option<&'b RawValue>,
}

/// Values of a counter that are numbers, by name.
pub(super) struct CounterValues<'b>(pub(super) Vec<(Cow<'b, str>, f64)>);

/// Most values of one counter.
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
                    // As text: what `serde_json` makes of decimals may be off by one digit in the last place.
                    let number = value.get().trim_matches('"').parse::<f64>().ok().filter(|n| n.is_finite());
                    values.extend(number.filter(|_| values.len() < VALUES_MAX).map(|number| (key.0, number)));
                }
                Ok(CounterValues(values))
            }
        }
        from.deserialize_map(Visit)
    }
}
