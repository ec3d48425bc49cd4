//! Functions on which a probe would change what the program does.

use crate::plan::Unprobeable;

/// Functions that look at their own return address, move it, return twice or change stacks. A probe on their return
/// replaces that address, and the program would go wrong.
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

/// Beginnings of such names.
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

/// Functions that are not called but jumped to by the kernel or another part of themselves: there is no return address
/// where a call has one.
const JUMPED_TO: &[&str] = &["_start", "__start", "_rt0_amd64_linux"];

/// Why the function `name` must not be probed at all, whatever its code; `None` for ordinary ones.
#[must_use]
pub fn hazard(name: &str) -> Option<Unprobeable> {
    if JUMPED_TO.contains(&name) {
        return Some(Unprobeable::NotCalled);
    }
    (RETURN_ADDRESS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .then_some(Unprobeable::ReturnAddress)
}

/// Whether a function of this name may be left by an exception: then a probe on its return, which replaces the return
/// address, would end the program, because the unwinder cannot pass it. Functions of C interfaces do not throw; mangled
/// names are those of C++ and Rust.
#[must_use]
pub fn may_throw(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
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
