// Matrix products with rocBLAS, which chooses the kernels.
#include <cstdint>
#include <vector>

#include "said.hpp"

// Copied from rocblas.h, which needs its own package. These function types have not changed since
// rocBLAS 2.
extern "C" {
using rocblas_handle = struct _rocblas_handle *;
int rocblas_create_handle(rocblas_handle *handle);
int rocblas_destroy_handle(rocblas_handle handle);
int rocblas_sgemm(rocblas_handle handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha,
                  const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc);
}
constexpr int rocblas_operation_none = 111;

static void check(const char *what, int status) {
    if (status != 0)
        said::fail(what, "rocBLAS returned an error");
}

int main() {
    rocblas_handle handle;
    check("rocblas_create_handle", rocblas_create_handle(&handle));
    const float one = 1, zero = 0;
    unsigned products = 0;
    for (int n : {64, 256, 1024}) {
        const size_t bytes = sizeof(float) * n * n;
        std::vector<float> numbers(static_cast<size_t>(n) * n, 1);
        float *matrix[3];
        for (float *&place : matrix) {
            HIP(hipMalloc(&place, bytes));
            said::copy("h2d", bytes);
            HIP(hipMemcpy(place, numbers.data(), bytes, hipMemcpyHostToDevice));
        }
        for (int round = 0; round < 5; round++) {
            check("rocblas_sgemm",
                  rocblas_sgemm(handle, rocblas_operation_none, rocblas_operation_none, n, n, n, &one, matrix[0], n,
                                matrix[1], n, &zero, matrix[2], n));
            products++;
        }
        HIP(hipDeviceSynchronize());
        for (float *place : matrix)
            HIP(hipFree(place));
    }
    said::number("products", products);
    check("rocblas_destroy_handle", rocblas_destroy_handle(handle));
}
