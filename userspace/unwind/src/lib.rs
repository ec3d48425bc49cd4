//! Unwinds copied stacks off-line: from the registers at the entry of a function, some memory of
//! the thread's stack, and the `.eh_frame` sections of what the process has mapped.
//!
//! Nothing is guessed. A frame is found by the rules that the compiler wrote, or the stack ends
//! there and [`End`] says why. Crates for sampling profilers (framehop) fall back to frame pointers
//! where there are no rules, and follow only two registers; both can make frames that never were.
//!
//! [`Stack::depends_on`] lists all words of memory and registers that the result depends on. As
//! long as they are the same at another entry with the same stack pointer, and the process has the
//! same code mapped, the stack is the same. So a program in the kernel can tell a known stack by a
//! few comparisons.
//!
//! * [`Module`]: what is needed of a mapped file.
//! * [`Modules`]: all files that a process has mapped.
//! * [`Modules::unwind`]: a stack.

mod expression;
mod module;
mod registers;
mod stack;

pub use module::{Module, ModuleError, Modules};
pub use registers::{Register, Registers};
pub use stack::{Dependencies, End, Frame, Stack, Unwound};

#[cfg(test)]
mod tests;
