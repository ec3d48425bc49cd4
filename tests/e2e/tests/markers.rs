//! What programs tell profilers (markers, ranges, external correlation ids, switches), and strings
//! and results of calls, compared with the program's own log.
#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use std::{collections::BTreeMap, fs, path::Path};

use gputrace_abi::{domain::Domain, values::LONG_BYTES};
use gputrace_e2e::{Bench, Outputs, Running, Trace, bench::skipped};
use gputrace_timeline::{
    Timeline,
    event::{Call, CallEnd, Event},
};

/// A line of the program's own log.
#[derive(Clone, Debug)]
struct Line {
    what: String,
    tid: u32,
    begin: u64,
    end: u64,
    text: Vec<u8>,
}

fn account(directory: &Path) -> Vec<Line> {
    let bytes = fs::read(directory.join("markers.txt")).expect("the program's account");
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut fields = line.splitn(5, |byte| *byte == b' ');
            let mut field = || fields.next().expect("a field").to_vec();
            let number = |field: Vec<u8>| String::from_utf8(field).ok()?.parse::<u64>().ok();
            Line {
                what: String::from_utf8(field()).expect("a word"),
                tid: number(field()).expect("a number") as u32,
                begin: number(field()).expect("a number"),
                end: number(field()).expect("a number"),
                text: field(),
            }
        })
        .collect()
}

/// The text as gputrace must show it.
fn shown(text: &[u8]) -> String {
    match text.get(..LONG_BYTES - 1) {
        Some(beginning) if text.len() >= LONG_BYTES => {
            format!("{}…", String::from_utf8_lossy(beginning))
        }
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Removes the call that the program logged from the remaining calls.
fn take(left: &mut BTreeMap<(u32, String), Vec<Call>>, line: &Line, text: &str) -> Call {
    let of_text = left.entry((line.tid, text.to_owned())).or_default();
    let fits = |call: &Call| line.begin <= call.begin && call.end <= line.end;
    let found = of_text.iter().position(fits).unwrap_or_else(|| {
        panic!("{line:?} is not in the trace; of this text there are {of_text:?}")
    });
    of_text.swap_remove(found)
}

fn by_text(trace: &Trace, domain: Domain) -> BTreeMap<(u32, String), Vec<Call>> {
    let mut calls: BTreeMap<(u32, String), Vec<Call>> = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| call.domain == domain.id()) {
        let name = trace.function(call).function.name.clone();
        calls
            .entry((call.tid, name))
            .or_default()
            .push(call.clone());
    }
    calls
}

#[test]
fn markers_ranges_and_ids_are_the_programs() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--hip-trace", "--marker-trace", "--rccl-trace", "-f", "csv"],
        &["markers/markers"],
    );
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    for row in &trace.final_ledger().rows {
        assert_eq!(row.imbalance(), 0, "{row:?}");
    }

    let lines = account(&bench.logs());
    let mut markers = by_text(&trace, Domain::MarkerCore);
    let mut calls = by_text(&trace, Domain::HipRuntime);
    for line in &lines {
        match line.what.as_str() {
            "mark" => {
                let call = take(&mut markers, line, &shown(&line.text));
                assert_eq!(call.begin, call.end, "{line:?}");
            }
            "range" => {
                let call = take(&mut markers, line, &shown(&line.text));
                assert!(matches!(call.how, CallEnd::Returned(_)), "{line:?}");
            }
            "endless" => {
                let call = take(
                    &mut markers,
                    &Line {
                        end: u64::MAX,
                        ..line.clone()
                    },
                    &shown(&line.text),
                );
                assert_eq!(call.how, CallEnd::ThreadExited);
            }
            // A marker whose text could not be read is shown by its function's name.
            "nothing" => {
                let _ = take(&mut markers, line, "roctxMarkA");
            }
            "call" => {
                let call = take(&mut calls, line, "hipGetDeviceCount");
                let id = String::from_utf8_lossy(&line.text).parse().ok();
                assert_eq!(call.external, id, "{line:?}");
            }
            "unmatched" => {}
            other => panic!("the program wrote {other}"),
        }
    }
    markers.retain(|_, left| !left.is_empty());
    assert!(markers.is_empty(), "nobody made these: {markers:?}");
    let said = |text: &str| {
        trace
            .notices
            .iter()
            .any(|notice| notice.text.contains(text))
    };
    assert!(said("2 ends of ranges"), "{:?}", trace.notices);
    assert!(said("1 ranges were still open"), "{:?}", trace.notices);

    // Results are those that the function stored.
    let count = trace
        .calls
        .iter()
        .find(|call| trace.name(call) == "ncclCommCount");
    let count = count.expect("a call of ncclCommCount");
    let shown = trace.arguments(count);
    assert_eq!(shown, ["comm=0x1000", "count=8"]);

    // rocprofv3's file has a row for each marker and each range.
    let csv =
        fs::read_to_string(outputs.file("_marker_api_trace.csv")).expect("the markers' table");
    assert_eq!(
        csv.lines().next(),
        Some(
            r#""Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp""#
        )
    );
    assert!(csv.contains(r#""MARKER_CORE_API","thread 3 inner 49","#));
    assert!(csv.contains(r#""été, ""quoted"", and, commas""#));
}

/// Names of the calls that a program selected, in order.
fn selected(outputs: &Outputs) -> Vec<String> {
    let timeline = Timeline::open(&outputs.file(".gtcap"))
        .expect("a capture")
        .selected_regions();
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut calls: Vec<String> = Vec::new();
    for event in timeline {
        match event.expect("an event") {
            Event::Function(info) => {
                names.insert(info.function.id, info.function.name);
            }
            Event::Call(call) => calls.extend(names.get(&call.function).cloned()),
            _ => {}
        }
    }
    calls
}

#[test]
fn only_what_the_program_selects() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--hip-trace", "--marker-trace", "-f", "csv"],
        &["markers/markers"],
    );
    assert_eq!(
        selected(&outputs),
        [
            "roctxProfilerResume",
            "selected",
            "hipGetDeviceCount",
            "roctxProfilerPause"
        ]
    );
}

#[test]
fn every_switch_is_honoured_and_both_profilers_ids() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--hip-trace", "--marker-trace", "-f", "csv"],
        &["markers/controls"],
    );
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    assert_eq!(trace.calls_of("hipRuntimeGetVersion").count(), 5);
    assert_eq!(
        selected(&outputs),
        [
            "roctxProfilerResume",
            "hipDriverGetVersion",
            "roctxProfilerPause",
            "roctracer_start",
            "hipGetDeviceCount",
            "roctracer_stop",
            "hipProfilerStart",
            "hipGetDevice",
            "hipProfilerStop",
            "rocprofsys_user_start_trace",
            "hipMemGetInfo",
            "annotated",
            "many",
            "lost",
            "rocprofsys_user_stop_trace",
        ]
    );
    let ids: Vec<_> = trace
        .calls_of("hipDeviceSynchronize")
        .map(|call| call.external)
        .collect();
    assert_eq!(ids, [Some(4711), None]);
}

