// Built without symbols of local functions, as distributions build their libraries.
#include "library.h"

#include <pthread.h>
#include <stdexcept>
#include <ucontext.h>

extern ucontext_t here, fiber;

extern "C" {

int leave_throw(int value) {
    if (value >= 0)
        throw std::runtime_error("thrown");
    return value;
}

int leave_call_back(int (*function)(int), int times) {
    int sum = 0;
    for (int i = 0; i < times; i++)
        sum += function(i);
    return sum;
}

void leave_thread() { pthread_exit(nullptr); }

int leave_wait() {
    for (;;)
        pthread_testcancel();
}

int leave_jump(std::jmp_buf *to) { std::longjmp(*to, 1); }

int leave_swap(int value) {
    volatile int kept = value;
    swapcontext(&fiber, &here);
    return kept + 1;
}

// Saves what a call must not change, and the stack pointer; then the same from the other stack.
asm(R"(
        .globl leave_switch
        .type leave_switch, @function
leave_switch:
        push %rbp
        push %rbx
        push %r12
        push %r13
        push %r14
        push %r15
        mov %rsp, (%rdi)
        mov %rsi, %rsp
        pop %r15
        pop %r14
        pop %r13
        pop %r12
        pop %rbx
        pop %rbp
        pop %r8
        xor %eax, %eax
        jmp *%r8
        .size leave_switch, . - leave_switch
)");

__attribute__((noinline)) int leave_return(int value) { return value + 1; }

int leave_by_jump(int value) { return leave_return(value * 2); }
}
