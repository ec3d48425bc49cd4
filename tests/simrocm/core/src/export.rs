//! Exports functions as ROCm does: by a stub that loads the address of a table and jumps through
//! it. So a tracer meets the same first instructions as in the real libraries, every name has its
//! own address, and calls inside the library never pass the stubs.

/// Exports functions of C linkage under the given names.
///
/// `name = function, alias other;` exports `function` as `name`, and `other` at the same address.
/// ROCr has such aliases for the deprecated names of memory orders.
#[macro_export]
macro_rules! exports {
    ($($name:ident = $function:path $(, alias $alias:ident)*;)+) => {
        #[allow(non_camel_case_types, reason = "they are the names of C functions")]
        #[repr(usize)]
        enum Slot { $($name),+ }

        #[allow(dead_code, reason = "only the stubs read it")]
        struct Entry(*const ());

        // SAFETY: the addresses of functions never change.
        unsafe impl Sync for Entry {}

        static ENTRIES: [Entry; [$(Slot::$name as usize),+].len()] = [$(Entry($function as *const ())),+];
        static TABLE: &[Entry; ENTRIES.len()] = &ENTRIES;

        $(std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            ".p2align 4",
            concat!(stringify!($name), ":"),
            "endbr64",
            "movq {table}(%rip), %rax",
            "jmpq *{offset}(%rax)",
            concat!(".size ", stringify!($name), ", .-", stringify!($name)),
            $(
                concat!(".globl ", stringify!($alias)),
                concat!(".set ", stringify!($alias), ", ", stringify!($name)),
            )*
            ".popsection",
            table = sym TABLE,
            offset = const Slot::$name as usize * size_of::<usize>(),
            options(att_syntax),
        );)+
    };
}
