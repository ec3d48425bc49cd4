#include "shared.h"

static long hidden(long value) { return value + value; }

long shared_twice(long value) { return hidden(value); }
long shared_call_back(long (*function)(long), long value) { return function(value); }
long shared_never_called(long value) { return value; }
