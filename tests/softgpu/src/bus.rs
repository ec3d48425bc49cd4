//! Memory as the GPU sees it. All raw memory accesses of this crate are here.
//!
//! Packets hold plain addresses. A [`Bus`] converts them to host memory through a [`Translate`],
//! and reads or writes there with the hardware's atomicity. An address that is invalid (null or
//! misaligned) is an error. An unmapped address ends the program with SIGSEGV, as a GPU memory
//! fault would.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};

use thiserror::Error;

/// Translation of GPU virtual addresses to host addresses.
pub trait Translate: Send + Sync {
    /// The host address of the `bytes` bytes at `address`. Returns `address` itself for memory with
    /// the same address on both sides.
    fn translate(&self, address: u64, bytes: u64) -> u64;
}

/// Uses every address unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

impl Translate for Identity {
    fn translate(&self, address: u64, _bytes: u64) -> u64 {
        address
    }
}

/// An invalid address in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{what}: {address:#x} is null or not aligned to {align} bytes; the packet or structure holding it is broken"
)]
pub struct BadAddress {
    /// What was to be accessed.
    pub what: &'static str,
    /// The address.
    pub address: u64,
    /// The required alignment in bytes.
    pub align: u64,
}

/// A result of a memory access.
pub(crate) type BusResult<T> = Result<T, BadAddress>;

/// The first page of a process is never mapped (`vm.mmap_min_addr`).
const FIRST_ADDRESS: u64 = 4096;

/// Access to memory by GPU addresses.
#[derive(Clone)]
pub struct Bus {
    translate: Arc<dyn Translate>,
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").finish_non_exhaustive()
    }
}

impl Bus {
    /// A bus with this translation.
    ///
    /// # Safety
    ///
    /// While the bus is used, every address that reaches it (from queues, signals and packets of
    /// the program) must translate to memory that is mapped, readable and writable, as for a real
    /// GPU, and that no Rust reference covers except atomics and cells of raw memory.
    #[must_use]
    pub unsafe fn new(translate: Arc<dyn Translate>) -> Self {
        Self { translate }
    }

    fn pointer<T>(&self, what: &'static str, address: u64) -> BusResult<*mut T> {
        let align = align_of::<T>() as u64;
        let host = self.translate.translate(address, size_of::<T>() as u64);
        if host < FIRST_ADDRESS || !host.is_multiple_of(align) {
            return Err(BadAddress {
                what,
                address,
                align,
            });
        }
        Ok(host as *mut T)
    }

    fn atomic<T, A>(&self, what: &'static str, address: u64) -> BusResult<&A>
    where
        A: Atomic<T>,
    {
        let pointer = self.pointer::<A>(what, address)?;
        // SAFETY: aligned and not null (checked); mapped and accessed atomically by the promise of
        // `new`.
        Ok(unsafe { &*pointer })
    }

    /// Reads 64 bits, ordered before everything later.
    pub(crate) fn load_u64(&self, what: &'static str, address: u64) -> BusResult<u64> {
        Ok(self
            .atomic::<u64, AtomicU64>(what, address)?
            .load(Ordering::Acquire))
    }

    /// Reads 64 bits as a signal value.
    pub(crate) fn load_i64(&self, what: &'static str, address: u64) -> BusResult<i64> {
        Ok(self
            .atomic::<i64, AtomicI64>(what, address)?
            .load(Ordering::Acquire))
    }

    /// Reads 32 bits.
    pub(crate) fn load_u32(&self, what: &'static str, address: u64) -> BusResult<u32> {
        Ok(self
            .atomic::<u32, AtomicU32>(what, address)?
            .load(Ordering::Acquire))
    }

    /// Writes 64 bits, ordered after everything earlier.
    pub(crate) fn store_u64(&self, what: &'static str, address: u64, value: u64) -> BusResult<()> {
        self.atomic::<u64, AtomicU64>(what, address)?
            .store(value, Ordering::Release);
        Ok(())
    }

    /// Writes a signal value.
    pub(crate) fn store_i64(&self, what: &'static str, address: u64, value: i64) -> BusResult<()> {
        self.atomic::<i64, AtomicI64>(what, address)?
            .store(value, Ordering::Release);
        Ok(())
    }

    /// Writes 32 bits.
    pub(crate) fn store_u32(&self, what: &'static str, address: u64, value: u32) -> BusResult<()> {
        self.atomic::<u32, AtomicU32>(what, address)?
            .store(value, Ordering::Release);
        Ok(())
    }

    /// Writes 16 bits.
    pub(crate) fn store_u16(&self, what: &'static str, address: u64, value: u16) -> BusResult<()> {
        self.atomic::<u16, AtomicU16>(what, address)?
            .store(value, Ordering::Release);
        Ok(())
    }

    /// Atomically adds to 64 bits, wrapping. Returns the previous value.
    pub(crate) fn add_i64(&self, what: &'static str, address: u64, value: i64) -> BusResult<i64> {
        Ok(self
            .atomic::<i64, AtomicI64>(what, address)?
            .fetch_add(value, Ordering::AcqRel))
    }

    /// Copies bytes; the ranges may overlap.
    pub(crate) fn copy(&self, source: u64, destination: u64, bytes: u64) -> BusResult<()> {
        let Ok(length) = usize::try_from(bytes) else {
            return Err(BadAddress {
                what: "copy",
                address: source,
                align: 1,
            });
        };
        let from = self.range("copy source", source, bytes)?;
        let to = self.range("copy destination", destination, bytes)?;
        // SAFETY: both ranges are mapped by the promise of `new`; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from, to, length) };
        Ok(())
    }

    /// Fills `bytes` bytes with a 32-bit pattern, starting with its low byte.
    pub(crate) fn fill_u32(&self, destination: u64, pattern: u32, bytes: u64) -> BusResult<()> {
        for offset in (0..bytes / 4).map(|word| word * 4) {
            self.store_u32("fill destination", destination + offset, pattern)?;
        }
        Ok(())
    }

    fn range(&self, what: &'static str, address: u64, bytes: u64) -> BusResult<*mut u8> {
        let host = self.translate.translate(address, bytes);
        if host < FIRST_ADDRESS {
            return Err(BadAddress {
                what,
                address,
                align: 1,
            });
        }
        Ok(host as *mut u8)
    }
}

/// An atomic type that can be placed at any address aligned to its size.
trait Atomic<T> {}
impl Atomic<u64> for AtomicU64 {}
impl Atomic<i64> for AtomicI64 {}
impl Atomic<u32> for AtomicU32 {}
impl Atomic<u16> for AtomicU16 {}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus() -> Bus {
        // SAFETY: the tests hand in addresses of their own locals only, and bad ones that are
        // refused.
        unsafe { Bus::new(Arc::new(Identity)) }
    }

    #[test]
    fn null_and_misaligned_addresses_are_errors() {
        let bad = bus().load_u64("signal", 0).unwrap_err();
        assert!(bad.to_string().contains("signal: 0x0 is null"), "{bad}");
        assert!(bus().load_u64("signal", 0x10_0003).is_err());
        assert!(bus().copy(1, 0x10_0000, 8).is_err());
    }

    #[test]
    fn values_arrive() {
        let cell = AtomicI64::new(5);
        let address = cell.as_ptr() as u64;
        assert_eq!(bus().add_i64("value", address, -1), Ok(5));
        assert_eq!(bus().load_i64("value", address), Ok(4));
    }
}
