//! Decimals: numbers of a JSON text as whole thousandths, without a floating-point number in between.
//!
//! Owns: [`thousandths`]. Because: microseconds since 1970 have 16 digits before the point, and a `f64` that has to
//! hold three more behind it is off by up to 250 ns. Does not: know what the number counts.

/// A parsed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thousandths {
    /// The number × 1000, rounded half away from zero.
    pub(super) value: i128,
    /// Whether digits after the third were rounded.
    pub(super) rounded: bool,
    /// Whether there is a fraction at all.
    pub(super) has_fraction: bool,
}

/// Largest exponent and most digits: anything larger is not a time.
const DIGITS_MAX: i32 = 30;

/// Parses a number of a JSON text, quoted or not. `None` for anything else, and for numbers beyond 30 digits.
pub(super) fn thousandths(text: &str) -> Option<Thousandths> {
    let text = text.trim().trim_matches('"');
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits = i32::try_from(whole.len() + fraction.len()).ok()?;
    if digits > DIGITS_MAX || !(-DIGITS_MAX..=DIGITS_MAX).contains(&exponent) {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        value = value * 10 + i128::from(digit - b'0');
    }
    // Digits missing up to thousandths.
    let scale = 3 + exponent - fraction.len() as i32;
    let mut rounded = false;
    if scale >= 0 {
        value = value.checked_mul(10i128.checked_pow(scale.unsigned_abs())?)?;
    } else {
        let by = 10i128.checked_pow(scale.unsigned_abs())?;
        rounded = value % by != 0;
        value = (value + by / 2) / by;
    }
    Some(Thousandths {
        value: if negative { -value } else { value },
        rounded,
        has_fraction: exponent < fraction.len() as i32 && !fraction.is_empty() || exponent < 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_digit_of_a_time_is_kept() {
        let check = |text: &str, expect: Option<i128>| {
            assert_eq!(thousandths(text).map(|n| n.value), expect, "{text}")
        };
        check("1623143089861.123", Some(1_623_143_089_861_123));
        check("1695835542514261", Some(1_695_835_542_514_261_000));
        // As a f64, this one is 1695835542514261.25.
        check("1695835542514261.123", Some(1_695_835_542_514_261_123));
        check("0.0005", Some(1));
        check("0.0004", Some(0));
        check("-2.5", Some(-2_500));
        check("1.5e3", Some(1_500_000));
        check("15e-1", Some(1_500));
        check("\"7.25\"", Some(7_250));
        check("1e40", None);
        // The least exponent has no absolute value of its type.
        check("1e-2147483648", None);
        check("NaN", None);
        check("", None);
        check(".5", None);
        check("1.2.3", None);
    }

    #[test]
    fn numbers_say_whether_they_have_decimals() {
        let check = |text: &str, expect| {
            let number = thousandths(text).unwrap();
            assert_eq!((number.has_fraction, number.rounded), expect, "{text}");
        };
        check("12", (false, false));
        check("12.000", (false, false));
        check("12.5", (true, false));
        check("1.5e3", (false, false));
        check("1.0625", (true, true));
    }

    proptest! {
        #[test]
        fn whole_nanoseconds_come_back(nanos in 0u64..=u64::MAX) {
            let text = format!("{}.{:03}", nanos / 1000, nanos % 1000);
            prop_assert_eq!(thousandths(&text).unwrap().value, i128::from(nanos));
        }
    }
}
