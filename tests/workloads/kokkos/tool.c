// A tool library for Kokkos that only returns the ids that its callers need.
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct SpaceHandle { char name[64]; };

static atomic_ullong last;
static atomic_uint last_section;

void kokkosp_init_library(int sequence, uint64_t version, uint32_t devices, void *info) {
    (void)sequence, (void)version, (void)devices, (void)info;
}
void kokkosp_finalize_library(void) {}
void kokkosp_begin_parallel_for(const char *name, uint32_t device, uint64_t *id) { (void)name, (void)device, *id = ++last; }
void kokkosp_end_parallel_for(uint64_t id) { (void)id; }
void kokkosp_begin_parallel_reduce(const char *name, uint32_t device, uint64_t *id) { (void)name, (void)device, *id = ++last; }
void kokkosp_end_parallel_reduce(uint64_t id) { (void)id; }
void kokkosp_begin_parallel_scan(const char *name, uint32_t device, uint64_t *id) { (void)name, (void)device, *id = ++last; }
void kokkosp_end_parallel_scan(uint64_t id) { (void)id; }
void kokkosp_begin_fence(const char *name, uint32_t device, uint64_t *id) { (void)name, (void)device, *id = ++last; }
void kokkosp_end_fence(uint64_t id) { (void)id; }
void kokkosp_push_profile_region(const char *name) { (void)name; }
void kokkosp_pop_profile_region(void) {}
void kokkosp_profile_event(const char *name) { (void)name; }
void kokkosp_create_profile_section(const char *name, uint32_t *id) { (void)name, *id = ++last_section; }
void kokkosp_destroy_profile_section(uint32_t id) { (void)id; }
void kokkosp_start_profile_section(uint32_t id) { (void)id; }
void kokkosp_stop_profile_section(uint32_t id) { (void)id; }
void kokkosp_begin_deep_copy(struct SpaceHandle to, const char *to_name, const void *to_ptr, struct SpaceHandle from,
                             const char *from_name, const void *from_ptr, uint64_t size) {
    (void)to, (void)to_name, (void)to_ptr, (void)from, (void)from_name, (void)from_ptr, (void)size;
}
void kokkosp_end_deep_copy(void) {}
void kokkosp_allocate_data(struct SpaceHandle space, const char *label, const void *ptr, uint64_t size) {
    (void)space, (void)label, (void)ptr, (void)size;
}
void kokkosp_deallocate_data(struct SpaceHandle space, const char *label, const void *ptr, uint64_t size) {
    (void)space, (void)label, (void)ptr, (void)size;
}
