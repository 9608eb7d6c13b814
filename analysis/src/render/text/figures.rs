//! Figures of tables, formatted for a column.
//!
//! Owns: the format of large numbers, of unknown figures, and of the number of hidden rows. Because: all tables of a
//! model write these alike. Does not: know a table.

use std::io::{self, Write};

use super::counted;

/// Placeholder of an unknown figure.
pub(super) fn none() -> String {
    "–".to_owned()
}

/// A number with three digits and a power of a thousand.
pub(in crate::render) fn scaled(value: f64) -> String {
    let powers = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (value, power) = match powers.iter().find(|(power, _)| value >= *power) {
        Some((power, name)) => (value / power, *name),
        None => (value, ""),
    };
    let digits = if value >= 99.95 || value.fract() == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{power}")
}

pub(super) fn more(left_out: usize, thing: &str, out: &mut dyn Write) -> io::Result<()> {
    match left_out {
        0 => Ok(()),
        hidden => writeln!(out, "  … {} more", counted(hidden as u64, thing)),
    }
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn large_numbers_have_three_digits_and_a_letter() {
        for (value, expect) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.5, "0.50"),
            (12_345.0, "12.3k"),
            (999_000.0, "999k"),
            (4.2e6, "4.20M"),
            (19.5e12, "19.5T"),
            (1e18, "1000P"),
        ] {
            assert_eq!(scaled(value), expect);
        }
    }
}
