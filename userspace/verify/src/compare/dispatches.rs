//! Checks number, names and order of dispatches.

use std::collections::HashMap;

use super::{ISSUE, evidence::Evidence};
use crate::{
    log::{Part, Said},
    record::Mode,
    report::{Row, Status},
};

pub(super) fn rows(evidence: &Evidence<'_>) -> Vec<Row> {
    let mut rows = vec![count(evidence), names(evidence), order(evidence)];
    rows.extend((evidence.mode == Mode::Node).then(|| first_calls(evidence)));
    rows
}

/// Checks whether a recorder of the whole node sees the first calls of a program that nobody has
/// told it about.
fn first_calls(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "first dispatches";
    let before = |part| part == Part::Before;
    let is_first = |said: &&Said| matches!(said, Said::Dispatch(one) if before(one.part));
    let all = evidence.said.iter().filter(is_first).count();
    let seen = evidence
        .matched
        .iter()
        .filter(|one| before(one.said.part))
        .count();
    let found =
        format!("{seen} of the {all} that came as soon as the runtime was loaded are recorded");
    let row = match seen {
        0 if all == 0 => Row::new(
            NAME,
            Status::Warning,
            "there were none",
            "gputrace could not check them",
        ),
        _ if seen == all => Row::new(
            NAME,
            Status::Ok,
            found,
            "a new program on the node is recorded from its first dispatch",
        ),
        _ => Row::new(
            NAME,
            Status::Warning,
            found,
            "a new program on the node is followed only some time after it has loaded the runtime",
        )
        .next(
            "if the beginning of a program matters, launch it with gputrace: gputrace -- PROGRAM",
        ),
    };
    row.figure("first", all as f64)
        .figure("recorded", seen as f64)
}

fn count(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "dispatches";
    let Evidence {
        required,
        missing,
        twice,
        invented,
        ..
    } = *evidence;
    let found = required - missing;
    let row = if missing + twice + invented == 0 && required > 0 {
        Row::new(
            NAME,
            Status::Ok,
            format!("{found} of {required} recorded, each once"),
            "every packet is seen",
        )
    } else {
        Row::new(
            NAME,
            Status::Wrong,
            format!(
                "{found} of {required} recorded, {twice} twice, {invented} that the program did \
                 not do"
            ),
            "packets are missed or misread",
        )
        .next(ISSUE)
    };
    row.figure("required", required as f64)
        .figure("missing", missing as f64)
        .figure("twice", twice as f64)
        .figure("invented", invented as f64)
}

fn names(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "names and sizes";
    let (mut nameless, mut wrong) = (0_usize, 0_usize);
    for one in &evidence.matched {
        let kernel = one
            .recorded
            .kernel
            .and_then(|id| evidence.recording.kernels.get(&id));
        let name = kernel.map(|kernel| kernel.kernel.name.as_str());
        nameless += usize::from(name.is_none());
        let same = name.is_none_or(|name| name == one.said.kernel.name())
            && one.recorded.grid == one.said.grid
            && one.recorded.workgroup == one.said.workgroup.map(u32::from);
        wrong += usize::from(!same);
    }
    let all = evidence.matched.len();
    let row = match (nameless, wrong) {
        (0, 0) => Row::new(
            NAME,
            Status::Ok,
            format!("kernel, grid and workgroup of {all} are right"),
            "packets and code objects are understood",
        ),
        _ => Row::new(
            NAME,
            Status::Wrong,
            format!("of {all}, {nameless} have no name and {wrong} another name or size"),
            "code objects or packets are misread",
        )
        .next(ISSUE),
    };
    row.figure("nameless", nameless as f64)
        .figure("wrong", wrong as f64)
}

/// Packets of a queue wait for those before them, so they begin in order of their indices.
fn order(evidence: &Evidence<'_>) -> Row {
    const NAME: &str = "order";
    let mut queues: HashMap<u64, Vec<(u64, u64, bool)>> = HashMap::new();
    // The begin of a dispatch with only bounds is the earliest possible one.
    for one in evidence
        .matched
        .iter()
        .filter(|one| one.recorded.time.quality.is_placed())
    {
        let time = one.recorded.time;
        let place = (one.recorded.index, time.begin, time.estimate.is_some());
        queues.entry(one.said.queue).or_default().push(place);
    }
    // Estimates are placed one by one, using means: an overlap of two of them says nothing about
    // the GPU.
    let (mut wrong, mut estimates) = (0_usize, 0_usize);
    for queue in queues.values_mut() {
        queue.sort_unstable();
        let pairs = queue.iter().zip(queue.iter().skip(1));
        for (one, next) in pairs.filter(|(one, next)| next.1 < one.1) {
            *(if one.2 || next.2 {
                &mut estimates
            } else {
                &mut wrong
            }) += 1;
        }
    }
    match wrong {
        0 => Row::new(
            NAME,
            Status::Ok,
            match estimates {
                0 => "dispatches of a queue begin one after the other".to_owned(),
                _ => format!(
                    "dispatches of a queue begin one after the other, except {estimates} estimated \
                     starts"
                ),
            },
            "times agree with the queues' order",
        ),
        _ => Row::new(
            NAME,
            Status::Wrong,
            format!("{wrong} dispatches begin before the one that they wait for"),
            "stamps are another dispatch's, or queues do not keep their order",
        )
        .next(ISSUE),
    }
    .figure("wrong", wrong as f64)
    .figure("estimates", estimates as f64)
}