#[test]
fn regions_have_what_the_program_annotates_them_with() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &[
            "--marker-trace",
            "-f",
            "csv,pftrace,json,rocpd",
            "--csv-arguments",
        ],
        &["markers/controls"],
    );
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    let arguments = |name: &str| trace.arguments(trace.calls_of(name).next().expect(name));
    assert_eq!(
        arguments("annotated"),
        [
            "strerror=no such file",
            "big=-5000000000",
            "all=18446744073709551615",
            "tolerance=0.25",
            "data=0x1000",
            // The annotations at the end count.
            "errno=0",
            "flags=9",
            "ratio=1.5",
            "less=-3",
            "port=443",
            "gone=(not readable)",
            "gone_text=(not readable)",
            "newer=0x20",
            "far=a constant",
            "far_number=4711",
            "iteration=7",
        ]
    );
    let many = arguments("many");
    // The first of them has no name.
    assert_eq!(many.len(), 16);
    assert!(
        many[..15].iter().all(|shown| shown == "count=7"),
        "{many:?}"
    );
    assert_eq!(many[15], "annotations=more than 16…");
    assert_eq!(arguments("lost"), ["annotation=(not readable)"]);
    let said: Vec<&str> = trace
        .notices
        .iter()
        .map(|notice| notice.text.as_str())
        .filter(|text| text.contains("could not be read"))
        .collect();
    // `gone`, `gone_text` and the one of `lost`.
    assert!(
        matches!(said[..], [one] if one.starts_with("3 texts or results")),
        "{said:?}"
    );

    let csv = fs::read_to_string(outputs.file("_arguments.csv")).expect("the arguments");
    for row in [
        r#""annotated",0,"const char *","strerror","no such file""#,
        r#""annotated",1,"int64_t","big",-5000000000"#,
        r#""annotated",3,"double","tolerance",0.25"#,
        r#""annotated",4,"void *","data","0x1000""#,
    ] {
        assert!(csv.contains(row), "{row}\n{csv}");
    }
    for file in ["_results.json", "_results.db", "_results.pftrace"] {
        let bytes = fs::read(outputs.file(file)).expect(file);
        let text = String::from_utf8_lossy(&bytes);
        for said in ["tolerance", "no such file"] {
            assert!(text.contains(said), "{said} is not in {file}");
        }
    }
}

