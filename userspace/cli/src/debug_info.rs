//! Debug information: how much of it is read for source lines and inlined calls of native code.
//!
//! Owns: parsing `512M` or `off`. Because: reading lines costs time and memory in proportion to the debug
//! information, which is too much for some captures of a whole system. Does not: search for any.

use deepctx_symbolizer::native::DebugInfo;

/// Parses the maximum size of debug information to read from a file.
pub(crate) fn parse(text: &str) -> Result<DebugInfo, String> {
    let expected = || format!("expected a size like 512M or 2G, or off, found '{text}'");
    let bytes_max = match text {
        "off" => 0,
        text => {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit: u64 = match &text[digits.len()..] {
                "" => 1,
                "K" => 1 << 10,
                "M" => 1 << 20,
                "G" => 1 << 30,
                _ => return Err(expected()),
            };
            digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(expected)?
        }
    };
    Ok(DebugInfo { bytes_max, ..DebugInfo::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_off_means_none() {
        let check = |text, expect| assert_eq!(parse(text).map(|info| info.bytes_max).ok(), expect, "{text}");
        check("off", Some(0));
        check("512M", Some(DebugInfo::default().bytes_max));
        check("2G", Some(2 << 30));
        check("4096", Some(4096));
        check("16K", Some(16 << 10));
        for wrong in ["", "M", "1T", "-1", "1.5G", "99999999999G", "512 M"] {
            check(wrong, None);
        }
    }
}
