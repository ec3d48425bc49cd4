//! ELF files built for these tests: versions, aliases, indirect functions, other linkage, damage.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod common;

use std::{collections::BTreeSet, path::Path};

use common::{check_against_readelf, compile};
use gputrace_abi::domain::Domain;
use gputrace_tracee::{
    elf::{ElfError, ElfInfo, Linkage, SymbolKind},
    library::{LibraryFile, SymbolError},
    plan::{CostClass, Unprobeable},
};
use proptest::{collection::vec, prelude::*, sample::Index};

const LIBRARY: &str = r#"
__asm__(".symver api_v1, api@V1\n .symver api_v2, api@@V2\n .symver only_v1, only_old@V1\n");
int api_v1(int x) { return x + 1; }
int api_v2(int x) { return x + 2; }
int only_v1(int x) { return x + 3; }
int plain(int x) { return x + 0x1234567; }
int longer_alias(int x) __attribute__((alias("plain")));
int data_object = 7;
static int chosen(int x) { return x; }
static void *choose(void) { return chosen; }
int indirect(int) __attribute__((ifunc("choose")));
__attribute__((visibility("hidden"))) int hidden(int x) { return x; }
/* As Debian's ROCm has them: an alias without size. */
__asm__(".text\n .globl endbr_alias\n .type endbr_alias, @function\nendbr_alias:\n"
        ".globl at_endbr\n .type at_endbr, @function\nat_endbr: endbr64\n push %rbp\n pop %rbp\n ret\n .size at_endbr, . - at_endbr\n"
        ".globl breakpoint\n .type breakpoint, @function\nbreakpoint: int3\n ret\n .size breakpoint, . - breakpoint\n");
"#;

const VERSIONS: &str = "V1 { global: only_old; plain; local: hidden; };\nV2 { global: longer_alias; endbr_alias; \
                        data_object; indirect; at_endbr; breakpoint; } V1;\n";

fn library(directory: &Path, flags: &[&str]) -> Option<LibraryFile> {
    std::fs::write(directory.join("versions"), VERSIONS).unwrap();
    let base = [
        "-shared",
        "-fPIC",
        "-O1",
        "-Wl,--version-script=versions",
        "-Wl,--build-id=0xc0ffee",
        "-fcf-protection=none",
    ];
    let path = compile(directory, "libtest.so", LIBRARY, &[&base, flags].concat())?;
    Some(LibraryFile::open(&path).unwrap())
}

/// Name, version and kind of each symbol.
fn names(elf: &ElfInfo) -> BTreeSet<(&str, Option<&str>, SymbolKind)> {
    elf.symbols()
        .iter()
        .map(|symbol| (symbol.name.as_str(), symbol.version.as_deref(), symbol.kind))
        .collect()
}

#[test]
fn versions_aliases_and_kinds() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [
        &["-Wl,--hash-style=gnu"][..],
        &["-Wl,--hash-style=sysv"],
        &["-Wl,-z,noseparate-code", "-s"],
    ] {
        let Some(library) = library(directory.path(), flags) else {
            return;
        };
        let elf = library.elf();
        let expected = BTreeSet::from([
            ("api", Some("V2"), SymbolKind::Function),
            ("only_old", Some("V1"), SymbolKind::Function),
            ("plain", Some("V1"), SymbolKind::Function),
            ("longer_alias", Some("V2"), SymbolKind::Function),
            ("endbr_alias", Some("V2"), SymbolKind::Function),
            ("data_object", Some("V2"), SymbolKind::Object),
            ("indirect", Some("V2"), SymbolKind::Indirect),
            ("at_endbr", Some("V2"), SymbolKind::Function),
            ("breakpoint", Some("V2"), SymbolKind::Function),
        ]);
        // `api_v1` and similar symbols are exported as well, unversioned, because the script does
        // not name them.
        let found = names(elf);
        assert!(found.is_superset(&expected), "{flags:?}: {found:?}");
        assert!(elf.symbol("hidden").is_none() && elf.symbol("choose").is_none());
        assert_eq!(elf.build_id.as_deref(), Some("c0ffee"));
        assert_eq!(elf.linkage, Linkage::Dynamic);

        assert_eq!(elf.superseded(), ["api@V1"]);
        check_against_readelf(&library);
        // lea 2(%rdi), %eax; ret
        let bytes = std::fs::read(library.path()).unwrap();
        let (at, _) = elf.code_at(elf.symbol("api").unwrap().address).unwrap();
        assert_eq!(
            bytes[usize::try_from(at).unwrap()..][..4],
            [0x8d, 0x47, 0x02, 0xc3]
        );

        let functions = elf.functions();
        let plain = functions
            .iter()
            .find(|function| function.names[0].name == "plain")
            .unwrap();
        let aliases: Vec<_> = plain.names.iter().map(|name| name.name.as_str()).collect();
        assert_eq!(aliases, ["plain", "longer_alias"]);
        let endbr = functions
            .iter()
            .find(|function| function.names[0].name == "at_endbr")
            .unwrap();
        assert_eq!(
            (endbr.names[1].name.as_str(), endbr.size),
            ("endbr_alias", 7)
        );
        assert_eq!(elf.symbol("endbr_alias").unwrap().size, 0);
        assert!(
            functions
                .windows(2)
                .all(|pair| pair[0].address < pair[1].address)
        );
    }
}

