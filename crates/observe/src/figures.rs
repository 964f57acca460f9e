//! Numbers as people read them: three or four digits and a unit.

/// Seconds: `850 ms`, `4.2 s`, `3 min 07 s`, `2 h 05 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 0.0005 => format!("{:.0} µs", s * 1e6),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 59.95 => format!("{s:.1} s"),
        s if s < 3599.5 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A count with thousands apart: `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate, to three digits: `950`, `12.3 k`, `4.56 M`.
#[must_use]
pub fn rate(number: f64) -> String {
    scaled(number, 1000.0, &["", " k", " M", " G", " T"])
}

/// Bytes, by powers of 1024: `512 B`, `1.50 MB`.
#[must_use]
pub fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &[" B", " KB", " MB", " GB", " TB"])
}

fn scaled(mut number: f64, by: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= by * 0.9995 && unit + 1 < units.len() {
        number /= by;
        unit += 1;
    }
    match number {
        n if unit == 0 || n >= 99.95 => format!("{n:.0}{}", units[unit]),
        n if n >= 9.995 => format!("{n:.1}{}", units[unit]),
        n => format!("{n:.2}{}", units[unit]),
    }
}

/// A measured number, to six digits: `0.971123`, `1.23457e-7`.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if !(1e-4..1e9).contains(&size) => {
            let text = format!("{value:.5e}");
            match text.split_once('e') {
                Some((digits, power)) => format!("{}e{power}", without_zeros(digits)),
                None => text,
            }
        }
        size => {
            let digits = (5 - size.log10().floor() as i32).clamp(0, 9) as usize;
            without_zeros(&format!("{value:.digits$}")).to_string()
        }
    }
}

fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well_at_every_size() {
        let times = [0.0001, 0.25, 0.9996, 4.25, 59.96, 187.0, 7500.0].map(duration);
        assert_eq!(
            times,
            ["100 µs", "250 ms", "1.0 s", "4.2 s", "1 min 00 s", "3 min 07 s", "2 h 05 min"]
        );
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [950.0, 12_345.0, 999_900.0, 4.56e6].map(rate),
            ["950", "12.3 k", "1.00 M", "4.56 M"]
        );
        assert_eq!([512, 1 << 20, 3 << 29].map(bytes), ["512 B", "1.00 MB", "1.50 GB"]);
        let numbers =
            [0.0, 0.971_123_4, 2.0, 123_456.789, 1.234_567e-7, 1e-8, f64::NAN].map(number);
        assert_eq!(numbers, ["0", "0.971123", "2", "123457", "1.23457e-7", "1e-8", "NaN"]);
    }
}
