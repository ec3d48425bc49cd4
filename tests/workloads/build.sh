#!/bin/sh
# Builds the programs that the end-to-end tests trace: `build.sh OUTDIR`.
#
# Safe to run again: only what is older than its sources is built. Needs gcc, g++, and Debian's ROCm:
#   apt-get install gcc g++ hipcc libamdhip64-dev libhsa-runtime-dev rocm-device-libs
set -eu

# `cargo xtask test` has built them once for all tests, each of which is a process of its own.
if [ "${GPUTRACE_WORKLOADS_BUILT:-}" = 1 ]; then
    exit 0
fi

out=${1:?usage: build.sh OUTDIR}
cd "$(dirname "$0")"
mkdir -p "$out/obj" "$out/synthetic"
out=$(cd "$out" && pwd)

for tool in gcc g++ hipcc; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$0: $tool is missing; on Debian and Ubuntu:" >&2
        echo "  sudo apt-get install gcc g++ hipcc libamdhip64-dev libhsa-runtime-dev rocm-device-libs" >&2
        exit 1
    fi
done

# make TARGET SOURCE...: whether TARGET is missing or older than a source or this script.
stale() {
    target=$1
    shift
    for source in "$0" "$@"; do
        if [ ! "$target" -nt "$source" ]; then
            echo "  building ${target#"$out"/}" >&2
            return 0
        fi
    done
    return 1
}

warnings="-Wall -Wextra -Wno-unused-result -Wno-deprecated-declarations"
c="gcc -std=c11 -O2 -g -pthread $warnings"
# C++20 for std::type_identity_t and __VA_OPT__.
cxx="g++ -std=c++20 -O2 -g -pthread $warnings"
# Any architecture will do: without a GPU no kernel is ever loaded. The environment keeps hipcc from
# looking for a GPU.
hip="env HCC_AMDGPU_TARGET=gfx906 hipcc --offload-arch=gfx906 -std=c++20 -O2 -g -pthread $warnings"

log=$out/obj/call_log.o
headers="call_log.h call_log.hpp"

if stale "$log" call_log.c call_log.h; then
    $c -fPIC -c call_log.c -o "$log"
fi
if stale "$out/hip_calls" hip_calls.cpp hip_round.hpp $headers "$log"; then
    # In two steps, since hipcc takes every input of a compilation for a source.
    $hip -c hip_calls.cpp -o "$out/obj/hip_calls.o"
    $hip "$out/obj/hip_calls.o" "$log" -o "$out/hip_calls"
fi
if stale "$out/hip_late" hip_calls.cpp hip_round.hpp $headers "$log"; then
    $cxx -D__HIP_PLATFORM_AMD__ -DLATE hip_calls.cpp "$log" -ldl -o "$out/hip_late"
fi
if stale "$out/hsa_calls" hsa_calls.cpp $headers "$log"; then
    $cxx hsa_calls.cpp "$log" -lhsa-runtime64 -o "$out/hsa_calls"
fi

# The libraries' names make gputrace take them for ROCm's; a version that does not exist keeps them apart.
hip_library=$out/synthetic/libamdhip64.so.99
hsa_library=$out/synthetic/libhsa-runtime64.so.99
if stale "$hip_library" synthetic/sites.c synthetic/sites.S synthetic/sites.h; then
    $c -fPIC -fcf-protection=none -shared -Wl,-soname,libamdhip64.so.99 -Wl,--build-id \
        synthetic/sites.c synthetic/sites.S -o "$hip_library"
fi
if stale "$hsa_library" synthetic/hsa_sites.c; then
    $c -fPIC -shared -Wl,-soname,libhsa-runtime64.so.99 -Wl,--build-id synthetic/hsa_sites.c -o "$hsa_library"
fi
if stale "$out/synthetic/synthetic" synthetic/driver.cpp synthetic/sites.h $headers "$log" "$hip_library"; then
    $cxx synthetic/driver.cpp "$log" "$hip_library" '-Wl,-rpath,$ORIGIN' -o "$out/synthetic/synthetic"
fi
if stale "$out/synthetic/hsa_synthetic" synthetic/hsa_driver.cpp $headers "$log" "$hsa_library"; then
    $cxx synthetic/hsa_driver.cpp "$log" "$hsa_library" '-Wl,-rpath,$ORIGIN' -o "$out/synthetic/hsa_synthetic"
fi

# A program whose names and strings are meant for the terminal of whoever traces it.
mkdir -p "$out/hostile_text"
if stale "$out/hostile_text/libamdhip64.so.99" hostile_text/library.c; then
    $c -fPIC -shared -Wl,-soname,libamdhip64.so.99 -Wl,--build-id hostile_text/library.c -o "$out/hostile_text/libamdhip64.so.99"
