//! Opens the page in a real browser: headless Chromium. Skipped if it is not installed (Debian
//! package `chromium`), unless `GPUTRACE_REQUIRE_CHROMIUM=1`.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
};

use gputrace_abi::domain::Domain;
use gputrace_analysis::report::ReportExporter;
use gputrace_export::{Exporter, OutputDir, synthetic};
use gputrace_timeline::{
    event::Event,
    observation::{FieldValue, Observation, ObservedField, Whose},
};

/// A name that takes over the page if it becomes markup anywhere.
const HOSTILE: &str = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";

/// A script that acts like a visitor and reports what the page shows.
const VISIT: &str = include_str!("report_visit.js");

/// A script that reports whether the page fits a narrow screen.
const PHONE: &str = include_str!("report_phone.js");

/// The page with another script after its own, which can only run without the policy.
fn with_script(html: &str, script: &str) -> String {
    let policy = html.find("<meta http-equiv").unwrap();
    let end = policy + html.split_at(policy).1.find('\n').unwrap();
    let script = format!("<script>{script}</script></body>");
    let rest = html.split_at(end).1.replace("</body>", &script);
    format!("{}{rest}", html.split_at(policy).0)
}

fn page(directory: &Path, events: Vec<Event>) -> String {
    let out = OutputDir::open(directory, None).unwrap();
    let mut exporter = Box::new(ReportExporter::new(
        out.file("report.html").unwrap(),
        "run.gtcap",
    ));
    for event in events {
        let event = match event {
            Event::Kernel(mut info) if info.id == 2 => {
                info.shown = HOSTILE.to_owned();
                Event::Kernel(info)
            }
            Event::Process(mut info) => {
                info.name = HOSTILE.to_owned();
                Event::Process(info)
            }
            Event::Recording(mut recording) => {
                recording.hostname = HOSTILE.to_owned();
                Event::Recording(recording)
            }
            other => other,
        };
        exporter.event(&event).unwrap();
    }
    for (time, bytes) in [(10_000, 1 << 20), (20_000, 3 << 20), (30_000, 1 << 20)] {
        exporter
            .event(&allocation(synthetic::START + time, bytes))
            .unwrap();
    }
    let outputs = exporter.finish().unwrap();
    assert_eq!(outputs.len(), 1);
    fs::read_to_string(&outputs.first().unwrap().path).unwrap()
}

/// An allocation on node 1, after which `live` bytes are allocated there.
fn allocation(time: u64, live: u64) -> Event {
    let field = |name: &'static str, value| ObservedField {
        name: name.into(),
        value: FieldValue::Number(value),
    };
    Event::Observation(Box::new(Observation {
        domain: Domain::MemoryAllocation.id(),
        name: "MEMORY_ALLOCATION_ALLOCATE".into(),
        whose: Whose {
            pid: 1,
            tid: 1,
            gpu_id: 0,
        },
        begin: time - 10,
        end: time,
        is_open: false,
        fields: vec![field("node", 1), field("live_bytes", live)],
    }))
}

/// The page after its scripts have run; `None` without a browser.
fn visit(page: &Path) -> Option<String> {
    let browser = env::var_os("GPUTRACE_TEST_CHROMIUM").unwrap_or_else(|| "chromium".into());
    let profile = tempfile::tempdir().unwrap();
    let started = Command::new(&browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--window-size=1400,1000",
            "--virtual-time-budget=10000",
            "--timeout=60000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut browser = match started {
        Ok(browser) => browser,
        Err(error) => {
            let promised =
                env::var_os("GPUTRACE_REQUIRE_CHROMIUM").is_some_and(|value| value == "1");
            assert!(
                !promised,
                "GPUTRACE_REQUIRE_CHROMIUM=1, but {browser:?}: {error}"
            );
            gputrace_skip::skipped(&format!("{browser:?}: {error}"));
            return None;
        }
    };
    let mut dom = String::new();
    browser
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut dom)
        .unwrap();
    browser.wait().unwrap();
    Some(dom)
}

#[test]
fn names_from_programs_are_text() {
    let directory = tempfile::tempdir().unwrap();
    let html = page(directory.path(), synthetic::estimates());
    assert!(!html.contains("<img"));
    assert_eq!(
        html.matches("<script").count(),
        2,
        "the data and the page's own"
    );
    assert!(html.contains("default-src 'none'"));
    let Some(dom) = visit(&directory.path().join("report.html")) else {
        return;
    };
    assert!(
        dom.contains("data-ready=\"yes\""),
        "the policy lets the page's own script run"
    );
    assert!(dom.contains("<title>run.gtcap - gputrace</title>") && !dom.contains("<img"));
    assert!(
        dom.contains("Memory allocated while recording")
            && dom.contains("3.15 MB at its peak, 1.05 MB at the end"),
        "memory over time"
    );
    // In order of totals; unknown durations have no number.
    let texts = [
        "400 us ±18</",
        "200 us ±9</",
        "≥ 104 us ±3</",
        "10.4 us ±0.3</",
        "title=\"3 of 3: how long they took is not known\"",
        "Estimates: durations of 2 of 3 kernel classes are estimates (+-3.6 % of the GPU's time); one has two lengths, so no dispatch is near its mean; 1 cannot be told apart.",
        "2 of 2 durations are means of their classes",
        "4 of 16 kernels: how long they took is not known.",
        "4 of 16 kernels have no known times and are not drawn.",
        "Gaps: at least 14</",
        "The longest is between 9.99 ms and 98.8 ms. Only a part is known of 6, marked ≥",
        "8 durations, median 9.99 ms",
    ];
    for text in texts {
        assert!(dom.contains(text), "{text} in {dom}");
    }
    let places = [0, 2].map(|text| dom.find(texts.get(text).unwrap()).unwrap());
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_visitor_can_sort_filter_and_zoom() {
    let directory = tempfile::tempdir().unwrap();
    let html = page(directory.path(), synthetic::events());
    let path = directory.path().join("visited.html");
    fs::write(&path, with_script(&html, VISIT)).unwrap();
    let Some(dom) = visit(&path) else { return };
    let failure = dom
        .split("data-failure=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    assert_eq!(failure, None);
    assert!(
        dom.contains("data-visited=\"yes\""),
        "{}",
        dom.split("<body").next().unwrap()
    );
}

#[test]
fn the_page_fits_a_phone() {
    let directory = tempfile::tempdir().unwrap();
    for (name, events) in [
        ("events", synthetic::events()),
        ("estimates", synthetic::estimates()),
    ] {
        let html = page(directory.path(), events);
        let phone = directory.path().join("phone.html");
        fs::write(&phone, with_script(&html, PHONE)).unwrap();
        // Browsers have no windows as narrow as that, but frames.
        let around = directory.path().join("around.html");
        let listen =
            "onmessage = (event) => { document.documentElement.dataset.said = event.data; }";
        fs::write(
            &around,
            format!(
                "<!DOCTYPE html><script>{listen}</script>\
                 <iframe src=phone.html width=360 height=800 style=border:0></iframe>"
            ),
        )
        .unwrap();
        let Some(dom) = visit(&around) else { return };
        assert!(
            dom.contains("data-said=\"fits\""),
            "{name}: {}",
            dom.split("<head").next().unwrap()
        );
    }
}
