//! Places of arguments at a function's entry, compared with layouts read from the disassembly of
//! libamdhip64 and libhsa-runtime64 and from the sources of ROCr.
#![allow(
    clippy::disallowed_methods,
    reason = "tests make and read files of their own"
)]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use gputrace_abi::STACK_ARGS;
use gputrace_capture::meta::{ArgSlot, ValueKind};
use gputrace_catalog::signature;

/// Per function: the place of each parameter's first word in order (`+8` is `[rsp+8]`, the word
/// after the return address; `-` is not recorded), and the number of stack words to copy.
const LAYOUTS: &[(&str, &str, u8)] = &[
    // A dim3 takes two registers: grid in rsi:rdx, block in rcx:r8.
    ("hipLaunchKernel", "rdi rsi rcx r9 +8 +16", 2),
    ("hipLaunchKernel_spt", "rdi rsi rcx r9 +8 +16", 2),
    ("hipExtLaunchKernel", "rdi rsi rcx r9 +8 +16 +24 +32 +40", 5),
    ("hipLaunchCooperativeKernel", "rdi rsi rcx r9 +8 +16", 2),
    (
        "hipModuleLaunchKernel",
        "rdi rsi rdx rcx r8 r9 +8 +16 +24 +32 +40",
        5,
    ),
    (
        "hipExtModuleLaunchKernel",
        "rdi rsi rdx rcx r8 r9 +8 +16 +24 +32 +40 +48 +56 +64",
        8,
    ),
    ("hipGraphLaunch", "rdi rsi", 0),
    ("hipMemcpy", "rdi rsi rdx rcx", 0),
    ("hipMemcpyAsync", "rdi rsi rdx rcx r8", 0),
    ("hipMalloc", "rdi rsi", 0),
    ("hipFree", "rdi", 0),
    ("__hipPushCallConfiguration", "rdi rdx r8 r9", 0),
    ("__hipPopCallConfiguration", "rdi rsi rdx rcx", 0),
    ("__hipRegisterFatBinary", "rdi", 0),
    (
        "__hipRegisterFunction",
        "rdi rsi rdx rcx r8 r9 +8 +16 +24 +32",
        4,
    ),
    ("hsa_queue_create", "rdi rsi rdx rcx r8 r9 +8 +16", 2),
    (
        "hsa_amd_memory_async_copy",
        "rdi rsi rdx rcx r8 r9 +8 +16",
        2,
    ),
    (
        "hsa_amd_memory_async_copy_on_engine",
        "rdi rsi rdx rcx r8 r9 +8 +16 +24 +32",
        4,
    ),
    (
        "hsa_amd_memory_async_copy_rect",
        "rdi rsi rdx rcx r8 r9 +8 +16 +24 +32",
        4,
    ),
    ("hsa_amd_memory_pool_allocate", "rdi rsi rdx rcx", 0),
    ("hsa_memory_allocate", "rdi rsi rdx", 0),
    ("hsa_amd_vmem_handle_create", "rdi rsi rdx rcx r8", 0),
    ("hsa_executable_get_symbol_by_name", "rdi rsi rdx rcx", 0),
    ("hsa_executable_symbol_get_info", "rdi rsi rdx", 0),
    ("hsa_signal_store_screlease", "rdi rsi", 0),
    ("hsa_amd_profiling_get_dispatch_time", "rdi rsi rdx", 0),
    ("hsa_amd_profiling_get_async_copy_time", "rdi rsi", 0),
    ("hsa_init", "", 0),
    // Structs of 32, 24 and 64 bytes by value: they are in memory, and the other arguments get the
    // registers.
    ("hipMemset3D", "+8 rdi +40", 7),
    ("hipIpcOpenMemHandle", "rdi +8 rsi", 8),
    // A struct of 144 bytes; a record contains its beginning.
    ("hsa_ext_program_finalize", "rdi rsi rdx +8 rcx r8 r9", 8),
    // The result is a struct of 20 bytes; rdi is the address for it.
    ("hipCreateChannelDesc", "rsi rdx rcx r8 r9", 0),
    // float arguments are in xmm0, xmm1.
    ("hipTexRefSetMipmapLevelClamp", "rdi - -", 0),
];

