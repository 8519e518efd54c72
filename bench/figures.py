# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pairs of measurements, what they amount to, and the table that shows it."""
import math
import statistics
from dataclasses import dataclass, field


def median_interval(values, confidence=0.95):
    """Order statistics between which the true median lies with at least that confidence (the whole range when there
    are too few values), whatever the distribution."""
    ordered = sorted(values)
    n = len(ordered)
    tail = 0.0
    outside = 0  # how many values may be left off at each end
    for k in range(n // 2):
        tail += math.comb(n, k) / 2 ** n
        if 2 * tail > 1 - confidence:
            break
        outside = k
    return ordered[outside], ordered[n - 1 - outside]


@dataclass
class Row:
    """One line of the table. A rate is better when larger, a time when smaller."""
    name: str
    unit: str
    ours: list
    theirs: list = field(default_factory=list)
    peer: str = ""
    target: float = None     # of the ratio; without a peer, of our own value. None: reported, not gated
    at_most: bool = False    # the target is an upper bound
    smaller_is_better: bool = False
    remark: str = ""

    @property
    def ratios(self):
        """Pair by pair, so written that larger is better."""
        if self.smaller_is_better and not self.at_most:
            return [b / a for a, b in zip(self.ours, self.theirs)]
        return [a / b for a, b in zip(self.ours, self.theirs)]

    @property
    def value(self):
        """What the target is set against."""
        return statistics.median(self.ratios if self.theirs else self.ours)

    @property
    def verdict(self):
        if self.target is None:
            return "reported"
        shown = round(self.value, 2)  # what the table says is what counts
        return "pass" if (shown <= self.target if self.at_most else shown >= self.target) else "FAIL"

    def as_json(self):
        row = {"name": self.name, "unit": self.unit, "pairs": len(self.ours), "verdict": self.verdict,
               "ours": {"median": statistics.median(self.ours), "values": self.ours}}
        if self.theirs:
            low, high = median_interval(self.ratios)
            row["peer"] = {"name": self.peer, "median": statistics.median(self.theirs), "values": self.theirs}
            row["ratio"] = {"median": self.value, "interval_95": [low, high],
                            "least": min(self.ratios), "most": max(self.ratios)}
        if self.target is not None:
            row["target"] = {"at_most" if self.at_most else "at_least": self.target}
        if self.remark:
            row["remark"] = self.remark
        return row


def number(value):
    """Three digits that matter."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def amount(value, unit):
    return f"{number(value)} {unit}"


def spread(values):
    """Fewer than six values give no interval of that confidence, only their range; one gives neither."""
    low, high = median_interval(values)
    interval = f"{number(low)}–{number(high)} " if len(values) >= 6 else ""
    return interval + f"({number(min(values))}–{number(max(values))})" if len(values) > 1 else ""


def target_text(row):
    if row.target is None:
        return ""
    sign = "≤" if row.at_most else "≥"
    return f"{sign} {row.target:g}" + (f" {row.unit}" if not row.theirs else "")


def heading():
    return ("| what | ours | peer | ratio | 95 % (range) | target | |\n"
            "|---|---:|---:|---:|---|---|---|")


def line(row):
    theirs = f"{amount(statistics.median(row.theirs), row.unit)}, {row.peer}" if row.theirs else ""
    ratio = number(row.value) if row.theirs else ""
    name = row.name + (f" ({row.remark})" if row.remark else "")
    return (f"| {name} | {amount(statistics.median(row.ours), row.unit)} | {theirs} | {ratio} | "
            f"{spread(row.ratios if row.theirs else row.ours)} | {target_text(row)} | {row.verdict} |")