#[test]
fn probe_sites() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = library(directory.path(), &[]) else {
        return;
    };
    let bytes = std::fs::read(library.path()).unwrap();
    let selector = |name: &str| match name {
        "longer_alias" | "at_endbr" => Some(Domain::HipRuntime),
        "breakpoint" | "indirect" | "data_object" => Some(Domain::HsaCore),
        _ => None,
    };
    let plan = library.plan(&selector).unwrap();
    let [endbr, alias] = &plan.probes[..] else {
        panic!("{plan:?}")
    };
    let (endbr, alias) = if endbr.name == "at_endbr" {
        (endbr, alias)
    } else {
        (alias, endbr)
    };

    // The selected name is shown, the others are aliases.
    assert_eq!(
        (alias.name.as_str(), alias.version.as_deref()),
        ("longer_alias", Some("V2"))
    );
    assert_eq!(alias.aliases, ["plain"]);
    assert_eq!(alias.domain, Domain::HipRuntime);
    // lea 0x1234567(%rdi), %eax
    let at = usize::try_from(alias.site.file_offset).unwrap();
    assert_eq!(bytes[at..at + 6], [0x8d, 0x87, 0x67, 0x45, 0x23, 0x01]);

    assert_eq!(
        (endbr.site.skipped, endbr.site.cost),
        (4, CostClass::Emulated)
    );
    assert_eq!(
        bytes[usize::try_from(endbr.site.file_offset).unwrap()],
        0x55
    );

    assert_eq!(plan.indirect, ["indirect"]);
    assert_eq!(plan.refused.len(), 1);
    assert_eq!(
        (plan.refused[0].name.as_str(), plan.refused[0].reason),
        ("breakpoint", Unprobeable::Breakpoint)
    );

    assert!(matches!(
        library.plan_symbol("nothing"),
        Err(SymbolError::NotExported { .. })
    ));
    assert!(matches!(
        library.plan_symbol("data_object"),
        Err(SymbolError::NotExported { .. })
    ));
    assert!(matches!(
        library.plan_symbol("breakpoint"),
        Err(SymbolError::Unprobeable { .. })
    ));
    assert_eq!(library.plan_symbol("at_endbr").unwrap(), endbr.site);
    assert!(library.plan(&|_: &str| None).unwrap().probes.is_empty());
}

#[test]
fn the_attach_path_means_the_open_file() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = library(directory.path(), &[]) else {
        return;
    };
    std::fs::write(library.path().with_extension("new"), "another").unwrap();
    std::fs::rename(library.path().with_extension("new"), library.path()).unwrap();
    let metadata = std::fs::metadata(library.attach_path()).unwrap();
    assert_eq!(
        (metadata.dev(), metadata.ino()),
        (library.device(), library.inode())
    );
    assert_ne!(
        std::fs::metadata(library.path()).unwrap().ino(),
        library.inode()
    );
}

#[test]
fn linkage_and_paths() {
    let directory = tempfile::tempdir().unwrap();
    let main =
        "int exported(int x) { return x + 0x7654321; }\nint main(void) { return exported(1); }\n";
    let build = |name: &str, flags: &[&str]| {
        let path = compile(directory.path(), name, main, flags)?;
        Some((LibraryFile::open(&path).unwrap(), path))
    };
    let rpath = [
        "-Wl,-rpath,$ORIGIN/../lib:/x",
        "-Wl,--disable-new-dtags",
        "-no-pie",
        "-rdynamic",
        "-O1",
    ];
    let Some((fixed, path)) = build("fixed", &rpath) else {
        return;
    };
    assert_eq!(fixed.elf().linkage, Linkage::Dynamic);
    assert_eq!(fixed.elf().rpath.as_deref(), Some("$ORIGIN/../lib:/x"));
    assert_eq!(fixed.elf().needed, ["libc.so.6"]);
    assert!(
        fixed
            .elf()
            .interpreter
            .as_ref()
            .unwrap()
            .to_str()
            .unwrap()
            .contains("ld-linux")
    );
    // A program with a fixed address: file offsets differ from addresses.
    let site = fixed.plan_symbol("exported").unwrap();
    let address = fixed.elf().symbol("exported").unwrap().address;
    assert_ne!(address, site.file_offset - u64::from(site.skipped));
    let bytes = std::fs::read(path).unwrap();
    let code = &bytes[usize::try_from(site.file_offset).unwrap()..][..16];
    assert!(
        code.windows(4)
            .any(|bytes| bytes == [0x21, 0x43, 0x65, 0x07]),
        "{code:02x?}"
    );

    let (pie, _) = build("pie", &["-Wl,-rpath,/y", "-Wl,--enable-new-dtags", "-pie"]).unwrap();
    assert_eq!(
        (pie.elf().runpath.as_deref(), pie.elf().linkage),
        (Some("/y"), Linkage::Dynamic)
    );

    for flags in [&["-static"][..], &["-static-pie"]] {
        let (fixed, _) = build("static", flags).unwrap();
        assert_eq!(fixed.elf().linkage, Linkage::Static, "{flags:?}");
        assert!(fixed.elf().interpreter.is_none());
        let error = fixed.plan(&|_: &str| Some(Domain::HipRuntime)).unwrap_err();
        assert!(
            matches!(error, ElfError::NoDynamicSymbols { .. }),
            "{flags:?}: {error}"
        );
    }

    let (named, _) = build("libx.so.3", &["-shared", "-fPIC", "-Wl,-soname,libx.so.3"]).unwrap();
    assert_eq!(
        (named.elf().soname.as_deref(), named.elf().linkage),
        (Some("libx.so.3"), Linkage::Dynamic)
    );
}

