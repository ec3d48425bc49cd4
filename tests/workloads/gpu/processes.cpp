// A parent and children that use the GPU at the same time. They fork before HIP is used: `processes
// [CHILDREN]`.
#include <sys/wait.h>
#include <unistd.h>

#include "said.hpp"

extern "C" __global__ void in_process(int *) {}

// All processes use the same kernel name; the grid identifies the process.
static void use(unsigned number) {
    for (unsigned i = 0; i < 50; i++)
        LAUNCH(in_process, "in_process", 0, dim3(number * 100 + i + 1), dim3(64), nullptr, nullptr);
    HIP(hipDeviceSynchronize());
    std::fflush(said::file());
}

int main(int argc, char **argv) {
    const unsigned children = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 2;
    for (unsigned child = 1; child <= children; child++) {
        pid_t pid = fork();
        if (pid < 0)
            said::fail("fork", "no process");
        if (pid == 0) {
            use(child);
            std::exit(0);
        }
    }
    use(0);
    for (unsigned child = 0; child < children; child++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            said::fail("child", "it did not end well");
    }
}
