"""Reads an OTF2 archive with OTF2's own Python module (Debian package python3-otf2).

    otf2_check.py ARCHIVE.otf2 [--json]

Prints how many regions each category has; exit status 1 if a rule is broken, 77 if there is no module.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

TIMED = ("kernel_dispatch", "memory_copy")
# Qualities of work that may be without a duration.
UNDRAWN = ("sampled", "bounded", "submitted")


def problems(trace: Any, otf2: Any, counts: Counter[str]) -> Iterator[str]:
    stacks: dict[Any, list[Any]] = defaultdict(list)
    last: dict[Any, int] = {}
    seen: Counter[Any] = Counter()
    for location, event in trace.events:
        seen[location] += 1
        if event.time < last.get(location, 0):
            yield f"{location.name}: time goes back to {event.time}"
        last[location] = event.time
        stack = stacks[location]
        if isinstance(event, otf2.events.Enter):
            notes = {attribute.name: value for attribute, value in (event.attributes or {}).items()}
            category = notes.get("category")
            counts[category] += 1
            if not category:
                yield f"{event.region.name} at {event.time} has no category"
            work = category in TIMED or category == "untimed"
            if work != (location.type == otf2.LocationType.ACCELERATOR_STREAM):
                yield f"{event.region.name} of {category} is on {location.name}"
            quality = notes.get("quality")
            if quality not in (("exact", "sampled") if category in TIMED else (None, *UNDRAWN)):
                yield f"{event.region.name} of {category} has quality {quality}"
            if ("end_uncertainty" in notes) > (category in TIMED):
                yield f"{event.region.name} of {category} says how well its end is known"
            if stack and work:
                yield f"{event.region.name} is inside {stack[-1].name} on {location.name}"
            if "unfinished" in notes:
                counts["unfinished"] += 1
            stack.append(event.region)
        elif isinstance(event, otf2.events.Leave):
            if not stack or stack.pop() != event.region:
                yield f"{location.name}: {event.region.name} ends, but did not begin"
        elif isinstance(event, otf2.events.Metric):
            counts["metric"] += 1
            if location.type != otf2.LocationType.METRIC:
                yield f"a metric is on {location.name}"
        else:
            yield f"{location.name}: {event}"
    for location, stack in stacks.items():
        yield from (f"{location.name}: {region.name} does not end" for region in stack)
    for location in trace.definitions.locations:
        if location.number_of_events != seen[location]:
            yield f"{location.name} says {location.number_of_events} events, has {seen[location]}"
        kind = location.group.location_group_type
        stream = location.type == otf2.LocationType.ACCELERATOR_STREAM
        metric = location.type == otf2.LocationType.METRIC
        if not metric and stream != (kind == otf2.LocationGroupType.ACCELERATOR):
            yield f"{location.name} is in the group {location.group.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    try:
        import otf2
    except ImportError as error:
        print(f"SKIPPED: {error}", file=sys.stderr)
        return 77
    counts: Counter[str] = Counter()
    with otf2.reader.open(options.archive) as trace:
        found = list(problems(trace, otf2, counts))
    for problem in found:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(counts))
    else:
        for what, count in sorted(counts.items()):
            print(f"{count:10} {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
