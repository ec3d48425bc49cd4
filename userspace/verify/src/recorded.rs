//! Recordings of the bundled program that are kept with what it said, made on a software GPU on a
//! busy machine. What comes out of them depends on no clock and no processor, so it is compared to
//! the last figure.
//!
//! A recording is made as `record` makes it, by the options there: the capture, and the lines that
//! `gputrace verify-work` wrote, packed by zstd. The kernels that are attached to include a stream
//! of two seconds, of whose classes means are estimated. If a change of the figures is meant,
//! `UPDATE_EXPECT=1` writes the new ones.

use std::{fmt::Write as _, fs, io::Read as _, path::PathBuf};

use gputrace_timeline::gpu::{Dispatch, Quality};

use crate::{
    capture::Recording,
    compare,
    log::Said,
    record::Mode,
    report::{Row, Status},
};

/// A recording and what the program said.
struct Kept {
    mode: Mode,
    said: Vec<Said>,
    recording: Recording,
}

fn place(name: &str) -> PathBuf {
    let checkout = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    checkout.join("recordings").join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let packed = fs::File::open(place(name)).unwrap();
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    decoder.read_to_end(&mut bytes).unwrap();
    bytes
}

impl Kept {
    fn read(mode: Mode, name: &str) -> Self {
        let said = String::from_utf8(unpacked(&format!("{name}.said.zst"))).unwrap();
        let said: Vec<Said> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let machine = said.iter().find_map(|said| match said {
            Said::Machine { pid, node, .. } => Some((*pid, *node)),
            _ => None,
        });
        let (pid, node) = machine.unwrap();
        let mut capture = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut capture, &unpacked(&format!("{name}.gtcap.zst"))).unwrap();
        let recording = Recording::read(capture.path(), pid, node).unwrap();
        Self {
            mode,
            said,
            recording,
        }
    }

    fn rows(&self) -> Vec<Row> {
        compare::rows(self.mode, &self.said, &self.recording)
    }

    fn row(&self, name: &str) -> Row {
        let mut rows = self.rows().into_iter();
        rows.find(|row| row.name == name).unwrap()
    }

    /// The dispatches for which something holds.
    fn dispatches(
        &mut self,
        is_it: impl Fn(&Dispatch) -> bool,
    ) -> impl Iterator<Item = &mut Dispatch> {
        let dispatches = self.recording.dispatches.iter_mut().map(|(_, one)| one);
        dispatches.filter(move |one| is_it(one))
    }
}

fn attached() -> Kept {
    Kept::read(Mode::Attach, "attach")
}

/// All rows with their figures.
fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{}: {:?}", row.name, row.status).unwrap();
        for (name, figure) in &row.figures {
            writeln!(text, "  {name} {figure:.1}").unwrap();
        }
    }
    text
}

#[test]
fn recordings_say_what_they_said_to_the_last_figure() {
    for (mode, name) in [(Mode::Launch, "launch"), (Mode::Attach, "attach")] {
        let rows = Kept::read(mode, name).rows();
        let wrong: Vec<_> = rows
            .iter()
            .filter(|row| row.status == Status::Wrong)
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        let (text, expected) = (text(&rows), place(&format!("{name}.expected")));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&expected, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&expected).unwrap(), "{name}");
    }
}

#[test]
fn what_is_recorded_twice_or_not_at_all_is_told() {
    let mut kept = attached();
    let one = kept.recording.dispatches.pop().unwrap();
    let row = kept.row("dispatches");
    assert_eq!((row.status, row.figures["missing"]), (Status::Wrong, 1.0));
    kept.recording.dispatches.extend([one.clone(), one]);
    let row = kept.row("dispatches");
    assert_eq!((row.status, row.figures["twice"]), (Status::Wrong, 1.0));
}

#[test]
fn a_window_that_is_violated_is_told() {
    let mut kept = attached();
    let is_sampled = |one: &Dispatch| {
        one.time.quality == Quality::Sampled && one.time.end_window.latest.is_some()
    };
    let one = kept.dispatches(is_sampled).nth(1000).unwrap();
    // It may not have begun before it ended.
    one.time.begin_window.earliest = one.time.end_window.latest.unwrap() + 1;
    let row = kept.row("windows");
    assert_eq!((row.status, row.figures["violated"]), (Status::Wrong, 1.0));
}

#[test]
fn a_stamp_that_is_another_dispatch_s_is_told() {
    let mut kept = attached();
    for one in kept
        .dispatches(|one| one.time.quality == Quality::Exact)
        .take(20)
    {
        one.time.begin += 200_000;
        one.time.end += 200_000;
    }
    assert_eq!(kept.row("exact times").status, Status::Wrong);
}

#[test]
fn a_begin_before_that_of_the_one_before_is_told() {
    let mut kept = attached();
    let is_drawn = |one: &Dispatch| one.time.quality == Quality::Exact && one.index > 100;
    kept.dispatches(is_drawn).next().unwrap().time.begin -= 10_000_000;
    assert_eq!(kept.row("order").status, Status::Wrong);
}

#[test]
fn estimates_that_are_off_by_a_tenth_are_told() {
    let off = [
        (0.9, Status::Warning),
        (1.1, Status::Warning),
        (1.4, Status::Wrong),
    ];
    for (factor, status) in off {
        let mut kept = attached();
        assert_eq!(kept.row("estimates").status, Status::Ok);
        for one in kept.dispatches(|one| one.time.estimate.is_some()) {
            let length = one.time.end - one.time.begin;
            one.time.end = one.time.begin + (length as f64 * factor) as u64;
        }
        let row = kept.row("estimates");
        assert_eq!(row.status, status, "{factor}: {row:?}");
    }
}
