//! Release numbers of HIP and HSA.

use std::fmt;
use std::str::FromStr;

/// A release of ROCm as numbered by HIP and the HSA runtime, e.g. 6.4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Patch level; 0 if the text has none.
    pub patch: u16,
}

/// The text is not a release number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a release number (such as 6.4.3)")]
pub struct NotARelease;

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Release {
    type Err = NotARelease;

    fn from_str(text: &str) -> Result<Self, NotARelease> {
        let mut parts = text
            .split('.')
            .map(|part| part.parse::<u16>().map_err(|_| NotARelease));
        let major = parts.next().ok_or(NotARelease)??;
        let minor = parts.next().ok_or(NotARelease)??;
        let patch = parts.next().unwrap_or(Ok(0))?;
        if parts.next().is_some() {
            Err(NotARelease)
        } else {
            Ok(Self {
                major,
                minor,
                patch,
            })
        }
    }
}

/// A range of releases. The text form is `5.2.3-5.7.1`, or `6.4.3-` for a range without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The first release in the range, among those that the catalogue was made from.
    pub first: Release,
    /// The last release; `None` if the range includes the newest release that the catalogue was
    /// made from.
    pub last: Option<Release>,
}

impl Releases {
    /// Whether `release` is in the range.
    #[must_use]
    pub fn contains(&self, release: Release) -> bool {
        self.first <= release && self.last.is_none_or(|last| release <= last)
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.first)?;
        self.last.map_or(Ok(()), |last| last.fmt(f))
    }
}

impl FromStr for Releases {
    type Err = NotARelease;

    fn from_str(text: &str) -> Result<Self, NotARelease> {
        let (first, last) = text.split_once('-').ok_or(NotARelease)?;
        let first = first.parse()?;
        let last = if last.is_empty() {
            None
        } else {
            Some(last.parse()?)
        };
        if last.is_some_and(|last| last < first) {
            Err(NotARelease)
        } else {
            Ok(Self { first, last })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_number() {
        let parse = |text: &str| text.parse::<Release>().unwrap();
        assert!(parse("5.10.0") > parse("5.7.1"));
        assert_eq!(parse("6.4"), parse("6.4.0"));
        for text in ["", "6", "6.x", "6.4.3.1", "6..1", "99999.0"] {
            assert_eq!(text.parse::<Release>(), Err(NotARelease), "{text}");
        }
    }

    #[test]
    fn ranges_round_trip() {
        for text in ["5.2.3-5.7.1", "6.4.3-", "5.2.3-5.2.3"] {
            assert_eq!(text.parse::<Releases>().unwrap().to_string(), text);
        }
        assert_eq!("6.4.3-5.2.3".parse::<Releases>(), Err(NotARelease));
        let range: Releases = "5.2.3-5.7.1".parse().unwrap();
        let inside = |text: &str| range.contains(text.parse().unwrap());
        assert!(inside("5.2.3") && inside("5.7.1") && !inside("5.7.2") && !inside("5.2.2"));
    }
}
