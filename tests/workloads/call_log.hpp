// Logged calls from C++: `LOGGED(hipMalloc, &pointer, 100)` writes a record around the call.
//
// The C++ types alone determine where the System V x86-64 ABI puts each argument word, so the
// expected register and stack words do not depend on gputrace's own catalogue.
#pragma once

#include <string.h>

#include <type_traits>
#include <utility>

#include "call_log.h"

namespace workload {

// Larger structs, and structs that cannot be copied bytewise, are not passed in registers.
template <class T>
inline constexpr bool in_memory = std::is_class_v<T> && sizeof(T) > 16;

template <class T>
inline constexpr bool in_vector_register = std::is_floating_point_v<T>;

inline uint64_t low_bytes(size_t count) { return count >= 8 ? ~0ull : (1ull << (8 * count)) - 1; }

// Assigns argument words to registers and stack as the ABI does. Assumes that structs of up to 16
// bytes hold only integers, which is true of the HIP and HSA structs used here.
class Placement {
public:
    explicit Placement(call_log_record *record) : record_(record) {}

    // The caller passes the address of the result in the first register. The address is not known
    // here.
    void hidden_result() { registers_++; }

    template <class T>
    void add(const T &value) {
        if constexpr (in_vector_register<T>) {
            return;
        } else {
            unsigned char bytes[(sizeof(T) + 7) / 8 * 8] = {};
            memcpy(bytes, &value, sizeof(T));
            const int words = sizeof(bytes) / 8;
            const bool memory = in_memory<T> || registers_ + words > CALL_LOG_REGISTERS;
            for (int index = 0; index < words; index++) {
                int at = memory ? CALL_LOG_REGISTERS + stack_++ : registers_++;
                if (at >= CALL_LOG_WORDS) continue;
                memcpy(&record_->word[at], bytes + 8 * index, 8);
                record_->mask[at] = low_bytes(sizeof(T) - 8 * index);
            }
        }
    }

private:
    call_log_record *record_;
    int registers_ = 0;
    int stack_ = 0;
};

template <class R, class... P>
R logged(const char *name, R (*function)(P...), std::type_identity_t<P>... arguments) {
    call_log_record *record = call_log_next(name);
    Placement placement(record);
    if constexpr (!std::is_void_v<R>) {
        if constexpr (in_memory<R>) placement.hidden_result();
    }
    (placement.add(arguments), ...);
    record->words_known = 1;
    record->begin = call_log_now();
    if constexpr (std::is_void_v<R>) {
        function(arguments...);
        record->end = call_log_now();
    } else {
        R result = function(arguments...);
        uint64_t end = call_log_now();
        if constexpr (!in_memory<R> && !in_vector_register<R>) {
            memcpy(&record->result, &result, sizeof(R) < 8 ? sizeof(R) : 8);
            record->result_mask = low_bytes(sizeof(R));
        }
        record->end = end;
        return result;
    }
}

}  // namespace workload

#define LOGGED(function, ...) ::workload::logged(#function, &function __VA_OPT__(, ) __VA_ARGS__)
