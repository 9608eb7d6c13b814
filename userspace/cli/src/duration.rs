//! Duration: `30s`, `500ms`, `2m`, `1h30m`, or plain seconds.
//!
//! Owns: parsing and formatting durations as users type them. Does not: measure time.

use std::time::Duration;

const UNITS: [(&str, f64); 5] = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
/// Longer than any run, short enough that no sum of times overflows: 10 years.
const LONGEST_S: f64 = 10.0 * 365.0 * 24.0 * 3600.0;

/// Parses a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration like 30s, 500ms or 2m, found '{text}'");
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(expected());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| expected())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "" if rest.is_empty() => 1.0,
            name => UNITS.iter().find(|(unit, _)| *unit == name).ok_or_else(expected)?.1,
        };
        seconds += number * unit;
        rest = &rest[letters..];
    }
    if seconds > LONGEST_S {
        return Err(format!("'{text}' is longer than ten years"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

/// Formats a duration as a clock: `0:07`, `1:02:03`.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<u64, &str>) {
        let got = parse(text).map(|duration| duration.as_millis() as u64);
        match expect {
            Ok(ms) => assert_eq!(got, Ok(ms), "{text}"),
            Err(part) => assert!(got.as_ref().is_err_and(|e| e.contains(part)), "{text}: {got:?}"),
        }
    }

    #[test]
    fn durations_are_parsed() {
        check("30s", Ok(30_000));
        check("500ms", Ok(500));
        check("1.5", Ok(1_500));
        check("1h30m", Ok(5_400_000));
        check("", Err("like 30s"));
        check("s", Err("like 30s"));
        check("10 apples", Err("found '10 apples'"));
        check("-3s", Err("like 30s"));
        check("9999999h", Err("longer than ten years"));
    }

    #[test]
    fn clock_shows_hours_only_when_needed() {
        assert_eq!(clock(Duration::from_secs(7)), "0:07");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
