// Calls functions of RCCL, also with what makes them fail, and writes down into WORKLOAD_LOG/rccl.txt what it gave and got: a line
// for each call, `function result name=value ...`, in the form in which gputrace shows them. Declared here as rccl.h has it, because
// few machines have the header.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef void *ncclComm_t;

int ncclGetVersion(int *);
int ncclGetUniqueId(ncclUniqueId *);
const char *ncclGetErrorString(int);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, void *);
int ncclBroadcast(const void *, void *, size_t, int, int, ncclComm_t, void *);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclCommCount(ncclComm_t, int *);
int ncclCommUserRank(ncclComm_t, int *);
int ncclCommDestroy(ncclComm_t);

static const char *name_of(int result) {
    static const char *names[] = {"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
                                  "ncclInvalidArgument", "ncclInvalidUsage"};
    if (result < 0 || result > 5) exit(91);
    return names[result];
}

int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/rccl.txt", getenv("WORKLOAD_LOG"));
    FILE *out = fopen(path, "w");
    if (!out) return 90;
    int version = 0, result = ncclGetVersion(&version);
    fprintf(out, "ncclGetVersion %s version=%d\n", name_of(result), version);
    result = ncclGetVersion(NULL);
    fprintf(out, "ncclGetVersion %s version=0x0\n", name_of(result));
    ncclUniqueId id;
    result = ncclGetUniqueId(&id);
    fprintf(out, "ncclGetUniqueId %s uniqueId=%p\n", name_of(result), (void *)&id);
    fprintf(out, "ncclGetErrorString %s result=ncclInvalidArgument\n", ncclGetErrorString(4));
    // Without a communicator.
    static float memory[64];
    result = ncclAllReduce(memory, memory, 64, 7, 0, NULL, NULL);
    fprintf(out, "ncclAllReduce %s sendbuff=%p recvbuff=%p count=64 datatype=ncclFloat32 op=ncclSum comm=0x0 stream=0x0 bytes=256\n",
            name_of(result), (void *)memory, (void *)memory);
    result = ncclBroadcast(memory, memory, 32, 0, 3, NULL, NULL);
    fprintf(out, "ncclBroadcast %s sendbuff=%p recvbuff=%p count=32 datatype=ncclInt8 root=3 comm=0x0 stream=0x0 bytes=32\n",
            name_of(result), (void *)memory, (void *)memory);
    // What it would have stored there, a call that failed does not tell.
    int number = 77;
    result = ncclCommCount(NULL, &number);
    fprintf(out, "ncclCommCount %s comm=0x0 count=(at %p)\n", name_of(result), (void *)&number);
    fprintf(out, "ncclGroupStart %s\n", name_of(ncclGroupStart()));
    fprintf(out, "ncclGroupEnd %s\n", name_of(ncclGroupEnd()));
    // With one, of a single rank.
    ncclComm_t comm = NULL;
    if ((result = ncclCommInitRank(&comm, 1, id, 0)) != 0) return 92;
    // The id is a structure: its first word is what a record has.
    fprintf(out, "ncclCommInitRank %s comm=%p nranks=1 commId=%#llx rank=0\n", name_of(result), comm,
            *(unsigned long long *)&id);
    result = ncclCommCount(comm, &number);
    fprintf(out, "ncclCommCount %s comm=%p count=%d\n", name_of(result), comm, number);
    result = ncclCommUserRank(comm, &number);
    fprintf(out, "ncclCommUserRank %s comm=%p rank=%d\n", name_of(result), comm, number);
    result = ncclCommDestroy(comm);
    fprintf(out, "ncclCommDestroy %s comm=%p\n", name_of(result), comm);
    fclose(out);
    return 0;
}
