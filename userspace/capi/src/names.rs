//! Names that events point to.

use std::{
    collections::HashMap,
    ffi::{CString, c_char},
    ptr,
    sync::OnceLock,
};

use foldhash::fast::RandomState;
use gputrace::{Call, Dispatch, Domain, Index};

use crate::error::c_text;

/// Names in C's form, made when they are first needed. They live as long as their stream.
#[derive(Debug, Default)]
pub(crate) struct Names {
    functions: HashMap<u32, CString, RandomState>,
    /// Names of functions whose numbers have got other names: C may still have them.
    former: Vec<CString>,
    kernels: HashMap<u32, CString, RandomState>,
    /// The name of the latest kernel that is not known.
    unknown: CString,
}

impl Names {
    /// The name of a call's function.
    pub(crate) fn of_call(&mut self, call: &Call, index: &Index) -> *const c_char {
        let name = self
            .functions
            .entry(call.function)
            .or_insert_with(|| c_text(index.call_name(call)));
        name.as_ptr()
    }

    /// A function with this number comes, maybe with another name than before.
    pub(crate) fn renew_function(&mut self, id: u32) {
        self.former.extend(self.functions.remove(&id));
    }

    /// The name of a dispatch's kernel.
    pub(crate) fn of_dispatch(&mut self, dispatch: &Dispatch, index: &Index) -> *const c_char {
        let Some(kernel) = index.kernel(dispatch) else {
            self.unknown = c_text(&index.kernel_name(dispatch));
            return self.unknown.as_ptr();
        };
        let name = self
            .kernels
            .entry(kernel.id)
            .or_insert_with(|| c_text(&index.kernel_name(dispatch)));
        name.as_ptr()
    }
}

/// The name of a domain, or null.
pub(crate) fn of_domain(number: u32) -> *const c_char {
    static NAMES: OnceLock<Vec<Option<CString>>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let domains = (0..=u8::MAX).map(Domain::from_id);
        domains
            .map(|domain| domain.map(|domain| c_text(domain.name())))
            .collect()
    });
    let name = usize::try_from(number).ok().and_then(|at| names.get(at));
    name.and_then(Option::as_ref)
        .map_or(ptr::null(), |name| name.as_ptr())
}
