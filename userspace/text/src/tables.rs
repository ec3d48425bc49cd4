//! Numbers and tables as text for people.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

use crate::{Line, Page};

const UNITS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];

/// A duration given in ns, in a unit that leaves one to three digits before the decimal point, e.g.
/// `1.23 ms`.
#[must_use]
pub fn duration(ns: f64) -> String {
    let (value, unit) = UNITS
        .iter()
        // A value that would be rounded up to 1000 of a unit is shown as 1 of the next.
        .find(|(size, _)| ns >= size * 0.9995)
        .map_or((ns, "ns"), |(size, unit)| (ns / size, *unit));
    let decimals = match value {
        _ if unit == "ns" && value.fract() == 0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Like [`duration`], with a standard error in the same unit: `10.4 us +-0.3`. Neither number has
/// digits beyond the error's precision; without an error, only the duration is shown. If the
/// duration would be shown as 0, the error's own unit is used.
#[must_use]
pub fn with_error(ns: f64, error: f64) -> String {
    if error <= 0.0 || !error.is_finite() {
        return duration(ns);
    }
    let (size, unit) = UNITS
        .iter()
        .find(|(size, _)| ns.max(error / 10.0) >= size * 0.9995)
        .map_or((1.0, "ns"), |unit| *unit);
    let (value, error) = (ns / size, error / size);
    // The error has one digit, or two if the first is a 1, where rounding could be off by a third.
    let digit = error.log10().floor();
    let first = error / 10_f64.powf(digit);
    let last = if first < 1.95 { digit - 1.0 } else { digit };
    let most: f64 = match value {
        _ if unit == "ns" => 0.0,
        ..9.995 => -2.0,
        ..99.95 => -1.0,
        _ => 0.0,
    };
    let last = last.max(most);
    let step = 10_f64.powf(last);
    let decimals = (-last).max(0.0) as usize;
    let rounded = |number: f64| (number / step).round() * step;
    let shown = rounded(error);
    if shown == 0.0 {
        return format!("{value:.decimals$} {unit} +-<{step:.decimals$}");
    }
    format!("{:.decimals$} {unit} +-{shown:.decimals$}", rounded(value))
}

/// `0.4 (0.3-0.9)`, or a single number if the range adds nothing.
#[must_use]
pub fn with_range(value: f64, (least, most): (f64, f64), decimals: usize) -> String {
    let [shown, least, most] = [value, least, most].map(|number| format!("{number:.decimals$}"));
    if least == shown && most == shown {
        shown
    } else {
        format!("{shown} ({least}-{most})")
    }
}

/// A number of bytes with a decimal unit, e.g. `1.05 MB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let count = count as f64;
    match UNITS.iter().find(|(size, _)| count >= size * 0.9995) {
        Some((size, unit)) => format!("{:.2} {unit}", count / size),
        None => format!("{count} B"),
    }
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left edge, for names.
    Left,
    /// At the right edge, for numbers.
    Right,
}

/// Minimum width of a column of names, whatever the width of the terminal.
const SHORTEST_NAME: usize = 32;

/// Makes the widest of the columns `names` narrower, so that a line with all `widths` and `between`
/// characters fits into `columns`, as far as names stay readable.
pub fn fit(
    widths: &mut [usize],
    names: impl Fn(usize) -> bool,
    between: usize,
    columns: Option<usize>,
) {
    let all = widths.iter().sum::<usize>() + between;
    let excess = columns.map_or(0, |columns| all.saturating_sub(columns));
    let own = widths
        .iter_mut()
        .enumerate()
        .filter(|(column, _)| names(*column));
    if let Some((_, widest)) = own.max_by_key(|(_, width)| **width) {
        *widest = widest
            .saturating_sub(excess)
            .max(SHORTEST_NAME.min(*widest));
    }
}

/// `text`, or as much of its beginning and end as fits into `width` characters: names of kernels
/// differ at both ends.
#[must_use]
pub fn clipped(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width || width == 0 {
        return Cow::Borrowed(text);
    }
    let begin = width / 2;
    let end = width - begin - 1;
    let characters = text.chars();
    let clipped = characters
        .clone()
        .take(begin)
        .chain(['…'])
        .chain(characters.skip(length - end));
    Cow::Owned(clipped.collect())
}

/// Writes rows of cells, each column as wide as its widest cell. The first row is the heading.
/// Names are shortened if lines would be longer than the page allows.
///
/// # Errors
///
/// If `out` refuses the text.
pub fn table(out: &mut Page<impl Write>, align: &[Align], rows: &[Vec<String>]) -> fmt::Result {
    let escaped = |row: &Vec<String>| row.iter().map(Line::from).collect();
    let rows: Vec<Vec<Line>> = rows.iter().map(escaped).collect();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.as_str().chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..align.len()).map(width).collect();
    let is_name = |column| {
        align
            .get(column)
            .is_some_and(|align| matches!(align, Align::Left))
    };
    fit(&mut widths, is_name, 2 * align.len(), out.columns());
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), align) in row.iter().zip(&widths).zip(align) {
            let cell = clipped(cell.as_str(), *width);
            match align {
                Align::Left => write!(line, "  {cell:<width$}")?,
                Align::Right => write!(line, "  {cell:>width$}")?,
            }
        }
        out.line(format_args!("{}", line.trim_end()))?;
    }
    Ok(())
}

