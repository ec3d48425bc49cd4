//! The exported functions for signals.

use std::sync::atomic::Ordering;

use gputrace_simrocm_core::abi::{AgentHandle, SharedSignal, Signal, cell_i64, signal_kind};
use gputrace_simrocm_core::ffi::{In, Out, Untyped};
use gputrace_simrocm_core::status::Status;

use crate::signal::{self, Notice, holds, notify};
use crate::{events, handler, runtime};

/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: the host does not wait for the signal.
const GPU_ONLY: u64 = 1;

/// The notification that the attributes of `hsa_amd_signal_create` and `HSA_ENABLE_INTERRUPT` ask
/// for.
pub(crate) fn notice(attributes: u64) -> Notice {
    if attributes & GPU_ONLY != 0
        || std::env::var_os("HSA_ENABLE_INTERRUPT").is_some_and(|value| value == "0")
    {
        Notice::None
    } else {
        Notice::Interrupt
    }
}

/// `hsa_signal_create`. A signal that only GPUs consume needs no interrupt.
pub(crate) extern "C" fn create(
    value: i64,
    count: u32,
    consumers: In<AgentHandle>,
    out: Out<Signal>,
) -> Status {
    let consumers = consumers.list(count as usize);
    let gpu_only = !consumers.is_empty()
        && consumers
            .iter()
            .all(|agent| runtime::gpu_index(*agent).is_some());
    amd_create(value, count, In::default(), u64::from(gpu_only), out)
}

/// `hsa_amd_signal_create`.
pub(crate) extern "C" fn amd_create(
    value: i64,
    _count: u32,
    _consumers: In<AgentHandle>,
    attributes: u64,
    out: Out<Signal>,
) -> Status {
    if !runtime::is_up() {
        return Status::NOT_INITIALIZED;
    }
    match signal::create(value, notice(attributes)) {
        Some(signal) => out.put(signal).into(),
        None => Status::OUT_OF_RESOURCES,
    }
}

/// `hsa_signal_destroy`.
pub(crate) extern "C" fn destroy(signal: Signal) -> Status {
    if signal.0 == 0 {
        return Status::INVALID_ARGUMENT;
    }
    signal::destroy(signal)
}

/// Stores a value, or rings a doorbell.
fn store(signal: Signal, value: i64, order: Ordering, tell: bool) {
    let Some(signal) = signal.get() else { return };
    if signal.kind.load(Ordering::Relaxed) == signal_kind::DOORBELL {
        let doorbell = signal.value.load(Ordering::Relaxed).cast_unsigned();
        // Of two threads, the one with the lower index may come later, so an announced index is
        // never lowered.
        cell_i64(doorbell).fetch_max(value, Ordering::Release);
        return;
    }
    signal.value.store(value, order);
    if tell {
        notify(signal);
    }
}

macro_rules! loads_and_stores {
    ($($kind:ident $name:ident $order:ident;)+) => { $(loads_and_stores!(@ $kind $name $order);)+ };
    (@ load $name:ident $order:ident) => {
        pub(crate) extern "C" fn $name(signal: Signal) -> i64 {
            signal.get().map_or(0, |signal| signal.value.load(Ordering::$order))
        }
    };
    (@ store $name:ident $order:ident) => {
        pub(crate) extern "C" fn $name(signal: Signal, value: i64) {
            store(signal, value, Ordering::$order, true);
        }
    };
    (@ silent $name:ident $order:ident) => {
        pub(crate) extern "C" fn $name(signal: Signal, value: i64) {
            store(signal, value, Ordering::$order, false);
        }
    };
    (@ wait $name:ident $order:ident) => {
        pub(crate) extern "C" fn $name(signal: Signal, condition: u32, with: i64, timeout: u64, state: u32) -> i64 {
            let Some(signal) = signal.get() else { return 0 };
            let value = signal::wait(signal, condition, with, timeout, state);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
            value
        }
    };
}

loads_and_stores! {
    load load_relaxed Relaxed;
    load load_scacquire Acquire;
    store store_relaxed Relaxed;
    store store_screlease Release;
    silent silent_store_relaxed Relaxed;
    silent silent_store_screlease Release;
    wait wait_relaxed Relaxed;
    wait wait_scacquire Acquire;
}

/// Changes a value atomically and notifies waiting threads.
fn update(signal: Signal, change: impl FnOnce(&SharedSignal)) {
    if let Some(signal) = signal.get() {
        change(signal);
        notify(signal);
    }
}

