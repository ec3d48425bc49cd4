//! Names of status codes.
//!
//! Source: the public headers of ROCm 6.4, `hip/hip_runtime_api.h` (`hipError_t`) and `hsa/hsa.h`,
//! `hsa/hsa_ext_image.h`, `hsa/hsa_ext_finalize.h`, `hsa/hsa_ext_amd.h` (`hsa_status_t`). Values
//! are never reused between releases, so the newest header serves captures of older ones.

use crate::model::value::ArgValue;

/// Name of a `hipError_t`.
#[must_use]
pub fn hip_error(value: u32) -> Option<&'static str> {
    find(HIP_ERRORS, value)
}

/// Name of an `hsa_status_t`.
#[must_use]
pub fn hsa_status(value: u32) -> Option<&'static str> {
    find(HSA_STATUSES, value)
}

fn find(table: &[(u32, &'static str)], value: u32) -> Option<&'static str> {
    // Fast path: most calls succeed.
    if let Some((first, name)) = table.first()
        && *first == value
    {
        return Some(name);
    }
    let index = table
        .binary_search_by_key(&value, |(value, _)| *value)
        .ok()?;
    table.get(index).map(|(_, name)| *name)
}

const HIP_ERRORS: &[(u32, &str)] = &[
    (0, "hipSuccess"),
    (1, "hipErrorInvalidValue"),
    (2, "hipErrorOutOfMemory"),
    (3, "hipErrorNotInitialized"),
    (4, "hipErrorDeinitialized"),
    (5, "hipErrorProfilerDisabled"),
    (6, "hipErrorProfilerNotInitialized"),
    (7, "hipErrorProfilerAlreadyStarted"),
    (8, "hipErrorProfilerAlreadyStopped"),
    (9, "hipErrorInvalidConfiguration"),
    (12, "hipErrorInvalidPitchValue"),
    (13, "hipErrorInvalidSymbol"),
    (17, "hipErrorInvalidDevicePointer"),
    (21, "hipErrorInvalidMemcpyDirection"),
    (35, "hipErrorInsufficientDriver"),
    (52, "hipErrorMissingConfiguration"),
    (53, "hipErrorPriorLaunchFailure"),
    (98, "hipErrorInvalidDeviceFunction"),
    (100, "hipErrorNoDevice"),
    (101, "hipErrorInvalidDevice"),
    (200, "hipErrorInvalidImage"),
    (201, "hipErrorInvalidContext"),
    (202, "hipErrorContextAlreadyCurrent"),
    (205, "hipErrorMapFailed"),
    (206, "hipErrorUnmapFailed"),
    (207, "hipErrorArrayIsMapped"),
    (208, "hipErrorAlreadyMapped"),
    (209, "hipErrorNoBinaryForGpu"),
    (210, "hipErrorAlreadyAcquired"),
    (211, "hipErrorNotMapped"),
    (212, "hipErrorNotMappedAsArray"),
    (213, "hipErrorNotMappedAsPointer"),
    (214, "hipErrorECCNotCorrectable"),
    (215, "hipErrorUnsupportedLimit"),
    (216, "hipErrorContextAlreadyInUse"),
    (217, "hipErrorPeerAccessUnsupported"),
    (218, "hipErrorInvalidKernelFile"),
    (219, "hipErrorInvalidGraphicsContext"),
    (300, "hipErrorInvalidSource"),
    (301, "hipErrorFileNotFound"),
    (302, "hipErrorSharedObjectSymbolNotFound"),
    (303, "hipErrorSharedObjectInitFailed"),
    (304, "hipErrorOperatingSystem"),
    (400, "hipErrorInvalidHandle"),
    (401, "hipErrorIllegalState"),
    (500, "hipErrorNotFound"),
    (600, "hipErrorNotReady"),
    (700, "hipErrorIllegalAddress"),
    (701, "hipErrorLaunchOutOfResources"),
    (702, "hipErrorLaunchTimeOut"),
    (704, "hipErrorPeerAccessAlreadyEnabled"),
    (705, "hipErrorPeerAccessNotEnabled"),
    (708, "hipErrorSetOnActiveProcess"),
    (709, "hipErrorContextIsDestroyed"),
    (710, "hipErrorAssert"),
    (712, "hipErrorHostMemoryAlreadyRegistered"),
    (713, "hipErrorHostMemoryNotRegistered"),
    (719, "hipErrorLaunchFailure"),
    (720, "hipErrorCooperativeLaunchTooLarge"),
    (801, "hipErrorNotSupported"),
    (900, "hipErrorStreamCaptureUnsupported"),
    (901, "hipErrorStreamCaptureInvalidated"),
    (902, "hipErrorStreamCaptureMerge"),
    (903, "hipErrorStreamCaptureUnmatched"),
    (904, "hipErrorStreamCaptureUnjoined"),
    (905, "hipErrorStreamCaptureIsolation"),
    (906, "hipErrorStreamCaptureImplicit"),
    (907, "hipErrorCapturedEvent"),
    (908, "hipErrorStreamCaptureWrongThread"),
    (910, "hipErrorGraphExecUpdateFailure"),
    (911, "hipErrorInvalidChannelDescriptor"),
    (912, "hipErrorInvalidTexture"),
    (999, "hipErrorUnknown"),
    (1052, "hipErrorRuntimeMemory"),
    (1053, "hipErrorRuntimeOther"),
];

const HSA_STATUSES: &[(u32, &str)] = &[
    (0, "HSA_STATUS_SUCCESS"),
    (1, "HSA_STATUS_INFO_BREAK"),
    (40, "HSA_STATUS_ERROR_INVALID_MEMORY_POOL"),
    (41, "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION"),
    (42, "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION"),
    (43, "HSA_STATUS_ERROR_MEMORY_FAULT"),
    (44, "HSA_STATUS_CU_MASK_REDUCED"),
    (45, "HSA_STATUS_ERROR_OUT_OF_REGISTERS"),
    (46, "HSA_STATUS_ERROR_RESOURCE_BUSY"),
    (0x1000, "HSA_STATUS_ERROR"),
    (0x1001, "HSA_STATUS_ERROR_INVALID_ARGUMENT"),
    (0x1002, "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION"),
    (0x1003, "HSA_STATUS_ERROR_INVALID_ALLOCATION"),
    (0x1004, "HSA_STATUS_ERROR_INVALID_AGENT"),
    (0x1005, "HSA_STATUS_ERROR_INVALID_REGION"),
    (0x1006, "HSA_STATUS_ERROR_INVALID_SIGNAL"),
    (0x1007, "HSA_STATUS_ERROR_INVALID_QUEUE"),
    (0x1008, "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    (0x1009, "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT"),
    (0x100a, "HSA_STATUS_ERROR_RESOURCE_FREE"),
    (0x100b, "HSA_STATUS_ERROR_NOT_INITIALIZED"),
    (0x100c, "HSA_STATUS_ERROR_REFCOUNT_OVERFLOW"),
    (0x100d, "HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS"),
    (0x100e, "HSA_STATUS_ERROR_INVALID_INDEX"),
    (0x100f, "HSA_STATUS_ERROR_INVALID_ISA"),
    (0x1010, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT"),
    (0x1011, "HSA_STATUS_ERROR_INVALID_EXECUTABLE"),
    (0x1012, "HSA_STATUS_ERROR_FROZEN_EXECUTABLE"),
    (0x1013, "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME"),
    (0x1014, "HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED"),
    (0x1015, "HSA_STATUS_ERROR_VARIABLE_UNDEFINED"),
    (0x1016, "HSA_STATUS_ERROR_EXCEPTION"),
    (0x1017, "HSA_STATUS_ERROR_INVALID_ISA_NAME"),
    (0x1018, "HSA_STATUS_ERROR_INVALID_CODE_SYMBOL"),
    (0x1019, "HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL"),
    (0x1020, "HSA_STATUS_ERROR_INVALID_FILE"),
    (0x1021, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER"),
    (0x1022, "HSA_STATUS_ERROR_INVALID_CACHE"),
    (0x1023, "HSA_STATUS_ERROR_INVALID_WAVEFRONT"),
    (0x1024, "HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP"),
    (0x1025, "HSA_STATUS_ERROR_INVALID_RUNTIME_STATE"),
    (0x1026, "HSA_STATUS_ERROR_FATAL"),
    (0x2000, "HSA_EXT_STATUS_ERROR_INVALID_PROGRAM"),
    (0x2001, "HSA_EXT_STATUS_ERROR_INVALID_MODULE"),
    (0x2002, "HSA_EXT_STATUS_ERROR_INCOMPATIBLE_MODULE"),
    (0x2003, "HSA_EXT_STATUS_ERROR_MODULE_ALREADY_INCLUDED"),
    (0x2004, "HSA_EXT_STATUS_ERROR_SYMBOL_MISMATCH"),
    (0x2005, "HSA_EXT_STATUS_ERROR_FINALIZATION_FAILED"),
    (0x2006, "HSA_EXT_STATUS_ERROR_DIRECTIVE_MISMATCH"),
    (0x3000, "HSA_EXT_STATUS_ERROR_IMAGE_FORMAT_UNSUPPORTED"),
    (0x3001, "HSA_EXT_STATUS_ERROR_IMAGE_SIZE_UNSUPPORTED"),
    (0x3002, "HSA_EXT_STATUS_ERROR_IMAGE_PITCH_UNSUPPORTED"),
    (
        0x3003,
        "HSA_EXT_STATUS_ERROR_SAMPLER_DESCRIPTOR_UNSUPPORTED",
    ),
];

/// The result of a system call or kernel handler: a non-negative number, or an error number.
pub(crate) fn errno(result: i64) -> ArgValue<'static> {
    match u32::try_from(result.unsigned_abs()) {
        Ok(code) if result < 0 => ArgValue::Status {
            code,
            name: ERRNO
                .iter()
                .find(|(number, _)| *number == code)
                .map(|(_, name)| *name),
        },
        _ => ArgValue::Signed(result),
    }
}

/// Error numbers that drivers return: from `asm-generic/errno.h`, and the kernel-internal ones of
/// `linux/errno.h`.
const ERRNO: &[(u32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (8, "ENOEXEC"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (15, "ENOTBLK"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (29, "ESPIPE"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
    (33, "EDOM"),
    (34, "ERANGE"),
    (38, "ENOSYS"),
    (42, "ENOMSG"),
    (61, "ENODATA"),
    (62, "ETIME"),
    (71, "EPROTO"),
    (75, "EOVERFLOW"),
    (95, "EOPNOTSUPP"),
    (110, "ETIMEDOUT"),
    (116, "ESTALE"),
    (125, "ECANCELED"),
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (516, "ERESTART_RESTARTBLOCK"),
    (524, "ENOTSUPP"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_without_repeats() {
        for table in [HIP_ERRORS, HSA_STATUSES] {
            assert!(table.is_sorted_by(|(before, _), (after, _)| before < after));
        }
    }

    #[test]
    fn names_are_found() {
        assert_eq!(hip_error(0), Some("hipSuccess"));
        assert_eq!(hip_error(100), Some("hipErrorNoDevice"));
        assert_eq!(hip_error(1_000_000), None);
        assert_eq!(hsa_status(0), Some("HSA_STATUS_SUCCESS"));
        assert_eq!(
            hsa_status(0x1008),
            Some("HSA_STATUS_ERROR_OUT_OF_RESOURCES")
        );
        assert_eq!(hsa_status(43), Some("HSA_STATUS_ERROR_MEMORY_FAULT"));
    }
}
