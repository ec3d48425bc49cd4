// A C library whose functions are left in every way that a probe on their return would not survive.
#pragma once

#include <csetjmp>

extern "C" {
// Throws an exception.
int leave_throw(int value);
// Calls back `times`.
int leave_call_back(int (*function)(int), int times);
// Ends its thread.
void leave_thread();
// Waits until its thread is cancelled.
int leave_wait();
// Jumps out.
int leave_jump(std::jmp_buf *to);
// Goes on with another stack, and returns when somebody goes on with this one.
int leave_swap(int value);
// The same by instructions of its own, as the libraries for fibers do it.
int leave_switch(void **from, void *to);
// Jumps to another function, which returns in its place.
int leave_by_jump(int value);
// Returns, as most functions do.
int leave_return(int value);
}
