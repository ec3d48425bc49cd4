//! Measures the cost of examining a process's code objects after each of thousands that it loads.

use std::{ffi::CString, sync::Arc, time::Instant};

use anyhow::{Result, ensure};
use gputrace_codeobj::CodeObjects;
use gputrace_simrocm_core::code_object::{KernelSpec, write};

use crate::{
    Options,
    report::{Table, median},
};

/// Total number of code objects.
const COUNT: usize = 5_000;

/// Number of measurements in a median, taken around the 100th code object and at the end.
const LOOKS: usize = 100;

/// ROCr's list head, `struct r_debug`.
#[repr(C)]
#[derive(Debug, Default)]
struct Head {
    version: u64,
    first: u64,
    notify: u64,
    state: u64,
    base: u64,
}

/// An entry, `struct link_map`.
#[repr(C)]
#[derive(Debug, Default)]
struct Entry {
    load_delta: u64,
    name: u64,
    dynamic: u64,
    next: u64,
    previous: u64,
}

/// Prints the cost with a hundred code objects, and with thousands.
///
/// # Errors
///
/// When a code object is not found.
pub(crate) fn measure(_: &Options) -> Result<()> {
    let mut head = Box::new(Head::default());
    let pid = std::process::id();
    let address = std::ptr::from_ref(&*head) as u64;
    let mut objects = CodeObjects::with_lists(pid, [address], Arc::default())?;
    // Boxed, because the lists contain their addresses.
    let mut entries: Vec<Box<Entry>> = Vec::new();
    let mut kept: Vec<(Vec<u8>, CString)> = Vec::new();
    let mut times = Vec::with_capacity(COUNT);
    for number in 0..COUNT {
        let kernel = KernelSpec {
            name: format!("compiled_{number}"),
            arguments: Vec::new(),
        };
        let bytes = write("gfx90a", &[kernel]);
        let place = bytes.as_ptr() as u64;
        let uri = format!("memory://{pid}#offset={place}&size={}", bytes.len());
        let uri = CString::new(uri)?;
        let mut entry = Box::new(Entry {
            load_delta: place,
            name: uri.as_ptr() as u64,
            ..Entry::default()
        });
        let here = std::ptr::from_ref(&*entry) as u64;
        match entries.last_mut() {
            Some(last) => {
                entry.previous = std::ptr::from_ref(&**last) as u64;
                last.next = here;
            }
            None => head.first = here,
        }
        entries.push(entry);
        kept.push((bytes, uri));
        let begin = Instant::now();
        let update = objects.update()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        ensure!(
            update.added.len() == 1 && update.removed.is_empty(),
            "code object {number}: {update:?}"
        );
    }
    let few = median(times.get(LOOKS / 2..LOOKS / 2 + LOOKS).unwrap_or_default());
    let many = median(times.get(COUNT - LOOKS..).unwrap_or_default());
    let mut table = Table::new(
        "Code objects compiled at run time",
        &["loaded", "a look, us"],
    );
    table.row(&[&LOOKS, &format!("{few:.0}")]);
    table.row(&[&COUNT, &format!("{many:.0}")]);
    table.row(&[&"ratio", &format!("{:.2}", many / few)]);
    table.note(format!(
        "What gputrace does when a program has loaded one more code object, medians of {LOOKS} looks. Aim: at most \
         100 us, and a ratio of about 1."
    ));
    drop(kept);
    table.print()
}
