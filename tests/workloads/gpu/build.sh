#!/bin/sh
# Builds the programs that use a GPU: `build.sh OUTDIR [ROOT]`. ROOT is the root of another Debian release whose
# ROCm they are to run with; they are still compiled by this one's hipcc.
#
# Safe to run again: only what is older than its sources is built. Needs g++ and Debian's ROCm:
#   apt-get install g++ hipcc libamdhip64-dev libhsa-runtime-dev rocm-device-libs
set -eu

out=${1:?usage: build.sh OUTDIR [ROOT]}
root=${2:-}
cd "$(dirname "$0")"
mkdir -p "$out"

for tool in g++ hipcc; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$0: $tool is missing; on Debian and Ubuntu:" >&2
        echo "  sudo apt-get install g++ hipcc libamdhip64-dev libhsa-runtime-dev rocm-device-libs" >&2
        exit 1
    fi
done

# One code object for each GPU that the tests make up. The environment keeps hipcc from looking for one.
targets="--offload-arch=gfx906 --offload-arch=gfx1030"
hip="env HCC_AMDGPU_TARGET=gfx906 hipcc $targets -std=c++17 -O1 -g -pthread -Wall -Wextra"

# Programs for another release name its loader and its libraries, so they run without a chroot.
libraries=$root/usr/lib/x86_64-linux-gnu
elsewhere=
if [ -n "$root" ]; then
    elsewhere="-Wl,--allow-shlib-undefined,--disable-new-dtags,-rpath,$libraries"
    elsewhere="$elsewhere,--dynamic-linker,$libraries/ld-linux-x86-64.so.2"
fi

stale() {
    program=$1
    shift
    for source in "$0" "$@"; do
        if [ ! "$program" -nt "$source" ]; then
            echo "  building ${program#"$out"/}" >&2
            return 0
        fi
    done
    return 1
}

for name in vector_add many_kernels streams copies graph devices endless features processes; do
    if stale "$out/$name" "$name.cpp" said.hpp; then
        # Written beside and renamed: two builds at the same time do no harm.
        if [ -z "$root" ]; then
            $hip "$name.cpp" -o "$out/$name.$$"
        else
            $hip -c "$name.cpp" -o "$out/$name.$$.o"
            g++ -pthread "$out/$name.$$.o" "$libraries"/libamdhip64.so.[0-9] $elsewhere -o "$out/$name.$$"
            rm "$out/$name.$$.o"
        fi
        mv "$out/$name.$$" "$out/$name"
    fi
done
if stale "$out/module.hsaco" module.hip; then
    $hip --genco module.hip -o "$out/module.hsaco.$$"
    mv "$out/module.hsaco.$$" "$out/module.hsaco"
fi
if stale "$out/hsa_ticks" hsa_ticks.cpp; then
    g++ -std=c++17 -O1 -g -Wall -Wextra -Wno-missing-field-initializers hsa_ticks.cpp \
        -lhsa-runtime64 $elsewhere -o "$out/hsa_ticks.$$"
    mv "$out/hsa_ticks.$$" "$out/hsa_ticks"
fi
