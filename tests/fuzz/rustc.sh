#!/bin/sh
# Cargo's RUSTC_WRAPPER for the fuzz targets: adds what libFuzzer is guided by, which tells it where
# inputs lead. `cargo xtask fuzz` sets it. Build scripts and macros run in the compiler and need
# none.
set -eu
# With --target, cargo gives it for what becomes part of the targets, and not for what runs in the
# compiler.
case " $* " in
*" --target "*)
    exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
*)
    exec "$@"
    ;;
esac
