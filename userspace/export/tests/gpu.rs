//! Exports of synthetic GPU work, compared with golden files and with the events themselves.
//!
//! `UPDATE_EXPECT=1 cargo test -p gputrace-export` rewrites the golden files; read the difference.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, path::Path};

use expect_test::expect_file;
use gputrace_analysis::summary::{
    SummaryExporter,
    tables::{DomainGroup, TableOptions, TablesExporter, Units},
};
use gputrace_export::{
    Exporter, OutputDir,
    csv::{CsvExporter, CsvOptions},
    synthetic::events,
};
use gputrace_timeline::event::Event;

/// Writes CSV with all options, and a summary, of `events` to `directory`.
fn export(events: &[Event], directory: &Path) {
    let out = OutputDir::open(directory, None).unwrap();
    let summary = out.file("gpu_summary.txt").unwrap();
    let tables = TableOptions {
        per_domain: true,
        groups: ["KERNEL_DISPATCH|MEMORY_COPY", "RCCL_API"]
            .map(|group| DomainGroup::new(group).unwrap())
            .to_vec(),
        whole: true,
        units: Units::Usec,
        percentiles: Vec::new(),
        remarks: true,
        columns: None,
    };
    let tables_file = fs::File::create(directory.join("gpu_summary_tables.txt")).unwrap();
    let mut exporters: [Box<dyn Exporter>; 3] = [
        Box::new(CsvExporter::with_options(
            out,
            "gpu",
            CsvOptions {
                stats: true,
                ..CsvOptions::default()
            },
        )),
        Box::new(SummaryExporter::to_file(summary)),
        Box::new(TablesExporter::new(tables, tables_file)),
    ];
    for event in events {
        for exporter in &mut exporters {
            exporter.event(event).unwrap();
        }
    }
    for exporter in exporters {
        exporter.finish().unwrap();
    }
}

fn rows(directory: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    csv::Reader::from_path(directory.join(name))
        .unwrap()
        .deserialize()
        .map(|row| row.unwrap())
        .collect()
}

#[test]
fn outputs_are_as_in_the_golden_files() {
    let directory = tempfile::tempdir().unwrap();
    export(&events(), directory.path());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut names: Vec<String> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "gpu_agent_info.csv",
            "gpu_domain_stats.csv",
            "gpu_hip_api_stats.csv",
            "gpu_hip_api_trace.csv",
            "gpu_hsa_api_stats.csv",
            "gpu_hsa_api_trace.csv",
            "gpu_kernel_names.csv",
            "gpu_kernel_stats.csv",
            "gpu_kernel_stats_quality.csv",
            "gpu_kernel_trace.csv",
            "gpu_kernel_trace_quality.csv",
            "gpu_loss.csv",
            "gpu_memory_copy_stats.csv",
            "gpu_memory_copy_stats_quality.csv",
            "gpu_memory_copy_trace.csv",
            "gpu_memory_copy_trace_quality.csv",
            "gpu_summary.txt",
            "gpu_summary_tables.txt",
            "gpu_unfinished_calls.csv",
        ]
    );
    for name in names {
        let made = fs::read_to_string(directory.path().join(&name)).unwrap();
        expect_file![golden.join(&name)].assert_eq(&made);
    }
}

/// The headers are those of rocprofv3's documentation and encoder.
#[test]
fn headers_are_rocprofv3s() {
    let directory = tempfile::tempdir().unwrap();
    export(&events(), directory.path());
    for (file, header) in [
        (
            "gpu_kernel_trace.csv",
            r#""Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z""#,
        ),
        (
            "gpu_memory_copy_trace.csv",
            r#""Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp""#,
        ),
        (
            "gpu_agent_info.csv",
            r#""Node_Id","Logical_Node_Id","Agent_Type","Cpu_Cores_Count","Simd_Count","Cpu_Core_Id_Base","Simd_Id_Base","Max_Waves_Per_Simd","Lds_Size_In_Kb","Gds_Size_In_Kb","Num_Gws","Wave_Front_Size","Num_Xcc","Cu_Count","Array_Count","Num_Shader_Banks","Simd_Arrays_Per_Engine","Cu_Per_Simd_Array","Simd_Per_Cu","Max_Slots_Scratch_Cu","Gfx_Target_Version","Vendor_Id","Device_Id","Location_Id","Domain","Drm_Render_Minor","Num_Sdma_Engines","Num_Sdma_Xgmi_Engines","Num_Sdma_Queues_Per_Engine","Num_Cp_Queues","Max_Engine_Clk_Ccompute","Max_Engine_Clk_Fcompute","Sdma_Fw_Version","Fw_Version","Capability","Cu_Per_Engine","Max_Waves_Per_Cu","Family_Id","Workgroup_Max_Size","Grid_Max_Size","Local_Mem_Size","Hive_Id","Gpu_Id","Workgroup_Max_Dim_X","Workgroup_Max_Dim_Y","Workgroup_Max_Dim_Z","Grid_Max_Dim_X","Grid_Max_Dim_Y","Grid_Max_Dim_Z","Name","Vendor_Name","Product_Name","Model_Name""#,
        ),
        (
            "gpu_kernel_stats.csv",
            r#""Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev""#,
        ),
    ] {
        let text = fs::read_to_string(directory.path().join(file)).unwrap();
        assert_eq!(text.lines().next().unwrap(), header);
    }
}

