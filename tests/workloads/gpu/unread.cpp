// Ends before the recorder can have read its code object. It stops its parent, which is the
// recorder, launches a kernel, and exits without unloading anything. Soon after, a child continues
// the recorder. With an argument, it kills itself, and the child continues the recorder afterwards.
#include <csignal>

#include "said.hpp"

__global__ void unread(int *) {}

int main(int argc, char **) {
    pid_t recorder = getppid();
    int stopped[2];
    if (pipe(stopped) < 0) {
        std::perror("pipe");
        return 1;
    }
    // Before HIP is initialised, which a child does not inherit.
    pid_t child = fork();
    if (child < 0) {
        std::perror("fork");
        return 1;
    }
    if (child == 0) {
        close(stopped[1]);
        char byte;
        if (read(stopped[0], &byte, 1) != 1) {
            _exit(1);
        }
        if (argc > 1) {
            // Returns when the process that stopped the recorder has ended: it had the other end.
            if (read(stopped[0], &byte, 1) != 0)
                _exit(1);
        } else {
            // The recorder's helpers let the process go if the recorder stands still for 2 s.
            usleep(300000);
        }
        kill(recorder, SIGCONT);
        _exit(0);
    }
    int devices;
    HIP(hipGetDeviceCount(&devices));
    kill(recorder, SIGSTOP);
    if (write(stopped[1], "", 1) != 1) {
        std::perror("write");
        return 1;
    }
    LAUNCH(unread, "_Z6unreadPi", 0, dim3(1), dim3(64), nullptr, nullptr);
    HIP(hipDeviceSynchronize());
    std::fflush(nullptr);
    if (argc > 1)
        kill(getpid(), SIGKILL);
    _exit(0);
}