macro_rules! updates {
    ($($name:ident $method:ident $order:ident;)+) => { $(
        pub(crate) extern "C" fn $name(signal: Signal, value: i64) {
            update(signal, |signal| {
                signal.value.$method(value, Ordering::$order);
            });
        }
    )+ };
}

updates! {
    add_relaxed fetch_add Relaxed;
    add_scacquire fetch_add Acquire;
    add_screlease fetch_add Release;
    add_scacq_screl fetch_add AcqRel;
    subtract_relaxed fetch_sub Relaxed;
    subtract_scacquire fetch_sub Acquire;
    subtract_screlease fetch_sub Release;
    subtract_scacq_screl fetch_sub AcqRel;
    and_relaxed fetch_and Relaxed;
    and_scacquire fetch_and Acquire;
    and_screlease fetch_and Release;
    and_scacq_screl fetch_and AcqRel;
    or_relaxed fetch_or Relaxed;
    or_scacquire fetch_or Acquire;
    or_screlease fetch_or Release;
    or_scacq_screl fetch_or AcqRel;
    xor_relaxed fetch_xor Relaxed;
    xor_scacquire fetch_xor Acquire;
    xor_screlease fetch_xor Release;
    xor_scacq_screl fetch_xor AcqRel;
}

macro_rules! exchanges {
    ($($exchange:ident $cas:ident $order:ident $failure:ident;)+) => { $(
        pub(crate) extern "C" fn $exchange(signal: Signal, value: i64) -> i64 {
            let Some(signal) = signal.get() else { return 0 };
            let before = signal.value.swap(value, Ordering::$order);
            notify(signal);
            before
        }

        pub(crate) extern "C" fn $cas(signal: Signal, expected: i64, value: i64) -> i64 {
            let Some(signal) = signal.get() else { return 0 };
            let outcome = signal.value.compare_exchange(expected, value, Ordering::$order, Ordering::$failure);
            notify(signal);
            outcome.unwrap_or_else(|found| found)
        }
    )+ };
}

exchanges! {
    exchange_relaxed cas_relaxed Relaxed Relaxed;
    exchange_scacquire cas_scacquire Acquire Acquire;
    exchange_screlease cas_screlease Release Relaxed;
    exchange_scacq_screl cas_scacq_screl AcqRel Acquire;
}

/// `hsa_amd_signal_wait_any`: returns the index of a signal that satisfies its condition, or all
/// ones after the timeout.
pub(crate) extern "C" fn wait_any(
    count: u32,
    signals: In<Signal>,
    conditions: In<u32>,
    values: In<i64>,
    timeout: u64,
    _state: u32,
    satisfying: Out<i64>,
) -> u32 {
    let count = count as usize;
    let wanted: Vec<_> = signals
        .list(count)
        .into_iter()
        .zip(conditions.list(count))
        .zip(values.list(count))
        .collect();
    let deadline = gputrace_softgpu::clock::boottime_ns().saturating_add(timeout);
    loop {
        let found = (0..)
            .zip(&wanted)
            .find_map(|(index, ((signal, condition), value))| {
                let now = signal.get()?.value.load(Ordering::Acquire);
                holds(*condition, now, *value).then_some((index, now))
            });
        if let Some((index, value)) = found {
            satisfying.put(value);
            return index;
        }
        if gputrace_softgpu::clock::boottime_ns() >= deadline {
            return u32::MAX;
        }
        events::sleep_on_any(events::POLL, || false);
    }
}

/// `hsa_amd_signal_async_handler`.
pub(crate) extern "C" fn async_handler(
    signal: Signal,
    condition: u32,
    value: i64,
    function: Option<extern "C" fn(i64, Untyped) -> bool>,
    argument: Untyped,
) -> Status {
    let (Some(_), Some(function)) = (signal.get(), function) else {
        return Status::INVALID_ARGUMENT;
    };
    // The argument is only passed back; only the program knows what it is.
    let argument = argument.address();
    handler::add(signal, condition, value, move |now| {
        function(now, Untyped::at(argument))
    });
    Status::SUCCESS
}

/// `hsa_amd_signal_value_pointer`.
pub(crate) extern "C" fn value_pointer(signal: Signal, out: Out<u64>) -> Status {
    match signal.get() {
        Some(signal) => out.put(signal.value.as_ptr() as u64).into(),
        None => Status::INVALID_SIGNAL,
    }
}
