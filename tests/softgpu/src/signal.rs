//! What the hardware does to completion signals.

use crate::bus::BusResult;
use crate::gpu::Shared;
use crate::layout::signal;

/// Changes a signal's value and raises its interrupt, as the packet processor does on completion.
///
/// The mailbox is read first: once the value has changed, the runtime may reuse the signal.
fn change(shared: &Shared, handle: u64, change: impl FnOnce() -> BusResult<()>) -> BusResult<()> {
    let bus = &shared.bus;
    let mailbox = bus.load_u64("signal's mailbox", handle + signal::EVENT_MAILBOX)?;
    let event = bus.load_u32("signal's event", handle + signal::EVENT_ID)?;
    change()?;
    if mailbox != 0 {
        bus.store_u64("event mailbox", mailbox, event.into())?;
        shared.host.interrupt(event);
    }
    Ok(())
}

/// Decrements a completion signal.
pub(crate) fn complete(shared: &Shared, handle: u64) -> BusResult<()> {
    change(shared, handle, || {
        shared
            .bus
            .add_i64("completion signal", handle + signal::VALUE, -1)?;
        Ok(())
    })
}

/// Stores a value, for example to ask for scratch memory or to report an error.
pub(crate) fn store(shared: &Shared, handle: u64, value: i64) -> BusResult<()> {
    change(shared, handle, || {
        shared
            .bus
            .store_i64("signal", handle + signal::VALUE, value)
    })
}

/// A signal's value. Handle 0 stands for a signal that has reached 0.
pub(crate) fn value(shared: &Shared, handle: u64) -> BusResult<i64> {
    match handle {
        0 => Ok(0),
        _ => shared.bus.load_i64("signal", handle + signal::VALUE),
    }
}
