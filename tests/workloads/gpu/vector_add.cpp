// The smallest complete program: two copies to the GPU, one kernel, and copies back.
#include <vector>

#include "said.hpp"

extern "C" __global__ void vector_add(const float *a, const float *b, float *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        sum[i] = a[i] + b[i];
}

int main() {
    const int n = 1 << 20;
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), back(n);
    for (int i = 0; i < n; i++) {
        a[i] = i;
        b[i] = -2.0f * i;
    }
    float *on_gpu[3];
    for (float *&pointer : on_gpu)
        HIP(hipMalloc(&pointer, bytes));
    said::copy("h2d", bytes);
    HIP(hipMemcpy(on_gpu[0], a.data(), bytes, hipMemcpyHostToDevice));
    said::copy("h2d", bytes);
    HIP(hipMemcpy(on_gpu[1], b.data(), bytes, hipMemcpyHostToDevice));
    LAUNCH(vector_add, "vector_add", 0, dim3(n / 256), dim3(256), nullptr, on_gpu[0], on_gpu[1], on_gpu[2], n);
    HIP(hipDeviceSynchronize());
    for (int input = 0; input < 2; input++) {
        said::copy("d2h", bytes);
        HIP(hipMemcpy(back.data(), on_gpu[input], bytes, hipMemcpyDeviceToHost));
        if (back != (input ? b : a))
            said::fail("hipMemcpy", "the data came back changed");
    }
    for (float *pointer : on_gpu)
        HIP(hipFree(pointer));
}
