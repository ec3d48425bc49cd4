//! Headers of one library and release, parsed by libclang.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use clang::{Clang, Entity, Index, Unsaved};

use super::Library;

/// Headers of one release.
pub(super) struct Headers<'a> {
    pub(super) clang: &'a Clang,
    pub(super) library: &'a Library,
    /// Directory of the headers.
    pub(super) include: &'a Path,
    /// Directory of headers that they include.
    pub(super) more: Option<&'a Path>,
}

impl Headers<'_> {
    /// Parses all of them, followed by the lines of `extra`, as one C++ file.
    ///
    /// # Errors
    ///
    /// If the headers do not compile, or the error of `look`.
    pub(super) fn read<T>(
        &self,
        extra: &str,
        look: impl FnOnce(Entity<'_>) -> Result<T>,
    ) -> Result<T> {
        let index = Index::new(self.clang, false, false);
        let include_all = |text: String, header: &&str| {
            text + &format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n")
        };
        let umbrella = self.library.headers.iter().fold(String::new(), include_all) + extra;
        let mut arguments = vec![
            "-xc++".to_owned(),
            "-std=c++17".to_owned(),
            "-target".to_owned(),
            "x86_64-linux-gnu".to_owned(),
            "-D__HIP_PLATFORM_AMD__=1".to_owned(),
            format!("-isystem{}", self.include.display()),
        ];
        arguments.extend(self.more.map(|more| format!("-isystem{}", more.display())));
        let unit = index
            .parser("umbrella.cpp")
            .arguments(&arguments)
            .unsaved(&[Unsaved::new("umbrella.cpp", umbrella)])
            .skip_function_bodies(true)
            .detailed_preprocessing_record(true)
            .parse()
            .map_err(|error| anyhow!("libclang: {error}"))?;
        for diagnostic in unit.get_diagnostics() {
            ensure!(
                diagnostic.get_severity() < clang::diagnostic::Severity::Error,
                "{diagnostic}"
            );
        }
        look(unit.get_entity())
    }

    /// Whether something is declared in these headers, and not in other headers that they include
    /// or that are installed on this machine.
    pub(super) fn have(&self, entity: &Entity<'_>) -> bool {
        let location = entity.get_location();
        let file = location.and_then(|location| location.get_file_location().file);
        file.is_some_and(|file| file.get_path().starts_with(self.include))
    }
}
