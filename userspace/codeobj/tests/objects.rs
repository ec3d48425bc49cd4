//! Code objects made by the compiler, compared with the output of LLVM's own tools.

#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code outside of #[test] functions"
)]

mod support;

use std::{collections::BTreeMap, path::Path, process::Command};

use gputrace_codeobj::{Contents, Kernel, Layout, container, isa::Version};
use support::{hipcc, run};

/// A tool of the LLVM version that the compiler belongs to.
fn llvm(tool: &str) -> Command {
    let at = run(hipcc().arg(format!("--print-prog-name={tool}")));
    Command::new(at.trim())
}

/// Compiles a program for one GPU and returns its bundle.
fn bundle(directory: &Path, target: &str, version: u32) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/templates.cpp");
    let file = directory.join(format!("{target}-{version}.hsaco"));
    run(Command::new("hipcc")
        .env("HCC_AMDGPU_TARGET", "gfx906")
        .args(["--genco", "-std=c++17", "-O1"])
        .arg(format!("--offload-arch={target}"))
        .arg(format!("-mcode-object-version={version}"))
        .arg(source)
        .arg("-o")
        .arg(&file));
    std::fs::read(file).unwrap()
}

/// The only code object of a bundle that was compiled for one GPU.
fn only(bundle: &[u8]) -> Vec<u8> {
    let mut found = container::code_objects(bundle).unwrap();
    assert_eq!(found.len(), 1);
    found.pop().unwrap().bytes.into_owned()
}

/// The values of each kernel, by key, as `llvm-readelf --notes` shows them.
fn notes(file: &Path) -> Vec<BTreeMap<String, String>> {
    let text = run(llvm("llvm-readelf").arg("--notes").arg(file));
    let mut kernels = Vec::<BTreeMap<String, String>>::new();
    let list = text
        .lines()
        .skip_while(|line| !line.starts_with("amdhsa.kernels:"))
        .skip(1);
    for line in list.take_while(|line| line.starts_with("  ")) {
        if line.starts_with("  - ") {
            kernels.push(BTreeMap::new());
        }
        // Deeper lines belong to arguments.
        let line = line.get(4..).unwrap();
        if let Some((key, value)) = line.split_once(':').filter(|(key, _)| key.starts_with('.')) {
            let value = value.trim().trim_matches('\'').to_owned();
            kernels.last_mut().unwrap().insert(key.to_owned(), value);
        }
    }
    kernels
}

/// A kernel's descriptor as `llvm-objdump` shows it: the assembler's directives.
fn directives(file: &Path, kernel: &str) -> BTreeMap<String, u32> {
    let text = run(llvm("llvm-objdump")
        .arg("-D")
        .arg(format!("--disassemble-symbols={kernel}.kd"))
        .arg(file));
    let directives = text.lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix(".amdhsa_")?.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    });
    directives.collect()
}

fn check_notes(kernel: &Kernel, notes: &BTreeMap<String, String>) {
    let metadata = kernel.metadata.as_ref().unwrap();
    let number = |key: &str| {
        notes
            .get(key)
            .map_or(0, |value| value.parse::<u32>().unwrap())
    };
    assert_eq!(metadata.name, notes[".name"]);
    assert_eq!(metadata.symbol, notes[".symbol"]);
    assert_eq!(
        metadata.kernarg_segment_size,
        number(".kernarg_segment_size")
    );
    assert_eq!(
        metadata.kernarg_segment_align,
        number(".kernarg_segment_align")
    );
    assert_eq!(
        metadata.group_segment_size,
        number(".group_segment_fixed_size")
    );
    assert_eq!(
        metadata.private_segment_size,
        number(".private_segment_fixed_size")
    );
    assert_eq!(metadata.wavefront_size, number(".wavefront_size"));
    assert_eq!(metadata.sgpr_count, number(".sgpr_count"));
    assert_eq!(metadata.vgpr_count, number(".vgpr_count"));
    assert_eq!(metadata.sgpr_spill_count, number(".sgpr_spill_count"));
    assert_eq!(metadata.vgpr_spill_count, number(".vgpr_spill_count"));
    assert_eq!(
        metadata.agpr_count.is_some(),
        notes.contains_key(".agpr_count")
    );
    assert_eq!(metadata.agpr_count.unwrap_or(0), number(".agpr_count"));
    assert_eq!(
        metadata.max_flat_workgroup_size,
        number(".max_flat_workgroup_size")
    );
    assert_eq!(kernel.group_segment_size(), metadata.group_segment_size);
    assert_eq!(kernel.private_segment_size(), metadata.private_segment_size);
    assert_eq!(kernel.kernarg_segment_size(), metadata.kernarg_segment_size);
    assert_eq!(kernel.disagreements, []);
}

fn check_directives(kernel: &Kernel, contents: &Contents, said: &BTreeMap<String, u32>) {
    let descriptor = kernel.descriptor.unwrap();
    let registers = kernel.registers.unwrap();
    assert_eq!(
        descriptor.group_segment_size,
        said["group_segment_fixed_size"]
    );
    assert_eq!(
        descriptor.private_segment_size,
        said["private_segment_fixed_size"]
    );
    assert_eq!(descriptor.kernarg_segment_size, said["kernarg_size"]);
    let wave32 = said.get("wavefront_size32").is_some_and(|is| *is == 1);
    assert_eq!(descriptor.wavefront_size(), if wave32 { 32 } else { 64 });
    // The directive counts all registers that fit into the granules, however they are divided.
    match contents.target.processor() {
        Some("gfx90a") => assert_eq!(
            registers.arch_vgpr + registers.accum_vgpr,
            said["next_free_vgpr"]
        ),
        _ => assert_eq!(registers.arch_vgpr, said["next_free_vgpr"]),
    }
    if let Some(arch) = said.get("accum_offset") {
        assert_eq!(registers.arch_vgpr, *arch);
    }
    // The assembler counts in units of eight; this hardware allocates sixteen at a time.
    if contents.target.generation().unwrap() < 10 {
        assert_eq!(registers.sgpr, said["next_free_sgpr"].next_multiple_of(16));
    }
}

