// Many small kernels on one stream: `many_kernels [COUNT]`. Three kernels take turns; each launch
// has a distinct grid.
#include "said.hpp"

extern "C" __global__ void small_a(int *) {}
extern "C" __global__ void small_b(int *) {}
extern "C" __global__ void small_c(int *) {}

int main(int argc, char **argv) {
    const unsigned count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (unsigned i = 0; i < count; i++) {
        dim3 grid(1 + i % 1000);
        switch (i % 3) {
        case 0:
            LAUNCH(small_a, "small_a", 0, grid, dim3(64), stream, nullptr);
            break;
        case 1:
            LAUNCH(small_b, "small_b", 0, grid, dim3(64), stream, nullptr);
            break;
        default:
            LAUNCH(small_c, "small_c", 0, grid, dim3(64), stream, nullptr);
        }
    }
    HIP(hipStreamSynchronize(stream));
    HIP(hipStreamDestroy(stream));
}
