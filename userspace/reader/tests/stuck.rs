//! Helper processes. This test is a separate program, because the helpers run it, too.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test, part of which is a program that says where its page is"
)]

use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The argument by which this program recognises that it is the process to be read.
const TARGET: &str = "target";

/// For how long a process that does not answer is left alone the first time; twice as long each
/// time after that.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

fn main() {
    gputrace_reader::serve_if_asked();
    // Anything else means that cargo runs its tests.
    if std::env::args().any(|argument| argument == TARGET) {
        return target();
    }
    // A runner that runs each test by itself asks which tests there are, and which are ignored.
    if std::env::args().any(|argument| argument == "--list") {
        if std::env::args().all(|argument| argument != "--ignored") {
            println!("helpers: test");
        }
        return;
    }
    own_memory_and_files();
    a_process_that_is_not_there();
    a_helper_that_stands_still();
    a_page_that_nobody_brings();
}

fn own_memory_and_files() {
    let text = b"read from outside".to_vec();
    let pid = std::process::id();
    let mut buffer = [0; 17];
    let read =
        |buffer: &mut [u8]| gputrace_reader::memory(pid, text.as_ptr().addr() as u64, buffer);
    assert_eq!(read(&mut buffer).expect("read directly"), 17);
    gputrace_reader::install();
    let mut again = [0; 17];
    assert_eq!(read(&mut again).expect("read by a helper"), 17);
    assert_eq!((&buffer[..], &again[..]), (&text[..], &text[..]));
    assert_eq!(
        gputrace_reader::memory(pid, 8, &mut again).expect("nothing"),
        0
    );

    let numbers: Vec<u64> = (0..300).collect();
    let mut places: Vec<u64> = numbers
        .iter()
        .map(|number| std::ptr::from_ref(number).addr() as u64)
        .collect();
    places.push(8);
    let read_at = gputrace_reader::places::<8>(pid, &places).expect("several at once");
    let expected = numbers
        .iter()
        .map(|number| Some(number.to_ne_bytes()))
        .chain([None]);
    assert!(read_at.into_iter().eq(expected));
    looks_at(pid);

    let large: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let mut copy = vec![0; large.len()];
    let got = gputrace_reader::memory(pid, large.as_ptr().addr() as u64, &mut copy);
    assert_eq!(got.expect("in many packets"), large.len());
    assert!(copy == large);

    let maps = gputrace_reader::file(pid, "maps", 1 << 20).expect("maps");
    assert!(String::from_utf8_lossy(&maps).contains("[stack]"));
    let begin = Instant::now();
    for _ in 0..1000 {
        read(&mut again).expect("fast");
    }
    eprintln!("a read takes {:?}", begin.elapsed() / 1000);
}

fn looks_at(pid: u32) {
    let pairs: Vec<[u64; 2]> = (0..100).map(|number| [number + 1, number]).collect();
    let place = |pair: &[u64; 2]| (pid, pair.as_ptr().addr() as u64);
    let mut run = gputrace_reader::Run {
        places: pairs.iter().map(place).collect(),
        between: 8,
        pauses: vec![0, 100_000, 100_000],
        spell: 0,
    };
    let before = gputrace_reader::helper_time();
    let looks = gputrace_reader::run(&run).expect("looks");
    assert_eq!(looks.len(), 3);
    for look in &looks {
        let seen: Vec<[u64; 2]> = look.pairs.iter().copied().flatten().collect();
        assert_eq!(seen, pairs);
    }
    assert!(looks.is_sorted_by(|one, next| one.after <= next.before && one.before <= one.after));
    assert!(
        gputrace_reader::helper_time() > before,
        "it has worked for that"
    );
    // Places that do not exist are no reason to skip the others.
    run.places.extend([(pid, 8), (1 << 30, 8)]);
    let looks = gputrace_reader::run(&run).expect("looks");
    assert!(
        looks
            .iter()
            .all(|look| look.pairs.iter().filter(|pair| pair.is_none()).count() == 2)
    );
}

