"""What the timings of recurrent layers say: a table, and the claims."""

import statistics
from collections.abc import Mapping, Sequence

from harness.layer_rounds import Timings
from harness.layers import CASES, CELL_LOOP, LOOP_GOAL, MEMORY_GOAL, PEAK, PEERS, SELDOM, Case, Extent, loop_name
from harness.ratios import Claim, claim, claim_of_sizes

Memory = Mapping[str, Sequence[int]]
"""Bytes of each layer, once per repetition."""

COUNTING = (
    "GFLOP/s count useful products, 2 H (2 G I + 3 (G + P) H) flops a token, which is 2 G H (2 (I + H) + H) where "
    "P = 0: inputs of I = H numbers need no gradient; G = 4 for LSTM and peephole, 3 for coupled and GRU, 1 for Elman; "
    "P = 3 for the full peephole; + 2 H I for GRU input, whose gate needs a gradient through one input matrix."
)


def claims_of_layers(extent: Extent, timings: Timings, memory: Memory | None) -> list[Claim]:
    """For each cell with a goal: GFLOP/s beside torch's layer, speed beside the plain loop, memory beside torch's."""
    cases = [case for case in CASES if case.has_goal]
    claims = []
    for case in cases:
        what = "" if case.is_torch_formula else " GFLOP/s"
        about = f"{case.name} {extent.width}{what} vs {case.peer}"
        claims.append(claim(*timings.pairs(case.name, case.peer), goal=case.goal(extent.width), about=about))
    for case in cases:
        about = f"{case.name} {extent.width} vs its plain loop"
        claims.append(claim(*timings.pairs(case.name, loop_name(case)), goal=LOOP_GOAL, about=about))
    if memory is None:
        return claims
    for case in cases:
        about = f"{case.name} {extent.width} peak memory vs {case.peer}"
        claims.append(claim_of_sizes(memory[case.name], memory[case.peer], at_most=MEMORY_GOAL, about=about))
    return claims


def report_layers(extent: Extent, timings: Timings, memory: Memory | None, *, rounds: int, version: str) -> None:
    """Print heading and table."""
    low, high = timings.span(PEAK)
    print(
        f"\n### Layers, batch {extent.batch}, time {extent.time}, width {extent.width}\n\nForward and backward pass in "
        f"float32, {version}, inputs of [batch, time, width]. {COUNTING} Peak: {timings.rate(PEAK) / 1e9:.0f} GFLOP/s "
        f"({low / 1e9:.0f} – {high / 1e9:.0f}), sgemm in the same rounds. Medians of {rounds} rounds; cells with layer "
        f"norm have no goal and are measured in one round of {SELDOM}. The plain loop goes over the same cell step by "
        "step (nn.LSTM: over nn.LSTMCell). Memory is the peak over what is resident before the call"
        + (".\n" if memory else "; not measured: this system does not tell it.\n")
    )
    lines = [
        "| layer | tokens/s | GFLOP/s | range | share of peak | to torch | plain loop, GFLOP/s | its share of peak "
        "| memory, MB | to torch |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for peer, matrices in PEERS.items():
        per_token = matrices.flops(input_width=extent.width, width=extent.width)
        loop = CELL_LOOP if peer == "nn.LSTM" else None
        lines.append(_row(peer, timings, memory, per_token=per_token, loop=loop, peer=None))
        for case in (case for case in CASES if case.peer == peer):
            lines.append(_case_row(case, extent, timings, memory))
    print("\n".join(lines), flush=True)


def _case_row(case: Case, extent: Extent, timings: Timings, memory: Memory | None) -> str:
    per_token = case.matrices.flops(input_width=extent.width, width=extent.width)
    return _row(case.name, timings, memory, per_token=per_token, loop=loop_name(case), peer=case.peer)


def _row(
    name: str, timings: Timings, memory: Memory | None, *, per_token: int, loop: str | None, peer: str | None
) -> str:
    rate, (low, high) = timings.rate(name), timings.span(name)
    cells = [
        name,
        f"{rate / per_token:,.0f}",
        f"{rate / 1e9:.1f}",
        f"{low / 1e9:.1f} – {high / 1e9:.1f}",
        f"{timings.share_of_peak(name):.0%}",
        "" if peer is None else f"{timings.ratio(name, peer):.2f}",
        "" if loop is None else f"{timings.rate(loop) / 1e9:.1f}",
        "" if loop is None else f"{timings.share_of_peak(loop):.0%}",
    ]
    if memory:
        taken = statistics.median(memory[name])
        cells += [
            f"{taken / 2**20:.1f}",
            "" if peer is None else f"{taken / statistics.median(memory[peer]):.2f}",
        ]
    else:
        cells += ["", ""]
    return f"| {' | '.join(cells)} |"
