//! Names kernels after the ranges in which programs launched them: rocprofv3's `--kernel-rename`.
//! As there, a mark (`roctxMark`) counts as a range that begins with it.

use std::collections::HashMap;

use gputrace_timeline::{
    event::{Event, RangeKind},
    gpu::{Dispatch, KernelInfo, Renamed},
};

/// Number of the first kernel created here; those of a timeline are far below.
const FIRST: u32 = 1 << 31;

/// Gives dispatches within a nested range, or after a mark, a kernel of their own: a copy of the
/// one that ran, named after the range. Memory grows with the number of range texts and of kernels
/// in the ranges.
#[derive(Debug, Default)]
pub(super) struct Rename {
    /// Texts of ranges and marks, by the id of the function that stands for each.
    texts: HashMap<u32, String>,
    kernels: HashMap<u32, KernelInfo>,
    /// Number of the renamed kernel, by kernel and text.
    renamed: HashMap<(u32, u32), u32>,
}

impl Rename {
    /// Learns of ranges and kernels.
    pub(super) fn learn(&mut self, event: &Event) {
        match event {
            Event::Function(info)
                if matches!(info.range, Some(RangeKind::Nested | RangeKind::Mark)) =>
            {
                self.texts
                    .insert(info.function.id, info.function.name.clone());
            }
            Event::Kernel(info) => {
                self.kernels.insert(info.id, (**info).clone());
            }
            _ => {}
        }
    }

    /// Renames the kernel of a dispatch if it has a range. A newly created kernel is returned, and
    /// must be emitted before the dispatch.
    pub(super) fn rename(&mut self, dispatch: &mut Dispatch) -> Option<KernelInfo> {
        let kernel = self.kernels.get(&dispatch.kernel?)?;
        let range = dispatch.origin.range?;
        let text = self.texts.get(&range)?;
        let fresh = self.renamed.len();
        let mut new = None;
        let id = *self.renamed.entry((kernel.id, range)).or_insert_with(|| {
            // There are far fewer combinations of texts and kernels than numbers.
            let id = FIRST | fresh as u32;
            new = Some(KernelInfo {
                id,
                demangled: text.clone(),
                shown: text.clone(),
                renamed: Some(Renamed {
                    kernel: kernel.id,
                    range,
                }),
                ..kernel.clone()
            });
            id
        });
        dispatch.kernel = Some(id);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::dispatch;

    fn launched(
        rename: &mut Rename,
        kernel: u32,
        range: Option<u32>,
    ) -> (Option<String>, Option<u32>) {
        let mut dispatch = dispatch(1, 10, Default::default());
        dispatch.kernel = Some(kernel);
        dispatch.origin.range = range;
        let new = rename.rename(&mut dispatch);
        (new.map(|kernel| kernel.demangled), dispatch.kernel)
    }

    #[test]
    fn kernels_are_called_as_their_ranges() {
        let mut rename = Rename::default();
        rename.texts.insert(7, "solve".to_owned());
        for id in [1, 2] {
            let info = KernelInfo {
                id,
                demangled: format!("kernel {id}"),
                ..KernelInfo::default()
            };
            rename.learn(&Event::Kernel(Box::new(info)));
        }
        assert_eq!(
            launched(&mut rename, 1, Some(7)),
            (Some("solve".to_owned()), Some(FIRST))
        );
        assert_eq!(
            launched(&mut rename, 2, Some(7)),
            (Some("solve".to_owned()), Some(FIRST + 1))
        );
        assert_eq!(launched(&mut rename, 1, Some(7)), (None, Some(FIRST)));
        assert_eq!(launched(&mut rename, 1, None), (None, Some(1)));
        assert_eq!(launched(&mut rename, 3, Some(7)), (None, Some(3)));
        assert_eq!(launched(&mut rename, 1, Some(8)), (None, Some(1)));
    }
}
