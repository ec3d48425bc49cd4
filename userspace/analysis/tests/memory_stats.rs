//! Allocations and scratch memory in the statistics, under rocprofv3's names.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use gputrace_abi::domain::Domain;
use gputrace_analysis::summary::tables::{DomainGroup, TableOptions, Tables};
use gputrace_export::{
    Exporter, OutputDir,
    csv::{CsvExporter, CsvOptions},
    testing::names,
};
use gputrace_timeline::{
    event::Event,
    observation::{Observation, Whose},
};

/// For each name, observations of 100 ns, then of 200 ns and so on.
fn observations() -> Vec<Event> {
    let given = [
        (Domain::MemoryAllocation, "MEMORY_ALLOCATION_ALLOCATE", 100),
        (Domain::MemoryAllocation, "MEMORY_ALLOCATION_ALLOCATE", 200),
        (Domain::MemoryAllocation, "MEMORY_ALLOCATION_FREE", 100),
        (Domain::ScratchMemory, "SCRATCH_MEMORY_ALLOC", 700),
        (Domain::HipMemory, "hipMallocAsync", 50_000),
        (Domain::Sched, "sleeping", 60_000),
    ];
    given
        .map(|(domain, name, took)| {
            Event::Observation(Box::new(Observation {
                domain: domain.id(),
                name: name.into(),
                whose: Whose::default(),
                begin: 1_000,
                end: 1_000 + took,
                is_open: false,
                fields: Vec::new(),
            }))
        })
        .to_vec()
}

fn csv(directory: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(directory.join(name)).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn they_have_tables_of_statistics() {
    let directory = tempfile::tempdir().unwrap();
    let out = OutputDir::open(directory.path(), None).unwrap();
    let options = CsvOptions {
        stats: true,
        ..CsvOptions::default()
    };
    let mut exporter = Box::new(CsvExporter::with_options(out, "m", options));
    for event in observations() {
        exporter.event(&event).unwrap();
    }
    exporter.finish().unwrap();
    assert_eq!(
        csv(directory.path(), "m_memory_allocation_stats.csv"),
        [
            r#""MEMORY_ALLOCATION_ALLOCATE",2,300,150.000000,75.00,100,200,70.710678"#,
            r#""MEMORY_ALLOCATION_FREE",1,100,100.000000,25.00,100,100,0.00000000e+00"#,
        ]
    );
    assert_eq!(
        csv(directory.path(), "m_scratch_memory_stats.csv"),
        [r#""SCRATCH_MEMORY_ALLOC",1,700,700.000000,100.00,700,700,0.00000000e+00"#]
    );
    let domains = csv(directory.path(), "m_domain_stats.csv");
    assert!(
        domains.len() == 2
            && domains[0].starts_with(r#""SCRATCH_MEMORY",1,700,"#)
            && domains[1].starts_with(r#""MEMORY_ALLOCATION",3,400,"#),
        "{domains:?}"
    );
    let stats = names(directory.path())
        .into_iter()
        .filter(|name| name.ends_with("_stats.csv"));
    assert_eq!(
        stats.count(),
        3,
        "what HIP was asked for is no domain of rocprofv3's"
    );
}

#[test]
fn they_have_tables_in_the_summary() {
    let mut tables = Tables::new(TableOptions {
        per_domain: true,
        groups: vec![DomainGroup::new("MEMORY_ALLOCATION|SCRATCH_MEMORY").unwrap()],
        ..TableOptions::default()
    });
    observations().iter().for_each(|event| tables.event(event));
    let text = tables.to_string();
    for title in [
        "ROCPROFV3 MEMORY_ALLOCATION SUMMARY:",
        "ROCPROFV3 SCRATCH_MEMORY SUMMARY:",
        "ROCPROFV3 MEMORY_ALLOCATION + SCRATCH_MEMORY SUMMARY:",
    ] {
        assert_eq!(text.matches(title).count(), 1, "{title} in {text}");
    }
    let rows = |name: &str| {
        text.lines()
            .filter(|line| line.contains(name))
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().join(","))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        rows("| MEMORY_ALLOCATION_ALLOCATE"),
        [
            ",MEMORY_ALLOCATION_ALLOCATE,MEMORY_ALLOCATION,2,300,1.500e+02,75.000000,100,200,7.071e+01,",
            ",MEMORY_ALLOCATION_ALLOCATE,MEMORY_ALLOCATION,2,300,1.500e+02,27.272727,100,200,7.071e+01,",
        ]
    );
    assert_eq!(text.matches("No longer than shown").count(), 2, "{text}");
    assert!(
        !text.contains("No domain is called") && !text.contains("hipMallocAsync"),
        "{text}"
    );
}
