// Calls functions of RCCL, including calls that fail, and logs arguments and results in
// WORKLOAD_LOG/rccl.txt: one line per call, `function result name=value ...`, in the form in which
// gputrace shows them. The functions are declared here as in rccl.h, because few machines have the
// header.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
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
int ncclCommInitAll(ncclComm_t *, int, const int *);
int ncclCommCount(ncclComm_t, int *);
int ncclCommUserRank(ncclComm_t, int *);
int ncclCommDestroy(ncclComm_t);

static const char *name_of(int result) {
    static const char *names[] = {"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
                                  "ncclInvalidArgument", "ncclInvalidUsage"};
    if (result < 0 || result > 5) exit(91);
    return names[result];
}

static FILE *out;
static float memory[64];

// `known` is appended: what gputrace knows of the communicator.
static void all_reduce(ncclComm_t comm, const char *known) {
    int result = ncclAllReduce(memory, memory, 64, 7, 0, comm, NULL);
    fprintf(out, "ncclAllReduce %s sendbuff=%p recvbuff=%p count=64 datatype=ncclFloat32 op=ncclSum comm=0x%llx stream=0x0 bytes=256%s\n",
            name_of(result), (void *)memory, (void *)memory, (unsigned long long)comm, known);
}

static void destroy(ncclComm_t comm) {
    fprintf(out, "ncclCommDestroy %s comm=%p\n", name_of(ncclCommDestroy(comm)), comm);
}

// Two ranks, each a thread with its own GPU.
static ncclUniqueId id;
static ncclComm_t ranks[2];
static int results[2];

static void *make(void *index) {
    int rank = (int)(size_t)index;
    int (*set_device)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "hipSetDevice");
    if (!set_device || set_device(rank) != 0) exit(97);
    results[rank] = ncclCommInitRank(&ranks[rank], 2, id, rank);
    return NULL;
}

static void user_rank(ncclComm_t comm) {
    int number = 0, result = ncclCommUserRank(comm, &number);
    fprintf(out, "ncclCommUserRank %s comm=%p rank=%d\n", name_of(result), comm, number);
}

// Must run within a group; otherwise each rank would wait for the other.
static void all_reduces(const ncclComm_t *comms, const char *first, const char *second) {
    fprintf(out, "ncclGroupStart %s\n", name_of(ncclGroupStart()));
    all_reduce(comms[0], first);
    all_reduce(comms[1], second);
    fprintf(out, "ncclGroupEnd %s\n", name_of(ncclGroupEnd()));
}

static void two_ranks(void) {
    pthread_t threads[2];
    fprintf(out, "ncclGetUniqueId %s uniqueId=%p\n", name_of(ncclGetUniqueId(&id)), (void *)&id);
    for (size_t rank = 0; rank < 2; rank++)
        if (pthread_create(&threads[rank], NULL, make, (void *)rank) != 0) exit(98);
    for (int rank = 0; rank < 2; rank++) pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < 2; rank++)
        fprintf(out, "ncclCommInitRank %s comm=%p nranks=2 commId=%#llx rank=%d\n", name_of(results[rank]), ranks[rank],
                *(unsigned long long *)&id, rank);
    all_reduces(ranks, " rank=0 nranks=2", " rank=1 nranks=2");
    destroy(ranks[0]);
    destroy(ranks[1]);
    // Communicators created together have the ranks of their positions in the array.
    ncclComm_t all[2] = {NULL};
    int result = ncclCommInitAll(all, 2, NULL);
    fprintf(out, "ncclCommInitAll %s comm=%p ndev=2 devlist=0x0\n", name_of(result), all[0]);
    all_reduces(all, " rank=0 nranks=2", " rank=1 nranks=2");
    user_rank(all[1]);
    all_reduces(all, " rank=0 nranks=2", " rank=1 nranks=2");
    destroy(all[0]);
    destroy(all[1]);
}

