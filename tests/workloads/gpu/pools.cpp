// Stream-ordered memory allocation and freeing, from the default pool and from a pool of our own.
// `pools [keep]` does not destroy the stream.
#include <cstring>

#include "said.hpp"

extern "C" __global__ void on_pool_memory(int *) {}

constexpr size_t bytes = 1 << 20;
static unsigned char *out, *in;

// Uses memory obtained from `allocate`, in stream order only.
template <typename Allocate> static void use(hipStream_t stream, unsigned round, Allocate allocate) {
    void *memory;
    std::memset(out, static_cast<int>(round + 1), bytes);
    HIP(allocate(&memory));
    said::copy("h2d", bytes);
    HIP(hipMemcpyAsync(memory, out, bytes, hipMemcpyHostToDevice, stream));
    LAUNCH(on_pool_memory, "on_pool_memory", 0, dim3(round + 1), dim3(64), stream, static_cast<int *>(memory));
    said::copy("d2h", bytes);
    HIP(hipMemcpyAsync(in, memory, bytes, hipMemcpyDeviceToHost, stream));
    HIP(hipFreeAsync(memory, stream));
    HIP(hipStreamSynchronize(stream));
    if (std::memcmp(out, in, bytes) != 0)
        said::fail("copy", "the data came back changed");
}

int main(int argc, char **) {
    int supported = 0;
    HIP(hipDeviceGetAttribute(&supported, hipDeviceAttributeMemoryPoolsSupported, 0));
    if (!supported)
        said::fail("hipDeviceAttributeMemoryPoolsSupported", "it is 0");
    HIP(hipHostMalloc(reinterpret_cast<void **>(&out), bytes, hipHostMallocDefault));
    HIP(hipHostMalloc(reinterpret_cast<void **>(&in), bytes, hipHostMallocDefault));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (unsigned round = 0; round < 10; round++)
        use(stream, round, [&](void **memory) { return hipMallocAsync(memory, bytes, stream); });

    hipMemPoolProps properties{};
    properties.allocType = hipMemAllocationTypePinned;
    properties.location.type = hipMemLocationTypeDevice;
    hipMemPool_t pool;
    HIP(hipMemPoolCreate(&pool, &properties));
    uint64_t keep = 4 * bytes;
    HIP(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &keep));
    for (unsigned round = 10; round < 20; round++)
        use(stream, round, [&](void **memory) { return hipMallocFromPoolAsync(memory, bytes, pool, stream); });
    HIP(hipMemPoolTrimTo(pool, 0));
    HIP(hipMemPoolDestroy(pool));
    if (argc == 1)
        HIP(hipStreamDestroy(stream));
    HIP(hipHostFree(out));
    HIP(hipHostFree(in));
}
