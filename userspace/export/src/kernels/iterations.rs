//! Iterations of a kernel to show: rocprofv3's `--kernel-iteration-range`.

use std::{ops::RangeInclusive, str::FromStr};

/// Explanation of the syntax, at the end of every error message.
const SYNTAX: &str = "write numbers and ranges, counted from 1: '[1,[3-5],10]' or '[1-2],[3-4]'";

/// Why a text is not a list of iterations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IterationsError {
    /// It contains no number.
    #[error("there is no number; {SYNTAX}")]
    Empty,
    /// Brackets do not match.
    #[error("the brackets do not match; {SYNTAX}")]
    Brackets,
    /// A part is neither a number nor a range.
    #[error("'{0}' is neither a number nor a range; {SYNTAX}")]
    Number(String),
    /// A range ends before it begins, or includes iteration 0.
    #[error("'{0}' holds no iteration; {SYNTAX}")]
    Range(String),
}

/// Numbers of the dispatches of a kernel, from 1. At least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iterations {
    ranges: Vec<RangeInclusive<u64>>,
}

impl Iterations {
    /// Whether iteration number `iteration` is included.
    #[must_use]
    pub fn contains(&self, iteration: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&iteration))
    }

    /// The highest number included.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| *range.end())
            .max()
            .unwrap_or(0)
    }

    /// Adds the iterations of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.ranges.extend(other.ranges.iter().cloned());
    }
}

/// Parses `5`, `3-5`, and lists of them separated by commas. Brackets may surround any part; they
/// have no meaning, as in rocprofv3.
impl FromStr for Iterations {
    type Err = IterationsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut open = 0_u32;
        for character in text.chars() {
            open = match character {
                '[' => open.saturating_add(1),
                ']' => open.checked_sub(1).ok_or(IterationsError::Brackets)?,
                _ => open,
            };
        }
        if open > 0 {
            return Err(IterationsError::Brackets);
        }
        let is_separator =
            |character: char| matches!(character, '[' | ']' | ',') || character.is_whitespace();
        let ranges: Vec<RangeInclusive<u64>> = text
            .split(is_separator)
            .filter(|part| !part.is_empty())
            .map(range)
            .collect::<Result<_, _>>()?;
        if ranges.is_empty() {
            return Err(IterationsError::Empty);
        }
        Ok(Self { ranges })
    }
}

fn range(text: &str) -> Result<RangeInclusive<u64>, IterationsError> {
    let number = |digits: &str| match digits.parse::<u64>() {
        // `parse` would accept a sign as well.
        Ok(number) if digits.starts_with(|first: char| first.is_ascii_digit()) => Ok(number),
        _ => Err(IterationsError::Number(text.to_owned())),
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if first == 0 || last < first {
        return Err(IterationsError::Range(text.to_owned()));
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<u64> {
        let iterations: Iterations = text.parse().unwrap();
        (0..=iterations.last() + 1)
            .filter(|number| iterations.contains(*number))
            .collect()
    }

    #[test]
    fn rocprofv3s_ways_to_write_them() {
        assert_eq!(all("[1,[3-5],10]"), [1, 3, 4, 5, 10]);
        assert_eq!(all("[1, 3, [5-8]]"), [1, 3, 5, 6, 7, 8]);
        assert_eq!(all("[1-2],[3-4]"), [1, 2, 3, 4]);
        assert_eq!(all("[1-2] [5]"), [1, 2, 5]);
        assert_eq!(all("10-12"), [10, 11, 12]);
        assert_eq!(all("3,2-3"), [2, 3]);
    }

    #[test]
    fn errors_show_how() {
        use IterationsError::{Brackets, Empty, Number, Range};
        for (text, error) in [
            ("", Empty),
            ("[ ]", Empty),
            ("[1", Brackets),
            ("1]", Brackets),
            ("]1[", Brackets),
            ("first", Number("first".to_owned())),
            ("[1,3..5]", Number("3..5".to_owned())),
            ("-3", Number("-3".to_owned())),
            ("3-", Number("3-".to_owned())),
            ("1-2-3", Number("1-2-3".to_owned())),
            ("+1", Number("+1".to_owned())),
            (
                "99999999999999999999",
                Number("99999999999999999999".to_owned()),
            ),
            ("0", Range("0".to_owned())),
            ("5-3", Range("5-3".to_owned())),
        ] {
            let found = text.parse::<Iterations>().unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(found.to_string().contains("[1,[3-5],10]"), "{found}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\], 0-9x-]{0,20}") {
            if let Ok(iterations) = text.parse::<Iterations>() {
                prop_assert!(iterations.last() > 0 && iterations.contains(iterations.last()));
                prop_assert!(!iterations.contains(0));
            }
        }
    }
}
