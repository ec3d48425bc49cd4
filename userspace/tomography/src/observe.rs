//! What a look at a read index says of when packets began.
//!
//! A queue that reports its read index in steps of *q* and shows *R* at a time *t* has begun packet *R* - 1 and not packet *R* +
//! *q* - 1: *t* lies in the *cell* of *R*. If *R* was seen first at *t1* and last at *t2*, then *b*(*R* - 1) lies before *t1*, and
//! *b*(*R* + *q* - 1), which is later by what these *q* packets take, behind *t2*.
//!
//! Which cells the looks meet depends on the unknowns, too: long ones are met more often. An estimate that only takes
//! the middle of the cell for the place of the look draws all means to each other, because the cell that is met
//! and the error of the middle are not independent. So it is the chance of the two bounds that counts ([`crate::interval`]).

use crate::chain::Row;

/// What packets take together: their columns with factors, and how much that is, us, if it is known.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) row: Row,
    pub(crate) mean: Option<f64>,
    /// By how much single sums differ, us².
    pub(crate) variance: f64,
}

impl Sum {
    /// Of no packets.
    pub(crate) fn nothing() -> Self {
        Self {
            mean: Some(0.0),
            ..Self::default()
        }
    }
}

/// Bounds of when a packet began, us.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// It began at or before this.
    pub(crate) until: f64,
    /// It, and what `cell` takes, ended at or after this.
    pub(crate) from: f64,
    pub(crate) cell: Sum,
    /// How far the bounds are apart about, us, if what the cell takes is not known.
    pub(crate) about: f64,
}

/// Nothing is known better, us: clocks have their limits.
const LEAST: f64 = 0.2;

/// The longest time that says anything, us.
pub(crate) const LONGEST: f64 = 50_000.0;

impl Bounds {
    /// Of the begin itself.
    pub(crate) fn between(from: Option<f64>, until: f64) -> Self {
        Self {
            until,
            from: from.unwrap_or(f64::NEG_INFINITY),
            cell: Sum::nothing(),
            about: f64::INFINITY,
        }
    }

    /// It began at or after this.
    pub(crate) fn after(from: f64) -> Self {
        Self {
            from,
            ..Self::between(None, f64::INFINITY)
        }
    }

    /// How far the bounds are apart, us; infinite if there is only one.
    pub(crate) fn width(&self) -> f64 {
        let width = match self.cell.mean {
            // An estimate may be too short for what was seen.
            Some(mean) => (mean + self.until - self.from)
                .max(0.1 * mean)
                .max(0.1 * (self.until - self.from).abs()),
            None => self.about,
        };
        width.hypot(LEAST)
    }
}

/// The phase plus half of what a cell takes is `value`, normally distributed; us.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) value: f64,
    pub(crate) extra: Row,
    pub(crate) variance: f64,
}

impl Point {
    /// The middle between bounds; `None` if they are so far apart that it says nothing.
    pub(crate) fn middle(bounds: &Bounds) -> Option<Self> {
        let width = bounds.width();
        if width > LONGEST {
            return None;
        }
        let mut extra = Row::default();
        for (column, factor) in bounds.cell.row.iter() {
            extra.add(column, factor / 2.0);
        }
        Some(Self {
            value: (bounds.until + bounds.from) / 2.0,
            extra,
            variance: width * width / 12.0,
        })
    }

    /// The begin itself.
    pub(crate) fn exact(value: f64, uncertainty: f64) -> Self {
        Self {
            value,
            extra: Row::default(),
            variance: uncertainty * uncertainty + LEAST * LEAST,
        }
    }
}
