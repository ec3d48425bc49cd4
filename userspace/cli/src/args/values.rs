//! Parsers of option values.

use std::time::Duration;

/// A tracepoint of the kernel, or all of a category.
pub(crate) fn tracepoint(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((category, name))
            if !category.is_empty() && !name.is_empty() && !text.contains('/') =>
        {
            Ok(text.to_owned())
        }
        _ => Err("expected CATEGORY:NAME, e.g. amdgpu:amdgpu_bo_move, or amdgpu:*".to_owned()),
    }
}

/// A boolean, in the forms that rocprofv3 accepts.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "y" | "on" | "t" => Ok(true),
        "0" | "false" | "no" | "n" | "off" | "f" => Ok(false),
        _ => Err("expected True or False".to_owned()),
    }
}

/// A number with a unit of time; seconds without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("must be more than 0".to_owned());
    }
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}'; use us, ms, s, m or h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number, e.g. 10s".to_owned())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be more than 0 and not too long".to_owned()),
    }
}

/// A percentage, returned in millionths; at most 100 %.
pub(crate) fn share(text: &str) -> Result<u32, String> {
    let number: f64 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| "expected a percentage of one core, e.g. 2 or 0.5".to_owned())?;
    if !(0.0..=100.0).contains(&number) {
        return Err("must be from 0 to 100".to_owned());
    }
    let millionths = (number * 10_000.0).round() as u32;
    if millionths == 0 && number > 0.0 {
        return Err("is too small; use 0 for no looks".to_owned());
    }
    Ok(millionths)
}

/// The size of a ring: a number of bytes with an optional unit.
pub(crate) fn ring_size(text: &str) -> Result<u32, String> {
    match u32::try_from(bytes(text)?) {
        Ok(bytes) if (4096..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("must be between 4KiB and 1GiB".to_owned()),
    }
}

/// A number of bytes with an optional unit.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        other => return Err(format!("unknown unit '{other}'; use KiB, MiB, GiB or TiB")),
    };
    let number = number
        .parse::<u64>()
        .map_err(|_| "is not a whole number".to_owned())?;
    match number.checked_mul(unit) {
        Some(0) => Err("must be more than 0".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("is too large".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("1.5").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        assert!(duration("0s").is_err());
        assert_eq!(duration("-1s").unwrap_err(), "must be more than 0");
        assert!(duration("1e400s").is_err());
        assert!(duration("3 parsecs").is_err());
        assert_eq!(ring_size("64KiB").unwrap(), 65536);
        assert_eq!(ring_size("4096").unwrap(), 4096);
        for wrong in ["1", "2GiB", "99999999999GiB"] {
            assert!(ring_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("20GiB").unwrap(), 20 << 30);
        for wrong in [
            "",
            "0",
            "0MiB",
            "-1",
            "1.5GiB",
            "MiB",
            "17000000TiB",
            "1 mile",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for (text, millionths) in [
            ("2", 20_000),
            ("0.5", 5_000),
            ("1.5%", 15_000),
            ("0", 0),
            ("100", 1_000_000),
        ] {
            assert_eq!(share(text), Ok(millionths), "{text}");
        }
        for wrong in ["", "two", "-1", "101", "NaN", "0.00001"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
