//! The API domains of the functions in ROCm's libraries, and the meaning of their arguments.
//!
//! The crate answers two questions, deliberately by different means:
//!
//! * **Is this exported function traced, and in which domain?** [`classify`] uses the naming
//!   patterns of the libraries, so a function that a newer ROCm adds is traced on the day it ships.
//!   [`library_patterns`] lists the files to examine, [`is_on_request`] the functions that are left
//!   out unless the user requests them by name.
//! * **What do its arguments mean?** [`signature()`] looks the function up in data that
//!   `cargo xtask gen-catalog` made from the public headers of several ROCm releases (`data/*.txt`,
//!   one line per function; see [`table`]). A [`Signature`] says where the System V x86-64 calling
//!   convention puts each argument ([`Signature::parameters`]) and how many stack words a probe
//!   must copy ([`Signature::stack_words`]). A function without a signature is traced as well; its
//!   argument registers are shown raw.
//!
//! Named values are shown by name: [`enums`] are identified by their C types, [`flags`] by function
//! and parameter.
//!
//! Some functions also report the GPU's own work: [`gpu_role`] says which, and how. In some, code
//! of the traced program can run: [`runs_callbacks`] says in which.
//!
//! To add a release or a function, run `cargo xtask gen-catalog` and commit the changes.
//!
//! ```
//! use gputrace_abi::domain::Domain;
//!
//! let name = "hsa_queue_create";
//! assert_eq!(gputrace_catalog::classify(name), Some(Domain::HsaCore));
//! let signature = gputrace_catalog::signature(name).expect("in the catalogue");
//! // Six arguments in registers, group_segment_size and queue on the stack.
//! assert_eq!(signature.stack_words(), 2);
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests make and read files of their own"
    )
)]

mod callbacks;
pub mod class;
mod domains;
pub mod enums;
pub mod flags;
mod getters;
mod gpu_roles;
pub mod hip_memory;
pub mod launch;
pub mod markers;
pub mod memory;
pub mod options;
pub mod placement;
pub mod release;
pub mod signature;
pub mod stacks;
pub mod structs;
pub mod table;
mod values;

use std::sync::LazyLock;

pub use callbacks::runs_callbacks;
pub use domains::{
    KOKKOS_TOOLS, LibraryPattern, classify, is_on_request, library_domains, library_patterns,
    library_stems, plain_name,
};
pub use getters::is_getter;
pub use gpu_roles::{
    CODE_OBJECTS_LOADED, CODE_OBJECTS_UNLOADED, RUNTIME_ENDS, gpu_role, is_gpu_traced, stream_word,
};
pub use signature::Signature;
pub use values::{read_plan, word};

use table::Table;

/// Lines of a data file, without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// Looks `name` up in a table that is sorted by name.
fn by_name<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let at = table.binary_search_by_key(&name, |(name, _)| name).ok()?;
    table.get(at).map(|(_, found)| *found)
}

/// The committed data, one file per library.
const DATA: &[&str] = &[
    include_str!("../data/decoders.txt"),
    include_str!("../data/hip.txt"),
    include_str!("../data/hipfile.txt"),
    include_str!("../data/hsa.txt"),
    include_str!("../data/kokkos.txt"),
    include_str!("../data/marker.txt"),
    include_str!("../data/newer.txt"),
    include_str!("../data/rccl.txt"),
    include_str!("../data/rocshmem.txt"),
];

/// The parsed data. A file that cannot be parsed is left out: arguments are then shown raw, which
/// is no reason not to trace. A test makes sure that this does not happen.
static TABLES: LazyLock<Vec<Table<'static>>> = LazyLock::new(|| {
    DATA.iter()
        .filter_map(|text| Table::parse(text).ok())
        .collect()
});

/// The signature of an exported function in the newest release that declares it; `None` if no
/// public header does. Mangled names are looked up by [`plain_name`].
///
/// The first call parses the data (about 0.7 ms); every other call is a binary search.
#[must_use]
pub fn signature(name: &str) -> Option<&'static Signature<'static>> {
    variants(name).last()
}

/// All signatures of an exported function, oldest release first; empty if no public header declares
/// it.
///
/// Several signatures of a function differ in how types are spelled or qualified. Among the
/// releases read so far, none puts an argument in a different place (a test checks this); a shared
/// library could not do that without a new symbol version. So [`signature()`] is right for every
/// release.
#[must_use]
pub fn variants(name: &str) -> &'static [Signature<'static>] {
    let name = plain_name(name);
    TABLES
        .iter()
        .map(|table| table.variants(name))
        .find(|variants| !variants.is_empty())
        .unwrap_or_default()
}

/// All signatures in the catalogue, by library, then name, then release.
pub fn signatures() -> impl Iterator<Item = &'static Signature<'static>> {
    TABLES.iter().flat_map(|table| &table.signatures)
}
