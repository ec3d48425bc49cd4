//! The register of a GPU that says whether it is at work, read through its render node.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use gputrace_softgpu::config::Register;
use rustix::io::Errno;

use crate::kfd::Kfd;

/// Where the parts of a `struct drm_amdgpu_info` are that asks for registers, bytes.
mod at {
    pub(super) const RETURN_POINTER: usize = 0;
    pub(super) const RETURN_SIZE: usize = 8;
    pub(super) const QUERY: usize = 12;
    pub(super) const DWORD_OFFSET: usize = 16;
    pub(super) const COUNT: usize = 20;
}

/// `AMDGPU_INFO_READ_MMR_REG`.
const READ_MMR_REG: u32 = 0x15;

/// `GRBM_STATUS`, as a number of words, and its bit `GUI_ACTIVE`.
const GRBM_STATUS: u32 = 0x2004;
const GUI_ACTIVE: u32 = 1 << 31;

/// Agents by the descriptors of their render nodes; those of closed ones remain.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<HashMap<RawFd, u32>>);

impl Nodes {
    /// The program has opened an agent's render node.
    pub(crate) fn opened(&self, fd: RawFd, agent: u32) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(fd, agent);
    }

    /// The agent whose render node this is, if it is one at all.
    pub(crate) fn agent(&self, fd: RawFd) -> Option<u32> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&fd).copied()
    }
}

/// Answers `DRM_IOCTL_AMDGPU_INFO` for an agent: with the address and the value to be written
/// there. Only one register can be read.
pub(crate) fn read(kfd: &Kfd, agent: u32, request: &[u8]) -> Result<(u64, u32), Errno> {
    let word = |at: usize| {
        let bytes = request.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    let asked = [at::QUERY, at::DWORD_OFFSET, at::COUNT, at::RETURN_SIZE].map(word);
    if asked != [READ_MMR_REG, GRBM_STATUS, 1, 4].map(Some) {
        return Err(Errno::INVAL);
    }
    let config = kfd.config.agent.get(agent as usize).ok_or(Errno::INVAL)?;
    let is_active = match config.register {
        Register::Follows => kfd.gpu.is_at_work(agent).ok_or(Errno::INVAL)?,
        Register::Zero => false,
        Register::Refused => return Err(Errno::INVAL),
    };
    let [low, high] = [at::RETURN_POINTER, at::RETURN_POINTER + 4].map(word);
    let (low, high) = low.zip(high).ok_or(Errno::INVAL)?;
    let place = u64::from(low) | u64::from(high) << 32;
    Ok((place, if is_active { GUI_ACTIVE } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kfd;

    #[test]
    fn nothing_but_one_register_can_be_read() {
        let mut request = [0_u8; 32];
        let mut set = |at: usize, word: u32| {
            request[at..at + 4].copy_from_slice(&word.to_ne_bytes());
            read(kfd::get(), 0, &request)
        };
        for (at, word) in [
            (at::RETURN_POINTER, 7),
            (at::RETURN_SIZE, 4),
            (at::QUERY, READ_MMR_REG),
        ] {
            assert_eq!(set(at, word), Err(Errno::INVAL));
        }
        set(at::DWORD_OFFSET, GRBM_STATUS).unwrap_err();
        // Tests have no log, and so nothing that tells whether the GPU is at work.
        let answer = set(at::COUNT, 1);
        match kfd::get().gpu.is_at_work(0) {
            None => assert_eq!(answer, Err(Errno::INVAL)),
            Some(_) => assert_eq!(answer.unwrap().0, 7),
        }
        assert_eq!(set(at::DWORD_OFFSET, GRBM_STATUS + 1), Err(Errno::INVAL));
    }

    #[test]
    fn descriptors_belong_to_agents() {
        let nodes = &kfd::get().nodes;
        nodes.opened(5, 1);
        assert_eq!((nodes.agent(5), nodes.agent(6)), (Some(1), None));
    }
}
