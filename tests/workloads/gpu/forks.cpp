// Forks a process that already uses HIP. With `forks exec`, the child executes the program again,
// and that uses HIP. With `forks host`, the child does not use HIP. With `forks inherit`, the child
// uses the parent's HIP, which ROCm does not support, and the parent logs how the child ended. In
// each mode the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "said.hpp"

extern "C" __global__ void in_fork(int *) {}

static void use(unsigned first) {
    for (unsigned i = 0; i < 10; i++)
        LAUNCH(in_fork, "in_fork", 0, dim3(first + i), dim3(64), nullptr, nullptr);
    HIP(hipDeviceSynchronize());
    std::fflush(said::file());
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "exec";
    if (!std::strcmp(how, "child")) {
        use(100);
        return 0;
    }
    use(1);
    pid_t pid = fork();
    if (pid < 0)
        said::fail("fork", "no process");
    if (pid == 0) {
        if (!std::strcmp(how, "exec"))
            execl("/proc/self/exe", argv[0], "child", nullptr);
        if (!std::strcmp(how, "host"))
            _exit(0);
        if (!std::strcmp(how, "inherit")) {
            // The runtime may wait forever, because its threads do not exist in the child.
            alarm(5);
            in_fork<<<1000, 64>>>(nullptr);
            _exit(hipDeviceSynchronize() == hipSuccess ? 0 : 3);
        }
        _exit(2);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid)
        said::fail("waitpid", "the child is gone");
    if (!std::strcmp(how, "inherit"))
        said::number("child_status", status);
    else if (status != 0)
        said::fail("child", "it did not end well");
    use(200);
}
