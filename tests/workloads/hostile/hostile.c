// Programs that block an observer, or that use up resources that others need:
//   hostile page userfaultfd|fuse DIR    two calls of roctxMarkA with a string in a page that never
// arrives
//   hostile threads COUNT                COUNT threads, which call hipMalloc one after the other
//   hostile children COUNT               COUNT live children, then five that call hipMalloc ten
// times
//   hostile libraries DIR                opens all libraries of a directory and calls a function of
// each
//   hostile queue COUNT                  COUNT doorbells of a forged queue, 65,536 packets apart
// It prints "ready", waits for a line, acts, prints "done", and ends when its input does.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern int roctxMarkA(const char *message);
extern int hipMalloc(void **pointer, unsigned long size);
extern void hsa_signal_store_screlease(uint64_t signal, int64_t value);

enum { PAGE = 4096 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

static void wait_for_line(void)
{
    char line[16];
    if (!fgets(line, sizeof line, stdin))
        exit(0);
}

// A page whose faults nobody resolves.
static char *page_of_userfaultfd(void)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
        fail("userfaultfd");
    char *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {
        .range = {(unsigned long)page, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(fd, UFFDIO_REGISTER, &range))
        fail("UFFDIO_REGISTER");
    return page;
}

static int fuse;

static void answer(uint64_t unique, const void *body, size_t size)
{
    char packet[512];
    struct fuse_out_header out = {.len = sizeof out + size, .unique = unique};
    memcpy(packet, &out, sizeof out);
    memcpy(packet + sizeof out, body, size);
    if (write(fuse, packet, sizeof out + size) < 0 && errno != ENOENT)
        perror("fuse");
}

// Serves a file system with one file, and never answers reads of that file.
static void serve(void)
{
    static char request[1 << 18];
    for (;;) {
        if (read(fuse, request, sizeof request) < 0)
            _exit(0);
        struct fuse_in_header *in = (void *)request;
        struct fuse_attr file = {.ino = 2, .size = PAGE, .mode = S_IFREG | 0444, .nlink = 1};
        struct fuse_attr root = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2};
        switch (in->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = PAGE};
            answer(in->unique, &init, sizeof init);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out entry = {.nodeid = 2, .attr = file, .attr_valid = 3600, .entry_valid = 3600};
            answer(in->unique, &entry, sizeof entry);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out attr = {.attr = in->nodeid == 2 ? file : root, .attr_valid = 3600};
            answer(in->unique, &attr, sizeof attr);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out open = {.fh = 1, .open_flags = FOPEN_KEEP_CACHE};
            answer(in->unique, &open, sizeof open);
            break;
        }
        case FUSE_READ: // never answered, so the reader waits
        case FUSE_FORGET:
        case FUSE_INTERRUPT:
            break;
        default:
            answer(in->unique, 0, 0);
        }
    }
}

static char *page_of_fuse(const char *directory)
{
    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[128], path[512];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
    if (fuse < 0 || mount("hostile", directory, "fuse", MS_NOSUID | MS_NODEV, options))
        fail("fuse");
    // Serve from a separate process in this process group: a thread that waits for a page cannot be
    // killed while the server lives.
    if (!fork())
        serve();
    snprintf(path, sizeof path, "%s/file", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    // Unmounted lazily, the file system disappears when this process does.
    if (fd < 0 || umount2(directory, MNT_DETACH))
        fail(path);
    close(fuse);
    char *page = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    // Without read-ahead, a thread that waits for a page cannot be killed.
    madvise(page, PAGE, MADV_RANDOM);
    return page;
}

static void mark(char *page)
{
    say("ready");
    wait_for_line();
    // The stand-in does not read the string at the first call, so that call returns.
    roctxMarkA(page);
    say("calling");
    roctxMarkA(page);
    say("returned");
}

static pthread_barrier_t barrier;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *thread(void *unused)
{
    void *pointer;
    // However long a thread does not run, no two are inside of a call.
    pthread_mutex_lock(&turn);
    hipMalloc(&pointer, 1);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void threads(int count)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 16);
    pthread_barrier_init(&barrier, 0, count + 1);
    for (int i = 0; i < count; i++) {
        pthread_t id;
        if (pthread_create(&id, &attributes, thread, 0))
            fail("pthread_create");
    }
    pthread_barrier_wait(&barrier);
}

static void children(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
    }
    for (int i = 0; i < 5; i++) {
        if (!fork()) {
            void *pointer;
            for (int j = 0; j < 10; j++)
                hipMalloc(&pointer, j);
            _exit(0);
        }
        wait(0);
    }
}

static void queue(int count)
{
    enum { PACKETS = 1 << 16 };
    char *ring = mmap(0, 64ul * PACKETS, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    // An amd_queue_t (ring, size, id) and an amd_signal_t (kind, queue).
    uint64_t *queue = calloc(1, PAGE), *signal = calloc(1, PAGE);
    queue[1] = (uint64_t)ring;
    *(uint32_t *)&queue[3] = PACKETS;
    queue[4] = 7;
    signal[0] = -1;
    signal[6] = (uint64_t)queue;
    for (int64_t i = 0; i < count; i++) {
        queue[7] = i * PACKETS + 1;
        hsa_signal_store_screlease((uint64_t)signal, i * PACKETS);
        usleep(1000);
    }
}

static void libraries(const char *directory)
{
    DIR *files = opendir(directory);
    if (!files)
        fail(directory);
    for (struct dirent *file; (file = readdir(files));) {
        if (file->d_name[0] == '.')
            continue;
        char path[PAGE];
        snprintf(path, sizeof path, "%s/%s/libamdhip64.so.99", directory, file->d_name);
        void *library = dlmopen(LM_ID_BASE, path, RTLD_NOW | RTLD_LOCAL);
        int (*function)(int *) = library ? (int (*)(int *))dlsym(library, "hipGetDevice") : 0;
        int value;
        if (!function)
            fail(dlerror());
        function(&value);
    }
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    const char *what = arguments[1];
    if (!strcmp(what, "page")) {
        mark(strcmp(arguments[2], "fuse") ? page_of_userfaultfd() : page_of_fuse(arguments[3]));
        return 0;
    }
    say("ready");
    wait_for_line();
    int number = atoi(arguments[2]);
    if (!strcmp(what, "threads"))
        threads(number);
    else if (!strcmp(what, "libraries"))
        libraries(arguments[2]);
    else if (!strcmp(what, "children"))
        children(number);
    else
        queue(number);
    say("done");
    wait_for_line();
    return 0;
}
