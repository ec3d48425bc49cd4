//! Archives of synthetic recordings, read by OTF2's own tools. Skipped if OTF2's library or its
//! tools are missing (Debian packages otf2-tools, python3-otf2), unless `GPUTRACE_REQUIRE_OTF2=1`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use gputrace_abi::domain::Domain;
use gputrace_capture::meta::Function;
use gputrace_export::{
    ExportError, Exporter, FileOwner, OutputDir, OutputError, synthetic,
    testing::{names, on_full_disk, reader},
};
use gputrace_otf2::Otf2Exporter;
use gputrace_timeline::{
    event::{Call, Event, FunctionInfo, RangeKind},
    synthetic::call,
};

fn exporter(directory: &Path) -> Option<Box<Otf2Exporter>> {
    let out = OutputDir::open(directory, None).unwrap();
    match Otf2Exporter::new(&out, "app_results") {
        Ok(exporter) => Some(Box::new(exporter)),
        Err(error) => {
            assert!(
                error.to_string().contains("libopen-trace-format2-10"),
                "{error}"
            );
            let promised =
                std::env::var_os("GPUTRACE_REQUIRE_OTF2").is_some_and(|value| value == "1");
            assert!(!promised, "GPUTRACE_REQUIRE_OTF2=1, but {error}");
            gputrace_skip::skipped(&error.to_string());
            None
        }
    }
}

fn export(events: &[Event], directory: &Path) -> Option<PathBuf> {
    let mut exporter = exporter(directory)?;
    for event in events {
        exporter.event(event).unwrap();
    }
    let outputs = exporter.finish().unwrap();
    Some(outputs.into_iter().next().unwrap().path)
}

/// Runs one of OTF2's tools.
fn tool(command: &mut Command) -> Option<String> {
    match command.env("PYTHONDONTWRITEBYTECODE", "1").output() {
        Ok(output) if output.status.code() == Some(77) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            gputrace_skip::skipped(&format!("{command:?}: {error}"));
            None
        }
    }
}

fn print(arguments: &[&str], archive: &Path) -> Option<String> {
    tool(Command::new("otf2-print").args(arguments).arg(archive))
}

/// Counts by category, as read by the Python module.
fn check(archive: &Path) -> Option<String> {
    // The module is installed for the system's Python.
    tool(
        Command::new("/usr/bin/python3")
            .arg(reader("otf2_check.py"))
            .arg(archive)
            .arg("--json"),
    )
}

#[test]
fn the_official_readers_find_everything() {
    let directory = tempfile::tempdir().unwrap();
    let events = synthetic::events();
    let Some(path) = export(&events, directory.path()) else {
        return;
    };
    assert_eq!(
        names(directory.path()),
        ["app_results", "app_results.def", "app_results.otf2"]
    );
    if let Some(counts) = check(&path) {
        let count =
            |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
        let has = |name: &str, count: usize| {
            let entry = format!("\"{name}\": {count}");
            assert!(counts.contains(&entry), "{entry} in {counts}");
        };
        has(
            "kernel_dispatch",
            count(|event| matches!(event, Event::Dispatch(work) if work.time.is_drawn())),
        );
        has(
            "memory_copy",
            count(|event| matches!(event, Event::Copy(work) if work.time.is_drawn())),
        );
        has(
            "untimed",
            count(|event| match event {
                Event::Dispatch(work) => !work.time.is_drawn(),
                Event::Copy(work) => !work.time.is_drawn(),
                _ => false,
            }),
        );
        has("hip_api", 2);
        has("hsa_api", 1);
    }
    if let Some(text) = print(&[], &path) {
        let is_first = |line: &str| {
            line.starts_with("ENTER")
                && line.contains("add(float*, float*)")
                && line.contains(" 1000020000 ")
        };
        assert!(text.lines().any(is_first), "{text}");
        assert!(text.contains("\"kernel_dispatch\""), "{text}");
        assert!(text.contains("\"exact\""), "{text}");
    }
    if let Some(text) = print(&["-G"], &path) {
        for name in [
            "Thread 101, Compute on GPU 1, Queue 0",
            "Thread 101, Compute on GPU 2, Queue 1",
            "Thread 101, Copy to GPU 1",
            "Thread 101, Copy to CPU 0",
            "Thread 101, Untimed work",
            "ACCELERATOR_STREAM",
            "CPU_THREAD",
        ] {
            assert!(text.contains(name), "{name} in {text}");
        }
    }
    if let Some(text) = print(&["-A"], &path) {
        assert!(text.contains("GPUTRACE::LOSS"), "{text}");
        assert!(text.contains("gputrace"), "{text}");
    }
}

