#!/usr/bin/env python3
"""Draws a trace of gputrace as an SVG timeline, for documents.

usage: render_trace.py TRACE OUT.svg [--from MS] [--to MS] [--title TEXT] [--threads N]

Everything drawn comes from the trace, read with the official Perfetto protos. Calls too narrow to be seen
are drawn as one block with their neighbours, and the caption says how many there are.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from html import escape
from pathlib import Path

import gpu_check
import pftrace

WIDTH = 1200
LABELS = 178
RIGHT = 16
ROW = 19
TOP = 78
FONT = "-apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# Width of an average character in the slices' font, px.
CHARACTER = 6.7
# Width below which a call is merged with its neighbour, px.
VISIBLE = 0.6

# Domain -> (fill colour, text in the legend).
COLOURS = {
    "HIP_RUNTIME_API": ("#ef8354", "HIP runtime"),
    "HIP_COMPILER_API": ("#f4b183", "HIP compiler"),
    "HSA_CORE_API": ("#4f8fc0", "HSA core"),
    "HSA_AMD_EXT_API": ("#7fb7be", "HSA AMD extension"),
    "HSA_IMAGE_EXT_API": ("#a5a58d", "HSA image"),
    "HSA_FINALIZE_EXT_API": ("#b8b8d1", "HSA finalizer"),
    "KERNEL_DISPATCH": ("#6a994e", "kernels"),
    "MEMORY_COPY": ("#a7c957", "copies"),
}
OTHER = ("#c0c0c0", "other")
INK, FAINT, BAND = "#24292f", "#6e7781", "#f6f8fa"


@dataclass
class Box:
    """What is drawn for one call, or for some that are too narrow for a box each."""

    left: float
    right: float
    domain: str
    narrow: bool
    calls: list[pftrace.Slice]


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw a trace of gputrace as an SVG timeline.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--from", dest="begin", type=float, help="ms after the first call")
    parser.add_argument("--to", dest="end", type=float, help="ms after the first call")
    parser.add_argument("--title", help="text above the counts")
    parser.add_argument("--threads", type=int, default=12, help="at most so many, those with most calls")
    arguments = parser.parse_args()
    trace = pftrace.read(arguments.trace)
    work = [event for event in trace.slices if event.category in gpu_check.TIMED]
    trace.slices = [event for event in trace.slices if event.category not in gpu_check.CATEGORIES]
    if trace.violations or not trace.slices:
        print(f"render_trace: {(trace.violations or ['there are no calls in it'])[0]}", file=sys.stderr)
        return 1
    first = trace.slices[0].begin
    begin = first + int((arguments.begin or 0) * 1e6)
    end = max(event.end for event in (*trace.slices, *work)) if arguments.end is None else first + int(arguments.end * 1e6)
    if begin >= end:
        print("render_trace: nothing between --from and --to", file=sys.stderr)
        return 1
    title = arguments.title or arguments.trace.name
    arguments.out.write_text(Picture(trace, work, first, begin, end).draw(title, arguments.threads))
    return 0


class Picture:
    def __init__(
        self, trace: pftrace.Trace, work: list[pftrace.Slice], first: int, begin: int, end: int
    ) -> None:
        self.work = work
        self.trace, self.first, self.begin, self.end = trace, first, begin, end
        self.scale = (WIDTH - LABELS - RIGHT) / (end - begin)
        self.parts: list[str] = []
        self.bands: list[tuple[float, float]] = []
        self.domains: set[str] = set()
        self.merged = 0

    def draw(self, title: str, limit: int) -> str:
        calls = defaultdict(list)
        for call in self.trace.slices:
            if call.end > self.begin and call.begin < self.end:
                calls[call.track].append(call)
        tracks = sorted(calls, key=lambda track: -len(calls[track]))[:limit]
        ids = {track: self.trace.thread_of(calls[track][0]) or (0, 0) for track in tracks}
        tracks.sort(key=lambda track: (ids[track][0], ids[track][1] != ids[track][0], calls[track][0].begin))
        y, process = TOP, None
        for track in tracks:
            pid, tid = ids[track]
            if process != self.trace.tracks[track].parent:
                process = self.trace.tracks[track].parent
                name = f"{self.trace.process_name(track)} {pid}".strip()
                self.text(12, y + 15, name, size=12, weight=600)
                y += 23
            y = self.thread(track, tid, calls[track], y) + 8
        y = self.gpus(y)
        shown = sum(len(calls[track]) for track in tracks)
        threads = set(ids.values())
        return self.frame(title, y, shown, len(threads), len({pid for pid, _ in threads}))

    def gpus(self, y: float) -> float:
        """Kernels and copies with real times, lane by lane below the name of their row."""
        rows: dict[str, dict[int, list[pftrace.Slice]]] = defaultdict(lambda: defaultdict(list))
        for event in self.work:
            if event.end > self.begin and event.begin < self.end:
                rows[self.trace.tracks[event.track].name][event.track].append(event)
        for name in sorted(rows):
            self.text(12, y + 15, name, size=12, weight=600)
            y += 23
            for lane in sorted(rows[name]):
                y = self.lane(rows[name][lane], y) + 2
            y += 6
        return y

    def lane(self, events: list[pftrace.Slice], y: float) -> float:
        self.bands.append((y, ROW))
        for boxes in self.boxes(events).values():
            for box in boxes:
                self.box(box, y)
        return y + ROW

    def thread(self, track: int, tid: int, calls: list[pftrace.Slice], y: float) -> float:
        height = ROW * (max(call.depth for call in calls) + 1)
        self.bands.append((y, height))
        name = self.trace.tracks[track].name
        self.text(24, y + 13, f"{name} {tid}".strip(), size=11, fill=FAINT)
        for depth, boxes in self.boxes(calls).items():
            for box in boxes:
                self.box(box, y + depth * ROW)
        for instant in self.trace.instants:
            if instant.track == track and self.begin <= instant.begin <= self.end:
                self.instant(instant, y, height)
        return y + height

    def boxes(self, calls: list[pftrace.Slice]) -> dict[int, list[Box]]:
        rows: dict[int, list[Box]] = defaultdict(list)
        for call in calls:
            left = self.x(max(call.begin, self.begin))
            right = self.x(min(call.end, self.end))
            domain = call.notes.get("kind", "")
            row = rows[call.depth]
            narrow = right - left < VISIBLE
            last = row[-1] if row else None
            if narrow and last and last.narrow and last.domain == domain and left - last.right < VISIBLE:
                last.right = max(last.right, right)
                last.calls.append(call)
            else:
                row.append(Box(left, right, domain, narrow, [call]))
        return rows

    def box(self, box: Box, y: float) -> None:
        self.domains.add(box.domain)
        fill = COLOURS.get(box.domain, OTHER)[0]
        width = max(box.right - box.left, VISIBLE)
        if len(box.calls) > 1:
            self.merged += len(box.calls)
        call = box.calls[0]
        unfinished = call.notes.get("unfinished")
        tip = f"{len(box.calls)} calls, kernels or copies"
        if len(box.calls) == 1:
            tip = f"{call.name}, {(call.end - call.begin) / 1e3:,.1f} µs"
        if unfinished:
            tip += f", unfinished: {unfinished}"
        gap = 0.5 if width > 3 else 0
        edge = ' stroke="#a40e26" stroke-dasharray="3 2"' if unfinished else ""
        self.parts.append(
            f'<rect x="{box.left:.1f}" y="{y + 1:.1f}" width="{width - gap:.1f}" height="{ROW - 2}"'
            f' rx="{min(2, width / 3):.1f}" fill="{fill}"{edge}><title>{escape(tip)}</title></rect>'
        )
        room = int((width - 6) / CHARACTER)
        if room >= 5 and len(box.calls) == 1:
            label = call.name if len(call.name) <= room else call.name[: room - 1] + "…"
            self.text(box.left + 3, y + 13, label, size=10.5)

    def instant(self, instant: pftrace.Slice, y: float, height: float) -> None:
        x = self.x(instant.begin)
        colour = "#a40e26" if instant.category == "unfinished" else FAINT
        self.parts.append(
            f'<path d="M{x:.1f} {y + height:.1f}l-3.5 6h7z" fill="{colour}">'
            f"<title>{escape(instant.name)}</title></path>"
        )

    def frame(self, title: str, bottom: float, calls: int, threads: int, processes: int) -> str:
        body, self.parts = self.parts, []
        ledger = next((event.notes for event in self.trace.instants if "rows" in event.notes), None)
        counts = f"{calls:,} API calls on {plural(threads, 'thread')} of {plural(processes, 'process', 'es')}"
        if ledger:
            counts += f", {ledger['lost']:,} of {ledger['seen']:,} lost"
        if calls < len(self.trace.slices):
            counts += f" ({len(self.trace.slices):,} calls in the whole trace)"
        if self.merged:
            counts += f"; {self.merged:,} are too short to be drawn apart at this scale"
        self.rectangle(0, 0, WIDTH, bottom + 40, "#ffffff")
        self.text(12, 24, title, size=15, weight=600)
        self.text(12, 44, counts, size=11.5, fill=FAINT)
        x = LABELS
        for domain, (fill, meaning) in [*COLOURS.items(), ("", OTHER)]:
            if domain in self.domains:
                self.rectangle(x, 55, 11, 11, fill)
                self.text(x + 15, 65, meaning, size=11)
                x += 32 + 6.3 * len(meaning)
        for y, height in self.bands:
            self.rectangle(LABELS, y, WIDTH - LABELS - RIGHT, height, BAND)
        self.axis(bottom)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 40:.0f}"'
            f' viewBox="0 0 {WIDTH} {bottom + 40:.0f}" font-family="{FONT}">'
        )
        return "\n".join([head, *self.parts, *body, "</svg>", ""])

    def axis(self, bottom: float) -> None:
        step = tick((self.end - self.begin) / 1e6)
        number = math.ceil((self.begin - self.first) / 1e6 / step)
        while (time := self.first + number * step * 1e6) <= self.end:
            x = self.x(time)
            self.parts.append(f'<path d="M{x:.1f} {TOP - 4}V{bottom}" stroke="#d0d7de" stroke-width="1"/>')
            self.text(x, bottom + 14, f"{number * step:g}", size=10.5, fill=FAINT, anchor="middle")
            number += 1
        self.text(WIDTH - RIGHT, bottom + 30, "ms after the first call", size=10.5, fill=FAINT, anchor="end")

    def x(self, time: float) -> float:
        return LABELS + (time - self.begin) * self.scale

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
        )

    def text(
        self, x: float, y: float, text: str, size: float, fill: str = INK, weight: int = 400, anchor: str = "start"
    ) -> None:
        style = f' font-weight="{weight}"' if weight != 400 else ""
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}"{style}>{escape(text)}</text>'
        )


def plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count} {noun}{'' if count == 1 else ending}"


def tick(span: float) -> float:
    """A round distance of ticks, so that there are five to twelve of them in `span`."""
    step = 10.0**-6
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= 12:
                return step * factor
        step *= 10


if __name__ == "__main__":
    sys.exit(main())
