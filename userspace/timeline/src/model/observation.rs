//! Actions of the kernel on a thread, a process or a GPU: events without a function and a caller.

use std::{borrow::Cow, fmt};

use gputrace_abi::{
    domain::Domain,
    sched::{OffCpu, STATE_WAITING},
};

/// Something that the kernel did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Number of its [`Domain`].
    pub domain: u8,
    /// What it is, e.g. `sleeping`.
    pub name: Cow<'static, str>,
    /// The thread, process or GPU that it concerns.
    pub whose: Whose,
    /// ns, `CLOCK_BOOTTIME`.
    pub begin: u64,
    /// ns, `CLOCK_BOOTTIME`; equal to `begin` for a moment. For an observation that is not over,
    /// the time up to which it is known to have lasted.
    pub end: u64,
    /// Whether it was not over when the recording stopped.
    pub is_open: bool,
    /// Further data.
    pub fields: Vec<ObservedField>,
}

impl Observation {
    /// The value of the field called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FieldValue> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        Some(&field.value)
    }

    /// Duration in ns.
    #[must_use]
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// A field of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedField {
    /// Name.
    pub name: Cow<'static, str>,
    /// Value.
    pub value: FieldValue,
}

impl ObservedField {
    /// A field of this name and value.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, value: FieldValue) -> Self {
        Self {
            name: name.into(),
            value,
        }
    }
}

/// Value of a field. `Display` gives the human-readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// An address or bits.
    Hex(u64),
    /// Text.
    Text(Cow<'static, str>),
    /// The field lies beyond the bytes that were copied.
    Missing,
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Text(text) => f.write_str(text),
            Self::Missing => f.write_str("(not recorded)"),
        }
    }
}

/// The thread, process or GPU that an observation concerns. Unknown numbers are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// Process id, initial pid namespace.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// KFD's id of a GPU.
    pub gpu_id: u32,
}

/// Name of the periods in which a thread was runnable but had no CPU.
pub const RUNNABLE: &str = "waiting for a CPU";

/// The observations of one record: a thread that slept, and then waited for a CPU.
pub(crate) fn off_cpu(off: &OffCpu) -> Vec<Observation> {
    let is_open = off.header.is_unfinished();
    let end = off.end.max(off.begin);
    let whose = Whose {
        pid: off.pid,
        tid: off.tid,
        gpu_id: 0,
    };
    let stretch = |name: &'static str, begin, end, is_open, fields| Observation {
        domain: Domain::Sched.id(),
        name: name.into(),
        whose,
        begin,
        end,
        is_open,
        fields,
    };
    let woken = (off.woken != 0).then(|| off.woken.clamp(off.begin, end));
    let mut stretches = Vec::new();
    if woken != Some(off.begin) || off.state & STATE_WAITING != 0 {
        let waker = (off.waker != 0).then(|| ObservedField {
            name: "waker".into(),
            value: FieldValue::Number(off.waker.into()),
        });
        let name = sleep(off.state);
        let over = woken.unwrap_or(end);
        stretches.push(stretch(
            name,
            off.begin,
            over,
            is_open && woken.is_none(),
            waker.into_iter().collect(),
        ));
    }
    if let Some(woken) = woken {
        stretches.push(stretch(RUNNABLE, woken, end, is_open, Vec::new()));
    }
    stretches
}

/// What a thread in this state does; states are `TASK_…` of `linux/sched.h`.
fn sleep(state: u32) -> &'static str {
    match state & STATE_WAITING {
        1 => "sleeping",
        2 => "sleeping uninterruptibly",
        4 => "stopped",
        8 => "stopped by a debugger",
        0 => "off the CPU",
        _ => "waiting",
    }
}

#[cfg(test)]
mod tests {
    use gputrace_abi::record::kind;
    use zerocopy::FromZeros as _;

    use super::*;

    fn off(state: u32, woken: u64) -> OffCpu {
        let mut off = OffCpu::new_zeroed();
        off.header.kind = kind::OFF_CPU;
        (off.begin, off.woken, off.end) = (100, woken, 200);
        (off.pid, off.tid, off.state) = (5, 6, state);
        off
    }

    fn shown(off: &OffCpu) -> Vec<(String, u64, u64, bool)> {
        off_cpu(off)
            .into_iter()
            .map(|one| (one.name.into_owned(), one.begin, one.end, one.is_open))
            .collect()
    }

    #[test]
    fn sleep_and_waiting_for_a_processor_are_told_apart() {
        assert_eq!(
            shown(&off(1, 150)),
            [
                ("sleeping".to_owned(), 100, 150, false),
                (RUNNABLE.to_owned(), 150, 200, false)
            ]
        );
        // Preempted: it was runnable all the time.
        assert_eq!(
            shown(&off(0, 100)),
            [(RUNNABLE.to_owned(), 100, 200, false)]
        );
        assert_eq!(
            shown(&off(0x100, 100)),
            [(RUNNABLE.to_owned(), 100, 200, false)]
        );
        // No wake-up was recorded.
        assert_eq!(
            shown(&off(2, 0)),
            [("sleeping uninterruptibly".to_owned(), 100, 200, false)]
        );
    }

    #[test]
    fn what_is_not_over_says_so() {
        let mut open = off(1, 0);
        open.header.kind = kind::OFF_CPU_OPEN;
        assert_eq!(shown(&open), [("sleeping".to_owned(), 100, 200, true)]);
        open.woken = 130;
        assert_eq!(
            shown(&open),
            [
                ("sleeping".to_owned(), 100, 130, false),
                (RUNNABLE.to_owned(), 130, 200, true)
            ]
        );
        // Clocks of different CPUs may differ by some ns.
        open.woken = 90;
        assert_eq!(shown(&open)[0], ("sleeping".to_owned(), 100, 100, false));
    }
}
