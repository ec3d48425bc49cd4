//! Functions that are not traced, whatever their code.

use crate::plan::Unprobeable;

/// Functions that read or move their own return address, return twice, or switch stacks: the end of
/// a call would not be where its frame says.
const RETURN_ADDRESS: &[&str] = &[
    "__clone",
    "__clone3",
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
    "__fentry__",
    "__longjmp",
    "__longjmp_chk",
    "__morestack",
    "__restore_rt",
    "__sigsetjmp",
    "__tls_get_addr",
    "__vfork",
    "_longjmp",
    "_mcount",
    "_setjmp",
    "clone",
    "clone3",
    "getcontext",
    "longjmp",
    "makecontext",
    "mcount",
    "setcontext",
    "setjmp",
    "siglongjmp",
    "sigsetjmp",
    "swapcontext",
    "vfork",
];

/// Prefixes of further such names.
const PREFIXES: &[&str] = &[
    "_Unwind_",
    "__cxa_",
    "__gcc_personality",
    "__gxx_personality",
    "__x86_indirect_thunk",
    "__x86_return_thunk",
    "_dl_runtime_",
    "_dl_tlsdesc_",
    "_dl_start",
];

/// Functions that are not called, but reached by a jump from the kernel or another part of
/// themselves: the stack has no return address for them.
const JUMPED_TO: &[&str] = &["_start", "__start", "_rt0_amd64_linux"];

/// Why the function `name` must not be probed at all, whatever its code; `None` for ordinary
/// functions.
#[must_use]
pub fn hazard(name: &str) -> Option<Unprobeable> {
    if JUMPED_TO.contains(&name) {
        return Some(Unprobeable::NotCalled);
    }
    (RETURN_ADDRESS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .then_some(Unprobeable::ReturnAddress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name() {
        assert_eq!(hazard("_start"), Some(Unprobeable::NotCalled));
        for name in ["setjmp", "vfork", "_Unwind_Resume", "__cxa_throw"] {
            assert_eq!(hazard(name), Some(Unprobeable::ReturnAddress), "{name}");
        }
        for name in ["main", "start", "rocblas_sgemm", "_Z3fibl"] {
            assert_eq!(hazard(name), None, "{name}");
        }
    }
}
