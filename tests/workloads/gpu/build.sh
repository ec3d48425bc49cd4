#!/bin/sh
# Builds the programs that use a GPU: `build.sh OUTDIR [ROOT [OBJECTS [SOURCE]]]`. ROOT is the root
# of another Debian release whose ROCm they are to run with; they are still compiled by this one's
# hipcc. OBJECTS keeps what is compiled, which several roots can share; without it, OUTDIR/objects
# does. With SOURCE, only what is made of it is built.
#
# Safe to run again: only what is older than its sources is built. Needs g++ and Debian's ROCm:
#   apt-get install g++ hipcc libamdhip64-dev libhsa-runtime-dev rocm-device-libs
set -eu

# `cargo xtask test` has built them once for all tests, each of which is a process of its own.
if [ "${GPUTRACE_WORKLOADS_BUILT:-}" = 1 ]; then
    exit 0
fi

out=${1:?usage: build.sh OUTDIR [ROOT [OBJECTS [SOURCE]]]}
root=${2:-}
objects=${3:-$out/objects}
source=${4:-}
cd "$(dirname "$0")"
self=./build.sh

if [ -z "$source" ]; then
    mkdir -p "$out" "$objects"
    for tool in g++ hipcc; do
        if ! command -v "$tool" >/dev/null 2>&1; then
            echo "$0: $tool is missing; on Debian and Ubuntu:" >&2
            echo "  sudo apt-get install g++ hipcc libamdhip64-dev libhsa-runtime-dev" \
                "rocm-device-libs" >&2
            exit 1
        fi
    done
    # As many at a time as there are processors.
    printf '%s\n' *.cpp module.hip | xargs -n 1 -P "$(nproc)" $self "$out" "$root" "$objects"
    exit
fi

# One code object for each GPU that the tests make up. The environment keeps hipcc from looking for
# one.
targets="--offload-arch=gfx906 --offload-arch=gfx1030"
hip="env HCC_AMDGPU_TARGET=gfx906 hipcc $targets -std=c++17 -O1 -g -pthread -Wall -Wextra"
cxx="g++ -std=c++17 -O1 -g -pthread -Wall -Wextra -Wno-missing-field-initializers"

# Programs for another release name its loader and its libraries, so they run without a chroot.
libraries=$root/usr/lib/x86_64-linux-gnu
elsewhere=
if [ -n "$root" ]; then
    elsewhere="-Wl,--allow-shlib-undefined,--disable-new-dtags,-rpath,$libraries"
    elsewhere="$elsewhere,--dynamic-linker,$libraries/ld-linux-x86-64.so.2"
fi
# By soname: a root has no development links.
amdhip=$(echo "$libraries"/libamdhip64.so.[0-9])
hsa=$(echo "$libraries"/libhsa-runtime64.so.[0-9])
rocblas=$(echo "$libraries"/librocblas.so.[0-9])
# From ROCm 7 on, the compiler at run time is a library of its own.
hiprtc=
for file in "$libraries"/libhiprtc.so.[7-9]; do
    [ ! -e "$file" ] || hiprtc=$file
done

# make TARGET SOURCE... -- COMMAND...: runs the command, with `-o` and a file beside the target, if
# a source is newer. The file is renamed then: two builds at the same time do no harm. What the
# command says is kept until it has ended, since others are saying something meanwhile.
make() {
    target=$1
    shift
    stale=
    while [ "$1" != -- ]; do
        [ "$target" -nt "$1" ] || stale=yes
        shift
    done
    shift
    [ -n "$stale" ] || return 0
    echo "  building ${target##*/}" >&2
    failed=
    said=$("$@" -o "$target.$$" 2>&1) || failed="$self: cannot build ${target##*/}"
    [ -z "$said" ] || printf '%s\n' "$said" >&2
    if [ -n "$failed" ]; then
        echo "$failed" >&2
        # With this status, xargs starts no more.
        exit 255
    fi
    mv "$target.$$" "$target"
}

name=${source%.*}
object=$objects/$name.o
case $source in
module.hip)
    make "$objects/$name.hsaco" $self "$source" -- $hip --genco "$source"
    make "$objects/$name-gfx906.hsaco" $self "$source" -- \
        env HCC_AMDGPU_TARGET=gfx906 hipcc --offload-arch=gfx906 \
        --genco --no-gpu-bundle-output "$source"
    ;;
hsa_*)
    make "$object" $self "$source" hsa.hpp -- $cxx -c "$source"
    make "$out/$name" "$object" "$hsa" -- g++ "$object" "$hsa" -ldl $elsewhere
    ;;
gemm.cpp)
    # rocBLAS is an optional part of a release.
    [ -e "$rocblas" ] || exit 0
    make "$object" $self "$source" said.hpp -- $hip -c "$source"
    make "$out/$name" "$object" "$rocblas" -- \
        g++ -pthread "$object" "$rocblas" "$amdhip" -ldl $elsewhere
    ;;
rtc.cpp)
    make "$object" $self "$source" said.hpp -- $hip -c "$source"
    make "$out/$name" "$object" "$amdhip" -- \
        g++ -pthread "$object" "$amdhip" ${hiprtc:+"$hiprtc"} -ldl $elsewhere
    ;;
*)
    make "$object" $self "$source" said.hpp -- $hip -c "$source"
    make "$out/$name" "$object" "$amdhip" -- g++ -pthread "$object" "$amdhip" -ldl $elsewhere
    ;;
esac
