// Launches empty kernels without a pause, and waits after each 50: `launches THREADS COUNT`.
// Prints how many a second, and ends when its input does.
#include <chrono>
#include <thread>
#include <vector>

#include "said.hpp"

__global__ void nothing(int *) {}

static void launch(unsigned count) {
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (unsigned done = 0; done < count; done++) {
        hipLaunchKernelGGL(nothing, dim3(1), dim3(64), 0, stream, nullptr);
        if (done % 50 == 49) {
            HIP(hipStreamSynchronize(stream));
        }
    }
    HIP(hipStreamSynchronize(stream));
    HIP(hipStreamDestroy(stream));
}

int main(int argc, char **argv) {
    unsigned threads = argc > 1 ? std::atoi(argv[1]) : 1;
    unsigned count = argc > 2 ? std::atoi(argv[2]) : 1000;
    // The first launches load code objects and create queues.
    launch(50);
    auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> all;
    for (unsigned number = 0; number < threads; number++) {
        all.emplace_back(launch, count);
    }
    for (auto &one : all) {
        one.join();
    }
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.0f launches/s\n", threads * count / took.count());
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
}