fi
if stale "$out/hostile_text/hostile" hostile_text/hostile.c "$out/hostile_text/libamdhip64.so.99"; then
    $c hostile_text/hostile.c "$out/hostile_text/libamdhip64.so.99" '-Wl,-rpath,$ORIGIN' -o "$out/hostile_text/hostile"
fi

# A program with functions of its own, and a library that is none of ROCm's. Also without its debug information, which
# is in a file of its own, and without all symbols.
functions=$out/functions
mkdir -p "$functions"
if stale "$functions/libshared.so" functions/shared.c functions/shared.h; then
    $c -fPIC -shared -Wl,-soname,libshared.so -Wl,--build-id functions/shared.c -o "$functions/libshared.so"
fi
if stale "$functions/fib" functions/fib.cpp functions/shared.h "$functions/libshared.so"; then
    $cxx -Wl,--build-id functions/fib.cpp "$functions/libshared.so" '-Wl,-rpath,$ORIGIN' -o "$functions/fib"
    mkdir -p "$functions/.debug"
    objcopy --only-keep-debug "$functions/fib" "$functions/.debug/fib_stripped.debug"
    objcopy --strip-all --add-gnu-debuglink="$functions/.debug/fib_stripped.debug" "$functions/fib" \
        "$functions/fib_stripped"
fi

# A library whose functions are left by exceptions, ends of threads and switches of stacks, without its local symbols.
leaving=$out/leaving
mkdir -p "$leaving"
if stale "$leaving/libleaving.so" leaving/library.cpp leaving/library.h; then
    $cxx -fPIC -shared -s -Wl,-soname,libleaving.so -Wl,--build-id leaving/library.cpp -o "$leaving/libleaving.so"
fi
if stale "$leaving/leaving" leaving/leaving.cpp leaving/library.h "$leaving/libleaving.so"; then
    $cxx -rdynamic leaving/leaving.cpp "$leaving/libleaving.so" '-Wl,-rpath,$ORIGIN' -o "$leaving/leaving"
fi

# Libraries by which programs tell profilers something, as the real ones are called.
mkdir -p "$out/markers"
for library in roctx64=ROCTX rocprofiler-sdk-roctx=ROCTX rocprofiler-sdk=SDK roctracer64=ROCTRACER \
    rocprof-sys-user=USER_API rccl=RCCL; do
    name=${library%=*}
    if stale "$out/markers/lib$name.so.99" markers/stubs.c; then
        $c -D"${library#*=}" -fPIC -shared -Wl,-soname,"lib$name.so.99" -Wl,--build-id markers/stubs.c \
            -o "$out/markers/lib$name.so.99"
    fi
done
if stale "$out/markers/librocdecode.so.99" markers/decoders.c markers/decoders.h; then
    for name in rocdecode rocjpeg; do
        kind=
        [ $name = rocjpeg ] && kind=-DJPEG
        $c $kind -fPIC -shared -Wl,-soname,"lib$name.so.99" -Wl,--build-id markers/decoders.c -o "$out/markers/lib$name.so.99"
    done
fi
if stale "$out/markers/markers" markers/markers.c markers/decoders.h call_log.h "$log"; then
    $c -D__HIP_PLATFORM_AMD__ -Wno-strict-prototypes markers/markers.c "$log" "$out/markers/libroctx64.so.99" \
        "$out/markers/libroctracer64.so.99" "$out/markers/librocprof-sys-user.so.99" \
        "$out/markers/librccl.so.99" "$out/markers/librocdecode.so.99" \
        "$out/markers/librocjpeg.so.99" -lamdhip64 '-Wl,-rpath,$ORIGIN' \
        -o "$out/markers/markers"
fi
mkdir -p "$out/storage"
if stale "$out/storage/libhipfile.so.99" storage/hipfile.c storage/hipfile.h; then
    $c -fPIC -shared -Wl,-soname,libhipfile.so.99 -Wl,--build-id storage/hipfile.c -o "$out/storage/libhipfile.so.99"
fi
if stale "$out/storage/librocshmem.so.99" storage/rocshmem.cpp storage/rocshmem.hpp; then
    $cxx -fPIC -shared -Wl,-soname,librocshmem.so.99 -Wl,--build-id storage/rocshmem.cpp -o "$out/storage/librocshmem.so.99"
fi
if stale "$out/storage/storage" storage/storage.cpp storage/hipfile.h storage/rocshmem.hpp; then
    $cxx storage/storage.cpp "$out/storage/libhipfile.so.99" "$out/storage/librocshmem.so.99" '-Wl,-rpath,$ORIGIN' \
        -o "$out/storage/storage"
fi
if stale "$out/markers/regions" markers/regions.cpp; then
    $cxx -Wl,--build-id markers/regions.cpp "$out/markers/libroctx64.so.99" "$out/markers/librocprof-sys-user.so.99" \
        "$out/markers/librocprofiler-sdk.so.99" '-Wl,-rpath,$ORIGIN' -o "$out/markers/regions"
