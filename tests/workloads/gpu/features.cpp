// Uses, once each, the ways to launch, copy and allocate that the other programs do not use.
// `features MODULE` takes the code object made from module.hip.
#include <cstring>
#include <vector>

#include <hip/hip_ext.h>

#include "said.hpp"

extern "C" __global__ void extended(int *) {}
extern "C" __global__ void cooperative(int *) {}
extern "C" __global__ void after_callback(int *) {}
extern "C" __global__ void touches_managed(int *numbers) { numbers[threadIdx.x]++; }

// Needs scratch memory: the array does not fit into registers, and its index is known only at run
// time.
extern "C" __global__ void uses_scratch(int *numbers, int n) {
    volatile int local[512];
    for (int i = 0; i < n; i++)
        local[(i * 7 + threadIdx.x) % 512] = i;
    numbers[threadIdx.x] = local[n % 512];
}

static void module_launch(const char *path, int *memory) {
    hipModule_t module;
    hipFunction_t function;
    HIP(hipModuleLoad(&module, path));
    HIP(hipModuleGetFunction(&function, module, "from_module"));
    void *arguments[] = {&memory};
    for (unsigned grid = 1; grid <= 5; grid++) {
        said::kernel("from_module", 0, dim3(grid, 2, 1), dim3(32, 2, 1));
        HIP(hipModuleLaunchKernel(function, grid, 2, 1, 32, 2, 1, 0, nullptr, arguments, nullptr));
    }
    HIP(hipDeviceSynchronize());
    HIP(hipModuleUnload(module));
}

static void extended_launch(int *memory) {
    hipEvent_t begin, end;
    HIP(hipEventCreate(&begin));
    HIP(hipEventCreate(&end));
    void *arguments[] = {&memory};
    said::kernel("extended", 0, dim3(3), dim3(64));
    HIP(hipExtLaunchKernel(reinterpret_cast<const void *>(extended), dim3(3), dim3(64), arguments, 0, nullptr,
                           begin, end, 0));
    HIP(hipDeviceSynchronize());
    float milliseconds;
    HIP(hipEventElapsedTime(&milliseconds, begin, end));
    said::number("elapsed_ms", milliseconds);
    HIP(hipEventDestroy(begin));
    HIP(hipEventDestroy(end));
}

static void cooperative_launch(int *memory) {
    void *arguments[] = {&memory};
    said::kernel("cooperative", 0, dim3(2), dim3(64));
    HIP(hipLaunchCooperativeKernel(reinterpret_cast<const void *>(cooperative), dim3(2), dim3(64), arguments, 0,
                                   nullptr));
    HIP(hipDeviceSynchronize());
}

static void callback(int *memory) {
    static int called = 0;
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    HIP(hipStreamAddCallback(
        stream, [](hipStream_t, hipError_t, void *count) { ++*static_cast<int *>(count); }, &called, 0));
    LAUNCH(after_callback, "after_callback", 0, dim3(1), dim3(64), stream, memory);
    HIP(hipStreamSynchronize(stream));
    if (called != 1)
        said::fail("hipStreamAddCallback", "the callback was not called once");
    HIP(hipStreamDestroy(stream));
}

static void managed(int *) {
    int *numbers;
    HIP(hipMallocManaged(&numbers, 64 * sizeof(int)));
    for (int i = 0; i < 64; i++)
        numbers[i] = i;
    LAUNCH(touches_managed, "touches_managed", 0, dim3(1), dim3(64), nullptr, numbers);
    HIP(hipDeviceSynchronize());
    HIP(hipFree(numbers));
}

static void rectangle() {
    const size_t width = 300, height = 70;
    std::vector<unsigned char> out(width * height), in(width * height);
    for (size_t i = 0; i < out.size(); i++)
        out[i] = static_cast<unsigned char>(i * 13);
    void *gpu;
    size_t pitch;
    HIP(hipMallocPitch(&gpu, &pitch, width, height));
    HIP(hipMemcpy2D(gpu, pitch, out.data(), width, width, height, hipMemcpyHostToDevice));
    HIP(hipMemcpy2D(in.data(), width, gpu, pitch, width, height, hipMemcpyDeviceToHost));
    if (in != out)
        said::fail("hipMemcpy2D", "the data came back changed");
    HIP(hipFree(gpu));
}

static void registered() {
    std::vector<int> out(1 << 18, 7), in(1 << 18);
    const size_t bytes = out.size() * sizeof(int);
    void *gpu;
    HIP(hipMalloc(&gpu, bytes));
    HIP(hipHostRegister(out.data(), bytes, hipHostRegisterDefault));
    HIP(hipMemcpy(gpu, out.data(), bytes, hipMemcpyHostToDevice));
    HIP(hipMemcpy(in.data(), gpu, bytes, hipMemcpyDeviceToHost));
    HIP(hipHostUnregister(out.data()));
    if (in != out)
        said::fail("hipHostRegister", "the data came back changed");
    HIP(hipFree(gpu));
}

int main(int argc, char **argv) {
    if (argc != 2)
        said::fail(argv[0], "usage: features MODULE");
    int *memory, *other;
    HIP(hipMalloc(&memory, 1 << 20));
    HIP(hipMalloc(&other, 1 << 20));
    module_launch(argv[1], memory);
    extended_launch(memory);
    cooperative_launch(memory);
    callback(memory);
    managed(memory);
    LAUNCH(uses_scratch, "uses_scratch", 0, dim3(4), dim3(64), nullptr, memory, 100);
    HIP(hipDeviceSynchronize());
    rectangle();
    registered();
    // HIP does these with kernels of its own.
    HIP(hipMemset(memory, 0, 1 << 20));
    HIP(hipMemcpy(other, memory, 1 << 20, hipMemcpyDeviceToDevice));
    HIP(hipDeviceSynchronize());
    HIP(hipFree(memory));
    HIP(hipFree(other));
}
