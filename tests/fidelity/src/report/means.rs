//! The table of estimated means and GPU use.

use std::fmt::Write as _;

use crate::{
    figures::Figures,
    means::{Class, MOST, Means, Use},
};

/// The section's heading.
pub(super) const TITLE: &str = "## Error of mean duration by class\n";

/// What is before the table's rows.
pub(super) fn heading(out: &mut String, runs: u64, releases: &[&str]) -> std::fmt::Result {
    writeln!(out, "{TITLE}")?;
    writeln!(
        out,
        "Made by `cargo xtask fidelity --means --write`: {runs} runs on {}, on ROCm {}. gputrace \
         attaches for about 5 s to programs that run many classes of kernels. \
         [Estimated durations](estimates.md) explains the method.\n",
        super::kernel(),
        releases.join(", ")
    )?;
    writeln!(
        out,
        "* **Looks**: how often gputrace looked at the queues, per second. Its CPU budget bounds this.\n\
         * **Told**: how many classes got a mean, of those that make {:.0} % of the GPU's time. A \
         class gets a mean only if its standard error is at most a tenth of it.\n\
         * **Error**: how far these means are from the truth: median and worst.\n\
         * **Time within 5 / 10 %**: the share of the GPU's time that belongs to classes whose mean \
         is at most so far from the truth. A class without a mean counts as farther.\n\
         * **Covered**: means within two of their standard errors of the truth, of all means.\n\
         * **Rank**: Spearman's correlation of the totals of the classes with a mean; the least of \
         all runs.\n\
         * **GPU use off**: how far the stated GPU use is from the truth, in percentage points: \
         average and worst of the runs that state one. The others state only a range.\n\
         * **Outside**: runs in which the truth lay outside the stated range of GPU use.\n\
         * **Truth**: dispatches during which the kernel paused the software GPU for 50 ms are left \
         out of means.\n\
         * **Flaws**: what was wrong, by the rules above; means that are more than 10 % and five \
         standard errors off are among them.\n",
        MOST * 100.0
    )?;
    writeln!(
        out,
        "| program | read index | runs | looks | told | error p50 / worst | time within 5 / 10 % | covered | rank, least \
         | GPU use off | outside | flaws |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
}

/// A row of the table.
pub(super) fn row(out: &mut String, name: &str, sum: &Figures) -> std::fmt::Result {
    let means = &sum.means;
    let heavy: Vec<_> = means.iter().flat_map(Means::heavy).collect();
    let mut errors: Vec<f64> = heavy.iter().filter_map(Class::error).collect();
    errors.sort_by(f64::total_cmp);
    let errors = match (errors.get(errors.len() / 2), errors.last()) {
        (Some(half), Some(worst)) => format!("{:.1} / {:.1} %", half * 100.0, worst * 100.0),
        _ => "-".to_owned(),
    };
    let average = |value: &dyn Fn(&Means) -> f64| {
        100.0 * means.iter().map(value).sum::<f64>() / means.len().max(1) as f64
    };
    let (covered, all) = means
        .iter()
        .map(Means::covered)
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let covered = match all {
        0 => "-".to_owned(),
        _ => format!("{:.0} % of {all}", 100.0 * covered as f64 / all as f64),
    };
    let rank = means.iter().filter_map(Means::rank).min_by(f64::total_cmp);
    let used: Vec<Use> = means.iter().filter_map(|means| means.used).collect();
    let off: Vec<f64> = used.iter().filter_map(Use::error).collect();
    let average_off = off.iter().sum::<f64>() / off.len().max(1) as f64;
    let off = match off.iter().copied().max_by(f64::total_cmp) {
        Some(most) => format!("{average_off:.2}, {most:.2}"),
        None => "not told".to_owned(),
    };
    writeln!(
        out,
        "| {name} | {} | {:.0} | {} of {} | {errors} | {:.0} / {:.0} % | {covered} | {} | {off} | {} of {} | {} |",
        sum.runs,
        means.iter().map(|means| means.looks).sum::<f64>() / means.len().max(1) as f64,
        heavy.iter().filter(|class| class.told.is_some()).count(),
        heavy.len(),
        average(&|means| means.within(0.05)),
        average(&|means| means.within(0.1)),
        rank.map_or_else(|| "-".to_owned(), |rank| format!("{rank:.3}")),
        used.iter().filter(|used| !used.is_in_range()).count(),
        used.len(),
        sum.flaws.values().map(|found| found.count).sum::<u64>()
    )
}
