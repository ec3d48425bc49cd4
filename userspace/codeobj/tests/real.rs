//! Code objects of real HIP programs, read from outside, compared with what the software GPU
//! executed.

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

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gputrace_codeobj::{Cache, CodeObject, CodeObjects, Layout, Storage, registry::State};
use gputrace_softgpu::truth::Dispatch;
use support::{Hanging, Running, compile, hipcc, program, run, workload};

/// Opens a process and reads its lists; fails on anything that could not be read.
fn look(pid: u32) -> CodeObjects {
    let mut objects = CodeObjects::open(pid, Arc::default()).unwrap();
    let update = objects.update().unwrap();
    assert!(update.settled && update.problems.is_empty(), "{update:?}");
    assert!(update.removed.is_empty());
    objects
}

/// Checks that every executed kernel has the name that the GPU knew, and returns the names. The
/// runtime's own copy kernels, whose names cannot be found, are left out.
fn check_names(hanging: &Hanging, objects: &CodeObjects) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for dispatch in &hanging.dispatches {
        let found = objects.kernel(dispatch.kernel_object);
        if dispatch.kernel.is_empty() {
            assert!(found.is_none());
            continue;
        }
        let (object, kernel) = found.unwrap_or_else(|| panic!("no kernel at {dispatch:?}"));
        assert_eq!(kernel.name, &*dispatch.kernel);
        assert_eq!(kernel.disagreements, [], "{}", kernel.name);
        assert_eq!(object.contents.target.processor(), Some("gfx906"));
        let end = object.load_base + object.load_size;
        assert!((object.load_base..end).contains(&dispatch.kernel_object));
        names.insert(kernel.name.clone());
    }
    names
}

/// The code object that `features` and `module` load, in a bundle for two kinds of GPU.
fn module(directory: &Path) -> PathBuf {
    let file = directory.join("module.hsaco");
    run(hipcc()
        .arg("--genco")
        .arg(workload("module.hip"))
        .arg("-o")
        .arg(&file));
    file
}

#[test]
fn kernels_of_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(&workload("many_kernels.cpp"), directory.path(), &[]);
    let hanging = Hanging::start(&program, &["600"], "small_*", 500);
    let objects = look(hanging.pid());
    assert_eq!(
        check_names(&hanging, &objects),
        ["small_a", "small_b", "small_c"].map(str::to_owned).into()
    );
    assert!(hanging.dispatches.len() >= 499);

    let (kernel_object, object) = with_kernel(&objects, "small_b");
    let (_, kernel) = objects.kernel(kernel_object).unwrap();
    assert_eq!(object.storage, Storage::File);
    assert!(object.uri.starts_with("file:///"), "{}", object.uri);
    assert_eq!(object.contents.layout, Layout::File);
    assert_eq!(kernel.demangled(), "small_b");
    assert_eq!(kernel.metadata.as_ref().unwrap().wavefront_size, 64);

    for registry in objects.registries() {
        let head = registry.head(objects.memory()).unwrap();
        assert!(
            head.version >= 7 && head.state == State::Consistent,
            "{head:?}"
        );
        // `_loader_debug_state` toggles a variable, so that compilers do not remove calls of it:
        // `xor $1, %eax` (or another register), and then it returns.
        let offset = registry.notification(&head).unwrap();
        let code = std::fs::read(registry.library.attach_path()).unwrap();
        let code = &code[usize::try_from(offset).unwrap()..][..32];
        let toggles = code
            .windows(3)
            .any(|code| code[0] == 0x83 && code[1] >> 3 == 0x1e && code[2] == 1);
        assert!(toggles && code.contains(&0xc3), "{code:x?}");
    }
}

#[test]
fn a_module_that_is_loaded_and_one_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let module = module(directory.path());
    let features = compile(&workload("features.cpp"), directory.path(), &[]);
    let arguments = [module.to_str().unwrap()];
    let hanging = Hanging::start(&features, &arguments, "from_module", 5);
    let objects = look(hanging.pid());
    assert!(check_names(&hanging, &objects).contains("from_module"));
    drop(hanging);

    let hanging = Hanging::start(&features, &arguments, "uses_scratch", 1);
    let objects = look(hanging.pid());
    let names: Vec<_> = objects
        .loaded()
        .flat_map(|object| object.kernels())
        .collect();
    assert!(!names.iter().any(|(_, kernel)| kernel.name == "from_module"));
    let scratch = names
        .iter()
        .find(|(_, kernel)| kernel.name == "uses_scratch")
        .unwrap()
        .1;
    assert!(scratch.private_segment_size() >= 2048);
}

