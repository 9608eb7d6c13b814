//! Arguments of trace events, under all names that they have had since 2021.
//!
//! Owns: which arguments are read, and what a value is that may be a number or a word. Because: Chrome's form and
//! Perfetto's have the same arguments, and everything else about an event is skipped. Does not: decide what an event
//! is.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Argument of JAX's training steps (`StepTraceAnnotation`) with their number.
pub(in crate::import) const STEP: &str = "step_num";
/// Argument of collectives with the ranks of their group.
const GROUP_RANKS: &str = "Process Group Ranks";

/// A text that borrows if it can.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::import) struct Text<'b>(#[serde(borrow)] pub(in crate::import) Cow<'b, str>);

/// A number or text, as ids of processes and threads may be.
#[derive(Clone, Debug, Default)]
pub(in crate::import) enum NumberOrText<'b> {
    /// A number of zero or above.
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
    pub(in crate::import) fn to_text(&self) -> String {
        // Texts of processes are short; a long one is not a name.
        self.cut(64)
    }

    /// As text of at most this many letters.
    fn cut(&self, most: usize) -> String {
        match self {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Negative(number) => number.to_string(),
            NumberOrText::Word(word) => word.chars().take(most).collect(),
            NumberOrText::Other => String::new(),
        }
    }

    pub(in crate::import) fn word(&self) -> &str {
        match self {
            NumberOrText::Word(word) => word,
            _ => "",
        }
    }

    /// The number, also from a text (`"stream 7"`, `"16"`).
    pub(in crate::import) fn number(&self) -> Option<u64> {
        match self {
            NumberOrText::Number(number) => Some(*number),
            NumberOrText::Word(word) => word.rsplit(' ').next()?.parse().ok(),
            NumberOrText::Negative(_) | NumberOrText::Other => None,
        }
    }

    pub(in crate::import) fn signed(&self) -> Option<i64> {
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
                // Above 2^53, a number with a decimal point is not an id.
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

/// Arguments of all kinds of events.
#[derive(Debug, Default)]
pub(in crate::import) struct Arguments<'b> {
    pub(in crate::import) correlation: NumberOrText<'b>,
    pub(in crate::import) bytes: NumberOrText<'b>,
    pub(in crate::import) device: NumberOrText<'b>,
    pub(in crate::import) stream: NumberOrText<'b>,
    pub(in crate::import) graph_node: NumberOrText<'b>,
    pub(in crate::import) sync_kind: NumberOrText<'b>,
    pub(in crate::import) record: NumberOrText<'b>,
    pub(in crate::import) wait_on_stream: NumberOrText<'b>,
    pub(in crate::import) device_type: NumberOrText<'b>,
    pub(in crate::import) address: NumberOrText<'b>,
    pub(in crate::import) allocated: NumberOrText<'b>,
    pub(in crate::import) reserved: NumberOrText<'b>,
    pub(in crate::import) collective: NumberOrText<'b>,
    pub(in crate::import) group: NumberOrText<'b>,
    /// What the program calls it (`mesh_tp`, `DATA_PARALLEL_GROUP`).
    pub(in crate::import) group_description: NumberOrText<'b>,
    /// Its ranks, as a list or as the text of one.
    pub(in crate::import) group_ranks: NumberOrText<'b>,
    pub(in crate::import) group_size: NumberOrText<'b>,
    pub(in crate::import) elements_in: NumberOrText<'b>,
    pub(in crate::import) element: NumberOrText<'b>,
    /// Of a received message: the rank that sent it.
    pub(in crate::import) source_rank: NumberOrText<'b>,
    /// Of a sent message: the rank that receives it.
    pub(in crate::import) target_rank: NumberOrText<'b>,
    /// Number of a step, as JAX writes it.
    pub(in crate::import) step: NumberOrText<'b>,
    /// The device of a dispatch, or that a copy goes to, and the one that it comes from, as rocprofv3 writes them.
    pub(in crate::import) agent: NumberOrText<'b>,
    pub(in crate::import) source_agent: NumberOrText<'b>,
    /// Nanoseconds from begin to end, as rocprofv3 writes them.
    pub(in crate::import) length: NumberOrText<'b>,
    // Only in our exports.
    pub(in crate::import) ordinal: NumberOrText<'b>,
    pub(in crate::import) kind: NumberOrText<'b>,
    pub(in crate::import) result: NumberOrText<'b>,
    pub(in crate::import) launched_by: NumberOrText<'b>,
    pub(in crate::import) wait_on_device: NumberOrText<'b>,
    pub(in crate::import) wake_ups: NumberOrText<'b>,
}

impl<'b> Arguments<'b> {
    /// The communicator of a collective: its number, and what the program calls it.
    pub(in crate::import) fn communicator(&self) -> String {
        // In our exports, the description and the ranks are part of it.
        let number = self.group.cut(256);
        match self.group_description.word() {
            // PyTorch's word for none.
            "" | "undefined" => number,
            description => {
                let description: String = description.chars().take(64).collect();
                format!("{number} {description}").trim().to_owned()
            }
        }
    }

    pub(in crate::import) fn field(&mut self, key: &str) -> Option<&mut NumberOrText<'b>> {
        Some(match key {
            "correlation" | "correlation_id" | "corr_id" => &mut self.correlation,
            "bytes" | "Bytes" | "copy_bytes" => &mut self.bytes,
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
            "Process Group Description" => &mut self.group_description,
            GROUP_RANKS => &mut self.group_ranks,
            "Group size" => &mut self.group_size,
            "In msg nelems" => &mut self.elements_in,
            "dtype" => &mut self.element,
            "Src Rank" => &mut self.source_rank,
            "Dst Rank" => &mut self.target_rank,
            STEP => &mut self.step,
            "agent" | "dst_agent" => &mut self.agent,
            "src_agent" => &mut self.source_agent,
            "delta_ns" => &mut self.length,
            "Collective ordinal" => &mut self.ordinal,
            "deepctx kind" => &mut self.kind,
            "result code" => &mut self.result,
            "launched by" => &mut self.launched_by,
            "wait_on_device" => &mut self.wait_on_device,
            "wake-ups" => &mut self.wake_ups,
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
                    if key.0 == GROUP_RANKS {
                        let list = map.next_value::<&'de RawValue>()?;
                        arguments.group_ranks = NumberOrText::Word(Cow::Borrowed(list.get()));
                        continue;
                    }
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
