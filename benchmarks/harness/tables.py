"""Tables in Markdown."""

import statistics
from collections.abc import Sequence

from harness.flops import Flops
from harness.rounds import Measured
from harness.toolkits import Beside


def training_table(
    measured: Sequence[Measured], beside: Sequence[Beside], *, flops: Flops, peaks: Sequence[float]
) -> list[str]:
    """Rates, their range, and the share of each round's peak that went into useful arithmetic."""
    lines = [
        "| contestant | version | parameters | target tokens/s | range | share of peak |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for each in measured:
        rounds = zip(each.source_tokens, each.tokens, each.seconds, peaks, strict=True)
        shares = [
            flops.of(source_tokens=source, target_tokens=target) / seconds / peak
            for source, target, seconds, peak in rounds
        ]
        lines.append(
            f"| {each.name} | {each.facts['version']} | {each.facts['parameters']:,} | {each.rate:,.0f} "
            f"| {min(each.rates):,.0f} – {max(each.rates):,.0f} | {statistics.median(shares):.0%} |"
        )
    for other in beside:
        if other.rates:
            span = f"{min(other.rates):,.0f} – {max(other.rates):,.0f}"
            lines.append(f"| {other.name}, beside | | | {other.rate:,.0f} | {span} | |")
        else:
            lines.append(f"| {other.name} | {other.reason} | | | | |")
    return lines
