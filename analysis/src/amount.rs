//! Amounts: a value with its unit.
//!
//! Owns: how a value is displayed, and the unit suffix of its field for programs. Because: the metric decides the unit
//! in half of all tables, and a number without a unit gets misread. Does not: know metrics.

use std::fmt;

use deepctx_profile::metric::Unit;
use deepctx_profile::units::{Bytes, Nanos};
use serde::Serializer;
use serde::ser::SerializeMap as _;

/// A value with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The value.
    pub value: u64,
    /// Its unit.
    pub unit: Unit,
}

impl Amount {
    /// A value in a unit.
    pub const fn new(value: u64, unit: Unit) -> Self {
        Amount { value, unit }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Unit::Nanoseconds => Nanos(self.value).fmt(f),
            Unit::Bytes => Bytes(self.value).fmt(f),
            Unit::Count => self.value.fmt(f),
        }
    }
}

/// Suffix of the name of a field in this unit.
pub(crate) const fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
    }
}

/// A part of a whole in percent; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Serializers of amounts within a flattened field: `exclusive_ns`, `exclusive_bytes`, ….
macro_rules! fields {
    ($($name:ident)*) => {
        $(pub(crate) fn $name<S: Serializer>(amount: &Amount, to: S) -> Result<S::Ok, S::Error> {
            field(stringify!($name), amount, to)
        })*
    };
}

fields! { exclusive inclusive left_out total value }

fn field<S: Serializer>(name: &str, amount: &Amount, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(1))?;
    map.serialize_entry(&format!("{name}_{}", suffix(amount.unit)), &amount.value)?;
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize)]
    struct Row {
        name: &'static str,
        #[serde(flatten, serialize_with = "value")]
        amount: Amount,
    }

    #[test]
    fn field_name_of_an_amount_includes_its_unit() {
        let json = |unit| serde_json::to_string(&Row { name: "f", amount: Amount::new(7, unit) }).unwrap();
        assert_eq!(json(Unit::Nanoseconds), r#"{"name":"f","value_ns":7}"#);
        assert_eq!(json(Unit::Bytes), r#"{"name":"f","value_bytes":7}"#);
        assert_eq!(json(Unit::Count), r#"{"name":"f","value_count":7}"#);
        assert_eq!(format!("{:>8}|", Amount::new(5_000_000, Unit::Nanoseconds)), " 5.00 ms|");
    }
}