/// A number with its noun: `1 call`, `2 calls`.
#[must_use]
pub fn count(number: u64, one: &str) -> String {
    plural(number, one, &format!("{one}s"))
}

/// A number with its noun, `one` of which are `many`: `1 copy`, `2 copies`.
#[must_use]
pub fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (1.0, "1 ns"),
            (36.5, "36.5 ns"),
            (999.0, "999 ns"),
            (999.7, "1.00 us"),
            (1_234.0, "1.23 us"),
            (9_996.0, "10.0 us"),
            (45_600.0, "45.6 us"),
            (999_400.0, "999 us"),
            (999_600.0, "1.00 ms"),
            (406_507_215.0, "407 ms"),
            (3_204_000_000.0, "3.20 s"),
            (123_456e9, "123456 s"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    #[test]
    fn names_are_clipped_in_the_middle_where_lines_would_not_fit() {
        let name = format!("void {}<float, 128>", "matmul".repeat(10));
        let rows = [
            vec!["Kernel".to_owned(), "Total".to_owned()],
            vec![name.clone(), "1.23 ms".to_owned()],
        ];
        let shown = |columns| {
            let mut page = Page::new(String::new()).within(columns);
            table(&mut page, &[Align::Left, Align::Right], &rows).unwrap();
            page.into_inner()
        };
        assert!(shown(None).contains(&name));
        assert_eq!(shown(Some(200)), shown(None));
        for columns in [50, 60] {
            let text = shown(Some(columns));
            let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
            assert_eq!(widths, [columns, columns], "{text}");
            assert!(
                text.contains("void matmul") && text.contains("<float, 128>"),
                "{text}"
            );
        }
        // Ten columns would leave nothing of a name, so lines are longer.
        assert!(shown(Some(10)).contains("void matmul"));
    }

    proptest::proptest! {
        #[test]
        fn clipped_text_has_its_beginning_and_its_end(text in ".{0,40}", width in 1_usize..50) {
            let shown = clipped(&text, width);
            let length = text.chars().count();
            proptest::prop_assert_eq!(shown.chars().count(), length.min(width));
            proptest::prop_assert!(length <= width || shown.contains('…'));
            let ends = |text: &str| (text.chars().next(), text.chars().last());
            proptest::prop_assert!(width < 3 || ends(&shown) == ends(&text));
        }
    }

    #[test]
    fn errors_leave_no_false_digits() {
        for (ns, error, text) in [
            (10_400.0, 300.0, "10.4 us +-0.3"),
            (10_400.0, 0.0, "10.4 us"),
            (10_400.0, 1.0, "10.4 us +-<0.1"),
            (457_300.0, 23_000.0, "460 us +-20"),
            (1_234_567.0, 456_000.0, "1.2 ms +-0.5"),
            (1_234_567.0, 50_000_000.0, "0 ms +-50"),
            (1_234.0, 140.0, "1.23 us +-0.14"),
            (12.0, 30_000.0, "0 us +-30"),
            (0.0, 5.0, "0 ns +-5"),
            (100.0, 0.2, "100 ns +-<1"),
            (5e9, f64::NAN, "5.00 s"),
        ] {
            assert_eq!(with_error(ns, error), text, "{ns} {error}");
        }
    }

    #[test]
    fn a_range_is_shown_where_there_is_one() {
        assert_eq!(with_range(0.4, (0.3, 0.9), 1), "0.4 (0.3-0.9)");
        assert_eq!(with_range(18.2, (18.2, 18.2), 2), "18.20");
    }

    #[test]
    fn bytes_have_decimal_units() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_048_576, "1.05 MB"),
            (999_999, "1.00 MB"),
            (u64::MAX, "18446744.07 TB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [["name", "n"], ["a", "100"], ["longer", "2"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let mut out = Page::new(String::new());
        table(&mut out, &[Align::Left, Align::Right], &rows).unwrap();
        let hostile = ["a\x1b[2J\nb \u{9b}é", "1"].map(str::to_owned).to_vec();
        table(&mut out, &[Align::Left, Align::Right], &[hostile]).unwrap();
        assert_eq!(
            out.into_inner(),
            "  name      n\n  a       100\n  longer    2\n  a\\x1b[2J\\nb \\u{9b}é  1\n"
        );
    }
}
