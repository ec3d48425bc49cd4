//! Names that stand for endless work: each is done with soon, in the memory and on the stack that
//! any thread has.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![allow(missing_docs, reason = "a test")]

use std::fmt::Write as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gputrace_demangle::demangle;

/// How long all names of a test may take. Demanglers that go back need years for some of them.
const DEADLINE: Duration = Duration::from_secs(120);

/// The least stack that threads of gputrace have.
const STACK: usize = 2 << 20;

/// Demangles all names, on a thread of its own; those that are demangled.
fn within_bounds(names: Vec<String>) -> Vec<String> {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::Builder::new().stack_size(STACK).spawn(move || {
        let demangled: Vec<String> = names.iter().filter_map(|name| demangle(name)).collect();
        sender.send(demangled).expect("the test waits");
    });
    worker.expect("a thread");
    let demangled = receiver.recv_timeout(DEADLINE);
    let demangled = demangled.expect("all names in time, without a panic");
    for name in &demangled {
        assert!(name.len() <= 1 << 18, "{} bytes", name.len());
    }
    demangled
}

/// The codes that begin something, each of which can be repeated.
const CODES: &[&str] = &[
    "1pIL",
    "1pI",
    "1fI1pI",
    "N1a",
    "Z1f",
    "P",
    "R",
    "O",
    "K",
    "F",
    "Fv",
    "A_",
    "A1_",
    "M",
    "M1a",
    "DT",
    "Dt",
    "Dp",
    "DO",
    "Dw",
    "Do",
    "Dv",
    "Dk1a",
    "DB",
    "S_",
    "S0_",
    "T_",
    "T0_",
    "TL0__",
    "X",
    "L_Z",
    "LZ",
    "Li",
    "sr",
    "srN",
    "srNT_",
    "sr1aI",
    "cl",
    "cp",
    "cv",
    "cvT_",
    "cv_",
    "il",
    "tl",
    "tl1a",
    "Ul",
    "UlTy",
    "Ut",
    "Tn",
    "Tt",
    "Tk",
    "Tk1a",
    "Tp",
    "Ty",
    "qu",
    "fp",
    "fLpl",
    "fl",
    "flpl",
    "nw",
    "nw_",
    "na_1a",
    "rq",
    "rQ",
    "rqX",
    "J",
    "I",
    "E",
    "Q",
    "u1a",
    "u1aI",
    "U1a",
    "U1aI",
    "so",
    "mc",
    "di1a",
    "dx",
    "dX",
    "sZ",
    "sP",
    "sp",
    "st",
    "pl",
    "gs",
    "B1a",
    "C1",
    "CI1",
    "D1",
    "DC",
    "St",
    "Sa",
    "Ss",
    "TV",
    "TC",
    "Tc",
    "Th",
    "GR",
    "GV",
    "GTt",
    "v",
    "i",
    "_",
    "0_",
    "IT_E",
    "1a",
    "dn",
    "on",
    "onplI",
    "ON",
    "H",
    "L",
    "Ts",
    "Ua9enable_ifI",
    "JDpT_E",
    "IDpT_E",
];

/// Ways to begin a name.
const BEGINNINGS: &[&str] = &[
    "_Z",
    "_Z1f",
    "_Z1fI",
    "_Z1fIiEv",
    "_Z1fIJEEv",
    "_ZN1a",
    "_ZZ1fIiEvvE",
];

#[test]
fn nesting_of_each_kind() {
    let mut names = Vec::new();
    for code in CODES {
        for beginning in BEGINNINGS {
            for count in [25, 400, 5_000] {
                let nested = format!("{beginning}{}", code.repeat(count));
                names.push(format!("{nested}i{}v", "E".repeat(count)));
                names.push(nested);
            }
        }
    }
    within_bounds(names);
}

#[test]
fn nesting_of_each_two_kinds() {
    let mut names = Vec::new();
    for first in CODES {
        for second in CODES {
            let nested = format!("_Z1fI{}", format!("{first}{second}").repeat(40));
            names.push(format!("{nested}i{}v", "E".repeat(80)));
            names.push(nested);
        }
    }
    within_bounds(names);
}

/// What a fuzzer found: the time of a demangler that goes back triples with each `1pIL`.
#[test]
fn found_by_fuzzing() {
    let names = vec![
        format!("_Z{}", "1pIL".repeat(22)),
        format!("_Z1fI{}", "1pIL".repeat(22)),
        format!("_Z1fI{}", "1pI".repeat(40)),
        format!("_Z1fIX{}", "cl1pIX".repeat(40)),
    ];
    assert_eq!(within_bounds(names), [""; 0]);
}

/// Each type has the one before it twice, so that what they stand for doubles.
#[test]
fn names_that_double() {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let doubling = |types: &str, last: usize| {
        let mut types = types.to_owned();
        for digit in &DIGITS[last..] {
            let earlier = char::from(*digit);
            write!(types, "FvS{earlier}_S{earlier}_E").unwrap();
        }
        types
    };
    let demangled = within_bounds(vec![
        format!("_Z1f{}", doubling("FviiEFvS_S_E", 0)),
        format!("_Z1fIJEEv{}", doubling("FvT_T_E", 1)),
        // Nothing is printed for any of these.
        format!("_Z1fIJEEv{}", "DpT_".repeat(5_000)),
    ]);
    assert_eq!(demangled, ["void f<>()"]);
}

/// What a conversion converts to may be named by its own template argument, and so by itself.
#[test]
fn names_that_contain_themselves() {
    within_bounds(vec![
        "_ZN1acvT_IS1_EEv".to_owned(),
        "_ZN1acvT_IS0_EEv".to_owned(),
        "_ZN1acvPT_IS1_EEv".to_owned(),
        "_ZN1acvT_IPS0_EEv".to_owned(),
        "_ZN1acvRT_IS0_EEv".to_owned(),
        "_ZN1acvDpT_IJS0_EEEv".to_owned(),
    ]);
}

/// Real names nest deeply, too: this is what chained operators of an expression library make.
#[test]
fn deep_but_real() {
    let depth = 100;
    let name = format!("_Z1fI{}i{}Evv", "3AddI".repeat(depth), "E".repeat(depth));
    let demangled = within_bounds(vec![name]);
    let closing = "> ".repeat(depth);
    assert_eq!(
        demangled,
        [format!("void f<{}int{closing}>()", "Add<".repeat(depth))]
    );
}
