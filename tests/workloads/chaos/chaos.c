// A program that does things that are hard to trace, in an order determined by a seed, and writes
// down what it observes:
//
//     chaos SEED STEPS PASSES SHARED LIBRARIES [CROWD]
//
// SHARED is a file of the size of `struct shared`; LIBRARIES is a directory of libraries to load.
// The list of actions is run PASSES times or, if PASSES is 0, until the test sets `stop`. Nothing
// in the observations depends on timing, so all passes observe the same, and so does an untraced
// run with the same seed. Observed are children's exit statuses, the stops that children were seen
// in, results of functions, and open descriptors. With CROWD, each pass begins by having that many
// processes alive at once.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chaos.h"

int hsa_init(void);

enum { DEEPEST = 2 };

struct shared *shared;
char **arguments;
unsigned depth;

// ---- Observations ----

void say(const char *format, ...) {
    char line[512];
    va_list values;
    va_start(values, format);
    int indent = snprintf(line, sizeof line, "%*s", (int)(2 * depth), "");
    int length = indent + vsnprintf(line + indent, sizeof line - indent - 1, format, values);
    va_end(values);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    uint64_t at = atomic_fetch_add(&shared->length, length);
    if (at + length <= TEXT_SIZE) memcpy(shared->text + at, line, length);
}

_Noreturn void give_up(const char *what) {
    say("%s: %s", what, strerror(errno));
    _exit(99);
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
uint64_t next(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

unsigned below(uint64_t *state, unsigned limit) { return next(state) % limit; }

// ---- Calls ----

uint64_t some_calls(unsigned count) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        switch (i % 4) {
            case 0: sum += CALL(hipSyntheticPush(i, sum)); break;
            case 1: sum += CALL(hipSyntheticEndbr(i, 7)); break;
            case 2: sum ^= CALL(hipSyntheticMany(i, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, sum)); break;
            case 3: sum += CALL(hipSyntheticStepped(i, 3)); break;
        }
    }
    return sum;
}

// ---- Processes ----

void say_end(const char *what, pid_t child) {
    for (;;) {
        int status;
        if (waitpid(child, &status, WUNTRACED | WCONTINUED) < 0) {
            if (errno == EINTR) continue;
            say("%s: %s", what, strerror(errno));
            return;
        }
        if (WIFSTOPPED(status)) say("%s: stopped by %d", what, WSTOPSIG(status));
        else if (WIFCONTINUED(status)) say("%s: continued", what);
        else {
            if (WIFEXITED(status)) say("%s: exit %d", what, WEXITSTATUS(status));
            else say("%s: signal %d", what, WTERMSIG(status));
            return;
        }
    }
}

pid_t new_child(void) {
    pid_t child = fork();
    if (child < 0) give_up("fork");
    if (child == 0) {
        depth++;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return child;
}

static void become(uint64_t seed, unsigned steps) {
    char words[3][32];
    snprintf(words[0], sizeof words[0], "%llu", (unsigned long long)seed);
    snprintf(words[1], sizeof words[1], "%u", steps);
    snprintf(words[2], sizeof words[2], "%u", depth);
    char *child[] = {arguments[0], words[0], words[1], "1", arguments[4], arguments[5], "0", words[2], NULL};
    execv("/proc/self/exe", child);
    _exit(98);
}

static void run(uint64_t seed, unsigned steps);

static void act_fork(uint64_t *random) {
    uint64_t seed = next(random);
    unsigned steps = 1 + below(random, 3), status = below(random, 90);
    pid_t child = new_child();
    if (child == 0) {
        run(seed, steps);
        _exit(status);
    }
    say_end("forked", child);
}

static void act_exec(uint64_t *random) {
    uint64_t seed = next(random);
    unsigned steps = 1 + below(random, 2);
    pid_t child = new_child();
    if (child == 0) become(seed, steps);
    say_end("executed", child);
}

static void *exec_here(void *seed) {
    some_calls(3);
    become(*(uint64_t *)seed, 1);
    return NULL;
}

static void act_exec_in_thread(uint64_t *random) {
    uint64_t seed = next(random);
    pid_t child = new_child();
    if (child == 0) {
        pthread_t thread;
        some_calls(5);
        if (pthread_create(&thread, NULL, exec_here, &seed) == 0) pthread_join(thread, NULL);
        _exit(97);
    }
    say_end("executed by a thread", child);
}

static void act_vfork(uint64_t *random) {
    char status[16];
    snprintf(status, sizeof status, "exit %u", below(random, 90));
    for (int i = 0; i < 5; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", status, NULL);
            _exit(96);
        }
        say_end("vforked", child);
    }
}