#[test]
fn llvm_agrees() {
    let directory = tempfile::tempdir().unwrap();
    for (target, version, generation) in [
        ("gfx906", 3, 9),
        ("gfx906", 4, 9),
        ("gfx906:sramecc+:xnack-", 4, 9),
        ("gfx908", 5, 9),
        ("gfx90a", 4, 9),
        ("gfx1030", 4, 10),
        ("gfx1030", 5, 10),
    ] {
        let bytes = only(&bundle(directory.path(), target, version));
        let file = directory.path().join("object");
        std::fs::write(&file, &bytes).unwrap();
        let contents = Contents::parse(&bytes, Layout::File).unwrap();
        let expected = [Version::V3, Version::V4, Version::V5][version as usize - 3];
        assert_eq!(contents.version, expected);
        assert_eq!(contents.target.generation(), Some(generation));
        assert_eq!(contents.metadata_error, None);
        if version > 3 {
            assert_eq!(contents.target.to_string(), target);
            assert_eq!(
                contents.target_id,
                Some(format!("amdgcn-amd-amdhsa--{target}"))
            );
        }
        let notes = notes(&file);
        assert_eq!(contents.kernels().len(), notes.len());
        assert_eq!(notes.len(), 5);
        let symbols = run(llvm("llvm-readelf").args(["-W", "--symbols"]).arg(&file));
        for kernel in contents.kernels() {
            let note = notes.iter().find(|note| note[".name"] == kernel.name);
            check_notes(kernel, note.unwrap());
            // LLVM 15 fails for some descriptors of gfx90a and gfx1030.
            let said = directives(&file, &kernel.name);
            assert!(!said.is_empty() || matches!(target, "gfx90a" | "gfx1030"));
            if !said.is_empty() {
                check_directives(kernel, &contents, &said);
            }
            let symbol = symbols
                .lines()
                .find(|line| line.ends_with(&format!(" {}.kd", kernel.name)));
            let address = symbol.unwrap().split_whitespace().nth(1).unwrap();
            assert_eq!(kernel.address, u64::from_str_radix(address, 16).unwrap());
        }
        let mut names: Vec<_> = contents.kernels().iter().map(Kernel::demangled).collect();
        names.sort_unstable();
        assert!(
            names.contains(
                &"void shapes::scale<float, (shapes::Mode)1>(float*, float, int)".to_owned()
            ),
            "{names:?}"
        );
        let needs = |name| {
            contents
                .kernels()
                .iter()
                .find(|kernel| kernel.name == name)
                .unwrap()
        };
        assert!(needs("scratch").private_segment_size() >= 2048);
        assert!(needs("registers").registers.unwrap().arch_vgpr > 64);
    }
}

#[test]
fn version_2_has_names() {
    let directory = tempfile::tempdir().unwrap();
    let contents =
        Contents::parse(&only(&bundle(directory.path(), "gfx906", 2)), Layout::File).unwrap();
    assert_eq!(contents.version, Version::V2);
    let mut names: Vec<_> = contents
        .kernels()
        .iter()
        .map(|kernel| kernel.name.as_str())
        .collect();
    names.sort_unstable();
    assert!(names.contains(&"scratch") && names.len() == 5, "{names:?}");
}

#[test]
fn a_program_holds_a_code_object_for_each_gpu() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::program("templates", directory.path(), &[]);
    let file = std::fs::read(&program).unwrap();
    let found = container::code_objects(&file).unwrap();
    let ids: Vec<_> = found
        .iter()
        .map(|object| object.id.as_deref().unwrap())
        .collect();
    assert_eq!(
        ids,
        [
            "hipv4-amdgcn-amd-amdhsa--gfx1030",
            "hipv4-amdgcn-amd-amdhsa--gfx906"
        ]
    );
    for object in &found {
        let range = object.range.unwrap();
        let begin = usize::try_from(range.offset).unwrap();
        assert_eq!(&file[begin..][..object.bytes.len()], &object.bytes[..]);
        let contents = Contents::parse(&object.bytes, Layout::File).unwrap();
        assert_eq!(contents.kernels().len(), 5);
        assert!(
            ids.iter()
                .any(|id| id.ends_with(contents.target.processor().unwrap()))
        );
    }
}

#[test]
fn bundles_are_unpacked_as_by_the_compilers_tool() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = bundle(directory.path(), "gfx1030", 4);
    let (packed, unpacked) = (
        directory.path().join("packed"),
        directory.path().join("unpacked"),
    );
    std::fs::write(&packed, &bundle).unwrap();
    run(llvm("clang-offload-bundler")
        .args([
            "--unbundle",
            "--type=o",
            "--targets=hipv4-amdgcn-amd-amdhsa--gfx1030",
        ])
        .arg(format!("--input={}", packed.display()))
        .arg(format!("--output={}", unpacked.display())));
    assert!(only(&bundle) == std::fs::read(unpacked).unwrap());
}
