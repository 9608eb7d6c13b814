//! Values: the types of configuration fields, with their parsing and formatting.
//!
//! Owns: rates, periods and sizes with their units, and their text form. Because: options, files and stored profiles
//! share them. Does not: know which option has which value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use deepctx_common::call::ALL_STACKS;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::budget::Budget;

/// Most stacks a second that can be asked for.
const RATE_MAX: u32 = 1_000_000;

/// Samples per second and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hertz(pub u32);

/// A size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bytes(pub u64);

/// How many calls get a stack. Its text: `all`, `500/s`, `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StackRate {
    /// Every one.
    All,
    /// At most this many a second over all CPUs, drawn at random.
    PerSecond(u32),
    /// None.
    Off,
}

/// PyTorch operators whose tensors are recorded. Its text: `aten::addmm`, `hottest`, `hottest:3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum TensorShapes {
    /// One operator, as schemas name it.
    Operator(String),
    /// The operators that most samples are in: this many.
    Hottest(usize),
}

/// When single calls are kept. Its text: `10s` from the start, `steps=5..8` of training, `launches=1000..2000` of a
/// process, `signal=10s` from a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TraceWindow {
    /// This long from the start.
    First(Duration),
    /// From the begin of a step to the begin of another.
    Steps {
        /// The first step.
        from: u64,
        /// The first step after them.
        until: u64,
    },
    /// From a launch to another.
    Launches {
        /// The first launch.
        from: u64,
        /// The first launch after them.
        until: u64,
    },
    /// This long from SIGUSR2 on.
    OnSignal(Duration),
}

/// How many times the usual length of a training step makes a hang. Its text: `5x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HangFactor(f64);

impl HangFactor {
    /// The factor.
    pub fn times(self) -> f64 {
        self.0
    }
}

impl fmt::Display for HangFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.0)
    }
}

impl FromStr for HangFactor {
    type Err = String;

    /// With or without the `x`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>();
        // Steps differ by half of their length without a hang.
        number
            .ok()
            .filter(|times| (1.5..=1000.0).contains(times))
            .map(Self)
            .ok_or_else(|| format!("expected a factor from 1.5x to 1000x, found '{text}'"))
    }
}

impl From<HangFactor> for String {
    fn from(factor: HangFactor) -> Self {
        factor.to_string()
    }
}

impl TryFrom<String> for HangFactor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// How often instructions of kernels are sampled. Its text: `auto`, `12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingPeriod {
    /// As the driver's interface chooses.
    Auto,
    /// The binary logarithm of a number of cycles.
    Log2Cycles(u32),
}

impl StackRate {
    /// Calls with a stack per second, in the form for the kernel programs.
    pub(crate) fn per_second(self) -> u32 {
        match self {
            Self::All => ALL_STACKS,
            Self::PerSecond(most) => most,
            Self::Off => 0,
        }
    }
}

impl TensorShapes {
    pub(super) fn operator(&self) -> Option<String> {
        match self {
            Self::Operator(name) => Some(name.clone()),
            Self::Hottest(_) => None,
        }
    }
}

/// A value as text: lists are joined by commas.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

impl fmt::Display for StackRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::PerSecond(most) => write!(f, "{most}/s"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl FromStr for StackRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::All),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let number = text.strip_suffix("/s").and_then(|number| number.parse().ok());
        number
            .filter(|most| (1..=RATE_MAX).contains(most))
            .map(Self::PerSecond)
            .ok_or_else(|| "expected all, off, or a number of stacks per second such as 500/s".into())
    }
}

impl fmt::Display for TensorShapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(name) => f.write_str(name),
            Self::Hottest(most) => write!(f, "hottest:{most}"),
        }
    }
}

impl From<String> for TensorShapes {
    /// `hottest` and `hottest:3` name no operator.
    fn from(text: String) -> Self {
        /// The number if none is given.
        const USUAL: usize = 5;
        let most = text.strip_prefix("hottest").and_then(|most| match most {
            "" => Some(USUAL),
            most => most.strip_prefix(':')?.parse().ok().filter(|most| *most > 0),
        });
        most.map_or(Self::Operator(text), Self::Hottest)
    }
}

impl TraceWindow {
    /// Parses a window, with times as `duration` reads them.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str, duration: impl Fn(&str) -> Result<Duration, String>) -> Result<Self, String> {
        if let Some(range) = Self::of_range(text) {
            return range;
        }
        match text.strip_prefix("signal=") {
            Some(text) => duration(text).map(Self::OnSignal),
            None => duration(text).map(Self::First),
        }
    }

    /// The window of a text like `steps=5..8` or `launches=5..8`; `None` for another form.
    fn of_range(text: &str) -> Option<Result<Self, String>> {
        let (of, range) = text.split_once('=').filter(|(of, _)| ["steps", "launches"].contains(of))?;
        let bounds = range.split_once("..").and_then(|(from, until)| {
            let (from, until) = (from.parse().ok()?, until.parse().ok()?);
            (0 < from && from < until).then_some((from, until))
        });
        Some(match bounds {
            Some((from, until)) if of == "steps" => Ok(Self::Steps { from, until }),
            Some((from, until)) => Ok(Self::Launches { from, until }),
            None => Err(format!(
                "expected {of} from the first one, 1, like {of}=5..8 (5, 6 and 7), found '{text}'"
            )),
        })
    }
}

impl fmt::Display for TraceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(duration) => f.write_str(&seconds::write(*duration)),
            Self::Steps { from, until } => write!(f, "steps={from}..{until}"),
            Self::Launches { from, until } => write!(f, "launches={from}..{until}"),
            Self::OnSignal(duration) => write!(f, "signal={}", seconds::write(*duration)),
        }
    }
}

