//! The C++ names of the Itanium ABI, which Linux uses everywhere.
//!
//! The grammar is that of the ABI (<https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling>)
//! with what clang and GCC add to it. Names are written as `c++filt` writes them.
//!
//! Nobody vouches for the names, so the work for each is bounded:
//!
//! * The [parser](parse) never goes back: it decides by the characters in front of it, and each
//!   step takes at least one. So time and memory grow with the length of the name. Nesting is
//!   limited by [`MAX_DEPTH`]. Where compilers differ, the whole name is read a second time at
//!   most.
//! * A name may refer to earlier parts of itself, so the parts form a graph, and what they stand
//!   for can be exponentially long. The [printer](print) limits length, depth and steps.

mod expressions;
mod literals;
mod names;
mod node;
mod operators;
mod parse;
mod print;
mod print_expressions;
mod print_types;
mod special;
mod types;
mod unresolved;

use parse::{Parser, Scopes};

/// How deeply the parts of a name may be nested: enough for real ones, and within the stack of any
/// thread.
const MAX_DEPTH: u32 = 512;

/// The declaration that `mangled` stands for, at most `longest` bytes; `None` if it is no mangled
/// name, or beyond the bounds.
pub(crate) fn demangle(mangled: &str, longest: usize) -> Option<String> {
    let rest = mangled.strip_prefix("_Z")?;
    let mut parser = Parser::new(rest, Scopes::Ended);
    let top = parser.whole();
    if parser.has_joined_scope {
        let mut again = Parser::new(rest, Scopes::Joined);
        if let Some(top) = again.whole() {
            return print::print(&again.tree, top, longest);
        }
    }
    print::print(&parser.tree, top?, longest)
}