#[test]
fn estimates_are_attributes_of_what_they_are_about() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = export(&synthetic::estimates(), directory.path()) else {
        return;
    };
    if let Some(counts) = check(&path) {
        assert!(counts.contains("\"kernel_dispatch\": 12"), "{counts}");
        assert!(counts.contains("\"untimed\": 4"), "{counts}");
    }
    if let Some(text) = print(&[], &path) {
        let count = |what: &str| text.matches(what).count();
        // Ten kernels of the first class and two of the second one.
        assert_eq!(count("(\"estimate_error\" <7>; UINT64; 300)"), 10, "{text}");
        assert_eq!(count("(\"kernel_class\" <6>; UINT64; 1)"), 2, "{text}");
        assert_eq!(count("(\"kernel_class\""), 12, "{text}");
    }
}

#[test]
fn what_overlaps_gets_another_location() {
    let directory = tempfile::tempdir().unwrap();
    let mut events: Vec<Event> = (1..=30)
        .map(|id| {
            // Three at a time, and not in order.
            let begin = synthetic::START + (id * 7 % 30) * 1000;
            let time = synthetic::exact(begin, begin + 2500);
            Event::Dispatch(Box::new(synthetic::dispatch(id, begin - 100, time)))
        })
        .collect();
    // Calls that cannot have enclosed one another.
    events.extend([(1, 0, 100), (2, 50, 150), (3, 60, 70), (4, 100, 100)].map(
        |(id, begin, end)| {
            let at = |ns: u64| synthetic::START + ns;
            Event::Call(Call {
                depth: u16::from(id == 3),
                ..call(id, at(begin), at(end))
            })
        },
    ));
    let Some(path) = export(&events, directory.path()) else {
        return;
    };
    if let Some(counts) = check(&path) {
        assert!(counts.contains("\"kernel_dispatch\": 30"), "{counts}");
        assert!(counts.contains("\"hip_api\": 4"), "{counts}");
    }
    if let Some(text) = print(&["-G"], &path) {
        assert!(text.contains("Queue 0 (overlapping 3)"), "{text}");
        assert!(!text.contains("(overlapping 4)"), "{text}");
        assert!(text.contains("Thread 100 (overlapping 2)"), "{text}");
    }
}

#[test]
fn marks_have_a_category_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    for (id, kind) in [(70, RangeKind::Mark), (71, RangeKind::Nested)] {
        events.push(Event::Function(Box::new(FunctionInfo {
            function: Function {
                id,
                name: format!("{kind:?}"),
                domain: Domain::MarkerCore.id(),
                ..Function::default()
            },
            domain: Some(Domain::MarkerCore),
            library: String::new(),
            build_id: String::new(),
            range: Some(kind),
        })));
        let begin = synthetic::START + u64::from(id);
        events.push(Event::Call(Call {
            function: id,
            domain: Domain::MarkerCore.id(),
            ..call(id.into(), begin, begin)
        }));
    }
    let Some(path) = export(&events, directory.path()) else {
        return;
    };
    if let Some(counts) = check(&path) {
        assert!(counts.contains("\"mark\": 1"), "{counts}");
        assert!(counts.contains("\"marker_api\": 1"), "{counts}");
    }
}

#[test]
fn an_older_archive_is_replaced_and_belongs_to_the_owner() {
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("app_results");
    fs::create_dir_all(old.join("deeper/still")).unwrap();
    fs::write(old.join("deeper/999.evt"), "old").unwrap();
    fs::write(directory.path().join("app_results.otf2"), "old").unwrap();
    let user = fs::metadata(directory.path()).unwrap();
    let owner = if user.uid() == 0 { 12_345 } else { user.uid() };
    let owner = FileOwner {
        uid: owner,
        gid: user.gid(),
    };
    let out = OutputDir::open(directory.path(), Some(owner)).unwrap();
    let Ok(exporter) = Otf2Exporter::new(&out, "app_results") else {
        return;
    };
    let mut exporter = Box::new(exporter);
    for event in synthetic::events() {
        exporter.event(&event).unwrap();
    }
    let outputs = exporter.finish().unwrap();
    assert!(outputs[0].bytes > 0);
    assert_eq!(
        names(directory.path()),
        ["app_results", "app_results.def", "app_results.otf2"]
    );
    assert!(!old.join("deeper").exists());
    for path in [old.clone(), old.join("0.evt"), outputs[0].path.clone()] {
        assert_eq!(
            fs::metadata(&path).unwrap().uid(),
            owner.uid,
            "{}",
            path.display()
        );
    }
    check(&outputs[0].path);
}

