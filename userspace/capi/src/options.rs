//! What a session records.

use std::{
    ffi::{CStr, OsString, c_char},
    os::unix::ffi::OsStringExt as _,
    panic::AssertUnwindSafe,
};

use gputrace::{Builder, Domain, Session};

use crate::{
    error::{Status, fail, failed, guarded, text},
    stream::Stream,
};

/// What to record. Used by one thread at a time.
#[derive(Debug, Default)]
pub struct Options(Builder);

/// All domains, by number.
fn domain(number: u8) -> Option<Domain> {
    Domain::from_id(number)
}

/// The domain with this name.
fn domain_named(name: &str) -> Option<Domain> {
    (0..=u8::MAX)
        .filter_map(domain)
        .find(|domain| domain.name() == name)
}

/// The options behind a pointer.
///
/// # Safety
///
/// `options` is null or came from [`gputrace_options_new`], was not freed, and nobody else uses it
/// for `'a`.
unsafe fn change(
    options: *mut Options,
    change: impl FnOnce(Builder) -> Result<Builder, Status>,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(options) = (unsafe { options.as_mut() }) else {
        return fail(Status::Argument, "the options are null");
    };
    guarded(AssertUnwindSafe(|| match change(options.0.clone()) {
        Ok(changed) => {
            options.0 = changed;
            Status::Ok
        }
        Err(status) => status,
    }))
}

/// New options. Without further calls they mean: every process of the node, and the domains that
/// `gputrace` records by default. Free them with `gputrace_options_free`.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_options_new() -> *mut Options {
    Box::into_raw(Box::default())
}

/// Frees options. Null is allowed.
///
/// # Safety
///
/// `options` is null or came from `gputrace_options_new`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_free(options: *mut Options) {
    if !options.is_null() {
        // SAFETY: it came from `Box::into_raw`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Traces a running process, by its id on the host. Can be called for several.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_attach(options: *mut Options, pid: u32) -> Status {
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.attach(pid))) }
}

/// Starts a program and traces it from its first call. `command` is the program with its arguments,
/// and ends with null. It reads nothing from its standard input.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `command` is an array of
/// texts that ends with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_launch(
    options: *mut Options,
    command: *const *const c_char,
) -> Status {
    let mut words = Vec::new();
    if !command.is_null() {
        let mut place = command;
        loop {
            // SAFETY: the array ends with null, which ends this loop.
            let word = unsafe { place.read() };
            if word.is_null() {
                break;
            }
            // SAFETY: it is a text.
            let word = unsafe { CStr::from_ptr(word) };
            words.push(OsString::from_vec(word.to_bytes().to_vec()));
            // SAFETY: there is an entry behind each that is not null.
            place = unsafe { place.add(1) };
        }
    }
    if words.is_empty() {
        return fail(Status::Argument, "the command is empty");
    }
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.launch(words))) }
}

/// Records this domain, by its name in rocprofiler's style, e.g. `HIP_RUNTIME_API` or
/// `KERNEL_DISPATCH`. Can be called for several.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `name` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_domain(
    options: *mut Options,
    name: *const c_char,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(name) = (unsafe { text(name, "the domain") }) else {
        return Status::Argument;
    };
    let Some(domain) = domain_named(name) else {
        return fail(Status::Argument, &format!("there is no domain {name}"));
    };
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.domains([domain]))) }
}

/// Any option of `gputrace`, as one argument: `--stacks=launch`, `--all`.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `option` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_add(
    options: *mut Options,
    option: *const c_char,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(option) = (unsafe { text(option, "the option") }) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.option(option))) }
}

/// Sets a variable in the environment of the recorder and of a launched program.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `name` and `value` are
/// texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_environment(
    options: *mut Options,
    name: *const c_char,
    value: *const c_char,
) -> Status {
    // SAFETY: by this function's contract.
    let name = unsafe { text(name, "the name") };
    // SAFETY: by this function's contract.
    let value = unsafe { text(value, "the value") };
    let (Some(name), Some(value)) = (name, value) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.env(name, value))) }
}

/// Keeps the capture as the file `name.gtcap` in `directory`.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `directory` and `name` are
/// texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_keep(
    options: *mut Options,
    directory: *const c_char,
    name: *const c_char,
) -> Status {
    // SAFETY: by this function's contract.
    let directory = unsafe { text(directory, "the directory") };
    // SAFETY: by this function's contract.
    let name = unsafe { text(name, "the name") };
    let (Some(directory), Some(name)) = (directory, name) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.keep(directory, name))) }
}

/// The program `gputrace` to be the recorder; by default the one that is found in `PATH`.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread uses them. `program` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_options_recorder(
    options: *mut Options,
    program: *const c_char,
) -> Status {
    // SAFETY: by this function's contract.
    let Some(program) = (unsafe { text(program, "the program") }) else {
        return Status::Argument;
    };
    // SAFETY: by this function's contract.
    unsafe { change(options, |builder| Ok(builder.recorder(program))) }
}

/// Starts a recording. On success, `*stream` is its stream of events; free it with
/// `gputrace_stream_free`. The options can be used again.
///
/// # Safety
///
/// `options` came from `gputrace_options_new`; no other thread changes them. `stream` can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gputrace_session_start(
    options: *const Options,
    stream: *mut *mut Stream,
) -> Status {
    // SAFETY: by this function's contract.
    let (options, stream) = (unsafe { options.as_ref() }, unsafe { stream.as_mut() });
    let (Some(options), Some(stream)) = (options, stream) else {
        return fail(
            Status::Argument,
            "the options or the place for the stream are null",
        );
    };
    guarded(AssertUnwindSafe(|| {
        let started: Result<Session, _> = options.0.clone().start();
        match started {
            Ok(session) => {
                *stream = Stream::of_session(session);
                Status::Ok
            }
            Err(error) => failed(&error),
        }
    }))
}

/// The name of a domain by the number in events, e.g. `HIP_RUNTIME_API`; null if there is none. It
/// never changes.
#[unsafe(no_mangle)]
pub extern "C" fn gputrace_domain_name(number: u32) -> *const c_char {
    crate::names::of_domain(number)
}
