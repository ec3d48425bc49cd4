// Copies between two GPUs, verified: hipMemcpyPeer and hipMemcpyPeerAsync.
#include <cstring>
#include <vector>

#include "said.hpp"

extern "C" __global__ void after_peer_copy(int *) {}

int main() {
    int count = 0, can = 0;
    HIP(hipGetDeviceCount(&count));
    if (count != 2)
        said::fail("hipGetDeviceCount", "this needs two GPUs");
    HIP(hipDeviceCanAccessPeer(&can, 0, 1));
    said::number("peer_access", can);
    void *on[2];
    const size_t sizes[] = {4096, 1 << 20, 20 << 20};
    const size_t largest = 20 << 20;
    for (int device = 0; device < 2; device++) {
        HIP(hipSetDevice(device));
        if (can)
            HIP(hipDeviceEnablePeerAccess(1 - device, 0));
        HIP(hipMalloc(&on[device], largest));
    }
    HIP(hipSetDevice(0));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    std::vector<unsigned char> out(largest), in(largest);
    for (size_t bytes : sizes) {
        for (bool async : {false, true}) {
            for (size_t i = 0; i < bytes; i++)
                out[i] = static_cast<unsigned char>(i * 7 + bytes + async);
            said::copy("h2d", bytes);
            HIP(hipMemcpy(on[0], out.data(), bytes, hipMemcpyHostToDevice));
            said::copy("peer", bytes);
            if (async) {
                HIP(hipMemcpyPeerAsync(on[1], 1, on[0], 0, bytes, stream));
                LAUNCH(after_peer_copy, "after_peer_copy", 0, dim3(bytes / 4096), dim3(64), stream, nullptr);
                HIP(hipStreamSynchronize(stream));
            } else {
                HIP(hipMemcpyPeer(on[1], 1, on[0], 0, bytes));
            }
            said::copy("d2h", bytes);
            HIP(hipMemcpy(in.data(), on[1], bytes, hipMemcpyDeviceToHost));
            if (std::memcmp(out.data(), in.data(), bytes) != 0)
                said::fail("hipMemcpyPeer", "the data came back changed");
        }
    }
    HIP(hipStreamDestroy(stream));
    HIP(hipFree(on[0]));
    HIP(hipFree(on[1]));
}
