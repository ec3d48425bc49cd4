// Copies of many sizes: pageable and pinned, synchronous and not, to the GPU and back, all verified.
#include <cstring>
#include <vector>

#include "said.hpp"

static void round_trip(unsigned char *out, unsigned char *in, void *gpu, size_t bytes, hipStream_t stream) {
    for (size_t i = 0; i < bytes; i++)
        out[i] = static_cast<unsigned char>(i * 31 + bytes);
    std::memset(in, 0, bytes);
    said::copy("h2d", bytes);
    said::copy("d2h", bytes);
    if (stream) {
        HIP(hipMemcpyAsync(gpu, out, bytes, hipMemcpyHostToDevice, stream));
        HIP(hipMemcpyAsync(in, gpu, bytes, hipMemcpyDeviceToHost, stream));
        HIP(hipStreamSynchronize(stream));
    } else {
        HIP(hipMemcpy(gpu, out, bytes, hipMemcpyHostToDevice));
        HIP(hipMemcpy(in, gpu, bytes, hipMemcpyDeviceToHost));
    }
    if (std::memcmp(out, in, bytes) != 0)
        said::fail("copy", "the data came back changed");
}

int main() {
    const size_t sizes[] = {1, 4, 100, 4096, 65536, 1 << 20, 5000000, 40 << 20};
    const size_t largest = 40 << 20;
    void *gpu;
    HIP(hipMalloc(&gpu, largest));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    std::vector<unsigned char> pageable_out(largest), pageable_in(largest);
    unsigned char *pinned_out, *pinned_in;
    HIP(hipHostMalloc(reinterpret_cast<void **>(&pinned_out), largest, hipHostMallocDefault));
    HIP(hipHostMalloc(reinterpret_cast<void **>(&pinned_in), largest, hipHostMallocDefault));
    for (size_t bytes : sizes) {
        round_trip(pageable_out.data(), pageable_in.data(), gpu, bytes, nullptr);
        round_trip(pinned_out, pinned_in, gpu, bytes, nullptr);
        round_trip(pinned_out, pinned_in, gpu, bytes, stream);
    }
    HIP(hipHostFree(pinned_out));
    HIP(hipHostFree(pinned_in));
    HIP(hipStreamDestroy(stream));
    HIP(hipFree(gpu));
}
