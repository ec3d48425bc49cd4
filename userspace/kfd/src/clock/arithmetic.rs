//! Arithmetic on 128-bit integers: ticks and nanoseconds have up to 64 bits, and products of two
//! differences must not lose any.

/// Difference between two counts, across the wrap if that is shorter.
pub(super) fn distance(from: u64, to: u64) -> i128 {
    i128::from(to.wrapping_sub(from).cast_signed())
}

/// Larger than any distance between two times or counts, so that sums of a few distances do not
/// overflow.
const FAR: i128 = 1 << 100;

/// `value * numerator / denominator`, rounded to nearest, at most [`FAR`].
pub(super) fn scaled(value: i128, numerator: i128, denominator: i128) -> i128 {
    // The numbers are usually small, and a division of 128-bit numbers takes several times as long.
    if let (Ok(value), Ok(numerator), Ok(denominator)) = (
        i64::try_from(value),
        i64::try_from(numerator),
        i64::try_from(denominator),
    ) && let Some(product) = value.checked_mul(numerator)
        && let Some(sum) = product.checked_add(denominator / 2)
        && let Some(quotient) = sum.checked_div_euclid(denominator)
    {
        return quotient.into();
    }
    let product = value.saturating_mul(numerator);
    let half = denominator / 2;
    product
        .saturating_add(half)
        .checked_div_euclid(denominator)
        .unwrap_or(0)
        .clamp(-FAR, FAR)
}

pub(super) fn ppm(value: i128, parts: u64) -> i128 {
    scaled(value, parts.into(), 1_000_000)
}

/// Converts a time or duration, limited to the range of `u64`.
pub(super) fn unsigned(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

pub(super) fn clamped(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}