int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/rccl.txt", getenv("WORKLOAD_LOG"));
    out = fopen(path, "w");
    if (!out) return 90;
    int version = 0, result = ncclGetVersion(&version);
    fprintf(out, "ncclGetVersion %s version=%d\n", name_of(result), version);
    result = ncclGetVersion(NULL);
    fprintf(out, "ncclGetVersion %s version=0x0\n", name_of(result));
    result = ncclGetUniqueId(&id);
    fprintf(out, "ncclGetUniqueId %s uniqueId=%p\n", name_of(result), (void *)&id);
    fprintf(out, "ncclGetErrorString %s result=ncclInvalidArgument\n", ncclGetErrorString(4));
    // Calls without a communicator.
    all_reduce(NULL, "");
    result = ncclBroadcast(memory, memory, 32, 0, 3, NULL, NULL);
    fprintf(out, "ncclBroadcast %s sendbuff=%p recvbuff=%p count=32 datatype=ncclInt8 root=3 comm=0x0 stream=0x0 bytes=32\n",
            name_of(result), (void *)memory, (void *)memory);
    // A failed call does not show the value that it would have stored.
    int number = 77;
    result = ncclCommCount(NULL, &number);
    fprintf(out, "ncclCommCount %s comm=0x0 count=(at %p)\n", name_of(result), (void *)&number);
    fprintf(out, "ncclGroupStart %s\n", name_of(ncclGroupStart()));
    fprintf(out, "ncclGroupEnd %s\n", name_of(ncclGroupEnd()));
    // Calls with a communicator of a single rank.
    ncclComm_t comm = NULL;
    if ((result = ncclCommInitRank(&comm, 1, id, 0)) != 0) return 92;
    // The id is a structure; a record holds its first word.
    fprintf(out, "ncclCommInitRank %s comm=%p nranks=1 commId=%#llx rank=0\n", name_of(result), comm,
            *(unsigned long long *)&id);
    result = ncclCommCount(comm, &number);
    fprintf(out, "ncclCommCount %s comm=%p count=%d\n", name_of(result), comm, number);
    user_rank(comm);
    all_reduce(comm, " rank=0 nranks=1");
    // A second communicator beside it, and one created by ncclCommInitAll.
    ncclComm_t second = NULL, all[1] = {NULL};
    if ((result = ncclGetUniqueId(&id)) != 0) return 93;
    fprintf(out, "ncclGetUniqueId %s uniqueId=%p\n", name_of(result), (void *)&id);
    if ((result = ncclCommInitRank(&second, 1, id, 0)) != 0) return 94;
    fprintf(out, "ncclCommInitRank %s comm=%p nranks=1 commId=%#llx rank=0\n", name_of(result), second,
            *(unsigned long long *)&id);
    if ((result = ncclCommInitAll(all, 1, NULL)) != 0) return 95;
    fprintf(out, "ncclCommInitAll %s comm=%p ndev=1 devlist=0x0\n", name_of(result), all[0]);
    all_reduce(all[0], " rank=0 nranks=1");
    destroy(comm);
    // Within a group, this release stores the communicator at the end of the group, so its value is
    // unknown until it is queried.
    ncclComm_t grouped = NULL;
    if ((result = ncclGetUniqueId(&id)) != 0) return 96;
    fprintf(out, "ncclGetUniqueId %s uniqueId=%p\n", name_of(result), (void *)&id);
    fprintf(out, "ncclGroupStart %s\n", name_of(ncclGroupStart()));
    result = ncclCommInitRank(&grouped, 1, id, 0);
    fprintf(out, "ncclCommInitRank %s comm=0x%llx nranks=1 commId=%#llx rank=0\n", name_of(result), (unsigned long long)grouped,
            *(unsigned long long *)&id);
    fprintf(out, "ncclGroupEnd %s\n", name_of(ncclGroupEnd()));
    all_reduce(grouped, "");
    user_rank(grouped);
    all_reduce(grouped, " rank=0");
    destroy(grouped);
    all_reduce(second, " rank=0 nranks=1");
    destroy(second);
    destroy(all[0]);
    two_ranks();
    fclose(out);
    return 0;
}