#[test]
fn memory_for_a_result_that_is_gone_is_no_result() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(&["--rccl-trace", "-f", "csv"], &["markers/controls"]);
    let trace = outputs.trace();
    trace.assert_lossless();
    let call = trace.calls_of("ncclCommUserRank").next().expect("the call");
    let shown = trace.arguments(call);
    // The pointer where it would have been stored, and no number.
    let [communicator, rank] = shown.as_slice() else {
        panic!("{shown:?}")
    };
    assert_eq!(communicator, "comm=0x1000");
    assert!(rank.starts_with("rank=(at 0x"), "{rank}");
}

/// Records a program that calls a tool library as Kokkos does.
fn kokkos(bench: &Bench, program: &str) -> Outputs {
    let outputs = bench.outputs(0);
    let tool = bench.program("kokkos/libkp_nothing.so");
    let mut command = bench.gputrace(&outputs);
    command
        .args(["--kokkos-trace", "-f", "csv", "--"])
        .arg(bench.program(program))
        .env("KOKKOS_TOOLS_LIBS", &tool)
        // The variable of Kokkos before 4.
        .env("KOKKOS_PROFILE_LIBRARY", &tool);
    Running::start("gputrace", &mut command).finish();
    outputs
}

#[test]
fn kokkos_kernels_regions_copies_and_sections_are_the_programs() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = kokkos(&bench, "kokkos/told");
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    let mut markers = by_text(&trace, Domain::MarkerCore);
    let lines = account(&bench.logs());
    assert_eq!(lines.len(), 2 * 100 + 3 + 1 + 4);
    for line in &lines {
        let call = take(&mut markers, line, &shown(&line.text));
        assert_eq!(call.begin == call.end, line.what == "mark", "{line:?}");
    }
    markers.retain(|_, left| !left.is_empty());
    let rest: Vec<&str> = markers.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(rest, ["kokkosp_allocate_data", "kokkosp_deallocate_data"]);

    // Arguments after a struct that is passed on the stack.
    let allocated = trace
        .calls_of("kokkosp_allocate_data")
        .next()
        .expect("a view");
    let arguments = trace.arguments(allocated);
    assert!(
        arguments.contains(&"label=a view".to_owned()),
        "{arguments:?}"
    );
    assert!(arguments.contains(&"size=16".to_owned()), "{arguments:?}");
    let csv =
        fs::read_to_string(outputs.file("_marker_api_trace.csv")).expect("the markers' table");
    assert!(csv.contains(r#""MARKER_CORE_API","Kokkos::deep_copy to <- from","#));
}

#[test]
fn kokkos_itself_is_understood() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    if !bench.program("kokkos/real").exists() {
        let missing = "Kokkos is not installed; apt-get install libtrilinos-kokkos-dev";
        let promised =
            std::env::var_os("GPUTRACE_REQUIRE_KOKKOS").is_some_and(|value| value == "1");
        assert!(!promised, "GPUTRACE_REQUIRE_KOKKOS=1, but {missing}");
        return skipped(missing);
    }
    let outputs = kokkos(&bench, "kokkos/real");
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    let count = |name: &str| {
        let named = |call: &&Call| trace.name(call) == name;
        trace.calls.iter().filter(named).count()
    };
    for (name, times) in [
        ("Kokkos::Initialization Complete", 1),
        ("fill", 5),
        ("sum", 1),
        ("Kokkos::deep_copy b <- a", 1),
        ("scan", 1),
        ("whole", 1),
        ("done", 1),
        ("Kokkos::Finalization Complete", 1),
    ] {
        assert_eq!(count(name), times, "{name}");
    }
    let whole = trace.calls.iter().find(|call| trace.name(call) == "whole");
    let whole = whole.expect("the region");
    let within = |call: &&Call| {
        trace.name(call) == "fill" && whole.begin <= call.begin && call.end <= whole.end
    };
    assert_eq!(trace.calls.iter().filter(within).count(), 5);
}

