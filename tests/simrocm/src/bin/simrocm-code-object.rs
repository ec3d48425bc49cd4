//! Writes a code object without a GPU compiler: `simrocm-code-object FILE --gfx gfx906 blur:8,8,4,4
//! ...`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use gputrace_simrocm_core::code_object::{Argument, KernelSpec, write};

/// Write a code object whose kernels have names and arguments and do nothing, which the software
/// GPU runs.
#[derive(Parser)]
struct Arguments {
    /// File to write
    file: PathBuf,
    /// Instruction set that it says it is for
    #[arg(long, default_value = "gfx906")]
    gfx: String,
    /// A kernel: its name, a colon, and the sizes of its arguments in bytes, with commas between
    #[arg(required = true, value_name = "KERNEL", value_parser = kernel)]
    kernels: Vec<KernelSpec>,
}

/// Parses `name:8,8,4`. Each argument is aligned to its size, as compilers do.
fn kernel(text: &str) -> Result<KernelSpec> {
    let (name, sizes) = text.split_once(':').unwrap_or((text, ""));
    ensure!(!name.is_empty(), "a kernel needs a name");
    let mut arguments = Vec::new();
    let mut end = 0_u64;
    for size in sizes.split(',').filter(|size| !size.is_empty()) {
        let bytes: u64 = size.parse().with_context(|| format!("{size} is no size"))?;
        ensure!(
            bytes.is_power_of_two() && bytes <= 16,
            "an argument has 1, 2, 4, 8 or 16 bytes, not {bytes}"
        );
        let offset = end.next_multiple_of(bytes);
        end = offset + bytes;
        arguments.push(Argument {
            offset,
            bytes,
            kind: "by_value".to_owned(),
        });
    }
    Ok(KernelSpec {
        name: name.to_owned(),
        arguments,
    })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let code = write(&arguments.gfx, &arguments.kernels);
    std::fs::write(&arguments.file, code)
        .with_context(|| format!("{} cannot be written", arguments.file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_aligned_to_their_sizes() {
        let spec = kernel("blur:8,4,8,1").unwrap();
        let places: Vec<_> = spec.arguments.iter().map(|a| (a.offset, a.bytes)).collect();
        assert_eq!(spec.name, "blur");
        assert_eq!(places, [(0, 8), (8, 4), (16, 8), (24, 1)]);
        assert_eq!(kernel("empty").unwrap().arguments, []);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", ":8", "a:x", "a:3", "a:32"] {
            assert!(kernel(text).is_err(), "{text}");
        }
    }
}
