// Calls the functions of the library, and prints what happens: the same whether traced or not.
// `leaving wait` first waits for a line of input.
#include "library.h"

#include <cstdio>
#include <cstring>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <ucontext.h>

ucontext_t here, fiber;

static constexpr int rounds = 5;
static int total = 0;

struct Noisy {
    const char *name;
    ~Noisy() { std::printf("destroyed: %s\n", name); }
};

static int throws_at_two(int value) {
    if (value == 2)
        throw std::runtime_error("thrown by the callback");
    return value;
}

// Number of callers that the C library can name.
static int depth(int) {
    void *callers[64];
    return backtrace(callers, 64);
}

static void exceptions() {
    for (int i = 0; i < rounds; i++) {
        try {
            Noisy local{"exception"};
            leave_throw(i);
        } catch (std::exception &error) {
            std::printf("caught: %s\n", error.what());
        }
        try {
            Noisy local{"exception of a callback"};
            leave_call_back(throws_at_two, rounds);
        } catch (std::exception &error) {
            std::printf("caught: %s\n", error.what());
        }
    }
    std::printf("callers: %d\n", leave_call_back(depth, 1));
}

static void *ends(void *) {
    Noisy local{"end of the thread"};
    leave_thread();
    return nullptr;
}

static void *waits(void *ready) {
    Noisy local{"cancellation"};
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(ready));
    leave_wait();
    return nullptr;
}

static void threads() {
    pthread_t thread;
    pthread_create(&thread, nullptr, ends, nullptr);
    pthread_join(thread, nullptr);
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, nullptr, 2);
    pthread_create(&thread, nullptr, waits, &ready);
    pthread_barrier_wait(&ready);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
    std::printf("joined\n");
}

static void jump() {
    std::jmp_buf buffer;
    if (!setjmp(buffer))
        leave_jump(&buffer);
    std::printf("jumped\n");
}

static void swap_forever() {
    for (;;)
        total += leave_swap(1);
}

static void *go_on(void *) {
    for (int i = 0; i < rounds; i++)
        swapcontext(&here, &fiber);
    return nullptr;
}

// A fiber that is resumed by this thread, by another, and by this one again.
static void contexts() {
    static char stack[1 << 16];
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = sizeof stack;
    makecontext(&fiber, swap_forever, 0);
    go_on(nullptr);
    pthread_t thread;
    pthread_create(&thread, nullptr, go_on, nullptr);
    pthread_join(thread, nullptr);
    go_on(nullptr);
    std::printf("swapped: %d\n", total);
}

static void *main_stack, *other_stack;
static int switched = 0;

static void other() {
    for (;;) {
        switched++;
        leave_switch(&other_stack, main_stack);
    }
}

static void stacks() {
    alignas(16) static char memory[1 << 16];
    // Six saved registers, the address to go to, and a place for a return address.
    void **top = reinterpret_cast<void **>(memory + sizeof memory) - 2;
    *--top = reinterpret_cast<void *>(other);
    top -= 6;
    std::memset(top, 0, 6 * sizeof *top);
    other_stack = top;
    for (int i = 0; i < rounds; i++)
        leave_switch(&main_stack, other_stack);
    std::printf("switched: %d\n", switched);
}

int main(int count, char **words) {
    std::printf("ready\n");
    std::fflush(stdout);
    if (count > 1 && !std::strcmp(words[1], "wait"))
        std::getchar();
    exceptions();
    threads();
    for (int i = 0; i < rounds; i++)
        jump();
    contexts();
    stacks();
    int sum = 0;
    for (int i = 0; i < rounds; i++)
        sum += leave_by_jump(i) + leave_return(i);
    std::printf("sum: %d\n", sum);
    return 7;
}
