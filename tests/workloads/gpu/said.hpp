// A test program's log of what it did: one JSON object per line, in the file named by WORKLOAD_LOG.
// tests/harness/src/said.rs reads it and has to know every word.
//
// The programs in this directory need a GPU, real or software. Each exits with status 0 only if
// everything it could check was right. Results of kernels are not checked, since the software GPU
// computes nothing.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

#include <hip/hip_runtime.h>

namespace said {

inline std::FILE *file() {
    static std::FILE *log = [] {
        const char *path = std::getenv("WORKLOAD_LOG");
        std::FILE *opened = path ? std::fopen(path, "a") : stdout;
        if (!opened) {
            std::perror(path);
            std::exit(2);
        }
        // Each line is a single write, because several processes append to the file.
        std::setvbuf(opened, nullptr, _IOLBF, 4096);
        return opened;
    }();
    return log;
}

inline void kernel(const char *name, int device, dim3 grid, dim3 block) {
    std::fprintf(file(), R"({"said":"kernel","kernel":"%s","device":%d,"grid":[%u,%u,%u],"workgroup":[%u,%u,%u]})" "\n",
                 name, device, grid.x * block.x, grid.y * block.y, grid.z * block.z, block.x, block.y, block.z);
}

inline void copy(const char *direction, size_t bytes) {
    std::fprintf(file(), R"({"said":"copy","direction":"%s","bytes":%zu})" "\n", direction, bytes);
}

// Logs a number for the test to interpret.
inline void number(const char *what, double value) {
    std::fprintf(file(), R"({"said":"%s","value":%.9g})" "\n", what, value);
}

inline void fail(const char *what, const char *why) {
    std::fprintf(stderr, "%s: %s\n", what, why);
    std::fflush(file());
    std::_Exit(1);
}

// HIP 7.2.4 frees data that its thread for completed work still uses if the program ends within a
// few microseconds of such work: one in three runs of a program with profiled kernels aborted
// ("double free or corruption") without any tracer. So nothing of HIP is destroyed: all output has
// been written, and the process ends. This runs before the destructors of libraries.
inline void end_at_once(int status, void *) {
    // Do not ask HIP itself: that would initialise it in a child that does not use it.
    if (dlopen("libamdhip64.so.7", RTLD_NOLOAD | RTLD_LAZY)) {
        std::fflush(nullptr);
        _exit(status);
    }
}
inline const int ends_at_once = on_exit(end_at_once, nullptr);

} // namespace said

// Calls a HIP function; ends the program if it fails.
#define HIP(call)                                               \
    do {                                                        \
        hipError_t result_ = (call);                            \
        if (result_ != hipSuccess)                              \
            said::fail(#call, hipGetErrorString(result_));      \
    } while (0)

// Launches a kernel and logs it. The name in the code object is passed too, because that is the
// name a tracer sees.
#define LAUNCH(kernel_, mangled, device, grid, block, stream, ...)             \
    do {                                                                       \
        said::kernel(mangled, device, grid, block);                            \
        kernel_<<<grid, block, 0, stream>>>(__VA_ARGS__);                      \
        HIP(hipGetLastError());                                                \
    } while (0)