static void act_children(uint64_t *random) {
    unsigned count = 20 + below(random, 100), good = 0;
    uint64_t expected = some_calls(4);
    int gate[2];
    if (pipe2(gate, O_CLOEXEC)) give_up("pipe");
    pid_t *children = calloc(count, sizeof *children);
    for (unsigned i = 0; i < count; i++) {
        children[i] = new_child();
        if (children[i] == 0) {
            char byte;
            close(gate[1]);
            some_calls(2);
            while (read(gate[0], &byte, 1) > 0) {
            }
            _exit(some_calls(4) == expected ? 0 : 1);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (unsigned i = 0; i < count; i++) {
        int status;
        if (waitpid(children[i], &status, WUNTRACED) == children[i] && WIFEXITED(status)) good += WEXITSTATUS(status) == 0;
        else say_end("one of many", children[i]);
    }
    free(children);
    say("%u children lived at once, %u ended well", count, good);
}

static _Noreturn int sleep_for_ever(void *nothing) {
    (void)nothing;
    // The child shares its parent's memory, errno included, so it makes only the system call.
    for (;;) syscall(SYS_pause);
}

// Processes that share memory with this one are cheap: there can be nearly as many as there are
// process ids.
static void crowd(unsigned count) {
    enum { STACK = 2 * PAGE };
    pid_t *members = calloc(count, sizeof *members);
    char *stacks = mmap(NULL, (size_t)count * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!members || stacks == MAP_FAILED) give_up("memory of a crowd");
    for (unsigned i = 0; i < count; i++) {
        members[i] = clone(sleep_for_ever, stacks + (size_t)(i + 1) * STACK, CLONE_VM | SIGCHLD, NULL);
        if (members[i] < 0) give_up("one of a crowd");
    }
    say("a crowd of %u", count);
    for (int i = 0; i < 5; i++) {
        pid_t child = new_child();
        if (child == 0) _exit(some_calls(10) > 0 ? 0 : 1);
        say_end("beside the crowd", child);
    }
    for (unsigned i = 0; i < count; i++) kill(members[i], SIGKILL);
    for (unsigned i = 0; i < count; i++) waitpid(members[i], NULL, 0);
    munmap(stacks, (size_t)count * STACK);
    free(members);
}

// ---- Stops ----

static char state_of(pid_t process) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, line, sizeof line - 1) < 0) give_up(path);
    close(file);
    char *name_end = strrchr(line, ')');
    return name_end ? name_end[2] : '?';
}

static void act_stop(uint64_t *random) {
    unsigned looks = 5 + below(random, 20);
    int gate[2], ready[2];
    char byte = 0;
    if (pipe2(gate, O_CLOEXEC | O_NONBLOCK) || pipe2(ready, O_CLOEXEC)) give_up("pipe");
    pid_t child = new_child();
    if (child == 0) {
        close(gate[1]);
        // One word only: nobody reads more, and a full pipe would block it forever.
        some_calls(20);
        if (write(ready[1], &byte, 1) < 0) _exit(1);
        while (read(gate[0], &byte, 1) != 0) some_calls(20);
        _exit(0);
    }
    close(ready[1]);
    close(gate[0]);
    if (read(ready[0], &byte, 1) != 1) give_up("the child's first word");
    kill(child, SIGSTOP);
    int status = 0;
    waitpid(child, &status, WUNTRACED);
    say("stop: %s by %d", WIFSTOPPED(status) ? "stopped" : "ended", WIFSTOPPED(status) ? WSTOPSIG(status) : status);
    unsigned moved = 0;
    for (unsigned i = 0; i < looks; i++) {
        moved += state_of(child) != 'T';
        usleep(1000);
    }
    say("stop: seen running %u times", moved);
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    say("stop: %s", WIFCONTINUED(status) ? "continued" : "not continued");
    close(gate[1]);
    // The child may be waiting for room to write its next word.
    close(ready[0]);
    int end = 0;
    waitpid(child, &end, 0);
    // It ended because its input ended, or because nobody reads its output (SIGPIPE).
    say("stop: %s", WIFEXITED(end) || WTERMSIG(end) == SIGPIPE ? "ended" : "died");
}