#[test]
fn the_quality_file_has_every_dispatch_and_joins_with_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    export(&events(), directory.path());
    for (trace, quality, kind) in [
        (
            "gpu_kernel_trace.csv",
            "gpu_kernel_trace_quality.csv",
            "dispatches",
        ),
        (
            "gpu_memory_copy_trace.csv",
            "gpu_memory_copy_trace_quality.csv",
            "copies",
        ),
    ] {
        let (trace, quality) = (
            rows(directory.path(), trace),
            rows(directory.path(), quality),
        );
        let is_work = |event: &&Event| match event {
            Event::Dispatch(_) => kind == "dispatches",
            Event::Copy(_) => kind == "copies",
            _ => false,
        };
        assert_eq!(quality.len(), events().iter().filter(is_work).count());
        let mut joined = 0;
        for row in &quality {
            // Nothing tells how long the sampled one took.
            let drawn = row["Quality"] == "exact";
            assert_eq!(drawn, !row["Trace_Row"].is_empty(), "{row:?}");
            assert_eq!(drawn, !row["End_Timestamp"].is_empty(), "{row:?}");
            if drawn {
                joined += 1;
                let same = &trace[row["Trace_Row"].parse::<usize>().unwrap() - 1];
                for column in [
                    "Start_Timestamp",
                    "End_Timestamp",
                    "Correlation_Id",
                    "Stream_Id",
                ] {
                    assert_eq!(same[column], row[column]);
                }
                assert_eq!(same.get("Dispatch_Id"), row.get("Dispatch_Id"));
            }
        }
        assert_eq!(joined, trace.len());
    }
}

#[test]
fn mangled_names_stand_once() {
    let directory = tempfile::tempdir().unwrap();
    export(&events(), directory.path());
    let quality = rows(directory.path(), "gpu_kernel_trace_quality.csv");
    assert!(!quality.is_empty());
    assert!(quality.iter().all(|row| !row.contains_key("Mangled_Name")));
    let mut ids: Vec<String> = quality
        .iter()
        .map(|row| row["Kernel_Id"].clone())
        .filter(|id| id != "0")
        .collect();
    ids.sort();
    ids.dedup();
    let names = rows(directory.path(), "gpu_kernel_names.csv");
    let mut named: Vec<String> = names.iter().map(|row| row["Kernel_Id"].clone()).collect();
    named.sort();
    assert_eq!(named, ids);
    assert!(
        names
            .iter()
            .any(|row| row["Mangled_Name"].starts_with("_Z"))
    );
}

#[test]
fn what_was_asked_for_has_files_though_nothing_happened() {
    let directory = tempfile::tempdir().unwrap();
    let all = events();
    export(&all[..1], directory.path());
    for name in [
        "kernel_trace",
        "memory_copy_trace",
        "kernel_trace_quality",
        "agent_info",
        "kernel_stats",
    ] {
        assert_eq!(rows(directory.path(), &format!("gpu_{name}.csv")), []);
    }
}

#[test]
fn what_was_not_asked_for_has_no_files() {
    let directory = tempfile::tempdir().unwrap();
    export(&[], directory.path());
    for name in [
        "kernel_trace",
        "memory_copy_trace",
        "agent_info",
        "kernel_stats",
    ] {
        assert!(
            !directory.path().join(format!("gpu_{name}.csv")).exists(),
            "{name}"
        );
    }
}
