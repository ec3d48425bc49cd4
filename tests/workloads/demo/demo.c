/* The program that `cargo xtask demo` records. It copies frames to the GPU, runs three kernels on
 * each, and copies the results back, alternating between three streams.
 *
 *   demo CODE_OBJECT
 *
 * CODE_OBJECT holds the kernels of kernels.hip. The declarations below repeat those of
 * hip/hip_runtime_api.h, so that a C compiler suffices where ROCm cannot be installed. Exits with
 * status 0 if every call succeeded. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2, hipStreamNonBlocking = 1 };

extern const char *hipGetErrorString(int error);
extern int hipModuleLoad(hipModule_t *module, const char *path);
extern int hipModuleUnload(hipModule_t module);
extern int hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name);
extern int hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                 hipStream_t stream, void **arguments, void **extra);
extern int hipMalloc(void **memory, size_t bytes);
extern int hipFree(void *memory);
extern int hipHostMalloc(void **memory, size_t bytes, unsigned flags);
extern int hipHostFree(void *memory);
extern int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, hipStream_t stream);
extern int hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
extern int hipStreamDestroy(hipStream_t stream);
extern int hipEventCreate(hipEvent_t *event);
extern int hipEventRecord(hipEvent_t event, hipStream_t stream);
extern int hipEventSynchronize(hipEvent_t event);
extern int hipEventDestroy(hipEvent_t event);
extern int hipDeviceSynchronize(void);

/* Calls a HIP function; ends the program if it fails. */
#define HIP(call)                                                             \
    do {                                                                      \
        int result_ = (call);                                                 \
        if (result_ != 0) {                                                   \
            fprintf(stderr, "demo: %s: %s\n", #call, hipGetErrorString(result_)); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

enum { STREAMS = 3, FRAMES = 60, WIDTH = 1024, HEIGHT = 512, PIXELS = WIDTH * HEIGHT, BLOCK = 256, BINS = 256 };

/* The resources of one stream. */
struct lane {
    hipStream_t stream;
    hipEvent_t done;
    float *host, *host_sharp;
    unsigned *host_bins;
    void *frame, *blurred, *sharp, *bins;
};

static hipFunction_t blur, sharpen, histogram;

static void launch(hipFunction_t kernel, hipStream_t stream, void **arguments) {
    HIP(hipModuleLaunchKernel(kernel, PIXELS / BLOCK, 1, 1, BLOCK, 1, 1, 0, stream, arguments, NULL));
}

/* Submits a frame to the GPU without waiting for it. */
static void submit(struct lane *lane) {
    unsigned width = WIDTH, pixels = PIXELS;
    HIP(hipMemcpyAsync(lane->frame, lane->host, PIXELS * sizeof(float), hipMemcpyHostToDevice, lane->stream));
    launch(blur, lane->stream, (void *[]){&lane->frame, &lane->blurred, &width, &pixels});
    launch(sharpen, lane->stream, (void *[]){&lane->frame, &lane->blurred, &lane->sharp, &pixels});
    launch(histogram, lane->stream, (void *[]){&lane->sharp, &lane->bins, &pixels});
    HIP(hipMemcpyAsync(lane->host_sharp, lane->sharp, PIXELS * sizeof(float), hipMemcpyDeviceToHost, lane->stream));
    HIP(hipMemcpyAsync(lane->host_bins, lane->bins, BINS * sizeof(unsigned), hipMemcpyDeviceToHost, lane->stream));
    HIP(hipEventRecord(lane->done, lane->stream));
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: demo CODE_OBJECT\n");
        return 2;
    }
    hipModule_t module;
    HIP(hipModuleLoad(&module, argv[1]));
    HIP(hipModuleGetFunction(&blur, module, "blur"));
    HIP(hipModuleGetFunction(&sharpen, module, "sharpen"));
    HIP(hipModuleGetFunction(&histogram, module, "histogram"));

    struct lane lanes[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        struct lane *lane = &lanes[i];
        HIP(hipStreamCreateWithFlags(&lane->stream, hipStreamNonBlocking));
        HIP(hipEventCreate(&lane->done));
        HIP(hipHostMalloc((void **)&lane->host, PIXELS * sizeof(float), 0));
        HIP(hipHostMalloc((void **)&lane->host_sharp, PIXELS * sizeof(float), 0));
        HIP(hipHostMalloc((void **)&lane->host_bins, BINS * sizeof(unsigned), 0));
        HIP(hipMalloc(&lane->frame, PIXELS * sizeof(float)));
        HIP(hipMalloc(&lane->blurred, PIXELS * sizeof(float)));
        HIP(hipMalloc(&lane->sharp, PIXELS * sizeof(float)));
        HIP(hipMalloc(&lane->bins, BINS * sizeof(unsigned)));
    }
    for (int frame = 0; frame < FRAMES; frame++) {
        struct lane *lane = &lanes[frame % STREAMS];
        /* The stream's previous frame must be finished before its memory is reused. */
        if (frame >= STREAMS)
            HIP(hipEventSynchronize(lane->done));
        for (int i = 0; i < PIXELS; i++)
            lane->host[i] = (float)((i * 7 + frame) % BINS);
        submit(lane);
    }
    HIP(hipDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        struct lane *lane = &lanes[i];
        HIP(hipFree(lane->frame));
        HIP(hipFree(lane->blurred));
        HIP(hipFree(lane->sharp));
        HIP(hipFree(lane->bins));
        HIP(hipHostFree(lane->host));
        HIP(hipHostFree(lane->host_sharp));
        HIP(hipHostFree(lane->host_bins));
        HIP(hipEventDestroy(lane->done));
        HIP(hipStreamDestroy(lane->stream));
    }
    HIP(hipModuleUnload(module));
    printf("demo: %d frames on %d streams\n", FRAMES, STREAMS);
    return 0;
}
