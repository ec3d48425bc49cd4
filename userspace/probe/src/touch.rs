//! User half of `ebpf/probes/src/touch.rs`: the program that brings in the constants that calls point to.
//!
//! It may sleep, which programs on functions can since Linux 6.0; before that, or where the kernel refuses it, there is none. It is
//! no part of the accounts: it writes nothing. Since Linux 6.13 programs like it that use more than 64 bytes of stack may share
//! them with each other (see `maps::state_in_uprobe` of the programs). Nothing that it does depends on what it has there but
//! which addresses of the program are touched, by a read that the kernel checks.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use gputrace_abi::{
    cookie::Cookie,
    values::{ReadPlan, touch},
};
use libbpf_rs::{Link, Object};

use crate::{
    ProbeError,
    attach::{Backend, Point, Scope, Side, attach_all},
    calls::Calls,
    extra,
};

const PROGRAM: &str = "constants_touched";

/// The loaded program, and at which functions it is wanted.
#[derive(Debug)]
pub(crate) struct Touch {
    object: Object,
    /// Its cookies by number of the function.
    cookies: Mutex<HashMap<u32, u64>>,
}

impl Touch {
    /// Loads the program, for the same back-end as `calls`.
    pub(crate) fn load(calls: &Calls) -> Result<Self, ProbeError> {
        Ok(Self {
            object: extra::load(calls, &[PROGRAM], |_, _| None)?,
            cookies: Mutex::default(),
        })
    }

    /// Learns what is read of calls of a function.
    pub(crate) fn set_plan(&self, function: u32, plan: &ReadPlan) {
        let cookie = touch::cookie(plan);
        if cookie != 0 {
            let mut cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
            cookies.insert(function, cookie);
        }
    }

    /// Attaches the program to those of the functions that want it. What the kernel refuses is left out.
    pub(crate) fn attach(
        &self,
        backend: &dyn Backend,
        path: &Path,
        scope: Scope,
        entries: &[Point],
    ) -> Vec<Link> {
        let cookies = self.cookies.lock().unwrap_or_else(PoisonError::into_inner);
        let points: Vec<Point> = entries
            .iter()
            .filter_map(|point| {
                Some(Point {
                    offset: point.offset,
                    cookie: *cookies.get(&Cookie(point.cookie).function())?,
                })
            })
            .collect();
        if points.is_empty() {
            return Vec::new();
        }
        let Ok(program) = extra::program(&self.object, PROGRAM) else {
            return Vec::new();
        };
        let (links, failures) = attach_all(backend, &program, path, scope, Side::Entry, &points);
        for failure in failures {
            tracing::debug!(
                "no texts from outside memory at {:#x}: {}",
                failure.point.offset,
                failure.error
            );
        }
        links
    }
}
