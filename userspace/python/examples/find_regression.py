"""Which kernels became slower between two captures: find_regression.py BEFORE.gtcap AFTER.gtcap"""

import sys

import gputrace


def mean_durations(path):
    columns = ["name", "duration"]
    kernels = gputrace.read(path).table("kernels", columns=columns).to_pandas()
    # Durations that are not known are null, and left out.
    by_name = kernels.dropna().groupby("name", observed=True)["duration"]
    return by_name.agg(["count", "mean"])


def main(before, after):
    slower = mean_durations(after).add_suffix("_after")
    both = mean_durations(before).add_suffix("_before").join(slower)
    both["change_%"] = 100 * (both["mean_after"] / both["mean_before"] - 1)
    print(both.sort_values("change_%", ascending=False).to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
