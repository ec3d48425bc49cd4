//! Names of all files that gputrace makes of a recording. A new recording must not replace such
//! files unless asked to, and then removes all of them.

use gputrace_abi::domain::Domain;
use gputrace_analysis::report;
use gputrace_export::{OutputDir, OutputError};

use super::formats::Format;

/// File name of the capture.
pub(crate) fn capture(name: &str) -> String {
    format!("{name}.gtcap")
}

/// Endings of files that belong to no format.
const ENDINGS: [&str; 3] = ["_wall_clock.txt", "_wall_clock.json", "_config.json"];

/// Stems of CSV files that belong to no single domain.
const OTHER_STEMS: [&str; 2] = ["other_api", "counter"];

/// Ending of the page that `gputrace report` makes. Other pages may have the same ending.
const PAGE: &str = ".html";

/// Suffix of the directory of an OTF2 archive.
const ARCHIVE: &str = "_results";

/// Endings of the files in that directory.
const IN_ARCHIVE: [&str; 2] = [".evt", ".def"];

/// Names of all files of a recording except its capture; directories are not included.
fn files(name: &str, summary_file: Option<&str>) -> Vec<String> {
    let of_formats = Format::all().flat_map(Format::files);
    let mut endings: Vec<String> = of_formats
        .chain(&ENDINGS)
        .map(|ending| (*ending).to_owned())
        .collect();
    let mut stems: Vec<&str> = Domain::ALL.iter().map(|domain| domain.csv_stem()).collect();
    stems.extend(OTHER_STEMS);
    stems.sort_unstable();
    stems.dedup();
    for stem in stems {
        for ending in ["trace", "trace_quality", "stats", "stats_quality"] {
            endings.push(format!("_{stem}_{ending}.csv"));
        }
    }
    endings.extend(summary_file.map(|file| format!("_{file}.txt")));
    endings
        .iter()
        .map(|ending| format!("{name}{ending}"))
        .collect()
}

/// Checks that `directory` has no files of a recording called `name`.
///
/// # Errors
///
/// [`OutputError::Exists`] with the files found.
pub(crate) fn must_not_be(
    directory: &OutputDir,
    name: &str,
    summary_file: Option<&str>,
) -> Result<(), OutputError> {
    directory.must_not_have(&capture(name))?;
    directory.must_not_have(&format!("{name}{ARCHIVE}"))?;
    let page = format!("{name}{PAGE}");
    if report::is_page(directory, &page) {
        directory.must_not_have(&page)?;
    }
    files(name, summary_file)
        .iter()
        .try_for_each(|file| directory.must_not_have(file))
}

/// Removes the files that an earlier recording called `name` left in `directory`, except its
/// capture. Symbolic links are removed, not followed.
///
/// # Errors
///
/// [`OutputError`] if one of the files cannot be removed.
pub(crate) fn remove(
    directory: &OutputDir,
    name: &str,
    summary_file: Option<&str>,
) -> Result<(), OutputError> {
    for file in files(name, summary_file) {
        directory.remove(&file)?;
    }
    let page = format!("{name}{PAGE}");
    if report::is_page(directory, &page) {
        directory.remove(&page)?;
    }
    directory.remove_directory(&format!("{name}{ARCHIVE}"), &IN_ARCHIVE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gputrace_analysis::wall_clock::WallClockExporter;
    use gputrace_export::{synthetic, testing::names};

    use super::*;
    use crate::request::Formats;

    #[test]
    fn the_table_has_everything_that_exporters_write() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = OutputDir::open(temporary.path(), None).unwrap();
        let formats = Formats {
            stats: true,
            csv_arguments: true,
            ..Formats::default()
        };
        for events in [synthetic::events(), synthetic::observed()] {
            let mut exporters: Vec<Box<dyn gputrace_export::Exporter>> = vec![Box::new(
                WallClockExporter::new(directory.clone(), "run", true),
            )];
            for format in Format::all() {
                if format.check().is_ok() {
                    exporters.push(format.begin(&directory, "run", &formats).unwrap());
                }
            }
            for mut exporter in exporters {
                events
                    .iter()
                    .for_each(|event| exporter.event(event).unwrap());
                exporter.finish().unwrap();
            }
        }
        fs::write(temporary.path().join("run.gtcap"), "").unwrap();
        fs::write(temporary.path().join("run_summary.txt"), "").unwrap();
        fs::write(temporary.path().join("run_notes.txt"), "of somebody else").unwrap();
        fs::write(
            temporary.path().join("running_loss.csv"),
            "of another recording",
        )
        .unwrap();
        // Every format except OTF2 has at least one file, and CSV has several.
        assert!(
            names(temporary.path()).len() > 16,
            "{:?}",
            names(temporary.path())
        );
        assert!(matches!(
            must_not_be(&directory, "run", None),
            Err(OutputError::Exists { .. })
        ));
        remove(&directory, "run", Some("summary")).unwrap();
        assert_eq!(
            names(temporary.path()),
            ["run.gtcap", "run_notes.txt", "running_loss.csv"]
        );
        must_not_be(&directory, "runn", None).unwrap();
    }

    #[test]
    fn a_report_belongs_to_its_recording_and_other_pages_do_not() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = OutputDir::open(temporary.path(), None).unwrap();
        let title = "<title>".repeat(100);
        let mut exporter: Box<dyn gputrace_export::Exporter> = Box::new(
            report::ReportExporter::new(directory.file("run.html").unwrap(), &title),
        );
        synthetic::events()
            .iter()
            .for_each(|event| exporter.event(event).unwrap());
        exporter.finish().unwrap();
        fs::write(
            temporary.path().join("index.html"),
            "<!DOCTYPE html>\n<title>gputrace</title>",
        )
        .unwrap();
        std::os::unix::fs::symlink(
            temporary.path().join("run.html"),
            temporary.path().join("link.html"),
        )
        .unwrap();
        assert!(matches!(
            must_not_be(&directory, "run", None),
            Err(OutputError::Exists { .. })
        ));
        for name in ["run", "index", "link"] {
            remove(&directory, name, None).unwrap();
            must_not_be(&directory, name, None).unwrap();
        }
        assert_eq!(names(temporary.path()), ["index.html", "link.html"]);
    }

    #[test]
    fn links_and_what_others_have_in_directories_stay() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = OutputDir::open(temporary.path(), None).unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::write(at("precious"), "data").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("run_results.db")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/0.evt"), "data").unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at("run_results")).unwrap();
        fs::create_dir(at("other_results")).unwrap();
        fs::write(at("other_results/0.evt"), "").unwrap();
        fs::write(at("other_results/thesis.tex"), "data").unwrap();
        assert!(must_not_be(&directory, "run", None).is_err());
        remove(&directory, "run", None).unwrap();
        remove(&directory, "other", None).unwrap();
        assert_eq!(
            names(temporary.path()),
            ["elsewhere", "other_results", "precious"]
        );
        assert_eq!(names(&at("elsewhere")), ["0.evt"]);
        assert_eq!(names(&at("other_results")), ["thesis.tex"]);
    }
}
