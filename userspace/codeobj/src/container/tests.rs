//! Containers made for these tests, and damaged ones.

use super::*;
use proptest::prelude::*;
use std::io::Write;

/// A bundle with these entries, laid out like real ones: aligned, in order.
fn bundle(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut head = BUNDLE.to_vec();
    head.extend((entries.len() as u64).to_le_bytes());
    let mut body = Vec::new();
    let begin = entries.iter().map(|(id, _)| 24 + id.len()).sum::<usize>() + head.len();
    let begin = begin.next_multiple_of(64);
    for (id, bytes) in entries {
        for word in [begin + body.len(), bytes.len(), id.len()] {
            head.extend((word as u64).to_le_bytes());
        }
        head.extend(id.bytes());
        body.extend(*bytes);
        body.resize(body.len().next_multiple_of(64), 0);
    }
    head.resize(begin, 0);
    head.extend(body);
    head
}

fn sample() -> Vec<u8> {
    bundle(&[
        ("host-x86_64-unknown-linux", b""),
        ("hipv4-amdgcn-amd-amdhsa--gfx906", b"\x7fELF first"),
        (
            "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
            b"\x7fELF the second",
        ),
    ])
}

fn compressed(version: u16, method: u16, bytes: &[u8]) -> Vec<u8> {
    let body = match method {
        0 => {
            let mut encoder =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        _ => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
    };
    let mut file = COMPRESSED.to_vec();
    file.extend(version.to_le_bytes());
    file.extend(method.to_le_bytes());
    let small = |word: usize| (word as u32).to_le_bytes().to_vec();
    let large = |word: usize| (word as u64).to_le_bytes().to_vec();
    file.extend(match version {
        1 => small(bytes.len()),
        2 => [small(24 + body.len()), small(bytes.len())].concat(),
        _ => [large(32 + body.len()), large(bytes.len())].concat(),
    });
    file.extend([7; 8]);
    file.extend(body);
    file
}

fn check(file: &[u8], times: usize) {
    let found = code_objects(file).unwrap();
    assert_eq!(found.len(), 2 * times);
    for pair in found.chunks(2) {
        assert_eq!(
            pair[0].id.as_deref(),
            Some("hipv4-amdgcn-amd-amdhsa--gfx906")
        );
        assert_eq!(&*pair[0].bytes, b"\x7fELF first");
        assert_eq!(&*pair[1].bytes, b"\x7fELF the second");
        if let Some(range) = pair[1].range {
            assert_eq!(
                slice(file, range.offset, range.size).unwrap(),
                &*pair[1].bytes
            );
        }
    }
}

#[test]
fn bundles() {
    check(&sample(), 1);
    let mut twice = sample();
    twice.resize(ALIGNMENT, 0);
    twice.extend(sample());
    twice.resize(3 * ALIGNMENT, 0);
    twice.extend(sample());
    check(&twice, 3);
}

#[test]
fn compressed_bundles() {
    for version in [1, 2, 3] {
        for method in [0, 1] {
            let file = compressed(version, method, &sample());
            check(&file, 1);
            let mut twice = file.clone();
            twice.extend(&file);
            check(&twice, 2);
            twice.resize(twice.len() + 100, 0);
            twice.resize(twice.len().next_multiple_of(ALIGNMENT), 0);
            twice.extend(sample());
            check(&twice, 3);
        }
    }
}

#[test]
fn compressed_bundles_that_lie() {
    let file = compressed(3, 1, &sample());
    let with = |at: usize, word: u64| {
        let mut file = file.clone();
        file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        code_objects(&file).unwrap_err()
    };
    let size = sample().len() as u64;
    for wrong in [size - 1, size + 1] {
        assert!(matches!(with(16, wrong), ContainerError::Corrupt(_)));
    }
    assert!(matches!(
        with(16, u64::MAX),
        ContainerError::TooLarge { .. }
    ));
    assert!(matches!(with(8, u64::MAX), ContainerError::Truncated(_)));
    assert!(matches!(with(8, 31), ContainerError::Corrupt(_)));
    assert!(matches!(with(32, 0), ContainerError::Decompression(_)));
    let other = |version, method| {
        let mut file = file.clone();
        file[4] = version;
        file[6] = method;
        code_objects(&file).unwrap_err()
    };
    assert!(matches!(
        other(4, 1),
        ContainerError::UnknownCompression { .. }
    ));
    assert!(matches!(
        other(3, 2),
        ContainerError::UnknownCompression { .. }
    ));
}

#[test]
fn a_small_file_that_stands_for_gigabytes() {
    // Zeros compress a thousandfold; data beyond the size in the header is not decompressed.
    let mut file = compressed(2, 0, &vec![0; 64 << 20]);
    assert!(file.len() < 1 << 20);
    file[12..16].copy_from_slice(&1000_u32.to_le_bytes());
    assert!(matches!(
        code_objects(&file),
        Err(ContainerError::Corrupt(_))
    ));
}

#[test]
fn other_files() {
    assert_eq!(code_objects(b""), Err(ContainerError::NoCode));
    assert_eq!(code_objects(b"text"), Err(ContainerError::NoCode));
    assert_eq!(
        code_objects(BUNDLE),
        Err(ContainerError::Truncated("bundle"))
    );
    assert!(matches!(
        code_objects(ELF),
        Err(ContainerError::Truncated(_))
    ));
    assert_eq!(
        code_objects(&std::fs::read("/proc/self/exe").unwrap()),
        Err(ContainerError::NoCode)
    );
    let object = crate::testing::code_object(true);
    let found = code_objects(&object).unwrap();
    assert!(found.len() == 1 && *found[0].bytes == object);
    // One entry listed many times is larger in total than the bundle.
    let entry: (&str, &[u8]) = ("x", &[1; 100]);
    let mut file = bundle(&[entry; 40]);
    let first = file[32..40].to_vec();
    for i in 1..40 {
        file[32 + 25 * i..40 + 25 * i].copy_from_slice(&first);
        file[40 + 25 * i..48 + 25 * i].copy_from_slice(&2000_u64.to_le_bytes());
    }
    assert!(matches!(
        code_objects(&file),
        Err(ContainerError::Corrupt(_))
    ));
}

proptest! {
    #[test]
    fn any_bytes(kind in 0..4_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let start: &[u8] = [BUNDLE, COMPRESSED, ELF, b""][kind];
        let _ = code_objects(&[start, &bytes].concat());
    }

    #[test]
    fn damaged(
        version in 0..4_u16,
        method in 0..2_u16,
        at: proptest::sample::Index,
        byte: u8,
        keep: proptest::sample::Index,
        cut: bool,
    ) {
        let mut file = if version == 0 { sample() } else { compressed(version, method, &sample()) };
        let at = at.index(file.len());
        file[at] = byte;
        if cut {
            file.truncate(keep.index(file.len()));
        }
        let _ = code_objects(&file);
    }
}
