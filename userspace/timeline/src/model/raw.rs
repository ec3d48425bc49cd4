//! A bound and a helper that all record decoders share.

/// Maximum number of CPUs that records can name. Linux on x86-64 supports at most 8192; the bound
/// keeps a damaged or hostile capture from growing the per-CPU tables without limit.
pub(crate) const MAX_CPUS: u32 = 1 << 16;

/// The name in a `comm` field, up to the first NUL. Bytes that are not UTF-8 are replaced.
pub(crate) fn name(comm: &[u8]) -> String {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_any_bytes() {
        assert_eq!(name(b"python3\0\0\0garbage"), "python3");
        assert_eq!(name(b"\xff\xfe\0"), "\u{fffd}\u{fffd}");
        assert_eq!(name(&[b'x'; 16]), "x".repeat(16));
        assert_eq!(name(&[0; 16]), "");
    }
}