fn place(slot: ArgSlot) -> String {
    match slot {
        ArgSlot::Register(number) => {
            ["rdi", "rsi", "rdx", "rcx", "r8", "r9"][usize::from(number)].to_owned()
        }
        ArgSlot::Stack(word) => format!("+{}", 8 * (usize::from(word) + 1)),
        ArgSlot::Unrecorded => "-".to_owned(),
    }
}

#[test]
fn arguments_lie_where_the_library_reads_them() {
    for (name, expected, stack_words) in LAYOUTS {
        let signature = signature(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        let places: Vec<String> = signature
            .parameters()
            .iter()
            .map(|parameter| place(parameter.at))
            .collect();
        assert_eq!(places.join(" "), *expected, "{name}");
        assert_eq!(signature.stack_words(), *stack_words, "{name}");
    }
}

#[test]
fn arguments_have_names_types_and_kinds() {
    use ValueKind::{
        Bool, CString, Dim3, Float, HipError, HsaStatus, Pointer, Signed, Struct, Unsigned,
    };
    let launch = signature("hipLaunchKernel").unwrap();
    let shown: Vec<(String, String, ValueKind)> = launch
        .parameters()
        .into_iter()
        .map(|parameter| (parameter.name, parameter.c_type, parameter.kind))
        .collect();
    let expected = [
        ("function_address", "const void *", Pointer),
        ("numBlocks", "dim3", Dim3),
        ("dimBlocks", "dim3", Dim3),
        ("args", "void **", Pointer),
        ("sharedMemBytes", "size_t", Unsigned(8)),
        ("stream", "hipStream_t", Pointer),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, c_type, kind)| ((*name).to_owned(), (*c_type).to_owned(), *kind))
        .collect();
    assert_eq!(shown, expected);

    let kinds = |name: &str| -> Vec<ValueKind> {
        signature(name)
            .unwrap()
            .parameters()
            .iter()
            .map(|parameter| parameter.kind)
            .collect()
    };
    assert_eq!(
        kinds("hipMemcpy"),
        [Pointer, Pointer, Unsigned(8), Unsigned(4)]
    );
    assert_eq!(kinds("hipGetErrorName"), [HipError]);
    assert_eq!(kinds("hipMemset3D"), [Struct, Signed(4), Struct]);
    assert_eq!(kinds("hipModuleLoad"), [Pointer, CString]);
    assert_eq!(kinds("hipMemsetD8"), [Pointer, Unsigned(1), Unsigned(8)]);
    assert_eq!(kinds("hipTexRefSetMipmapLevelBias"), [Pointer, Float]);
    assert_eq!(kinds("hsa_signal_store_relaxed"), [Pointer, Signed(8)]);
    assert_eq!(kinds("hsa_amd_profiling_async_copy_enable"), [Bool]);
    assert_eq!(kinds("hsa_status_string"), [HsaStatus, Pointer]);
}

#[test]
fn return_values_have_kinds() {
    let cases = [
        ("hipMalloc", ValueKind::HipError),
        ("hsa_init", ValueKind::HsaStatus),
        ("hipGetErrorString", ValueKind::CString),
        ("hsa_signal_load_relaxed", ValueKind::Signed(8)),
        (
            "hsa_queue_add_write_index_screlease",
            ValueKind::Unsigned(8),
        ),
        ("hsa_signal_store_relaxed", ValueKind::Void),
        ("__hipRegisterFatBinary", ValueKind::Pointer),
        ("hipCreateChannelDesc", ValueKind::Pointer),
    ];
    for (name, kind) in cases {
        assert_eq!(signature(name).unwrap().return_kind(), kind, "{name}");
    }
}

#[test]
fn mangled_names_are_found() {
    let mangled = "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j";
    assert_eq!(signature(mangled), signature("hipExtModuleLaunchKernel"));
    assert!(signature(mangled).is_some());
    assert!(signature("hipNoSuchFunction").is_none());
}

#[test]
fn every_variant_puts_its_arguments_in_the_same_places() {
    for newest in gputrace_catalog::signatures() {
        for variant in gputrace_catalog::variants(newest.name) {
            let places = |s: &gputrace_catalog::Signature<'_>| -> Vec<ArgSlot> {
                s.parameters()
                    .iter()
                    .map(|parameter| parameter.at)
                    .collect()
            };
            assert_eq!(
                places(variant),
                places(newest),
                "{} in {}",
                variant.name,
                variant.releases
            );
        }
        assert!(usize::from(newest.stack_words()) <= STACK_ARGS);
    }
}
