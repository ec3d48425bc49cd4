"""Tests of the rules of GPU work: a good trace passes, and each kind of damage is found.

usage: python -m unittest discover tests/readers
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import gpu_check
import pftrace

AGENT, KERNELS, SUBMITTED, COUNTER = 1, 2, 3, 4
ROW = "COMPUTE Agent 1 QUEUE 1 GPU"


def span(number: int, begin: int, end: int, **notes: Any) -> pftrace.Slice:
    """A kernel that call 7 submitted at time 20."""
    window = {"earliest_ns": begin - 2, "latest_ns": begin + 2, "uncertainty_ns": 2}
    common = {
        "quality": "exact",
        "begin_ns": begin,
        "end_ns": end,
        "submit_ns": 20,
        "corr_id": 7,
        "outermost_corr_id": 7,
        "pid": 5,
        "tid": 6,
        "kind": "KERNEL_DISPATCH",
        "dispatch_id": number,
        "queue": 1,
        "agent": "Agent 1",
        "grid": {"x": 64},
        "begin_window": window,
        "end_window": {"earliest_ns": end - 2, "latest_ns": end + 2},
    }
    return pftrace.Slice(KERNELS, "add", "kernel_dispatch", begin, end, common | notes, [7])


def good() -> pftrace.Trace:
    """A call, two kernels that it submitted, one after the other, and one of which no more is known."""
    trace = pftrace.Trace()
    for uuid, parent, name in (
        (AGENT, 0, "Agent 1"),
        (KERNELS, AGENT, ROW),
        (SUBMITTED, AGENT, f"{ROW}, {gpu_check.DISCLAIMER}"),
        (COUNTER, AGENT, "kernels in flight: Agent 1"),
    ):
        trace.tracks[uuid] = pftrace.Track(uuid, parent, name)
    unknown = {"earliest_ns": 20}
    submitted = span(3, 20, 20, quality="submitted", begin_window=unknown, end_window=unknown)
    submitted.track, submitted.category = SUBMITTED, "kernel_dispatch_untimed"
    submitted.notes = {name: value for name, value in submitted.notes.items() if name not in gpu_check.TIMES}
    call = pftrace.Slice(9, "hipLaunchKernel", "hip_api", 10, 30, {"corr_id": 7}, [7])
    trace.slices = [call, span(1, 40, 60), span(2, 60, 70), submitted]
    trace.counters[COUNTER] = [(20, 2), (60, 1), (70, 0)]
    trace.native = [pftrace.Native(40, 20, ROW, "add", 5), pftrace.Native(60, 10, ROW, "add", 5)]
    return trace


def check(trace: pftrace.Trace, complete: bool = True) -> list[str]:
    calls = [event for event in trace.slices if event.category in ("hip_api", "hsa_api")]
    return list(gpu_check.check(trace, calls, complete))


def note(index: int, name: str, value: Any) -> Callable[[pftrace.Trace], None]:
    return lambda trace: trace.slices[index].notes.update({name: value})


def put(index: int, name: str, value: Any) -> Callable[[pftrace.Trace], None]:
    return lambda trace: setattr(trace.slices[index], name, value)


# Damages to a valid trace, and the expected messages.
DAMAGES: list[tuple[Callable[[pftrace.Trace], None], str]] = [
    (note(1, "quality", "guessed"), "has no quality: guessed"),
    (note(3, "quality", "exact"), "is exact, but in category kernel_dispatch_untimed"),
    (put(3, "end", 30), "is drawn until 30, but how long it took is not known"),
    (note(3, "end_ns", 30), "has end_ns, but is not drawn"),
    (note(3, "end_window", {"earliest_ns": 30, "latest_ns": 29}), "has the window"),
    (put(3, "track", KERNELS), "is submitted, but on the track 'COMPUTE Agent 1 QUEUE 1 GPU'"),
    (put(2, "parent", span(9, 0, 1)), "is drawn inside add"),
    (put(1, "begin", 41), "began at 40"),
    (put(1, "end", 59), "is drawn until 59, but ended at 60"),
    (note(1, "submit_ns", 50), "was submitted at 50 and took from 40 to 60"),
    (note(1, "end_window", {"earliest_ns": 1}), "nothing says that its end has happened"),
    (note(1, "end_window", {"earliest_ns": 61, "latest_ns": 62}), "its end 60 is not between 61 and 62"),
    (note(2, "dispatch_id", 1), "dispatch_id 1 occurs 2 times"),
    (note(2, "agent", "Agent 2"), "queue 1 is on {'Agent"),
    (lambda trace: trace.tracks.pop(AGENT), "has no name or no agent"),
    (put(1, "flows", []), "has flows [], not {7}"),
    (put(0, "flows", []), "is not the other end of its flow"),
    (put(0, "flows", [8]), "hipLaunchKernel at 10 has flows [8]"),
    (put(0, "category", "other"), "flow 7 has no other end"),
    (put(0, "begin", 25), "was submitted at 20, before hipLaunchKernel at 25"),
    (lambda trace: trace.counters[COUNTER].pop(), "'kernels in flight: Agent 1' says"),
    (lambda trace: trace.counters.clear(), "no counter for KERNEL_DISPATCH"),
    (lambda trace: trace.native.pop(), "is no native event"),
    (lambda trace: trace.native.append(trace.native[0]), "is no slice"),
]


class Check(unittest.TestCase):
    def test_a_good_trace_passes(self) -> None:
        self.assertEqual(check(good()), [])
        summary = gpu_check.summarise(good())
        self.assertEqual((summary["KERNEL_DISPATCH exact"], summary["KERNEL_DISPATCH submitted"]), (2, 1))
        self.assertEqual((summary["kernel_dispatch"], summary["untimed kernel_dispatch"]), (2, 1))

    def test_damage_is_found(self) -> None:
        for damage, expected in DAMAGES:
            with self.subTest(expected):
                trace = good()
                damage(trace)
                found = check(trace)
                self.assertTrue(any(expected in violation for violation in found), found)

    def test_a_lost_call_excuses_the_end_of_a_flow(self) -> None:
        trace = good()
        trace.slices.pop(0)
        self.assertEqual(check(trace, complete=False), [])

    def test_work_joins_the_call_of_hip_around_that_of_hsa(self) -> None:
        trace = good()
        store = pftrace.Slice(9, "hsa_signal_store", "hsa_api", 15, 25, {"corr_id": 8, "ancestor_id": 7}, [8])
        kernel = span(1, 40, 60, innermost_corr_id=8)
        kernel.flows = [7, 8]
        trace.slices[1:2] = [store, kernel]
        self.assertEqual(check(trace), [])
        kernel.notes |= {"corr_id": 8}
        (found,) = check(trace)
        self.assertIn("does not join hipLaunchKernel, which called hsa_signal_store", found)

    def test_the_table_must_have_the_same_kernels(self) -> None:
        row = {
            "Kind": "KERNEL_DISPATCH",
            "Dispatch_Id": "1",
            "Kernel_Name": "add",
            "Queue_Id": "1",
            "Thread_Id": "6",
            "Grid_Size_X": "64",
            "Correlation_Id": "7",
            "Start_Timestamp": "40",
            "End_Timestamp": "60",
        }
        second = row | {"Dispatch_Id": "2", "Start_Timestamp": "60", "End_Timestamp": "70"}
        self.assertEqual(list(gpu_check.check_csv(good(), "kernel_dispatch", [row, second])), [])
        wrong = list(gpu_check.check_csv(good(), "kernel_dispatch", [row, row]))
        self.assertEqual(len(wrong), 2)


if __name__ == "__main__":
    unittest.main()
