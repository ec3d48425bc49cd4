//! The user on whose behalf gputrace runs: under sudo, the one who ran sudo.

use std::{
    ffi::{CStr, CString, OsString},
    os::unix::ffi::OsStringExt as _,
    process::Command,
};

use gputrace_export::FileOwner;

/// The user as whom programs are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// All group ids.
    pub groups: Vec<u32>,
    /// Login name.
    pub name: OsString,
    /// Home directory.
    pub home: OsString,
}

impl User {
    /// The user who ran sudo, from `SUDO_UID` and `SUDO_GID`, which are trusted only if gputrace
    /// runs as root. `None` if gputrace was not started through sudo, or root ran sudo.
    #[must_use]
    pub fn behind_sudo() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let id = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        let (uid, gid) = (id("SUDO_UID")?, id("SUDO_GID")?);
        if uid == 0 {
            None
        } else {
            Some(Self::lookup(uid, gid))
        }
    }

    /// Looks the user up in the system's databases. An unknown user has only the given ids.
    fn lookup(uid: u32, gid: u32) -> Self {
        let bare = Self {
            uid,
            gid,
            groups: vec![gid],
            name: uid.to_string().into(),
            home: OsString::from("/"),
        };
        // SAFETY: an all-zero `passwd` is a valid value of this plain C struct.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut buffer = vec![0 as libc::c_char; 16 << 10];
        let mut found = std::ptr::null_mut();
        // SAFETY: the entry, the buffer with its length, and the result pointer are valid for the
        // call.
        let error = unsafe {
            libc::getpwuid_r(
                uid,
                &mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut found,
            )
        };
        if error != 0 || found.is_null() {
            return bare;
        }
        // SAFETY: a found entry's strings are NUL-terminated and lie in `buffer`, which is still
        // there.
        let name: CString = unsafe { CStr::from_ptr(entry.pw_name) }.into();
        // SAFETY: as above.
        let home: CString = unsafe { CStr::from_ptr(entry.pw_dir) }.into();
        let groups = groups_of(&name, gid).unwrap_or(bare.groups);
        Self {
            uid,
            gid,
            groups,
            name: OsString::from_vec(name.into_bytes()),
            home: OsString::from_vec(home.into_bytes()),
        }
    }

    /// The user as an owner of files.
    #[must_use]
    pub const fn owner(&self) -> FileOwner {
        FileOwner {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// Gives a command the environment variables of this user, and none of sudo.
    pub(crate) fn describe(&self, command: &mut Command) {
        command
            .env("HOME", &self.home)
            .env("USER", &self.name)
            .env("LOGNAME", &self.name);
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
            command.env_remove(name);
        }
    }

    /// Makes the calling process this user, permanently. Makes only async-signal-safe calls: it
    /// runs between fork and exec.
    ///
    /// # Errors
    ///
    /// The kernel's error; the process must not continue then.
    pub fn become_user(&self) -> std::io::Result<()> {
        let check = |result: libc::c_int| {
            if result == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        };
        // SAFETY: the pointer and length are those of a live slice.
        check(unsafe { libc::setgroups(self.groups.len(), self.groups.as_ptr()) })?;
        // SAFETY: integers only.
        check(unsafe { libc::setresgid(self.gid, self.gid, self.gid) })?;
        // SAFETY: integers only.
        check(unsafe { libc::setresuid(self.uid, self.uid, self.uid) })
    }
}

fn groups_of(name: &CStr, gid: u32) -> Option<Vec<u32>> {
    let mut groups = vec![0; 256];
    let mut count = i32::try_from(groups.len()).ok()?;
    // SAFETY: the name is NUL-terminated, and `count` is the array's length.
    let result = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    if result < 0 {
        return None;
    }
    groups.truncate(usize::try_from(count).ok()?);
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_users() {
        let nobody = User::lookup(65534, 65534);
        assert_eq!(nobody.name, "nobody");
        assert!(nobody.groups.contains(&65534));
        let stranger = User::lookup(3_999_999_999, 7);
        assert_eq!(
            (stranger.gid, stranger.groups.as_slice()),
            (7, [7].as_slice())
        );
    }
}
