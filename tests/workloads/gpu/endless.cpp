// Waits for a kernel that the software GPU is told never to end. Whoever runs this must kill it.
#include "said.hpp"

extern "C" __global__ void endless(int *) {}

int main() {
    LAUNCH(endless, "endless", 0, dim3(1), dim3(64), nullptr, nullptr);
    std::fflush(said::file());
    HIP(hipDeviceSynchronize());
}
