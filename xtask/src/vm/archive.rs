//! Writes an initramfs: a cpio archive in the only format that Linux reads (`newc`, see the
//! kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`).

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

/// `S_IFDIR | 0755`, and `S_IFREG` with the permissions of a program and of data.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;

impl Archive {
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    pub(super) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    pub(super) fn data(&mut self, name: &str, content: &[u8]) {
        self.entry(name, DATA, content);
    }

    /// The archive's bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        // Contents have a few MB at most, names a few bytes.
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        // Magic; then inode, mode, owner, group, links, time, size, device and special device (4
        // fields), length of the name, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_laid_out_as_linux_reads_them() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.program("bin/a", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        // 110 bytes of header, then the name with its NUL, padded to a multiple of 4.
        assert!(text.starts_with("07070100000001000041ED"), "{text}");
        assert_eq!(text.get(94..102), Some("00000004"));
        assert_eq!(text.get(110..116), Some("bin\0\0\0"));
        let program = text.get(116..).unwrap();
        assert!(program.starts_with("07070100000002000081ED"));
        // 110 and 6 bytes; then five bytes, padded to a multiple of 4.
        assert_eq!(
            program.get(110..124),
            Some(concat!("bin/a\0", "12345", "\0\0\0"))
        );
        assert!(text.contains("TRAILER!!!\0"));
    }
}
