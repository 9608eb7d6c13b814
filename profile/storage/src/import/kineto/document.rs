//! The JSON document around the events: an object with `traceEvents`, or the list itself.
//!
//! Owns: the order of reading, which is one pass with one event in memory. Because: a trace of a minute has gigabytes.
//! Does not: look into events.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::event::{ListedEvent, RawEvent};
use crate::event_header::{EventHeader, HEADER};
use crate::import::arguments::{NumberOrText, Text};

/// Receives the content of the document.
pub(super) trait DocumentVisitor<'de> {
    /// An event.
    fn event(&mut self, event: RawEvent<'de>) -> Result<(), &'static str>;
    /// An entry in the list of events is not an event.
    fn not_an_event(&mut self);
    /// The list of events begins.
    fn found(&mut self);
    /// Nanoseconds from 1970 UTC to the zero of the times.
    fn base(&mut self, base: Option<u64>);
    /// The document has a key that PyTorch's profiler writes.
    fn is_kineto(&mut self);
    /// The header of a deepctx-bpf export, which describes its rows.
    fn header(&mut self, header: EventHeader);
    /// Rank and number of ranks in the job.
    fn distributed(&mut self, rank: Option<u64>, world_size: Option<u64>);
    /// The groups of ranks that the program has, as JSON.
    fn process_groups(&mut self, list: &str);
}

pub(super) struct Document<'t, T>(pub(super) &'t mut T);

impl<'de, T: DocumentVisitor<'de>> DeserializeSeed<'de> for Document<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: DocumentVisitor<'de>> Visitor<'de> for Document<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trace events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "traceEvents" => map.next_value_seed(Events(&mut *self.0))?,
                "baseTimeNanoseconds" => self.0.base(map.next_value::<NumberOrText<'de>>()?.number()),
                HEADER => self.0.header(map.next_value()?),
                "schemaVersion" | "deviceProperties" => {
                    self.0.is_kineto();
                    map.next_value::<IgnoredAny>()?;
                }
                "distributedInfo" => map.next_value_seed(DistributedInfo(&mut *self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Events(self.0).visit_seq(seq)
    }
}

struct Events<'t, T>(&'t mut T);

impl<'de, T: DocumentVisitor<'de>> DeserializeSeed<'de> for Events<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: DocumentVisitor<'de>> Visitor<'de> for Events<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of trace events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.found();
        while let Some(ListedEvent(event)) = seq.next_element()? {
            match event {
                Some(event) => self.0.event(event).map_err(serde::de::Error::custom)?,
                None => self.0.not_an_event(),
            }
        }
        Ok(())
    }
}

struct DistributedInfo<'t, T>(&'t mut T);

impl<'de, T: DocumentVisitor<'de>> DeserializeSeed<'de> for DistributedInfo<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: DocumentVisitor<'de>> Visitor<'de> for DistributedInfo<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rank and world size")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut rank, mut world_size) = (None, None);
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let value = match &*key.0 {
                "rank" => &mut rank,
                "world_size" => &mut world_size,
                "pg_config" => {
                    self.0.process_groups(map.next_value::<&'de RawValue>()?.get());
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *value = map.next_value::<NumberOrText<'de>>()?.number();
        }
        self.0.distributed(rank, world_size);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