#[test]
fn processes_share_what_was_read() {
    let cache = Arc::<Cache>::default();
    let directory = tempfile::tempdir().unwrap();
    let program = compile(&workload("endless.cpp"), directory.path(), &[]);
    let first = Hanging::start(&program, &[], "endless", 1);
    let second = Hanging::start(&program, &[], "endless", 1);
    let contents = |hanging: &Hanging| {
        let mut objects = CodeObjects::open(hanging.pid(), cache.clone()).unwrap();
        let update = objects.update().unwrap();
        assert!(update.problems.is_empty(), "{:?}", update.problems);
        let again = objects.update().unwrap();
        assert!(again.added.is_empty() && again.removed.is_empty() && again.settled);
        with_kernel(&objects, "endless").1.contents.clone()
    };
    assert!(Arc::ptr_eq(&contents(&first), &contents(&second)));
}

#[test]
fn code_compiled_at_run_time() {
    let directory = tempfile::tempdir().unwrap();
    let jit = program("jit", directory.path(), &["hiprtc"]);
    let hanging = Hanging::start(&jit, &["3"], "compiled_102", 1);
    let objects = look(hanging.pid());
    let truth: BTreeSet<u64> = hanging
        .dispatches
        .iter()
        .map(|dispatch| dispatch.kernel_object)
        .collect();
    let (kernel_object, object) = with_kernel(&objects, "compiled_102");
    assert_eq!(object.storage, Storage::Memory);
    assert!(object.uri.starts_with("memory://"), "{}", object.uri);
    // Its two predecessors were executed and unloaded: no name is better than a wrong one.
    for old in &hanging.dispatches {
        if old.kernel.starts_with("compiled_") && old.kernel_object != kernel_object {
            assert!(objects.kernel(old.kernel_object).is_none());
        }
    }
    assert!(truth.len() >= 2);
}

#[test]
fn a_module_whose_memory_was_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let program = program("module", directory.path(), &[]);
    let module = module(directory.path());
    let arguments = [module.to_str().unwrap(), "from_module"];
    for large_bar in [true, false] {
        let toml = format!("[[agent]]\nlarge_bar = {large_bar}");
        let hanging = Hanging::start_on(&toml, &program, &arguments, "last", 1);
        let objects = look(hanging.pid());
        let (kernel_object, object) = with_kernel(&objects, "from_module");
        assert_eq!(
            (object.storage, object.contents.layout),
            (Storage::Memory, Layout::Loaded)
        );
        let ran = |dispatch: &&Dispatch| dispatch.kernel_object == kernel_object;
        assert_eq!(hanging.dispatches.iter().filter(ran).count(), 3);
        // The image contains everything that the file does.
        let (_, kernel) = objects.kernel(kernel_object).unwrap();
        assert_eq!(kernel.metadata.as_ref().unwrap().symbol, "from_module.kd");
        assert_eq!(kernel.disagreements, []);
    }
}

/// The code object with a kernel of this name, and the kernel's handle.
fn with_kernel<'a>(objects: &'a CodeObjects, name: &str) -> (u64, &'a Arc<CodeObject>) {
    let find = |object: &'a Arc<CodeObject>| {
        let (kernel_object, _) = object.kernels().find(|(_, kernel)| kernel.name == name)?;
        Some((kernel_object, object))
    };
    objects.loaded().find_map(find).unwrap()
}

/// A program that constantly loads and unloads code is observed without notifications: not
/// everything is seen then, but nothing is ever confused.
#[test]
fn names_are_right_while_code_comes_and_goes() {
    let directory = tempfile::tempdir().unwrap();
    let jit = program("jit", directory.path(), &["hiprtc"]);
    // Long enough that some of them are observed.
    let rule = "[[kernel]]\nname = 'compiled_*'\nduration = { fixed_ns = 100_000_000 }";
    let mut running = Running::start(rule, &jit, &["6"]);
    let mut seen = BTreeSet::new();
    let mut watched = None;
    while running.is_running() {
        let Some(objects) = &mut watched else {
            // This fails until the runtime is loaded.
            watched = CodeObjects::open(running.pid(), Arc::default()).ok();
            continue;
        };
        let Ok(update) = objects.update() else { break };
        // There are no notifications here, so this polls.
        std::thread::sleep(Duration::from_millis(2));
        for object in &update.added {
            for (kernel_object, kernel) in object.kernels() {
                if kernel.name.starts_with("compiled_") {
                    seen.insert((kernel_object, kernel.name.clone()));
                }
            }
        }
    }
    let truth: BTreeSet<(u64, String)> = running
        .dispatches()
        .into_iter()
        .map(|dispatch| (dispatch.kernel_object, dispatch.kernel.to_string()))
        .collect();
    assert!(seen.len() >= 3, "{seen:?}");
    assert!(seen.is_subset(&truth), "{seen:?} {truth:?}");
}
