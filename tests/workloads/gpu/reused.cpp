// Streams that get the handles of streams before them, and each thread's own stream. The blocks of
// a kernel tell its stream.
#include <thread>

#include "said.hpp"

__global__ void in_stream(int *) {}

// As the compiler launches where the null stream is the thread's own.
extern "C" hipError_t hipLaunchKernel_spt(const void *, dim3, dim3, void **, size_t, hipStream_t);

static void launch_in_own(unsigned number) {
    int *nothing = nullptr;
    void *arguments[] = {&nothing};
    said::kernel("_Z9in_streamPi", 0, dim3(number), dim3(64));
    HIP(hipLaunchKernel_spt(reinterpret_cast<const void *>(in_stream), dim3(number), dim3(64), arguments, 0,
                            nullptr));
    HIP(hipDeviceSynchronize());
}

static void launch(hipStream_t stream, unsigned number) {
    LAUNCH(in_stream, "_Z9in_streamPi", 0, dim3(number), dim3(64), stream, nullptr);
    HIP(hipStreamSynchronize(stream));
}

static hipStream_t create(unsigned number) {
    hipStream_t stream;
    switch (number % 3) {
    case 0:
        HIP(hipStreamCreate(&stream));
        break;
    case 1:
        HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        break;
    default:
        HIP(hipStreamCreateWithPriority(&stream, hipStreamDefault, 0));
    }
    return stream;
}

int main() {
    unsigned number = 0;
    while (number < 12) {
        hipStream_t stream = create(++number);
        launch(stream, number);
        launch(stream, number);
        HIP(hipStreamDestroy(stream));
    }
    for (int threads = 0; threads < 2; threads++) {
        number++;
        std::thread([=] {
            launch(hipStreamPerThread, number);
            launch(hipStreamPerThread, number);
        }).join();
    }
    launch(hipStreamPerThread, ++number);
    launch_in_own(number);
    launch(nullptr, ++number);
}
