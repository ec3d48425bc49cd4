// What the files of `chaos` have in common.
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "../synthetic/sites.h"
#include "shared.h"

enum { PAGE = 4096 };

extern struct shared *shared;
extern char **arguments;
extern unsigned depth;  // 0 in the first process, 1 in its children, ...

// Writes a line of what is seen.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Waits for a child's end, and says it and everything that was seen before: also that it was
// stopped.
void say_end(const char *what, pid_t child);

// Ends this process, which cannot do what it is there for.
_Noreturn void give_up(const char *what);

// The next number of a sequence, and one below a limit.
uint64_t next(uint64_t *state);
unsigned below(uint64_t *state, unsigned limit);

// A child that does not outlive its parent. 0 in the child.
pid_t new_child(void);

// Calls are counted before and after, for the account of whoever traces.
#define CALL(expression)                        \
    ({                                          \
        atomic_fetch_add(&shared->begun, 1);    \
        __auto_type result_ = (expression);     \
        atomic_fetch_add(&shared->done, 1);     \
        result_;                                \
    })

uint64_t some_calls(unsigned count);

// Actions of hostile.c. Each draws what it does from `random`.
void act_hang(uint64_t *random);
void act_load(uint64_t *random);
void act_names(uint64_t *random);
void act_forge(uint64_t *random);

// Starts a process that hangs in a call until it is killed.
pid_t start_hung(void);