fn a_process_that_is_not_there() {
    let error = gputrace_reader::may_read(1 << 30).expect_err("no such process");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Somebody stops the helper for longer than a process may take to answer.
fn a_helper_that_stands_still() {
    let me = std::process::id();
    let number = 7_u64;
    let mut bytes = [0; 8];
    let mut read =
        || gputrace_reader::memory(me, (&raw const number).addr() as u64, &mut bytes).ok();
    assert_eq!(read(), Some(8));
    let helper = child_of(me);
    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &helper.to_string()]);
        assert!(kill.status().expect("kill").success());
    };
    signal("STOP");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            signal("CONT");
        });
        assert_eq!(read(), Some(8), "it goes on");
    });
    assert!(gputrace_reader::take_stuck().is_empty(), "nobody is blamed");
    assert_eq!(gputrace_reader::take_unanswered(), 0);
    signal("STOP");
    assert_eq!(read(), None, "it does not go on");
    assert!(gputrace_reader::take_stuck().is_empty(), "nobody is blamed");
    assert_eq!(gputrace_reader::take_unanswered(), 1);
    assert_eq!(read(), Some(8), "another helper reads");
}

/// The only child of a process (proc_pid_stat(5)).
fn child_of(parent: u32) -> u32 {
    let children = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (_, fields) = stat.rsplit_once(") ")?;
            let mine = fields.split(' ').nth(1)? == parent.to_string();
            mine.then_some(pid)
        });
    let children: Vec<u32> = children.collect();
    assert_eq!(children.len(), 1, "{children:?}");
    children.first().copied().expect("a child")
}

fn a_page_that_nobody_brings() {
    let exe = std::env::current_exe().expect("this program");
    let mut target = Command::new(exe)
        .arg(TARGET)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the target");
    let mut address = String::new();
    let mut output = BufReader::new(target.stdout.take().expect("its output"));
    output.read_line(&mut address).expect("an address");
    let pid = target.id();
    match address.trim().parse() {
        Ok(address) => does_not_answer(pid, address),
        Err(_) => gputrace_skip::skipped(&format!("no userfaultfd: {address}")),
    }
    target.kill().expect("it is killed");
    target.wait().expect("it ends");
}

fn does_not_answer(pid: u32, address: u64) {
    let mut buffer = [0; 8];
    let word = [2_u64, 1];
    let run = gputrace_reader::Run {
        places: vec![
            (std::process::id(), word.as_ptr().addr() as u64),
            (pid, address),
        ],
        between: 8,
        pauses: vec![0],
        spell: 0,
    };
    let error = gputrace_reader::run(&run).expect_err("one of them does not answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(
        gputrace_reader::take_stuck().is_empty(),
        "nobody knows which"
    );
    let others_are_read = || gputrace_reader::file(std::process::id(), "stat", 4096).is_ok();
    // A helper that was asked and did not answer is gone.
    let was_asked = || gputrace_reader::helper_time().is_zero();
    let mut in_vain = || {
        let error =
            gputrace_reader::memory(pid, address, &mut buffer).expect_err("it does not answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        was_asked()
    };
    // If the machine is so busy that the pause is over before the last question, the next pause is
    // longer.
    let mut pause = FIRST_PAUSE;
    loop {
        assert!(others_are_read());
        let begin = Instant::now();
        if !in_vain() {
            // It has been skipped since the last round.
            thread::sleep(FIRST_PAUSE / 10);
            continue;
        }
        // The process is skipped now; others are read as before.
        assert!(others_are_read());
        let asked = in_vain();
        let looks = gputrace_reader::run(&run);
        if begin.elapsed() >= pause {
            pause *= 2;
            assert!(pause < FIRST_PAUSE * 64, "it is never left alone");
            continue;
        }
        assert!(!asked, "it is left alone");
        let looks = looks.expect("the other one is looked at");
        assert_eq!(
            looks.first().map(|look| look.pairs.clone()),
            Some(vec![Some([2, 1]), None])
        );
        break;
    }
    assert_eq!(gputrace_reader::take_stuck(), [pid]);
    assert!(gputrace_reader::take_stuck().is_empty());
}

/// Creates a page that is never provided, prints its address, and waits.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a sequence of plain system calls with one and the same justification"
)]
fn target() {
    /// `_IOWR(UFFDIO, _UFFDIO_API, struct uffdio_api)` and `_UFFDIO_REGISTER` of
    /// `linux/userfaultfd.h`.
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    const PAGE: usize = 4096;
    let mut api = [0xaa_u64, 0, 0];
    // SAFETY: system calls on integers, local variables and a new mapping that nothing else uses.
    let address = unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as libc::c_int;
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let page = libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0);
        let mut range = [page.addr() as u64, PAGE as u64, 1, 0];
        let failed = fd < 0
            || libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) != 0
            || libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()) != 0;
        if failed {
            println!("{}", io::Error::last_os_error());
            return;
        }
        page.addr()
    };
    println!("{address}");
    io::stdout().flush().expect("its output");
    let _ = io::stdin().read(&mut [0]);
}
