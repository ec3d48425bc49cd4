// Runs kernels and verified copies on every GPU, with one thread per GPU. Argument: number of
// rounds.
#include <cstdlib>
#include <thread>
#include <vector>

#include "said.hpp"

extern "C" __global__ void on_device(int *) {}

static void use(int device, unsigned rounds) {
    HIP(hipSetDevice(device));
    std::vector<int> out(1 << 18, device + 1), in(1 << 18);
    const size_t bytes = out.size() * sizeof(int);
    void *gpu;
    HIP(hipMalloc(&gpu, bytes));
    for (unsigned round = 0; round < rounds; round++) {
        LAUNCH(on_device, "on_device", device, dim3(device * rounds + round + 1), dim3(64), nullptr, nullptr);
        said::copy("h2d", bytes);
        HIP(hipMemcpy(gpu, out.data(), bytes, hipMemcpyHostToDevice));
        said::copy("d2h", bytes);
        HIP(hipMemcpy(in.data(), gpu, bytes, hipMemcpyDeviceToHost));
        if (in != out)
            said::fail("copy", "the data came back changed");
    }
    HIP(hipDeviceSynchronize());
    HIP(hipFree(gpu));
}

int main(int argc, char **argv) {
    const unsigned rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 20;
    int count = 0;
    HIP(hipGetDeviceCount(&count));
    said::number("devices", count);
    std::vector<std::thread> threads;
    for (int device = 0; device < count; device++)
        threads.emplace_back(use, device, rounds);
    for (std::thread &thread : threads)
        thread.join();
}
