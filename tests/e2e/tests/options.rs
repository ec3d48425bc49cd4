//! Options about the recording as a whole: names of outputs, refused options, option files.
#![expect(clippy::expect_used, reason = "tests")]

use std::{fs, path::Path, process::Output};

use gputrace_e2e::{Bench, Running};

/// A program that makes a few calls.
const SHORT: [&str; 3] = ["hip_calls", "single", "3"];

/// Runs gputrace on the short program with `options` in the test's directory.
fn run(bench: &Bench, options: &[&str]) -> (i32, String) {
    let mut command = bench.gputrace_bare();
    command
        .args(options)
        .arg("--")
        .arg(bench.program(SHORT[0]))
        .args(&SHORT[1..]);
    said(&command.output().expect("gputrace"))
}

fn said(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

/// Sorted names of the files in a directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory of outputs");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_recording_is_replaced_only_with_force() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let capture = bench.path().join("out/run.gtcap");
    let options = ["-d", "out", "-o", "run", "-f", "csv"];
    assert_eq!(run(&bench, &options).0, 0);
    let first = fs::read(&capture).expect("the capture");
    let (status, text) = run(&bench, &options);
    assert_eq!(status, 14, "{text}");
    assert!(
        text.contains("out/run.gtcap already exists") && text.contains("--force"),
        "{text}"
    );
    assert_eq!(fs::read(&capture).expect("the capture"), first);
    let trace = bench.path().join("out/run_hip_api_trace.csv");
    assert!(trace.exists());
    let others = ["-d", "out", "-o", "run", "-f", "ndjson", "--force"];
    assert_eq!(run(&bench, &others).0, 0);
    assert_ne!(fs::read(&capture).expect("the capture"), first);
    assert!(!trace.exists(), "a file of the recording that was replaced");
    assert!(bench.path().join("out/run_results.ndjson").exists());
}

#[test]
fn names_have_placeholders() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let mut command = bench.gputrace_bare();
    command
        .env("PLACE", "a/b")
        .env("OMPI_COMM_WORLD_RANK", "3")
        .args([
            "-d",
            "out/%env{PLACE}%",
            "-o",
            "%tag%/run.%rank%.%pid%",
            "-f",
            "csv",
            "--",
        ])
        .arg(bench.program(SHORT[0]))
        .args(&SHORT[1..]);
    let mut gputrace = Running::start("gputrace", &mut command);
    gputrace.finish();
    let names = files(&bench.path().join("out/a_b/hip_calls"));
    let capture = names.iter().find(|name| name.ends_with(".gtcap"));
    let pid = capture.and_then(|name| name.strip_prefix("run.3.")?.strip_suffix(".gtcap"));
    assert!(
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok()),
        "{names:?}"
    );
}

#[test]
fn small_recordings_make_no_files() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let options = [
        "-d",
        "out",
        "-o",
        "run",
        "-f",
        "csv",
        "--minimum-output-data",
        "100000",
    ];
    let (status, text) = run(&bench, &options);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("less than 100000 KB"), "{text}");
    assert_eq!(files(&bench.path().join("out")), ["run.gtcap"]);
}

#[test]
fn what_rocprofv3_could_do_is_answered() {
    let bench = Bench::new();
    for (options, part) in [
        (
            &["--pmc", "SQ_WAVES", "GRBM_COUNT"][..],
            "--pmc is not available",
        ),
        (&["--att"], "--advanced-thread-trace is not available"),
        (
            &["--pc-sampling-unit", "cycles"],
            "--pc-sampling-unit is not available",
        ),
        (&["--preload", "libasan.so"], "LD_PRELOAD"),
    ] {
        let (status, text) = run(&bench, options);
        assert_eq!(status, 2, "{text}");
        assert!(text.contains(part) && text.lines().count() == 1, "{text}");
    }
}

/// Writes a file into the test's directory.
fn write(bench: &Bench, name: &str, text: &str) {
    fs::write(bench.path().join(name), text).expect("a file of options");
}

#[test]
fn jobs_of_a_file_are_passes() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let yaml = "\
jobs:
  - hip_trace: true
    output_format: [csv]
    output_config: true
  - kernel_trace: true
    hip_trace: false
    output_format: [json, ndjson]
";
    write(&bench, "input.yaml", yaml);
    let (status, text) = run(&bench, &["-i", "input.yaml", "-d", "out", "-o", "run"]);
    assert_eq!(status, 0, "{text}");
    let first = files(&bench.path().join("out/pass_1"));
    for name in ["run.gtcap", "run_hip_api_trace.csv", "run_config.json"] {
        assert!(first.iter().any(|file| file == name), "{name}: {first:?}");
    }
    let config =
        fs::read(bench.path().join("out/pass_1/run_config.json")).expect("the configuration");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    let metadata = &config["rocprofiler-sdk-tool"][0]["metadata"];
    assert_eq!(metadata["config"]["hip_runtime_api_trace"], true);
    assert_eq!(metadata["config"]["kernel_trace"], false);
    assert_eq!(metadata["config"]["csv_output"], true);
    assert_eq!(metadata["config"]["output_path"], "out/pass_1");
    assert_eq!(metadata["config"]["gputrace"]["output_format"][0], "csv");
    assert!(metadata["init_time"].as_u64() < metadata["fini_time"].as_u64());
    assert_eq!(
        metadata["command"].as_array().map(Vec::len),
        Some(SHORT.len())
    );
    let second = files(&bench.path().join("out/pass_2"));
    assert_eq!(
        second,
        ["run.gtcap", "run_results.json", "run_results.ndjson"]
    );

    // A single job has no pass directory.
    let json = "{\"jobs\": [{\"hip_trace\": true, \"output_directory\": \"single\", \"output_format\": [\"csv\"]}]}";
    write(&bench, "input.json", json);
    let (status, text) = run(&bench, &["-i", "input.json", "-o", "run"]);
    assert_eq!(status, 0, "{text}");
    assert!(files(&bench.path().join("single")).contains(&"run.gtcap".to_owned()));
}

#[test]
fn files_of_options_are_checked_before_anything_runs() {
    let bench = Bench::new();
    for (yaml, options, parts) in [
        (
            "jobs:\n  - sys_trace: true\n  - kernal_trace: true\n",
            &[][..],
            &["input.yaml:3: kernal_trace", "kernel_trace?"][..],
        ),
        (
            "jobs:\n  - sys_trace: true\n    output_format: [csv\n",
            &[],
            &["input.yaml:", "not YAML"],
        ),
        (
            "jobs:\n  - output_file: a\n",
            &["-o", "b"],
            &[
                "input.yaml:2: output_file",
                "command line says otherwise: b",
            ],
        ),
        (
            "jobs:\n  - duration: 1s\n    attach_duration_msec: 5\n",
            &[],
            &["input.yaml:2: this job cannot be run", "--duration"],
        ),
        (
            "jobs:\n  - pmc: [SQ_WAVES]\n",
            &[],
            &["input.yaml:2: --pmc is not available"],
        ),
    ] {
        write(&bench, "input.yaml", yaml);
        let (status, text) = run(&bench, &[&["-i", "input.yaml"], options].concat());
        assert_eq!(status, 2, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(files(bench.path()), ["calls", "input.yaml"]);
    }
    write(
        &bench,
        "two.yaml",
        "jobs:\n  - stats: true\n  - stats: false\n",
    );
    let output = bench
        .gputrace_bare()
        .args(["-i", "two.yaml"])
        .output()
        .expect("gputrace");
    let (status, text) = said(&output);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("2 jobs"), "{text}");
    assert_eq!(run(&bench, &["-i", "missing.yaml"]).0, 2);
}
