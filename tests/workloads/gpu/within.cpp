// Copies between its own buffers on one GPU: with a kernel, and with a copy engine where HIP can do
// that, as often as the argument says. All memory is allocated before the first copy.
#include "said.hpp"

int main(int, char **arguments) {
    const int rounds = std::atoi(arguments[1]);
    const size_t bytes = 1 << 20;
    void *from, *to;
    HIP(hipMalloc(&from, bytes));
    HIP(hipMalloc(&to, bytes));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    // `hipMemcpyDeviceToDeviceNoCU`, which older releases do not know.
    int version = 0;
    HIP(hipRuntimeGetVersion(&version));
    const auto no_cu = static_cast<hipMemcpyKind>(version < 60000000 ? hipMemcpyDeviceToDevice : 1024);
    for (int round = 0; round < rounds; round++) {
        HIP(hipMemcpyDtoDAsync(to, from, bytes, stream));
        HIP(hipMemcpyAsync(to, from, bytes, no_cu, stream));
        HIP(hipStreamSynchronize(stream));
    }
    HIP(hipStreamDestroy(stream));
    HIP(hipFree(from));
    HIP(hipFree(to));
}
