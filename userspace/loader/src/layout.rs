//! Layout of the running kernel's own structures, from its BTF.

use std::sync::OnceLock;

use gputrace_abi::config::CookiePlace;
use libbpf_rs::btf::{Btf, BtfType, types};

use crate::ProbeError;

/// Layout of the running kernel's structures.
pub(crate) struct Layout {
    btf: Btf<'static>,
}

impl Layout {
    /// Reads the kernel's BTF, which takes some ms.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Unsupported`] when the kernel has none, or it cannot be read.
    pub(crate) fn of_kernel() -> Result<Self, ProbeError> {
        Btf::from_vmlinux()
            .map(|btf| Self { btf })
            .map_err(|error| unknown(format!("no BTF: {error}")))
    }

    /// Offset of a member in bytes. Members of unnamed structures and unions inside the structure
    /// count as its own.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Unsupported`] when there is no such member.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> Result<u32, ProbeError> {
        self.btf
            .type_by_name::<types::Struct<'_>>(structure)
            .and_then(|found| search(&self.btf, *found, member, 0))
            .ok_or_else(|| unknown(format!("the BTF has no {member} in struct {structure}")))
    }
}

/// Offset, in bytes, of `pid` in `struct task_struct`: a thread's id in the initial pid namespace.
///
/// # Errors
///
/// [`ProbeError::Unsupported`] when the kernel's BTF does not contain it.
pub fn task_pid() -> Result<u32, ProbeError> {
    static OFFSET: OnceLock<u32> = OnceLock::new();
    if let Some(offset) = OFFSET.get() {
        return Ok(*offset);
    }
    let offset = Layout::of_kernel()?.offset("task_struct", "pid")?;
    Ok(*OFFSET.get_or_init(|| offset))
}

/// Offsets of `mm` in `struct task_struct` and of `start_stack` in `struct mm_struct`, bytes. They
/// tell apart the programs that a process executes one after the other. 0 if the kernel's BTF does
/// not contain them.
#[must_use]
pub fn program_stack() -> (u32, u32) {
    static OFFSETS: OnceLock<(u32, u32)> = OnceLock::new();
    *OFFSETS.get_or_init(|| {
        let found = Layout::of_kernel().and_then(|layout| {
            Ok((
                layout.offset("task_struct", "mm")?,
                layout.offset("mm_struct", "start_stack")?,
            ))
        });
        found.unwrap_or_default()
    })
}

/// Offsets of `signal` in `struct task_struct` and of `live` in `struct signal_struct`, bytes. They
/// identify the last thread of a process. 0 if the kernel's BTF does not contain them.
#[must_use]
pub fn living_threads() -> (u32, u32) {
    static OFFSETS: OnceLock<(u32, u32)> = OnceLock::new();
    *OFFSETS.get_or_init(|| {
        let found = Layout::of_kernel().and_then(|layout| {
            Ok((
                layout.offset("task_struct", "signal")?,
                layout.offset("signal_struct", "live")?,
            ))
        });
        found.unwrap_or_default()
    })
}

/// Where a program finds the cookie in the definition of the probe that was hit: the value of the
/// definition's first argument. The kernel's own handlers use the same way from a task to a
/// definition (`translate_user_vaddr` of `kernel/trace/trace_uprobe.c`).
///
/// # Errors
///
/// [`ProbeError::Unsupported`] when the kernel's BTF does not contain it.
pub(crate) fn cookie_place() -> Result<CookiePlace, ProbeError> {
    let layout = Layout::of_kernel()?;
    Ok(CookiePlace {
        task_utask: layout.offset("task_struct", "utask")?,
        utask_vaddr: layout.offset("uprobe_task", "vaddr")?,
        dispatch_tu: layout.offset("uprobe_dispatch_data", "tu")?,
        tu_code: layout.offset("trace_uprobe", "tp")?
            + layout.offset("trace_probe", "args")?
            + layout.offset("probe_arg", "code")?,
        code_immediate: layout.offset("fetch_insn", "immediate")?,
        reserved: 0,
    })
}

fn unknown(cause: String) -> ProbeError {
    ProbeError::Unsupported {
        action: "find the layout of its structures".to_owned(),
        cause,
        needs: "CONFIG_DEBUG_INFO_BTF",
    }
}

/// Maximum nesting of unnamed structures, deeper than any kernel's.
const NESTING: u32 = 8;

fn search(btf: &Btf<'_>, found: BtfType<'_>, wanted: &str, depth: u32) -> Option<u32> {
    let composite = types::Composite::try_from(found.skip_mods_and_typedefs()).ok()?;
    composite.iter().find_map(|member| {
        let types::MemberAttr::Normal { offset } = member.attr else {
            return None;
        };
        match member.name.filter(|name| !name.is_empty()) {
            Some(name) => (name == wanted).then_some(offset / 8),
            None if depth < NESTING => {
                let inner: BtfType<'_> = btf.type_by_id(member.ty)?;
                Some(offset / 8 + search(btf, inner, wanted, depth + 1)?)
            }
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_in_the_running_kernels_btf() {
        let layout = match Layout::of_kernel() {
            Ok(layout) => layout,
            Err(error) => return gputrace_skip::skipped(&error.to_string()),
        };
        let offset = |structure: &str, member: &str| layout.offset(structure, member).ok();
        // `struct list_head { struct list_head *next, *prev; }` of `linux/types.h`.
        assert_eq!(offset("list_head", "next"), Some(0));
        assert_eq!(offset("list_head", "prev"), Some(8));
        assert_eq!(offset("list_head", "nothing"), None);
        assert!(offset("task_struct", "files").is_some());
        assert!(offset("inode", "i_rdev").is_some());
        assert_eq!(offset("task_struct", "pid"), task_pid().ok());
        assert!(program_stack().0 > 0 && program_stack().1 > 0);
        assert!(living_threads().0 > 0 && living_threads().1 > 0);
        let error = layout
            .offset("task_struct", "nothing")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no nothing in struct task_struct"),
            "{error}"
        );
    }
}
