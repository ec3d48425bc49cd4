// Ends before the recorder can have read its code object. It stops its parent, which is the recorder,
// launches a kernel, and exits without unloading anything. Soon after, a child continues the
// recorder.
#include <csignal>

#include "said.hpp"

__global__ void unread(int *) {}

int main() {
    pid_t recorder = getppid();
    // Before HIP is initialised, which a child does not inherit.
    pid_t child = fork();
    if (child < 0) {
        std::perror("fork");
        return 1;
    }
    if (child == 0) {
        // The recorder's helpers let the process go if the recorder stands still for 2 s.
        usleep(800000);
        kill(recorder, SIGCONT);
        _exit(0);
    }
    int devices;
    HIP(hipGetDeviceCount(&devices));
    kill(recorder, SIGSTOP);
    LAUNCH(unread, "_Z6unreadPi", 0, dim3(1), dim3(64), nullptr, nullptr);
    HIP(hipDeviceSynchronize());
    std::fflush(nullptr);
    _exit(0);
}
