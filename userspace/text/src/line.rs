//! Lines and pages for people.

use std::fmt::{self, Write};

use crate::Escaping;

/// A line for a terminal or a log, without its line end. Everything in it is escaped, whoever wrote
/// it.
///
/// It can be made from anything that can be displayed, including error messages, which quote names
/// and paths from outside. Functions that show messages take a `Line`:
///
/// ```compile_fail
/// fn say(line: &gputrace_text::Line) {}
/// say(&format!("{} is gone", "\u{1b}[2J"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(String);

impl Line {
    /// A line made of `text`, escaped; `format_args!` combines several parts.
    pub fn new(text: impl fmt::Display) -> Self {
        let mut line = String::new();
        // Fails only if a `Display` implementation fails by itself; what it wrote before is shown.
        let _ = write!(Escaping(&mut line), "{text}");
        Self(line)
    }

    /// The escaped text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&Self> for Line {
    fn from(line: &Self) -> Self {
        line.clone()
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&String> for Line {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<fmt::Arguments<'_>> for Line {
    fn from(text: fmt::Arguments<'_>) -> Self {
        Self::new(text)
    }
}

/// Text of many lines for people, written to `W`. Only [`Page::line`] and [`Page::blank`] break
/// lines: a line break in their arguments is escaped like every character that acts.
///
/// ```
/// use gputrace_text::Page;
///
/// let mut page = Page::new(String::new());
/// page.line(format_args!("{:<4} {}", "a", "from\noutside"))?;
/// assert_eq!(page.into_inner(), "a    from\\noutside\n");
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Page<W> {
    out: W,
    columns: Option<usize>,
}

impl<W: Write> Page<W> {
    /// A page that is written to `out`.
    pub fn new(out: W) -> Self {
        Self { out, columns: None }
    }

    /// Sets the number of columns that tables should fit into; `None` if lines can have any length.
    #[must_use]
    pub fn within(self, columns: Option<usize>) -> Self {
        Self { columns, ..self }
    }

    /// The number of columns that tables should fit into, if there is a limit.
    #[must_use]
    pub const fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When the output cannot be written; a `String` always can.
    pub fn line(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        self.part(text)?;
        self.blank()
    }

    /// Adds an empty line, followed by a line.
    ///
    /// # Errors
    ///
    /// As [`Page::line`].
    pub fn paragraph(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        self.blank()?;
        self.line(text)
    }

    /// Adds a part of a line.
    ///
    /// # Errors
    /// As [`Page::line`].
    pub fn part(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        Escaping(&mut self.out).write_fmt(text)
    }

    /// Ends a line made of parts, or adds an empty line.
    ///
    /// # Errors
    ///
    /// As [`Page::line`].
    pub fn blank(&mut self) -> fmt::Result {
        self.out.write_char('\n')
    }

    /// Returns the destination of the text.
    pub fn into_inner(self) -> W {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{acts, outside};

    proptest! {
        #[test]
        fn lines_are_single_and_nothing_in_them_acts(text in any::<String>()) {
            let line = Line::new(format_args!("cannot open {text}: {}", text.len()));
            prop_assert!(!line.as_str().contains(acts));
            prop_assert_eq!(&Line::from(line.as_str()), &line);
            prop_assert_eq!(Line::from(&text).to_string(), outside(&text).terminal());
            prop_assert!(line.as_str().len() <= 4 * text.len() + 40);
        }

        #[test]
        fn pages_have_the_lines_that_they_were_given(texts in proptest::collection::vec(any::<String>(), 0..9)) {
            let mut page = Page::new(String::new());
            for text in &texts {
                page.part(format_args!("{text:>20}"))?;
                page.line(format_args!("{text}"))?;
            }
            let page = page.into_inner();
            prop_assert_eq!(page.lines().count(), texts.len());
            prop_assert!(!page.replace('\n', "").contains(acts));
        }
    }
}
