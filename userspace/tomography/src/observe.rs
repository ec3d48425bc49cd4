//! What a look at a read index says about when packets began.
//!
//! If a queue reports its read index in steps of *q* and shows *R* at time *t*, packet *R* - 1 has
//! begun and packet *R* + *q* - 1 has not: *t* lies in the *cell* of *R*. If *R* was first seen at
//! *t1* and last seen at *t2*, then *b*(*R* - 1) is before *t1*. *b*(*R* + *q* - 1), which is later
//! by the duration of these *q* packets, is after *t2*.
//!
//! Which cells the looks hit also depends on the unknowns, because long cells are hit more often.
//! An estimate that takes the middle of the cell as the place of the look pulls all means towards
//! each other, because the error of the middle depends on which cell is hit. Therefore the chance
//! of the two bounds is used ([`crate::interval`]).

use crate::chain::Row;

/// The total duration of some packets: their columns with factors, and the sum in us if it is
/// known.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) row: Row,
    pub(crate) mean: Option<f64>,
    /// The variance of the sum, us².
    pub(crate) variance: f64,
}

impl Sum {
    /// The sum of no packets.
    pub(crate) fn nothing() -> Self {
        Self {
            mean: Some(0.0),
            ..Self::default()
        }
    }
}

/// Bounds for the begin of a packet, us.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// The packet began at or before this time.
    pub(crate) until: f64,
    /// The begin plus the duration of `cell` is at or after this time.
    pub(crate) from: f64,
    pub(crate) cell: Sum,
    /// The approximate distance between the bounds, us, if the cell's duration is unknown.
    pub(crate) about: f64,
}

/// Minimum uncertainty of anything, us: clocks have limits.
const LEAST: f64 = 0.2;

/// Longer times provide no information, us.
pub(crate) const LONGEST: f64 = 50_000.0;

impl Bounds {
    /// Bounds for the begin itself.
    pub(crate) fn between(from: Option<f64>, until: f64) -> Self {
        Self {
            until,
            from: from.unwrap_or(f64::NEG_INFINITY),
            cell: Sum::nothing(),
            about: f64::INFINITY,
        }
    }

    /// The packet began at or after this time.
    pub(crate) fn after(from: f64) -> Self {
        Self {
            from,
            ..Self::between(None, f64::INFINITY)
        }
    }

    /// The distance between the bounds, us; infinite if there is only one.
    pub(crate) fn width(&self) -> f64 {
        let width = match self.cell.mean {
            // An estimate may be too short for what was observed.
            Some(mean) => (mean + self.until - self.from)
                .max(0.1 * mean)
                .max(0.1 * (self.until - self.from).abs()),
            None => self.about,
        };
        width.hypot(LEAST)
    }
}

/// Normally distributed with mean `value`: the phase plus half of the cell's duration, us.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) value: f64,
    pub(crate) extra: Row,
    pub(crate) variance: f64,
}

impl Point {
    /// The middle between bounds; `None` if they are too far apart to say anything.
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

    /// An observation of the begin itself.
    pub(crate) fn exact(value: f64, uncertainty: f64) -> Self {
        Self {
            value,
            extra: Row::default(),
            variance: uncertainty * uncertainty + LEAST * LEAST,
        }
    }
}
