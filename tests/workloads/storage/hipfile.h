// The tested part of hipFile's interface, with the layouts of hipfile.h.
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum { INVALID_VALUE = 5022, HIP_DRIVER_ERROR = 5011, HIP_ERROR_INVALID_VALUE = 1, OPAQUE_FD = 1 };

// hipFileError_t: both halves are returned in one register.
struct hipfile_error {
    int error;
    int hip_error;
};
// hipFileDescr_t.
struct description {
    int type;
    union {
        int fd;
        void *file;
    };
    const void *operations;
};

#ifdef __cplusplus
extern "C" {
#endif
struct hipfile_error hipFileDriverOpen(void);
struct hipfile_error hipFileHandleRegister(void **, const struct description *);
struct hipfile_error hipFileBufRegister(const void *, size_t, int);
ssize_t hipFileRead(void *, void *, size_t, off_t, off_t);
void hipFileHandleDeregister(void *);
#ifdef __cplusplus
}
#endif
