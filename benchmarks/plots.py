"""Draw what ``run.py`` measured: ``python plots.py RESULTS.json FOLDER``, in the environment ``report``."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

matplotlib.rcParams["svg.hashsalt"] = "corpusbuild"
OURS, OTHERS = "#1f6feb", "#8b949e"


def chart(section, folder):
    """A bar for each tool, ours in another colour, on a scale of powers of ten where they are far apart."""
    names, values = zip(*section["chart"].items(), strict=True)
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.38 * len(names)))
    colours = [OURS if "corpusbuild" in name or section["axis"] != "MB/s" else OTHERS for name in names]
    bars = axes.barh(names[::-1], values[::-1], color=colours[::-1])
    if min(values) > 0 and max(values) > 50 * min(values):
        axes.set_xscale("log")
    axes.bar_label(bars, [f"{value:.3g}" for value in values[::-1]], padding=3)
    axes.margins(x=0.15)
    axes.set_xlabel(section["axis"])
    axes.set_title(section["title"], fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / f"{section['name']}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    results, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for section in results:
        if section["chart"]:
            chart(section, folder)
