//! Recordings of real runtimes on a software GPU, with the truth: see `recordings/README.md`.
//!
//! What comes out depends on no clock and no processor, so it is compared to the last figure.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that goes wrong shall panic"
)]

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs,
    io::Read as _,
    path::PathBuf,
};

use gputrace_tomography::{Look, Packet, Task, Told, Tomograph};

/// Standard errors within which the truth lies in 95 % of cases.
const NEAR: f64 = 2.0;

/// The share of the GPU's time that heavy classes make up.
const HEAVY: f64 = 0.95;

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("recordings")
        .join(name)
}

/// By class: number of dispatches, and the sum of their durations, ns.
type Truth = BTreeMap<u32, (f64, f64)>;

/// Where a queue's numbers count from: packet index, submission, read index.
#[derive(Default)]
struct Place {
    index: u64,
    submitted: u64,
    read: u64,
}

/// The estimates from a recording, and the truth.
fn replayed(name: &str) -> (Tomograph, Truth) {
    let packed = fs::File::open(place(&format!("{name}.zst"))).unwrap();
    let mut text = String::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    decoder.read_to_string(&mut text).unwrap();
    let (mut tomograph, mut truth) = (Tomograph::new(), Truth::new());
    let (mut start, mut now) = (0, 0);
    let mut places: HashMap<u32, Place> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| fields[at].parse::<i64>().unwrap();
        if fields[0] == "S" {
            start = number(1) as u64;
            now = start;
            continue;
        }
        let queue = number(1) as u32;
        if fields[0] == "T" {
            truth.insert(queue, (number(2) as f64, number(3) as f64));
            continue;
        }
        let place = places.entry(queue).or_default();
        if fields[0] == "P" {
            place.index = place.index.strict_add_signed(number(2));
            place.submitted = place.submitted.strict_add_signed(number(3));
            let packet = Packet {
                index: place.index,
                submitted: place.submitted,
                task: fields[4].parse().map_or(Task::Nothing, Task::Class),
                waits: fields[5] == "1",
                exact: None,
                ended_by: (fields[6] != "-").then(|| place.submitted.strict_add_signed(number(6))),
            };
            tomograph.packet(queue, &packet);
            continue;
        }
        now = now.strict_add_signed(number(2));
        place.read = place.read.strict_add_signed(number(3));
        let write_index = place.read.strict_add_signed(number(4));
        if fields[0] == "D" {
            tomograph.doorbell(queue, now, place.read, write_index);
            continue;
        }
        let look = Look {
            time: now,
            read_index: place.read,
            write_index,
            before: if fields[5] == "-" {
                0
            } else {
                now - number(5) as u64
            },
        };
        tomograph.look(queue, &look);
    }
    tomograph.finish();
    assert!(start > 0, "{name}");
    (tomograph, truth)
}

/// What a recording's estimates are worth.
#[derive(Default)]
struct Score {
    text: String,
    /// The share of the GPU's time whose classes have an estimate.
    share: f64,
    /// Relative errors of heavy classes with an estimate, smallest first.
    errors: Vec<f64>,
    told: usize,
    covered: usize,
}

fn score(name: &str) -> Score {
    let (tomograph, truth) = replayed(name);
    let total: f64 = truth.values().map(|(_, sum)| sum).sum();
    let mut classes: Vec<_> = truth.into_iter().collect();
    classes.sort_by(|one, other| other.1.1.total_cmp(&one.1.1));
    let mut score = Score::default();
    writeln!(score.text, "{name}").unwrap();
    let mut reached = 0.0;
    for (class, (count, sum)) in classes {
        let (truth, is_heavy) = (sum / count, reached < HEAVY * total);
        reached += sum;
        write!(score.text, "  {truth:9.0} ns x {count:5}: ").unwrap();
        let told = tomograph.told(class);
        let Told::Apart(mean) = told else {
            writeln!(score.text, "{told:?}").unwrap();
            continue;
        };
        let off = mean.value - truth;
        let (percent, errors) = (100.0 * off / truth, off / mean.error);
        writeln!(
            score.text,
            "{:.0} +- {:.0} ns, {percent:+.1} %, {errors:+.1} errors",
            mean.value, mean.error
        )
        .unwrap();
        score.share += sum / total;
        score.told += 1;
        score.covered += usize::from(off.abs() <= NEAR * mean.error);
        if is_heavy {
            score.errors.push(off.abs() / truth);
        }
    }
    score.errors.sort_by(f64::total_cmp);
    score
}

#[test]
fn recordings_lead_to_the_same_estimates_and_these_are_right() {
    let (mut text, mut told, mut covered) = (String::new(), 0, 0);
    for (name, share) in [
        ("random3", 0.95),
        ("random20", 0.92),
        ("streams4", 0.91),
        ("sparse3", 0.0),
    ] {
        let score = score(name);
        assert!(
            score.share >= share,
            "{name}: {}\n{}",
            score.share,
            score.text
        );
        let median = score.errors.get(score.errors.len() / 2);
        assert!(
            median.is_none_or(|median| *median <= 0.03),
            "{}",
            score.text
        );
        assert!(
            score.errors.last().is_none_or(|worst| *worst <= 0.15),
            "{}",
            score.text
        );
        told += score.told;
        covered += score.covered;
        text += &score.text;
    }
    assert!(
        covered * 10 >= told * 9,
        "{covered} of {told} within two errors\n{text}"
    );
    let expected = place("expected.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&expected, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&expected).unwrap());
}
