// Runs one HIP operation at a time, many times each, and logs the time span of each, so that an
// outside observer can tell what an operation consists of.
#include <ctime>

#include <unistd.h>

#include "said.hpp"

extern "C" __global__ void operation(int *) {}

static unsigned long long now() {
    timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

constexpr unsigned repetitions = 50;

// Runs an operation several times unobserved, so that first-time initialisation is over, and then
// observed. GPU work left by the operation ends between `end_ns` and `settled_ns`. The host is idle
// in that time, since waiting through HIP would be an operation itself.
template <typename Operation> static void phase(const char *name, Operation run) {
    for (unsigned i = 0; i < 5; i++)
        run();
    HIP(hipDeviceSynchronize());
    usleep(20000);
    unsigned long long begin = now();
    for (unsigned i = 0; i < repetitions; i++)
        run();
    unsigned long long end = now();
    usleep(20000);
    std::fprintf(said::file(),
                 R"({"said":"phase","name":"%s","count":%u,"begin_ns":%llu,"end_ns":%llu,"settled_ns":%llu})" "\n", name,
                 repetitions, begin, end, now());
    HIP(hipDeviceSynchronize());
}

static hipGraphExec_t ten_kernels(hipStream_t stream) {
    HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    for (unsigned i = 0; i < 10; i++)
        operation<<<1, 64, 0, stream>>>(nullptr);
    hipGraph_t graph;
    HIP(hipStreamEndCapture(stream, &graph));
    hipGraphExec_t ready;
    HIP(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
    HIP(hipGraphDestroy(graph));
    return ready;
}

int main() {
    const size_t large = 1 << 20, small = 4096;
    hipStream_t stream, other;
    HIP(hipStreamCreate(&stream));
    HIP(hipStreamCreate(&other));
    hipEvent_t timed, untimed;
    HIP(hipEventCreate(&timed));
    HIP(hipEventCreateWithFlags(&untimed, hipEventDisableTiming));
    void *gpu, *second, *pinned, *pageable = std::malloc(large);
    HIP(hipMalloc(&gpu, large));
    HIP(hipMalloc(&second, large));
    HIP(hipHostMalloc(&pinned, large, hipHostMallocDefault));
    hipGraphExec_t graph = ten_kernels(stream);
    const auto launch = [&] { operation<<<1, 64, 0, stream>>>(nullptr); };

    phase("kernel launch", launch);
    phase("kernel launch, hipStreamSynchronize", [&] {
        launch();
        HIP(hipStreamSynchronize(stream));
    });
    phase("hipStreamSynchronize, nothing to wait for", [&] { HIP(hipStreamSynchronize(stream)); });
    phase("kernel launch, hipDeviceSynchronize", [&] {
        launch();
        HIP(hipDeviceSynchronize());
    });
    phase("hipMemcpy to the GPU, pageable, 4 KiB", [&] { HIP(hipMemcpy(gpu, pageable, small, hipMemcpyHostToDevice)); });
    phase("hipMemcpy to the GPU, pageable, 1 MiB", [&] { HIP(hipMemcpy(gpu, pageable, large, hipMemcpyHostToDevice)); });
    phase("hipMemcpy to the GPU, pinned, 1 MiB", [&] { HIP(hipMemcpy(gpu, pinned, large, hipMemcpyHostToDevice)); });
    phase("hipMemcpy to the host, pageable, 1 MiB", [&] { HIP(hipMemcpy(pageable, gpu, large, hipMemcpyDeviceToHost)); });
    phase("hipMemcpy to the host, pinned, 1 MiB", [&] { HIP(hipMemcpy(pinned, gpu, large, hipMemcpyDeviceToHost)); });
    phase("hipMemcpyAsync to the GPU, pinned, 1 MiB",
          [&] { HIP(hipMemcpyAsync(gpu, pinned, large, hipMemcpyHostToDevice, stream)); });
    phase("hipMemcpyAsync to the host, pinned, 1 MiB",
          [&] { HIP(hipMemcpyAsync(pinned, gpu, large, hipMemcpyDeviceToHost, stream)); });
    phase("hipMemcpyAsync within the GPU, 1 MiB",
          [&] { HIP(hipMemcpyAsync(second, gpu, large, hipMemcpyDeviceToDevice, stream)); });
    phase("hipMemsetAsync", [&] { HIP(hipMemsetAsync(gpu, 0, large, stream)); });
    phase("kernel launch, hipEventRecord", [&] {
        launch();
        HIP(hipEventRecord(timed, stream));
    });
    phase("kernel launch, hipEventRecord without timing", [&] {
        launch();
        HIP(hipEventRecord(untimed, stream));
    });
    phase("launch, record, hipStreamWaitEvent, launch in the other stream", [&] {
        launch();
        HIP(hipEventRecord(untimed, stream));
        HIP(hipStreamWaitEvent(other, untimed, 0));
        operation<<<1, 64, 0, other>>>(nullptr);
    });
    phase("hipGraphLaunch of 10 kernels", [&] { HIP(hipGraphLaunch(graph, stream)); });
    phase("hipMalloc, hipFree, 1 MiB", [&] {
        void *memory;
        HIP(hipMalloc(&memory, large));
        HIP(hipFree(memory));
    });
    phase("hipHostMalloc, hipHostFree, 1 MiB", [&] {
        void *memory;
        HIP(hipHostMalloc(&memory, large, hipHostMallocDefault));
        HIP(hipHostFree(memory));
    });

    HIP(hipGraphExecDestroy(graph));
    HIP(hipEventDestroy(timed));
    HIP(hipEventDestroy(untimed));
    HIP(hipStreamDestroy(stream));
    HIP(hipStreamDestroy(other));
    HIP(hipHostFree(pinned));
    HIP(hipFree(gpu));
    HIP(hipFree(second));
    std::free(pageable);
}