#[test]
fn decoders_are_traced_by_their_names() {
    let Some(bench) = Bench::privileged() else {
        return;
    };
    let outputs = bench.launch(
        &["--rocdecode-trace", "--rocjpeg-trace", "-f", "csv"],
        &["markers/markers"],
    );
    outputs.assert_formats_agree();
    let trace = outputs.trace();
    trace.assert_lossless();
    let calls: Vec<_> = trace
        .returned()
        .into_iter()
        .map(|(name, domain, result)| (name, domain, result as i32))
        .collect();
    let (video, jpeg) = (Domain::RocDecode.id(), Domain::RocJpeg.id());
    assert_eq!(
        calls,
        [
            ("rocDecGetDecoderCaps", video, -5),
            ("rocDecGetDecoderCaps", video, 0),
            ("rocDecParseVideoData", video, 0),
            ("rocDecDecodeFrame", video, 0),
            ("rocJpegStreamCreate", jpeg, 0),
            ("rocJpegDecode", jpeg, -12),
            ("rocJpegStreamDestroy", jpeg, 0),
        ]
    );
    let arguments: Vec<_> = trace
        .calls
        .iter()
        .map(|call| trace.arguments(call))
        .collect();
    // Pointers into the program's stack are left out.
    let shown = |place: usize| -> Vec<&str> {
        let shown = arguments[place].iter().map(String::as_str);
        shown
            .filter(|argument| !argument.contains("=0x7f"))
            .collect()
    };
    assert_eq!(shown(0), ["decode_caps=0x0"]);
    // The arguments and the results.
    assert_eq!(
        shown(1),
        [
            "decode_caps.device_id=0",
            "decode_caps.codec_type=rocDecVideoCodec_HEVC",
            "decode_caps.chroma_format=rocDecVideoChromaFormat_420",
            "decode_caps.bit_depth_minus_8=0",
            "decode_caps.is_supported=1",
            "decode_caps.num_decoders=2",
            "decode_caps.output_format_mask=0",
            "decode_caps.max_width=8192",
            "decode_caps.max_height=0",
            "decode_caps.min_width=0",
            "decode_caps.min_height=128",
        ]
    );
    assert_eq!(
        shown(2),
        [
            "parser_handle=0x1234",
            "packet.flags=ROCDEC_PKT_ENDOFSTREAM|ROCDEC_PKT_TIMESTAMP",
            "packet.payload_size=0",
            "packet.payload=0x0",
            "packet.pts=40",
        ]
    );
    // Unreadable values are marked.
    assert_eq!(
        shown(3),
        ["decoder_handle=0x1234", "pic_params=(at 0x5678)"]
    );
    // The value that was stored there.
    assert_eq!(shown(4), ["jpeg_stream_handle=0x2000"]);
    assert_eq!(
        shown(5)[2..5],
        [
            "decode_params.output_format=ROCJPEG_OUTPUT_RGB",
            "decode_params.crop_rectangle.left=-1",
            "decode_params.crop_rectangle.top=0",
        ]
    );
    assert_eq!(shown(6), ["jpeg_stream_handle=0x2000"]);
    for (file, name) in [
        ("_rocdecode_api_trace.csv", "rocDecDecodeFrame"),
        ("_rocjpeg_api_trace.csv", "rocJpegStreamDestroy"),
    ] {
        let csv = fs::read_to_string(outputs.file(file)).expect("the table");
        let rows = trace
            .calls
            .iter()
            .filter(|call| file.contains("decode") == (call.domain == video))
            .count();
        assert!(
            csv.contains(name) && csv.lines().count() == 1 + rows,
            "{csv}"
        );
    }
}
