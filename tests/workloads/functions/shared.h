// A library with exported functions, traced by its path.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

long shared_twice(long value);
long shared_call_back(long (*function)(long), long value);
long shared_never_called(long value);

#ifdef __cplusplus
}
#endif