fi
if stale "$out/markers/controls" markers/controls.c; then
    $c -D__HIP_PLATFORM_AMD__ -Wno-strict-prototypes markers/controls.c "$out/markers/libroctx64.so.99" \
        "$out/markers/libroctracer64.so.99" "$out/markers/librocprof-sys-user.so.99" \
        "$out/markers/librocprofiler-sdk.so.99" "$out/markers/librccl.so.99" -lamdhip64 '-Wl,-rpath,$ORIGIN' -o "$out/markers/controls"
fi

# What Kokkos tells tool libraries: a program that does it as Kokkos does, and one of Kokkos itself, where Debian's package
# libtrilinos-kokkos-dev is installed (Kokkos 3, with its serial back-end), or unpacked below KOKKOS_ROOT.
kokkos=$out/kokkos
mkdir -p "$kokkos"
if stale "$kokkos/libkp_nothing.so" kokkos/tool.c; then
    $c -fPIC -shared -Wl,--build-id kokkos/tool.c -o "$kokkos/libkp_nothing.so"
fi
if stale "$kokkos/told" kokkos/told.c call_log.h "$log"; then
    $c -Wno-strict-prototypes kokkos/told.c "$log" -ldl -o "$kokkos/told"
fi
root=${KOKKOS_ROOT:-}
if [ -f "$root/usr/include/trilinos/Kokkos_Core.hpp" ] && stale "$kokkos/real" kokkos/real.cpp; then
    libraries=$root/usr/lib/x86_64-linux-gnu
    g++ -std=c++17 -O1 -w -fopenmp "-I$root/usr/include/trilinos" kokkos/real.cpp "-L$libraries" -ltrilinos_kokkoscore \
        "-Wl,-rpath,$libraries" -o "$kokkos/real"
fi

# Targets that do what makes tracing hard, and libraries that do nothing with what they are given.
chaos=$out/chaos
strange=$chaos/$(printf 'str\033]0;ange\a')
mkdir -p "$chaos/late" "$strange"
if stale "$chaos/chaos" chaos/chaos.c chaos/hostile.c chaos/chaos.h chaos/shared.h chaos/stubs.c synthetic/sites.h "$hip_library"; then
    $c -fPIC -shared -Wl,-soname,libhsa-runtime64.so.98 -Wl,--build-id chaos/stubs.c -o "$chaos/libhsa-runtime64.so.98"
    $c -DHIP -fPIC -shared -Wl,-soname,libamdhip64.so.98 -Wl,--build-id chaos/stubs.c -o "$chaos/late/libamdhip64.so.98"
    cp "$chaos/late/libamdhip64.so.98" "$strange/"
    cp "$hip_library" "$out/markers/libroctx64.so.99" "$chaos/"
    echo 'int number(void) { return 7; }' | $c -fPIC -shared -x c - -o "$chaos/small0.so"
    for number in 1 2 3 4 5 6 7 8 9 10 11; do
        cp "$chaos/small0.so" "$chaos/small$number.so"
    done
    $c -std=gnu11 chaos/chaos.c chaos/hostile.c "$chaos/libamdhip64.so.99" "$chaos/libhsa-runtime64.so.98" "$chaos/libroctx64.so.99" -ldl \
        '-Wl,-rpath,$ORIGIN' -o "$chaos/chaos"
fi

# Programs that gputrace must refuse to trace, or has nothing to trace in.
if stale "$out/no_rocm" bystander.c; then
    $c bystander.c -o "$out/no_rocm"
fi
if stale "$out/static_program" bystander.c; then
    $c -static bystander.c -o "$out/static_program"
fi
if stale "$out/static_rocm" bystander.c; then
    $c -static -DWITH_ROCM bystander.c -o "$out/static_rocm"
fi

# Programs that hold others up or use up what others need, with libraries of their own.
hostile=$out/hostile
mkdir -p "$hostile"
number=1
for library in libroctx64.so.99 libamdhip64.so.99 libhsa-runtime64.so.99 libmany.so; do
    if stale "$hostile/$library" hostile/library.c; then
        $c -fPIC -shared -Wl,--build-id "-Wl,-soname,$library" -DLIBRARY=$number hostile/library.c -o "$hostile/$library"
    fi
    number=$((number + 1))
done
if stale "$hostile/hostile" hostile/hostile.c hostile/library.c; then
    $c hostile/hostile.c "$hostile/libroctx64.so.99" "$hostile/libamdhip64.so.99" "$hostile/libhsa-runtime64.so.99" \
        "-Wl,-rpath,\$ORIGIN" -o "$hostile/hostile"
fi
