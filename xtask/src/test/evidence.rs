//! What the machine did while a test ran: whether a failure may be one of want of processor time.

use std::fmt;
use std::fs;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::progress::Seconds;

/// How often the ticker wakes up.
const TICK: Duration = Duration::from_millis(2);

/// Longest time that the ticker had to wait for its turn, ns, since it was last asked.
static LONGEST_GAP: AtomicU64 = AtomicU64::new(0);

/// What happened between the start and the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Time by the clock.
    pub(crate) wall: Duration,
    /// Processor time of the test and of the children that it waited for.
    pub(crate) cpu: Duration,
    /// Time that a hypervisor took from this machine's processors, all of them together.
    pub(crate) steal: Duration,
    /// Time in which some task waited for a processor; none where the kernel does not say.
    pub(crate) pressure: Option<Duration>,
    /// Longest time that a thread of the highest ordinary kind waited for its turn.
    pub(crate) gap: Duration,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} by the clock, {} of a processor",
            Seconds(self.wall),
            Seconds(self.cpu)
        )?;
        write!(f, ", {} stolen", Seconds(self.steal))?;
        if let Some(pressure) = self.pressure {
            write!(f, ", tasks waited for {}", Seconds(pressure))?;
        }
        write!(f, ", longest gap {} ms", self.gap.as_millis())
    }
}

/// A measurement under way.
pub(crate) struct Watch {
    begin: Instant,
    steal: Duration,
    pressure: Option<Duration>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        static TICKER: Once = Once::new();
        TICKER.call_once(|| drop(thread::Builder::new().name("ticker".into()).spawn(tick)));
        LONGEST_GAP.store(0, Ordering::Relaxed);
        Self {
            begin: Instant::now(),
            steal: stolen(),
            pressure: pressure(),
        }
    }

    /// Ends it. The process `pid` has ended, and nobody has waited for it yet.
    pub(crate) fn finish(self, pid: Pid) -> Evidence {
        Evidence {
            wall: self.begin.elapsed(),
            cpu: processor_time(pid),
            steal: stolen().saturating_sub(self.steal),
            pressure: pressure()
                .zip(self.pressure)
                .map(|(now, before)| now.saturating_sub(before)),
            gap: Duration::from_nanos(LONGEST_GAP.load(Ordering::Relaxed)),
        }
    }
}

/// Wakes up again and again, and keeps by how much it was late.
fn tick() {
    loop {
        let due = Instant::now() + TICK;
        thread::sleep(TICK);
        let late = Instant::now().saturating_duration_since(due);
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        LONGEST_GAP.fetch_max(late, Ordering::Relaxed);
    }
}

/// Clock ticks of `/proc`, which Linux shows as 100 a second on every machine.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

/// Time stolen since the machine was started.
fn stolen() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // proc(5): user, nice, system, idle, iowait, irq, softirq, steal.
    let field = stat
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(8));
    ticks(
        field
            .and_then(|field| field.parse().ok())
            .unwrap_or_default(),
    )
}

/// Time in which some task waited for a processor, since the machine was started.
fn pressure() -> Option<Duration> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = some.rsplit_once("total=")?;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// Processor time of a process, and of its children that were waited for.
fn processor_time(pid: Pid) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    // proc(5): fields 14 to 17. The second one, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(4);
    ticks(times.filter_map(|time| time.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_busy_process_has_used_a_processor() {
        let watch = Watch::start();
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        // Its state, by which one sees that it has ended, is in the same file.
        let pid = Pid::from_child(&child);
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
            thread::sleep(TICK);
        }
        let evidence = watch.finish(pid);
        child.wait().unwrap();
        assert!(evidence.cpu > Duration::ZERO, "{evidence}");
        assert!(evidence.wall >= evidence.cpu / 2, "{evidence}");
    }
}