impl FromStr for TraceWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, |text| seconds::read(text).ok_or_else(|| "expected seconds such as 1.5s".into()))
    }
}

impl fmt::Display for SamplingPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Log2Cycles(exponent) => exponent.fmt(f),
        }
    }
}

macro_rules! string_by_display {
    ($($name:ty),*) => { $(
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )* };
}
string_by_display!(StackRate, TensorShapes, TraceWindow, Budget);

macro_rules! from_string_by_from_str {
    ($($name:ty),*) => { $(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )* };
}
from_string_by_from_str!(StackRate, TraceWindow, Budget);

/// A flag that is stored negated.
pub(super) mod negated {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(flag: &bool, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(!flag)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        bool::deserialize(from).map(|flag| !flag)
    }
}

/// A duration as `1.5s`.
pub(super) mod seconds {
    use std::time::Duration;

    use serde::de::Error as _;

    use super::*;

    pub(super) fn write(duration: Duration) -> String {
        format!("{}s", duration.as_secs_f64())
    }

    pub(super) fn read(text: &str) -> Option<Duration> {
        Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
    }

    pub(in super::super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&write(*duration))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        read(&text).ok_or_else(|| D::Error::custom("expected seconds such as 1.5s"))
    }

    /// The same, or `off`.
    pub(in super::super) mod or_off {
        use super::*;

        pub(in super::super::super) fn serialize<S: Serializer>(
            duration: &Option<Duration>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            to.serialize_str(&duration.as_ref().map_or_else(|| "off".to_owned(), |duration| write(*duration)))
        }

        pub(in super::super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            let text = String::deserialize(from)?;
            if text == "off" {
                return Ok(None);
            }
            read(&text).map(Some).ok_or_else(|| D::Error::custom("expected seconds such as 1.5s, or off"))
        }
    }

    /// The same for an optional value.
    pub(in super::super) mod optional {
        use super::*;

        pub(in super::super::super) fn serialize<S: Serializer>(
            duration: &Option<Duration>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            match duration {
                Some(duration) => to.serialize_some(&write(*duration)),
                None => to.serialize_none(),
            }
        }

        pub(in super::super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
            read(&text).map(Some).ok_or_else(|| D::Error::custom("expected seconds such as 1.5s"))
        }
    }
}

/// URLs of servers, without their passwords.
pub(super) mod servers {
    use deepctx_symbolizer::native::ServerUrl;
    use serde::de::Error as _;

    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(urls: &[ServerUrl], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(urls.iter().map(ToString::to_string))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ServerUrl>, D::Error> {
        let urls = Vec::<String>::deserialize(from)?;
        urls.iter().map(|url| url.parse().map_err(D::Error::custom)).collect()
    }
}

/// A sampling period, or `off`.
pub(super) mod pc_sampling {
    use serde::de::Error as _;

    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        period: &Option<SamplingPeriod>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&period.map_or_else(|| "off".to_owned(), |period| period.to_string()))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SamplingPeriod>, D::Error> {
        let text = String::deserialize(from)?;
        match text.as_str() {
            "off" => Ok(None),
            "auto" => Ok(Some(SamplingPeriod::Auto)),
            exponent => {
                let exponent =
                    exponent.parse().map_err(|_| D::Error::custom("expected off, auto or a number"));
                exponent.map(|exponent| Some(SamplingPeriod::Log2Cycles(exponent)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_steps_and_launches_begin_at_one_and_end() {
        let check = |text: &str, expect: Option<TraceWindow>| {
            let found = TraceWindow::of_range(text).and_then(Result::ok);
            assert_eq!(found, expect, "{text}");
            assert_eq!(expect.map(|window| window.to_string().parse()), expect.map(Ok), "{text}");
        };
        check("steps=5..8", Some(TraceWindow::Steps { from: 5, until: 8 }));
        check("launches=1000..2000", Some(TraceWindow::Launches { from: 1000, until: 2000 }));
        for refused in
            ["steps=0..8", "launches=8..8", "steps=5", "steps=5..", "launches=..8", "10s", "steps=-1..3"]
        {
            check(refused, None);
        }
        assert_eq!("10s".parse(), Ok(TraceWindow::First(Duration::from_secs(10))));
        let on_signal = TraceWindow::OnSignal(Duration::from_millis(1500));
        assert_eq!(
            (on_signal.to_string().parse(), "signal=".parse::<TraceWindow>().is_err()),
            (Ok(on_signal), true)
        );
        for (refused, expect) in [("steps=0..8", "like steps=5..8"), ("launches=x", "like launches=5..8")] {
            let error = TraceWindow::of_range(refused).and_then(Result::err);
            assert!(error.is_some_and(|said| said.contains(expect)), "{refused}");
        }
    }

    #[test]
    fn rates_of_stacks_are_read_as_they_are_written() {
        for text in ["all", "off", "1/s", "1000000/s"] {
            assert_eq!(text.parse::<StackRate>().map(|rate| rate.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "0/s", "1000001/s", "500", "some"] {
            assert!(text.parse::<StackRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn hottest_operators_are_told_from_names() {
        let read = |text: &str| TensorShapes::from(text.to_owned());
        assert_eq!(read("hottest"), TensorShapes::Hottest(5));
        assert_eq!(read("hottest:3"), TensorShapes::Hottest(3));
        for name in ["hottest:0", "hottest:x", "hottests", "aten::mm"] {
            assert_eq!(read(name), TensorShapes::Operator(name.into()), "{name}");
        }
    }
}
