//! The processes that made calls, and whose they are.

use std::fmt::{self, Write};

use gputrace_capture::identity::Identity;
use gputrace_text::{
    Page,
    tables::{
        Align::{Left, Right},
        table,
    },
};

use super::Summary;

/// Maximum number of processes listed: those with the most calls.
const LISTED_PROCESSES: usize = 20;

/// A process that made calls.
#[derive(Debug, Default)]
pub(super) struct ProcessUse {
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) identity: Identity,
}

impl ProcessUse {
    /// Its program as people know it.
    pub(super) fn title(&self) -> &str {
        if self.identity.title.is_empty() {
            &self.name
        } else {
            &self.identity.title
        }
    }
}

/// Lists the processes that made calls, and where each belongs if its name alone does not say.
pub(super) fn render(summary: &Summary, out: &mut Page<impl Write>) -> fmt::Result {
    let mut users: Vec<_> = summary
        .processes
        .iter()
        .filter(|(_, process)| process.calls > 0)
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    users.sort_by_key(|(pid, process)| (std::cmp::Reverse(process.calls), **pid));
    let mut rows = vec![["Process", "Name", "Calls"].map(str::to_owned).to_vec()];
    for (pid, process) in users.iter().take(LISTED_PROCESSES) {
        rows.push(vec![
            pid.to_string(),
            process.title().to_owned(),
            process.calls.to_string(),
        ]);
    }
    out.paragraph(format_args!("Processes"))?;
    table(out, &[Right, Left, Right], &rows)?;
    if let Some(more) = users
        .len()
        .checked_sub(LISTED_PROCESSES)
        .filter(|more| *more > 0)
    {
        out.line(format_args!("  and {more} more"))?;
    }
    for (pid, process) in users.iter().take(LISTED_PROCESSES) {
        if process.identity.has_place() {
            let labels = process.identity.labels().join(", ");
            out.line(format_args!("  process {pid}: {labels}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gputrace_capture::identity::Slurm;
    use gputrace_timeline::{
        event::{Event, ProcessInfo},
        synthetic::call,
    };

    use super::*;

    #[test]
    fn a_place_is_told_where_there_is_one() {
        let mut summary = Summary::default();
        let mut process = |pid, job: Option<u32>| {
            let mut info = ProcessInfo {
                pid,
                name: "python3.12".to_owned(),
                ..ProcessInfo::default()
            };
            info.identity.user = "alice".to_owned();
            if let Some(job) = job {
                info.identity.title = "python train.py".to_owned();
                info.identity.slurm = Some(Slurm {
                    job,
                    ..Slurm::default()
                });
            }
            summary.event(&Event::Process(Box::new(info)));
            let mut call = call(pid.into(), 1, 2);
            call.pid = pid;
            summary.event(&Event::Call(call));
        };
        process(7, Some(123));
        process(8, None);
        let mut page = Page::new(String::new());
        render(&summary, &mut page).unwrap();
        let text = page.into_inner();
        let row = |pid: &str| text.lines().find(|line| line.trim_start().starts_with(pid));
        assert!(row("7").unwrap().contains("python train.py"), "{text}");
        assert!(row("8").unwrap().contains("python3.12"), "{text}");
        let told: Vec<&str> = text.lines().filter(|line| line.contains("alice")).collect();
        assert_eq!(told, ["  process 7: job 123, user alice"]);
    }
}
