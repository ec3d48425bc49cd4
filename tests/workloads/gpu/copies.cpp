// Copies of many sizes in all directions: pageable and pinned, synchronous and asynchronous. Copies
// by SDMA or by the host are verified. Copies within the GPU are done by kernels, which compute
// nothing on a software GPU.
#include <cstring>
#include <vector>

#include "said.hpp"

// Host memory used as source and as destination.
struct Host {
    unsigned char *out, *in;
};

// Copies to the GPU and back, in stream order if a stream is given.
static void round_trip(Host host, void *gpu, size_t bytes, hipStream_t stream) {
    for (size_t i = 0; i < bytes; i++)
        host.out[i] = static_cast<unsigned char>(i * 31 + bytes);
    std::memset(host.in, 0, bytes);
    said::copy("h2d", bytes);
    said::copy("d2h", bytes);
    if (stream) {
        HIP(hipMemcpyAsync(gpu, host.out, bytes, hipMemcpyHostToDevice, stream));
        HIP(hipMemcpyAsync(host.in, gpu, bytes, hipMemcpyDeviceToHost, stream));
        HIP(hipStreamSynchronize(stream));
    } else {
        HIP(hipMemcpy(gpu, host.out, bytes, hipMemcpyHostToDevice));
        HIP(hipMemcpy(host.in, gpu, bytes, hipMemcpyDeviceToHost));
    }
    if (std::memcmp(host.out, host.in, bytes) != 0)
        said::fail("copy", "the data came back changed");
}

static void within_gpu(void *to, void *from, size_t bytes, hipStream_t stream) {
    said::copy("d2d", bytes);
    if (stream) {
        HIP(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream));
        HIP(hipStreamSynchronize(stream));
    } else {
        HIP(hipMemcpy(to, from, bytes, hipMemcpyDeviceToDevice));
        HIP(hipDeviceSynchronize());
    }
}

static void within_host(Host host, size_t bytes) {
    std::memset(host.in, 0, bytes);
    said::copy("h2h", bytes);
    HIP(hipMemcpy(host.in, host.out, bytes, hipMemcpyHostToHost));
    if (std::memcmp(host.out, host.in, bytes) != 0)
        said::fail("copy within the host", "the data came back changed");
}

int main() {
    const size_t sizes[] = {1, 4, 100, 4096, 65536, 1 << 20, 5000000, 40 << 20};
    const size_t largest = 40 << 20;
    void *gpu, *other;
    HIP(hipMalloc(&gpu, largest));
    HIP(hipMalloc(&other, largest));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    std::vector<unsigned char> pageable_out(largest), pageable_in(largest);
    Host pageable{pageable_out.data(), pageable_in.data()}, pinned;
    HIP(hipHostMalloc(reinterpret_cast<void **>(&pinned.out), largest, hipHostMallocDefault));
    HIP(hipHostMalloc(reinterpret_cast<void **>(&pinned.in), largest, hipHostMallocDefault));
    for (size_t bytes : sizes) {
        for (Host host : {pageable, pinned}) {
            round_trip(host, gpu, bytes, nullptr);
            round_trip(host, gpu, bytes, stream);
            within_host(host, bytes);
        }
        within_gpu(other, gpu, bytes, nullptr);
        within_gpu(other, gpu, bytes, stream);
    }
    HIP(hipHostFree(pinned.out));
    HIP(hipHostFree(pinned.in));
    HIP(hipStreamDestroy(stream));
    HIP(hipFree(gpu));
    HIP(hipFree(other));
}
