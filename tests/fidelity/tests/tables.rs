//! The functions behind the tables of real runtimes, as their code says, are those to which the
//! tables in the memory of a process lead.

#![allow(clippy::panic, reason = "test code outside of #[test] functions")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::expect_used, reason = "tests")]

mod support;

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
};

use gputrace_e2e::Running;
use gputrace_fidelity::release::equip;
use gputrace_tracee::{functions::Table, library::LibraryFile, plan::CostClass, process::maps};

use support::{program, release};

/// Compares where the stubs of a library lead with the tables in a process. Returns the library.
fn compared(pid: u32, soname: &str) -> LibraryFile {
    let mappings = maps::of_process(pid).expect("its memory map");
    let first = mappings.iter().find(|mapping| {
        let path = mapping.path();
        let name = path.file_name().map(|name| name.to_string_lossy());
        mapping.offset == 0 && name.is_some_and(|name| name.starts_with(soname))
    });
    let first = first.expect("the library is mapped");
    let library = LibraryFile::open(&first.path()).expect("the library");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, address).expect("a word");
        u64::from_ne_bytes(bytes)
    };
    let mut elsewhere = Vec::new();
    for (stub, behind) in library.tables().stubs() {
        let table = match behind.table {
            Table::At(address) => first.start + address,
            Table::Variable(address) => word(first.start + address),
        };
        if word(table + behind.offset) != first.start + behind.function {
            let mut symbols = library.elf().symbols().iter();
            let symbol = symbols.find(|symbol| symbol.address == *stub);
            elsewhere.push(symbol.expect("a stub is exported").name.as_str());
        }
    }
    assert_eq!(
        elsewhere, [""; 0],
        "entries of {soname} that lead elsewhere"
    );
    library
}

fn on(name: &str) {
    let Some(release) = release(name) else { return };
    let place = tempfile::tempdir().expect("a directory");
    let mut command = program(&release, "launches", &["1", "1"]);
    fs::write(place.path().join("softgpu.toml"), "").expect("the settings");
    equip(&mut command, place.path()).expect("the software GPU");
    let mut program = Running::start("launches", &mut command);
    program.wait_for_stdout("launches/s");
    let hsa = compared(program.pid(), "libhsa-runtime64.so");
    let hip = compared(program.pid(), "libamdhip64.so");
    program.close_stdin();
    program.finish();

    // What the releases of Debian have; a smaller number means that code is not understood.
    let tables = hsa.tables();
    assert!(tables.stubs().len() > 150, "{}", tables.stubs().len());
    let of_hip = hip.tables().stubs().len();
    match name {
        "5.2.3" | "5.7.1" => assert_eq!(of_hip, 0, "HIP has no tables before ROCm 6.2"),
        _ => assert!(of_hip > 400, "{of_hip}"),
    }

    // What is called for each kernel is cheaper to probe there.
    for name in [
        "hsa_signal_store_relaxed",
        "hsa_signal_store_screlease",
        "hsa_signal_silent_store_relaxed",
        "hsa_signal_silent_store_screlease",
        "hsa_signal_destroy",
    ] {
        let symbol = hsa.elf().symbol(name).expect("an exported function");
        let site = tables.site(&hsa, symbol.address).expect("a place");
        assert!(
            site.cost < CostClass::SingleStepped,
            "{name} of ROCm {}",
            release.name
        );
    }
}

gputrace_releases::on_each_release!(on);
