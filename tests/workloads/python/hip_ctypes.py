"""Calls HIP through ctypes, as Python programs without bindings of their own do: `hip_ctypes.py LIBRARY ROUNDS`.

Logs its calls as the other workloads do (tests/workloads/call_log.h): into the directory that WORKLOAD_LOG names.
"""

import ctypes
import os
import struct
import sys
import threading
import time

WORDS = 14
NAME = 96
RECORD = NAME + 5 * 8 + 2 * 8 * WORDS
INT = 0xFFFF_FFFF
WHOLE = 0xFFFF_FFFF_FFFF_FFFF


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


IMAGE = now()


class Log:
    """The calls of one thread."""

    def __init__(self):
        self.tid = threading.get_native_id()
        self.opened = now()
        self.records = []

    def call(self, function, *arguments):
        """Calls a function; arguments are pairs of ctypes' value and the word that is passed."""
        values = [value for value, _ in arguments]
        begin = now()
        result = function(*values)
        end = now()
        words, masks = [0] * WORDS, [0] * WORDS
        for index, (value, word) in enumerate(arguments):
            masks[index] = INT if isinstance(value, ctypes.c_int) else WHOLE
            words[index] = word & masks[index]
        # The result is a pointer, or a hipError_t or int, which fills half of the register.
        pointer = function.restype in (ctypes.c_void_p, ctypes.c_char_p)
        result_mask = 0 if pointer else INT
        value = 0 if pointer else result & INT
        self.records.append(
            struct.pack(f"<{NAME}s5Q{2 * WORDS}Q", function.__name__.encode(), begin, end, value, result_mask, 1, *words, *masks)
        )
        return result

    def write(self):
        header = struct.pack("<8sIIIIQQ", b"GPTCALLS", 2, RECORD, os.getpid(), self.tid, self.opened, IMAGE)
        path = os.path.join(os.environ["WORKLOAD_LOG"], f"{os.getpid()}-{self.tid}-{self.opened}.calls")
        with open(path, "xb") as file:
            file.write(header.ljust(RECORD, b"\0"))
            file.write(b"".join(self.records))


def out(value):
    """A pointer to `value`, for a function that stores there."""
    return ctypes.byref(value), ctypes.addressof(value)


def number(kind, value):
    return kind(value), value


def rounds(hip, count):
    """Whatever there is to call, with and without a GPU: what fails returns an error that is logged like any other result."""
    log = Log()
    version, devices, pointer = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    for index in range(count):
        log.call(hip.hipRuntimeGetVersion, out(version))
        log.call(hip.hipGetDeviceCount, out(devices))
        log.call(hip.hipMalloc, out(pointer), number(ctypes.c_size_t, 4096 + index))
        address = pointer.value or 0
        log.call(hip.hipMemset, number(ctypes.c_void_p, address), number(ctypes.c_int, index), number(ctypes.c_size_t, 4096))
        log.call(hip.hipFree, number(ctypes.c_void_p, address))
        log.call(hip.hipGetErrorString, number(ctypes.c_int, index))
        log.call(hip.hipGetLastError)
    log.write()


def main():
    library, count = sys.argv[1], int(sys.argv[2])
    hip = ctypes.CDLL(library)
    # The default result type of ctypes is int, which has the size of hipError_t.
    hip.hipGetErrorString.restype = ctypes.c_char_p
    rounds(hip, count)
    threads = [threading.Thread(target=rounds, args=(hip, count)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
