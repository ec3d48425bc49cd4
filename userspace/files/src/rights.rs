//! What to do where the kernel refuses access. Containers and sandboxes limit even root, to whom
//! `sudo` gives nothing.

/// What gives gputrace more rights, to be followed by further ways: `run gputrace with sudo`.
#[must_use]
pub fn remedy() -> &'static str {
    remedy_of(rustix::process::geteuid().is_root())
}

const fn remedy_of(is_root: bool) -> &'static str {
    if is_root {
        "run gputrace outside of containers and sandboxes, which limit even root"
    } else {
        "run gputrace with sudo"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        assert!(!remedy_of(true).contains("sudo"));
        assert!(remedy_of(false).contains("sudo"));
    }
}
