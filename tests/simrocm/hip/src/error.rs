//! `hipError_t`: the codes that are returned here, with names and texts.

use std::cell::Cell;
use std::ffi::CStr;

use gputrace_simrocm_core::ffi::Text;
use gputrace_simrocm_core::status::Status;

/// `hipError_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Error(pub(crate) u32);

/// Result type of internal functions.
pub(crate) type Hip<T = ()> = Result<T, Error>;

macro_rules! errors {
    ($($constant:ident = $code:literal, $name:literal, $text:literal;)+) => {
        impl Error {
            $(pub(crate) const $constant: Self = Self($code);)+
        }

        const TEXTS: &[(u32, &CStr, &CStr)] = &[$(($code, $name, $text)),+];
    };
}

errors! {
    SUCCESS = 0, c"hipSuccess", c"no error";
    INVALID_VALUE = 1, c"hipErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"hipErrorOutOfMemory", c"out of memory";
    INVALID_CONFIGURATION = 9, c"hipErrorInvalidConfiguration", c"invalid configuration argument";
    INVALID_DIRECTION = 21, c"hipErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy";
    MISSING_CONFIGURATION = 52, c"hipErrorMissingConfiguration", c"__global__ function call is not configured";
    INVALID_DEVICE_FUNCTION = 98, c"hipErrorInvalidDeviceFunction", c"invalid device function";
    NO_DEVICE = 100, c"hipErrorNoDevice", c"no ROCm-capable device is detected";
    INVALID_DEVICE = 101, c"hipErrorInvalidDevice", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"hipErrorInvalidImage", c"device kernel image is invalid";
    NO_BINARY = 209, c"hipErrorNoBinaryForGpu", c"no kernel image is available for execution on the device";
    FILE_NOT_FOUND = 301, c"hipErrorFileNotFound", c"file not found";
    INVALID_HANDLE = 400, c"hipErrorInvalidHandle", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"hipErrorIllegalState", c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"hipErrorNotFound", c"named symbol not found";
    NOT_READY = 600, c"hipErrorNotReady", c"device not ready";
    ALREADY_REGISTERED = 712, c"hipErrorHostMemoryAlreadyRegistered", c"part or all of the requested memory range is already mapped";
    NOT_REGISTERED = 713, c"hipErrorHostMemoryNotRegistered", c"pointer does not correspond to a registered memory region";
    NOT_SUPPORTED = 801, c"hipErrorNotSupported", c"operation not supported";
    UNKNOWN = 999, c"hipErrorUnknown", c"unknown error";
}

thread_local! {
    static LAST: Cell<Error> = const { Cell::new(Error::SUCCESS) };
}

/// The return value of an exported function; failures are stored for the thread.
pub(crate) fn outcome(result: Hip) -> Error {
    match result {
        Ok(()) => Error::SUCCESS,
        Err(error) => {
            LAST.set(error);
            error
        }
    }
}

/// Converts HSA's status to HIP's error.
pub(crate) fn check(status: Status) -> Hip {
    match status {
        Status::SUCCESS => Ok(()),
        Status::OUT_OF_RESOURCES | Status::INVALID_ALLOCATION => Err(Error::OUT_OF_MEMORY),
        Status::INVALID_ARGUMENT => Err(Error::INVALID_VALUE),
        _ => Err(Error::UNKNOWN),
    }
}

/// Stores a result of a call through the caller's pointer.
pub(crate) fn give<T>(out: gputrace_simrocm_core::ffi::Out<T>, value: T) -> Hip {
    if out.put(value) {
        Ok(())
    } else {
        Err(Error::INVALID_VALUE)
    }
}

/// `hipGetLastError`.
pub(crate) extern "C" fn get_last() -> Error {
    LAST.replace(Error::SUCCESS)
}

/// `hipPeekAtLastError`.
pub(crate) extern "C" fn peek_last() -> Error {
    LAST.get()
}

fn find(error: Error) -> (&'static CStr, &'static CStr) {
    let found = TEXTS.iter().find(|(code, ..)| *code == error.0);
    found.map_or((c"hipErrorUnknown", c"unknown error"), |(_, name, text)| {
        (name, text)
    })
}

/// `hipGetErrorName`.
pub(crate) extern "C" fn name(error: Error) -> Text {
    find(error).0.into()
}

/// `hipGetErrorString`.
pub(crate) extern "C" fn text(error: Error) -> Text {
    find(error).1.into()
}
