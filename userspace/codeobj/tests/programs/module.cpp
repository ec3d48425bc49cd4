// Loads a code object from memory that it gives back right away, and launches a kernel of it
// and then one of its own, `last`: `module FILE KERNEL`. FILE may be a bundle, compressed or not.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include <hip/hip_runtime.h>

#define HIP(call)                                                                           \
    do {                                                                                    \
        hipError_t result_ = (call);                                                        \
        if (result_ != hipSuccess) {                                                        \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorString(result_));            \
            std::_Exit(1);                                                                  \
        }                                                                                   \
    } while (0)

extern "C" __global__ void last(int *) {}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    hipModule_t module;
    {
        std::ifstream file(argv[1], std::ios::binary);
        std::vector<char> code{std::istreambuf_iterator<char>(file), {}};
        HIP(hipModuleLoadData(&module, code.data()));
    }
    hipFunction_t function;
    HIP(hipModuleGetFunction(&function, module, argv[2]));
    int *memory;
    HIP(hipMalloc(&memory, 4096));
    void *arguments[] = {&memory};
    for (int i = 0; i < 3; i++)
        HIP(hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    last<<<1, 64>>>(memory);
    HIP(hipDeviceSynchronize());
}
