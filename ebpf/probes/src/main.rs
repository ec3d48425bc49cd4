//! Placeholder.
#![no_std]
#![no_main]
#[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
