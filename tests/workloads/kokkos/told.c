// Calls a tool library as Kokkos does: named by KOKKOS_TOOLS_LIBS, loaded with dlopen, callbacks
// looked up by name. Logs the calls in WORKLOAD_LOG/markers.txt as `what tid begin end text`, with
// times in ns of CLOCK_BOOTTIME, read before and after each call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../call_log.h"

struct SpaceHandle { char name[64]; };

static FILE *out;
static void *tool;

static void *callback(const char *name) {
    void *found = dlsym(tool, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(91);
    }
    return found;
}

static void told(const char *what, uint64_t begin, const char *text) {
    fprintf(out, "%s %ld %llu %llu %s\n", what, syscall(SYS_gettid), (unsigned long long)begin,
            (unsigned long long)call_log_now(), text);
}

typedef void (*begin_function)(const char *, uint32_t, uint64_t *);
typedef void (*end_function)(uint64_t);

static uint64_t begin_of(const char *kind, const char *name) {
    char function[64];
    snprintf(function, sizeof function, "kokkosp_begin_%s", kind);
    uint64_t id = 0;
    ((begin_function)callback(function))(name, 0, &id);
    return id;
}

static void end_of(const char *kind, uint64_t id) {
    char function[64];
    snprintf(function, sizeof function, "kokkosp_end_%s", kind);
    ((end_function)callback(function))(id);
}

int main(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/markers.txt", getenv("WORKLOAD_LOG"));
    out = fopen(path, "w");
    tool = dlopen(getenv("KOKKOS_TOOLS_LIBS"), RTLD_NOW | RTLD_LOCAL);
    if (!out || !tool) return 90;
    uint64_t begin = call_log_now();
    ((void (*)(int, uint64_t, uint32_t, void *))callback("kokkosp_init_library"))(0, 20211015, 0, NULL);
    told("mark", begin, "Kokkos::Initialization Complete");

    static const char *kinds[] = {"parallel_for", "parallel_reduce", "parallel_scan", "fence"};
    void (*push)(const char *) = callback("kokkosp_push_profile_region");
    void (*pop)(void) = callback("kokkosp_pop_profile_region");
    for (int index = 0; index < 100; index++) {
        char name[64];
        snprintf(name, sizeof name, "%s %d", kinds[index % 4], index % 10);
        uint64_t region = call_log_now();
        push("a region");
        begin = call_log_now();
        uint64_t id = begin_of(kinds[index % 4], name);
        end_of(kinds[index % 4], id);
        told("range", begin, name);
        pop();
        told("range", region, "a region");
    }
    begin = call_log_now();
    ((void (*)(const char *))callback("kokkosp_profile_event"))("an event");
    told("mark", begin, "an event");

    struct SpaceHandle host = {"Host"}, device = {"HIP"};
    int memory[4];
    ((void (*)(struct SpaceHandle, const char *, const void *, uint64_t))callback("kokkosp_allocate_data"))(
        device, "a view", memory, sizeof memory);
    begin = call_log_now();
    ((void (*)(struct SpaceHandle, const char *, const void *, struct SpaceHandle, const char *, const void *,
               uint64_t))callback("kokkosp_begin_deep_copy"))(device, "to", memory, host, "from", memory, sizeof memory);
    ((void (*)(void))callback("kokkosp_end_deep_copy"))();
    told("range", begin, "Kokkos::deep_copy to <- from");
    ((void (*)(struct SpaceHandle, const char *, const void *, uint64_t))callback("kokkosp_deallocate_data"))(
        device, "a view", memory, sizeof memory);

    // Sections may overlap, and may be started again.
    void (*create)(const char *, uint32_t *) = callback("kokkosp_create_profile_section");
    end_function start = callback("kokkosp_start_profile_section"), stop = callback("kokkosp_stop_profile_section");
    uint32_t first = 0, second = 0;
    create("first section", &first);
    create("second section", &second);
    for (int round = 0; round < 2; round++) {
        uint64_t begin_first = call_log_now();
        start(first);
        uint64_t begin_second = call_log_now();
        start(second);
        stop(first);
        told("range", begin_first, "first section");
        stop(second);
        told("range", begin_second, "second section");
    }
    begin = call_log_now();
    ((void (*)(void))callback("kokkosp_finalize_library"))();
    told("mark", begin, "Kokkos::Finalization Complete");
    fclose(out);
    return 0;
}