#[test]
fn section_headers_are_not_needed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = library(directory.path(), &[]) else {
        return;
    };
    let mut bytes = std::fs::read(library.path()).unwrap();
    bytes[0x28..0x30].fill(0); // e_shoff
    bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    let bare = ElfInfo::from_bytes(&bytes, Path::new("bare")).unwrap();
    assert_eq!(bare.symbols(), library.elf().symbols());
}

#[test]
fn other_architectures_and_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = library(directory.path(), &[]) else {
        return;
    };
    let whole = std::fs::read(library.path()).unwrap();
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = whole.clone();
        for (at, value) in changes {
            bytes[*at] = *value;
        }
        ElfInfo::from_bytes(&bytes, Path::new("/x/lib.so"))
            .unwrap_err()
            .to_string()
    };
    // e_machine is at 18, the class at 4, the byte order at 5.
    assert!(with(&[(18, 183)]).contains("AArch64"));
    assert!(with(&[(18, 3), (4, 1)]).contains("32-bit x86"));
    assert!(with(&[(4, 1)]).contains("x32"));
    assert!(with(&[(5, 2), (18, 0), (19, 21)]).contains("PowerPC, big-endian"));
    assert!(with(&[(18, 99)]).contains("machine number 99"));
    assert!(with(&[(0, 0)]).contains("/x/lib.so is not an ELF file"));

    let open = |path: &str| LibraryFile::open(Path::new(path)).unwrap_err();
    assert!(matches!(open("/dev/null"), ElfError::NotRegular { .. }));
    assert!(matches!(open("/"), ElfError::NotRegular { .. }));
    assert!(matches!(open("/nonexistent"), ElfError::Read { .. }));
    assert!(matches!(
        open("/proc/self/stat"),
        ElfError::NotRegular { .. }
    ));
    assert!(matches!(open("/etc/passwd"), ElfError::NotElf { .. }));
}

#[test]
fn cut_off_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = library(directory.path(), &["-s"]) else {
        return;
    };
    let whole = std::fs::read(library.path()).unwrap();
    let complete = library.elf().symbols();
    let mut failures = 0;
    for end in (0..whole.len()).step_by(64) {
        match ElfInfo::from_bytes(&whole[..end], Path::new("cut")) {
            // Data after the tables may be missing.
            Ok(elf) => assert_eq!(elf.symbols(), complete, "cut at {end}"),
            Err(ElfError::NotElf { .. }) => assert!(end < 4),
            Err(ElfError::Truncated { .. }) => failures += 1,
            Err(other) => panic!("cut at {end}: {other}"),
        }
        // The same through a file, including probe sites.
        let cut = directory.path().join("cut.so");
        std::fs::write(&cut, &whole[..end]).unwrap();
        if let Ok(library) = LibraryFile::open(&cut) {
            let _ = library.plan(&|_: &str| Some(Domain::HipRuntime));
        }
    }
    assert!(failures > 10);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_anywhere(changes in vec((any::<Index>(), any::<u8>()), 1..24)) {
        // Built once: gcc takes longer than all cases together.
        static LIBRARY: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
        let whole = LIBRARY.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            Some(std::fs::read(library(directory.path(), &["-s"])?.path()).unwrap())
        });
        let Some(whole) = whole else { return Ok(()) };
        let mut bytes = whole.clone();
        for (at, value) in changes {
            // Half of the changes hit the headers and tables at the start.
            let range = if value % 2 == 0 { bytes.len() } else { 0x600 };
            let at = at.index(range);
            bytes[at] = value;
        }
        if let Ok(elf) = ElfInfo::from_bytes(&bytes, Path::new("changed")) {
            let _ = elf.functions();
            for symbol in elf.symbols() {
                let _ = elf.code_at(symbol.address);
            }
        }
    }

    #[test]
    fn any_bytes_behind_a_header(tail in vec(any::<u8>(), 0..512)) {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        bytes.extend(tail);
        let _ = ElfInfo::from_bytes(&bytes, Path::new("random"));
    }
}