// ---- Crashes ----

// Not a constant: the compiler would know that it is an invalid address.
static volatile int *volatile nowhere = (volatile int *)16;

static uint64_t fault(void *nothing) {
    (void)nothing;
    *nowhere = 1;
    return 0;
}

static uint64_t abort_here(void *nothing) {
    (void)nothing;
    abort();
}

static uint64_t nested(void *left) {
    uintptr_t levels = (uintptr_t)left;
    return levels == 0 ? fault(NULL) : CALL(hipSyntheticCall(nested, (void *)(levels - 1)));
}

static _Noreturn void *calls_for_ever(void *seen) {
    for (;;) {
        some_calls(8);
        atomic_fetch_add((atomic_uint *)seen, 1);
    }
}

static void act_crash(uint64_t *random) {
    unsigned how = below(random, 4), levels = below(random, 24);
    pid_t child = new_child();
    if (child == 0) {
        some_calls(3);
        switch (how) {
            case 0: CALL(hipSyntheticCall(fault, NULL)); break;
            case 1: CALL(hipSyntheticCall(abort_here, NULL)); break;
            case 2: nested((void *)(uintptr_t)levels); break;
            case 3: {
                // Crash while several threads are making calls.
                static atomic_uint seen;
                pthread_t thread;
                for (int i = 0; i < 4; i++) {
                    if (pthread_create(&thread, NULL, calls_for_ever, &seen)) give_up("thread");
                }
                while (atomic_load(&seen) < 16) sched_yield();
                kill(getpid(), SIGKILL);
            }
        }
        _exit(95);
    }
    say_end("crash", child);
}

static jmp_buf out;

static uint64_t jump(void *nothing) {
    (void)nothing;
    longjmp(out, 1);
}

static void act_jump(uint64_t *random) {
    volatile unsigned jumps = 0;
    const unsigned count = 1 + below(random, 50);
    for (volatile unsigned i = 0; i < count; i++) {
        if (setjmp(out) == 0) CALL(hipSyntheticCall(jump, NULL));
        else jumps++;
    }
    say("jumped out of %u calls", jumps);
}

// ---- Threads ----

static pthread_barrier_t barrier;

static void *call_and_wait(void *count) {
    uint64_t sum = some_calls((uintptr_t)count);
    pthread_barrier_wait(&barrier);
    return (void *)(uintptr_t)(sum & 0xff);
}

static void act_threads(uint64_t *random) {
    unsigned count = 50 + below(random, 300), calls = 1 + below(random, 4);
    uint64_t sum = 0;
    pthread_t *threads = calloc(count, sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        if ((errno = pthread_create(&threads[i], &small, call_and_wait, (void *)(uintptr_t)calls))) give_up("thread");
    }
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < count; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (uintptr_t)result;
    }
    pthread_barrier_destroy(&barrier);
    free(threads);
    say("%u threads with %u calls each: %llu", count, calls, (unsigned long long)sum);
}

// ---- All actions ----

static void act_calls(uint64_t *random) {
    unsigned count = 1 + below(random, 200);
    say("%u calls: %llu", count, (unsigned long long)some_calls(count));
}

typedef void (*action)(uint64_t *random);

static const action actions[] = {act_calls, act_calls,    act_load,    act_crash, act_jump,  act_threads,        act_hang,
                                 act_names, act_forge,    act_stop,    act_fork,  act_exec,  act_exec_in_thread, act_vfork,
                                 act_children};