#[test]
fn an_exporter_that_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut exporter) = exporter(directory.path()) else {
        return;
    };
    for event in synthetic::events() {
        exporter.event(&event).unwrap();
    }
    drop(exporter);
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_recording_without_events_is_an_archive_too() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(path) = export(&[], directory.path()) {
        assert!(check(&path).is_none_or(|counts| counts.trim() == "{}"));
    }
}

#[test]
fn a_full_disk_leaves_no_partial_archive_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    on_full_disk("a_full_disk", 2048, directory.path(), fill);
}

fn fill(directory: &Path) {
    // The disk is full while spans are collected, and, with long names, while the library writes.
    for (count, names) in [(200_000, 1), (15_000, 15_000)] {
        let Some(mut exporter) = exporter(directory) else {
            return;
        };
        let result = (1..count)
            .try_for_each(|number| {
                let mut call = call(number, number * 10, number * 10 + 1);
                call.function = (number % names) as u32;
                let function = Function {
                    id: call.function,
                    name: format!("{number} {}", "x".repeat(100)),
                    ..Function::default()
                };
                exporter.event(&Event::Function(Box::new(FunctionInfo {
                    function,
                    domain: None,
                    library: String::new(),
                    build_id: String::new(),
                    range: None,
                })))?;
                exporter.event(&Event::Call(call))
            })
            .and_then(|()| exporter.finish().map(drop));
        let error = result.unwrap_err();
        assert!(
            matches!(error, ExportError::Output(OutputError::Full { .. })),
            "{error:?}"
        );
    }
}

#[test]
fn what_the_kernel_did_and_what_was_read_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = export(&synthetic::observed(), directory.path()) else {
        return;
    };
    if let Some(counts) = check(&path) {
        for entry in [
            "\"sched\": 1",
            "\"kfd_event\": 2",
            "\"driver\": 1",
            "\"metric\": 3",
        ] {
            assert!(counts.contains(entry), "{entry} in {counts}");
        }
    }
    if let Some(text) = print(&[], &path) {
        assert!(text.contains("queues evicted (TTM)"), "{text}");
        let value = |line: &str| line.starts_with("METRIC") && line.contains("250.5");
        assert!(text.lines().any(value), "{text}");
    }
    if let Some(text) = print(&["-G"], &path) {
        for name in [
            "Thread 101, SCHED",
            "Process, KFD EVENT (overlapping 2)",
            "Counters of GPU 1",
            "Counters on GPU 1",
            "ACCUMULATED_POINT",
            "ABSOLUTE_NEXT",
            "power1_average",
        ] {
            assert!(text.contains(name), "{name} in {text}");
        }
    }
}

#[test]
fn only_what_is_known_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = export(&synthetic::drawn(), directory.path()) else {
        return;
    };
    if let Some(counts) = check(&path) {
        for entry in [
            "\"kernel_dispatch\": 3",
            "\"memory_copy\": 2",
            "\"untimed\": 6",
        ] {
            assert!(counts.contains(entry), "{entry} in {counts}");
        }
    }
    if let Some(text) = print(&[], &path) {
        // Columns: event, location, time.
        let times = |event: &str, kernel: &str| -> Vec<u64> {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(event) && line.contains(kernel));
            lines
                .filter_map(|line| line.split_whitespace().nth(2)?.parse().ok())
                .collect()
        };
        let [begins, ends] = ["ENTER", "LEAVE"].map(|event| times(event, "add(float*, float*)"));
        assert_eq!((begins.len(), ends.len()), (8, 8), "{text}");
        let known = synthetic::DRAWN.iter().filter_map(|(_, ns)| *ns);
        let drawn = ends.iter().sum::<u64>() - begins.iter().sum::<u64>();
        assert_eq!(drawn, known.sum::<u64>(), "{text}");
    }
}
