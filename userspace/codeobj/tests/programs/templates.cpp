// Kernels with C++ names and with needs of all kinds: LDS, scratch, many registers.
#include <hip/hip_runtime.h>

namespace shapes {
enum class Mode { Slow, Fast };

template <typename T, Mode mode>
__global__ void scale(T *data, T factor, int n) {
    __shared__ T tile[256];
    tile[threadIdx.x] = data[threadIdx.x] * factor;
    __syncthreads();
    data[threadIdx.x] = tile[n - threadIdx.x];
}

template __global__ void scale<float, Mode::Fast>(float *, float, int);
template __global__ void scale<double, Mode::Slow>(double *, double, int);
} // namespace shapes

namespace {
__global__ void hidden(int *p) { p[0] = 1; }
} // namespace

extern "C" __global__ void scratch(int *numbers, int n) {
    volatile int local[512];
    for (int i = 0; i < n; i++)
        local[(i * 7 + threadIdx.x) % 512] = i;
    numbers[threadIdx.x] = local[n % 512];
}

extern "C" __global__ __launch_bounds__(64) void registers(float *data) {
    float values[100];
#pragma unroll
    for (int i = 0; i < 100; i++)
        values[i] = data[i * 64 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < 100; i++)
        data[i * 64 + threadIdx.x] = values[99 - i] * values[i];
}

int main() { hidden<<<1, 1>>>(nullptr); }