// Records the parts of its environment that a program can observe, which must be the same as
// without a tracer.
static void say_surroundings(void) {
    unsigned descriptors = 0;
    mode_t mask = umask(0);
    umask(mask);
    DIR *all = opendir("/proc/self/fd");
    if (!all) give_up("/proc/self/fd");
    for (struct dirent *one; (one = readdir(all)) != NULL;) descriptors += one->d_name[0] != '.';
    closedir(all);
    struct rlimit files, memory;
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &memory);
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    unsigned masked = 0, ignored = 0;
    for (int number = 1; number < NSIG; number++) {
        struct sigaction how;
        masked += sigismember(&blocked, number) == 1;
        if (sigaction(number, NULL, &how) == 0) ignored += how.sa_handler == SIG_IGN;
    }
    say("%u descriptors, at most %llu; %llu locked; %u signals blocked, %u ignored; umask %o", descriptors - 1,
        (unsigned long long)files.rlim_cur, (unsigned long long)memory.rlim_cur, masked, ignored, mask);
}

static void run(uint64_t seed, unsigned steps) {
    uint64_t random = seed;
    for (unsigned i = 0; i < steps; i++) {
        unsigned kinds = sizeof actions / sizeof *actions;
        // Grandchildren create no further children.
        if (depth >= DEEPEST) kinds -= 5;
        actions[below(&random, kinds)](&random);
        atomic_fetch_add(&shared->steps, 1);
    }
}

// Prints the observations of the first pass, and for later passes whether they are the same.
static int compare(char **first, size_t *first_length) {
    size_t length = atomic_load(&shared->length);
    if (length > TEXT_SIZE) length = TEXT_SIZE;
    if (!*first) {
        *first = malloc(length + 1);
        *first_length = length;
        memcpy(*first, shared->text, length);
        fwrite(*first, 1, length, stdout);
    } else if (length != *first_length || memcmp(*first, shared->text, length) != 0) {
        printf("pass %llu saw something else:\n%.*s", (unsigned long long)atomic_load(&shared->passes), (int)length,
               shared->text);
        fflush(stdout);
        return 0;
    }
    fflush(stdout);
    return 1;
}

int main(int count, char **words) {
    if (count < 6) {
        fprintf(stderr, "usage: chaos SEED STEPS PASSES SHARED LIBRARIES [CROWD [DEPTH]]\n");
        return 2;
    }
    arguments = words;
    uint64_t seed = strtoull(words[1], NULL, 0), passes = strtoull(words[3], NULL, 0);
    unsigned steps = atoi(words[2]), many = count > 6 ? atoi(words[6]) : 0;
    depth = count > 7 ? atoi(words[7]) : 0;
    int file = open(words[4], O_RDWR | O_CLOEXEC);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || shared == MAP_FAILED) {
        perror(words[4]);
        return 2;
    }
    close(file);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (depth > 0) {
        // Executed by another instance of this program, which waits for it and records how it
        // ended.
        say_surroundings();
        run(seed, steps);
        return seed % 90;
    }
    atomic_store(&shared->pid, getpid());
    puts("ready");
    fflush(stdout);
    hsa_init();
    char *first = NULL;
    size_t first_length = 0;
    for (int same = 1; same && !(passes > 0 && atomic_load(&shared->passes) >= passes);) {
        if (passes == 0 && atomic_load(&shared->stop) && atomic_load(&shared->passes) > 0) break;
        atomic_store(&shared->length, 0);
        say_surroundings();
        pid_t hung = start_hung();
        if (many > 0) crowd(many);
        run(seed, steps);
        kill(hung, SIGKILL);
        say_end("the process that hung in a call", hung);
        same = compare(&first, &first_length);
        atomic_fetch_add(&shared->passes, 1);
    }
    // The final action.
    switch (seed % 4) {
        case 0: raise(SIGKILL); break;
        case 1: CALL(hipSyntheticCall(fault, NULL)); break;
        case 2: CALL(hipSyntheticCall(abort_here, NULL)); break;
    }
    return seed % 90;
}
