//! Fields of text files: what is missing, what is a number, and its nearest 32-bit float.
//!
//! Most fields are short decimals. For these a whole number below 2^53 and a power of ten up to 10^22, both
//! exact as f64, give the nearest f64 in one operation (Clinger, 1990). Rounding that again to f32 errs only
//! when the f64 lies exactly half-way between two f32, or outside f32's normal range: those few, and longer
//! fields, go to the full algorithm (Lemire, 2021).

/// Largest power of ten that is exact as f64.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A field without the blanks around it.
pub(crate) fn trim(field: &[u8]) -> &[u8] {
    field.trim_ascii()
}

/// Whether a trimmed field says that its value is not known.
pub(crate) fn missing(field: &[u8]) -> bool {
    match field {
        b"" | b"?" | b"NA" => true,
        [b'n' | b'N', ..] => {
            field.eq_ignore_ascii_case(b"nan") || field.eq_ignore_ascii_case(b"null")
        }
        _ => false,
    }
}

/// The number that a whole trimmed field is; infinite if it is too large for 32 bits.
pub(crate) fn number(field: &[u8]) -> Option<f32> {
    leading(field).filter(|(_, length)| *length == field.len()).map(|(value, _)| value)
}

/// The number that `text` begins with, and its length. Words such as `inf` are no numbers.
#[inline]
pub(crate) fn leading(text: &[u8]) -> Option<(f32, usize)> {
    let negative = matches!(text.first(), Some(b'-'));
    let mut at = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    if !matches!(text.get(at), Some(b'0'..=b'9' | b'.')) {
        return None;
    }
    let (mut whole, start) = (0u64, at);
    while let Some(digit @ b'0'..=b'9') = text.get(at) {
        whole = whole.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    let mut digits = at - start;
    let mut decimals = 0;
    if let Some(b'.') = text.get(at) {
        at += 1;
        let point = at;
        while let Some(digit @ b'0'..=b'9') = text.get(at) {
            whole = whole.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            at += 1;
        }
        decimals = at - point;
        digits += decimals;
    }
    // 19 digits always fit 64 bits, so that `whole` is what was written.
    if digits == 0 || digits > 19 || whole >= 1 << 53 || matches!(text.get(at), Some(b'e' | b'E')) {
        return fast_float2::parse_partial(text).ok();
    }
    let exact = whole as f64 / POWERS[decimals];
    let half_way = exact.to_bits() & ((1 << 29) - 1) == 1 << 28;
    let normal = whole == 0 || exact >= f64::from(f32::MIN_POSITIVE);
    if half_way || !normal {
        return fast_float2::parse_partial(text).ok();
    }
    let value = exact as f32;
    Some((if negative { -value } else { value }, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_finite_decimals_are_numbers() {
        for (text, value) in [("1", 1.0), ("+1", 1.0), ("-.5", -0.5), ("3.", 3.0), ("1e-3", 0.001)]
        {
            assert_eq!(number(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["", "-", ".", "inf", "-inf", "nan", "1e", "1x", "0x10", "1,5", "--1", "1 2"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        assert_eq!(number(b"1e39"), Some(f32::INFINITY));
        assert!([&b""[..], b"?", b"NA", b"NaN", b"null"].iter().all(|text| missing(text)));
        assert!(!missing(b"N") && !missing(b"None") && !missing(b"0"));
    }

    /// 16777217 = 2^24 + 1 lies half-way between two f32; a hair above must round up, and would round to
    /// even if it passed through f64 first.
    #[test]
    fn half_way_cases_round_once() {
        for text in ["16777217", "16777217.00000000001", "16777217.0000000000000001", "16777219"] {
            assert_eq!(number(text.as_bytes()), text.parse().ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_the_nearest_f32(whole in any::<u64>(), digits in 0u32..12, cut in 0u32..20) {
            let scaled = (whole / 10u64.pow(cut.min(19))) as f64 / 10f64.powi(digits as i32);
            for text in [format!("{scaled:.*}", digits as usize), format!("-{scaled:e}")] {
                let (ours, theirs): (f32, f32) =
                    (number(text.as_bytes()).unwrap(), text.parse().unwrap());
                prop_assert_eq!(ours.to_bits(), theirs.to_bits(), "{}", text);
            }
        }

        #[test]
        fn printed_floats_read_back(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            for text in [format!("{value}"), format!("{value:e}")] {
                prop_assert_eq!(number(text.as_bytes()).map(f32::to_bits), Some(bits), "{}", text);
            }
        }
    }
}
