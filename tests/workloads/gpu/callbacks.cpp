// Host functions in stream order: hipStreamAddCallback and, where the runtime has it,
// hipLaunchHostFunc.
#include <dlfcn.h>

#include <atomic>

#include "said.hpp"

extern "C" __global__ void between_callbacks(int *) {}

static std::atomic<unsigned> called{0};
static const pthread_t launcher = pthread_self();

// The functions must be called in order. gputrace relies on it that a thread of HIP calls them:
// catalog/src/callbacks.rs.
static void host_function(void *turn) {
    if (pthread_equal(pthread_self(), launcher))
        said::fail("host function", "it was called inside the launch");
    if (called++ != reinterpret_cast<uintptr_t>(turn))
        said::fail("host function", "it was called out of turn");
}

static void callback(hipStream_t, hipError_t status, void *turn) {
    if (status != hipSuccess)
        said::fail("hipStreamAddCallback", "the stream has an error");
    host_function(turn);
}

int main() {
    using Launch = hipError_t(hipStream_t, hipHostFn_t, void *);
    // HIP 5.2 declares the function without exporting it.
    auto *launch = reinterpret_cast<Launch *>(dlsym(RTLD_DEFAULT, "hipLaunchHostFunc"));
    said::number("host_functions", launch ? 1 : 0);
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    constexpr unsigned rounds = 20;
    for (unsigned round = 0; round < rounds; round++) {
        auto *turn = reinterpret_cast<void *>(uintptr_t{round});
        LAUNCH(between_callbacks, "between_callbacks", 0, dim3(round + 1), dim3(64), stream, nullptr);
        if (launch && round % 2)
            HIP(launch(stream, host_function, turn));
        else
            HIP(hipStreamAddCallback(stream, callback, turn, 0));
    }
    HIP(hipStreamSynchronize(stream));
    if (called != rounds)
        said::fail("callbacks", "not all were called");
    HIP(hipStreamDestroy(stream));
}
