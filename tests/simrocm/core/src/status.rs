//! HSA's status codes (`hsa_status_t` of `hsa.h`, `hsa_ext_amd.h`) and their texts.

/// `hsa_status_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u32);

impl From<bool> for Status {
    /// Success if `well`, otherwise an invalid argument.
    fn from(well: bool) -> Self {
        if well {
            Self::SUCCESS
        } else {
            Self::INVALID_ARGUMENT
        }
    }
}

macro_rules! statuses {
    ($($name:ident = $value:literal, $text:literal;)+) => {
        impl Status {
            $(#[doc = $text] pub const $name: Self = Self($value);)+

            /// The text of `hsa_status_string`.
            #[must_use]
            pub const fn text(self) -> Option<&'static std::ffi::CStr> {
                match self.0 {
                    // The literals contain no NUL; otherwise this would not compile.
                    $($value => Some(const {
                        match std::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                            Ok(text) => text,
                            Err(_) => c"",
                        }
                    }),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, "HSA_STATUS_SUCCESS: The function has been executed successfully.";
    INFO_BREAK = 1, "HSA_STATUS_INFO_BREAK: A traversal over a list of elements has been interrupted by the application before completing.";
    ERROR = 0x1000, "HSA_STATUS_ERROR: A generic error has occurred.";
    INVALID_ARGUMENT = 0x1001, "HSA_STATUS_ERROR_INVALID_ARGUMENT: One of the actual arguments does not meet a precondition stated in the documentation of the corresponding formal argument.";
    INVALID_QUEUE_CREATION = 0x1002, "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION: The requested queue creation is not valid.";
    INVALID_ALLOCATION = 0x1003, "HSA_STATUS_ERROR_INVALID_ALLOCATION: The requested allocation is not valid.";
    INVALID_AGENT = 0x1004, "HSA_STATUS_ERROR_INVALID_AGENT: The agent is invalid.";
    INVALID_REGION = 0x1005, "HSA_STATUS_ERROR_INVALID_REGION: The memory region is invalid.";
    INVALID_SIGNAL = 0x1006, "HSA_STATUS_ERROR_INVALID_SIGNAL: The signal is invalid.";
    INVALID_QUEUE = 0x1007, "HSA_STATUS_ERROR_INVALID_QUEUE: The queue is invalid.";
    OUT_OF_RESOURCES = 0x1008, "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. This error may also occur when the core runtime library needs to spawn threads or create internal OS-specific events.";
    INVALID_PACKET_FORMAT = 0x1009, "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT: The AQL packet is malformed.";
    RESOURCE_FREE = 0x100a, "HSA_STATUS_ERROR_RESOURCE_FREE: An error has been detected while releasing a resource.";
    NOT_INITIALIZED = 0x100b, "HSA_STATUS_ERROR_NOT_INITIALIZED: An API other than hsa_init has been invoked while the reference count of the HSA runtime is zero.";
    INVALID_INDEX = 0x100e, "HSA_STATUS_ERROR_INVALID_INDEX: The index is invalid.";
    INVALID_ISA = 0x100f, "HSA_STATUS_ERROR_INVALID_ISA: The instruction set architecture is invalid.";
    INVALID_CODE_OBJECT = 0x1010, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT: The code object is invalid.";
    INVALID_EXECUTABLE = 0x1011, "HSA_STATUS_ERROR_INVALID_EXECUTABLE: The executable is invalid.";
    FROZEN_EXECUTABLE = 0x1012, "HSA_STATUS_ERROR_FROZEN_EXECUTABLE: The executable is frozen.";
    INVALID_SYMBOL_NAME = 0x1013, "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME: There is no symbol with the given name.";
    EXCEPTION = 0x1016, "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.";
    INVALID_EXECUTABLE_SYMBOL = 0x1019, "HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL: The executable symbol is invalid.";
    INVALID_FILE = 0x1020, "HSA_STATUS_ERROR_INVALID_FILE: The file descriptor is invalid.";
    INVALID_CODE_OBJECT_READER = 0x1021, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER: The code object reader is invalid.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_their_names() {
        let text = Status(0x1009).text().unwrap().to_str().unwrap();
        assert!(
            text.starts_with("HSA_STATUS_ERROR_INVALID_PACKET_FORMAT: "),
            "{text}"
        );
        assert_eq!(Status(7).text(), None);
    }
}
