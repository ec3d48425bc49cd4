// Four streams that wait for each other in a ring through events, and the times measured by the
// events. `streams [ROUNDS]`: number of kernels per stream.
#include <cstdlib>

#include "said.hpp"

extern "C" __global__ void stage_0(int *) {}
extern "C" __global__ void stage_1(int *) {}
extern "C" __global__ void stage_2(int *) {}
extern "C" __global__ void stage_3(int *) {}

int main(int argc, char **argv) {
    constexpr int streams = 4;
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 8;
    hipStream_t stream[streams];
    hipEvent_t done[streams], first, last;
    for (int i = 0; i < streams; i++) {
        HIP(hipStreamCreateWithFlags(&stream[i], hipStreamNonBlocking));
        HIP(hipEventCreateWithFlags(&done[i], hipEventDisableTiming));
    }
    HIP(hipEventCreate(&first));
    HIP(hipEventCreate(&last));
    HIP(hipEventRecord(first, stream[0]));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < streams; i++) {
            if (round || i)
                HIP(hipStreamWaitEvent(stream[i], done[(i + streams - 1) % streams], 0));
            switch (i) {
            case 0: LAUNCH(stage_0, "stage_0", 0, dim3(round + 1), dim3(64), stream[i], nullptr); break;
            case 1: LAUNCH(stage_1, "stage_1", 0, dim3(round + 1), dim3(64), stream[i], nullptr); break;
            case 2: LAUNCH(stage_2, "stage_2", 0, dim3(round + 1), dim3(64), stream[i], nullptr); break;
            default: LAUNCH(stage_3, "stage_3", 0, dim3(round + 1), dim3(64), stream[i], nullptr);
            }
            HIP(hipEventRecord(done[i], stream[i]));
        }
    }
    HIP(hipEventRecord(last, stream[streams - 1]));
    HIP(hipDeviceSynchronize());
    float milliseconds = 0;
    HIP(hipEventElapsedTime(&milliseconds, first, last));
    said::number("elapsed_ms", milliseconds);
    for (int i = 0; i < streams; i++) {
        HIP(hipEventDestroy(done[i]));
        HIP(hipStreamDestroy(stream[i]));
    }
    HIP(hipEventDestroy(first));
    HIP(hipEventDestroy(last));
}
