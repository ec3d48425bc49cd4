// Waits for a kernel that the software GPU is configured never to finish. The caller must kill this
// program.
#include "said.hpp"

extern "C" __global__ void endless(int *) {}

int main() {
    LAUNCH(endless, "endless", 0, dim3(1), dim3(64), nullptr, nullptr);
    std::fflush(said::file());
    HIP(hipDeviceSynchronize());
}
