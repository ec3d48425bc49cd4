# Functions that begin in different ways, for a library that stands in for libamdhip64.
# Each returns the sum of its first two arguments.

    .text

    .macro function name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .endm

    .macro end name
    .size \name, . - \name
    .endm

# A uprobe on `push` is emulated: cheap.
function hipSyntheticPush
    push %rbx
    lea (%rdi,%rsi), %rax
    pop %rbx
    ret
end hipSyntheticPush

# As compilers build libraries with -fcf-protection: `endbr64` would be single-stepped.
function hipSyntheticEndbr
    endbr64
    push %rbx
    lea (%rdi,%rsi), %rax
    pop %rbx
    ret
end hipSyntheticEndbr

# Nothing here can be emulated: each hit is single-stepped.
function hipSyntheticStepped
    lea (%rdi,%rsi), %rax
    mov %rax, %rdx
    mov %rdx, %rax
    ret
end hipSyntheticStepped

# Jumps to another probed function instead of calling it: both share one return address.
function hipSyntheticTail
    push %rbx
    pop %rbx
    jmp hipSyntheticTarget
end hipSyntheticTail

function hipSyntheticTarget
    push %rbx
    lea (%rdi,%rsi), %rax
    pop %rbx
    ret
end hipSyntheticTarget

# Two names of one address, as in the real libraries.
function hipSyntheticAlias
    .globl hipSyntheticAlias_spt
    .type hipSyntheticAlias_spt, @function
hipSyntheticAlias_spt:
    push %rbx
    lea (%rdi,%rsi), %rax
    pop %rbx
    ret
end hipSyntheticAlias
end hipSyntheticAlias_spt

    .section .note.GNU-stack, "", @progbits
