"""BLEU by the length of the source: does a translator lose its way in long sentences?

Sentences are sorted into bins of source length, in words, of about as many sentences each. In every bin each system
has its BLEU with an interval that holds 95% of bootstrap resamples of that bin's sentences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from matplotlib.figure import Figure

from seqloom.core.errors import DataError, UsageError
from seqloom.inspection.drawing import SERIES, new_axes
from seqloom.inspection.findings import Finding
from seqloom.metrics.translation import Bleu, Bootstrap, Score, check_counts, score, tokenize_for


@dataclass(frozen=True)
class Bin:
    """Sentences whose source has between `shortest` and `longest` words, both included."""

    shortest: int
    longest: int
    lines: tuple[int, ...]
    """Their numbers, from 0."""

    @property
    def name(self) -> str:
        return str(self.shortest) if self.shortest == self.longest else f"{self.shortest}–{self.longest}"


def bins_of(lengths: Sequence[int], *, bins: int = 8) -> list[Bin]:
    """At most so many bins of about as many sentences each. Every sentence is in one; equal lengths stay together."""
    if bins < 1:
        raise UsageError(f"sentences cannot be sorted into {bins} bins; give 1 or more")
    order = sorted(range(len(lengths)), key=lambda line: lengths[line])
    found: list[Bin] = []
    begin = 0
    while begin < len(order):
        end = max(begin + 1, round((len(found) + 1) * len(order) / bins)) if len(found) + 1 < bins else len(order)
        while end < len(order) and lengths[order[end]] == lengths[order[end - 1]]:
            end += 1
        lines = order[begin:end]
        found.append(Bin(lengths[lines[0]], lengths[lines[-1]], tuple(sorted(lines))))
        begin = end
    return found


def source_lengths(sources: Sequence[str], *, language: str | None = None) -> list[int]:
    """Words of each line; characters, in a language that is written without spaces."""
    if tokenize_for(language) == "13a":
        return [len(line.split()) for line in sources]
    return [len("".join(line.split())) for line in sources]


def bottleneck_from(
    hypotheses: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    sources: Sequence[str],
    source_language: str | None = None,
    target_language: str | None = None,
    lowercase: bool = False,
    bins: int = 8,
    bootstrap: Bootstrap | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Finding:
    """BLEU by source length of the translations of some systems, by name. `settings` are kept with the numbers."""
    _check(hypotheses, references, sources)
    bootstrap = Bootstrap(seed=1) if bootstrap is None else bootstrap
    metric = Bleu(tokenize=tokenize_for(target_language), lowercase=lowercase)
    sorted_in = bins_of(source_lengths(sources, language=source_language), bins=bins)
    unit = "words" if tokenize_for(source_language) == "13a" else "characters"

    def score_of(lines: Sequence[str], chosen: Sequence[int]) -> Score:
        wanted = [references[line] for line in chosen]
        return score(metric, [lines[line] for line in chosen], references=wanted, bootstrap=bootstrap)

    everything = range(len(references))
    whole = {name: score_of(lines, everything) for name, lines in hypotheses.items()}
    by_bin = {name: [score_of(lines, each.lines) for each in sorted_in] for name, lines in hypotheses.items()}
    data: dict[str, Any] = {
        **(settings or {}),
        "unit": unit,
        "bins": [
            {"shortest": each.shortest, "longest": each.longest, "sentences": len(each.lines)} for each in sorted_in
        ],
        "systems": [
            {"system": name, "whole": asdict(whole[name]), "by_bin": [asdict(each) for each in by_bin[name]]}
            for name in hypotheses
        ],
    }
    sentence = _sentence(sorted_in, by_bin, unit=unit)
    return Finding(
        "bottleneck",
        "BLEU by the length of the source",
        sentence,
        data,
        lambda: _draw(sorted_in, by_bin, whole=whole, unit=unit),
    )


def _check(hypotheses: Mapping[str, Sequence[str]], references: Sequence[str], sources: Sequence[str]) -> None:
    if not hypotheses:
        raise UsageError("there is no system to look at; give the translations of one or more, each by a name")
    for name, lines in hypotheses.items():
        try:
            check_counts(lines, references)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    if len(sources) != len(references):
        raise DataError(
            f"{len(sources)} source lines, but {len(references)} references; lengths are counted line by line, so give "
            "the file that was translated"
        )


def _sentence(bins: Sequence[Bin], by_bin: Mapping[str, Sequence[Score]], *, unit: str) -> str:
    if len(bins) == 1:
        told = ", ".join(f"{scores[0].value:.1f} ({name})" for name, scores in by_bin.items())
        return f"All sources have {bins[0].name} {unit}; BLEU is {told}."
    changes = ", ".join(f"from {_told(scores[0])} to {_told(scores[-1])} ({name})" for name, scores in by_bin.items())
    sentence = (
        f"From sources of {bins[0].name} {unit} to those of {bins[-1].name}, BLEU goes {changes}; in brackets are 95% "
        "bootstrap intervals."
    )
    if len(by_bin) != 2:
        return sentence
    (first, ones), (second, others) = by_bin.items()
    gaps = [one.value - other.value for one, other in zip(ones, others, strict=True)]
    more = [place for place, gap in enumerate(gaps) if gap > 0]
    return (
        f"{sentence} The difference, {first} minus {second}, is {_signed(gaps[0])} in the shortest bin and "
        f"{_signed(gaps[-1])} in the longest, and above 0 in {len(more)} of {len(bins)}."
    )


def _told(found: Score) -> str:
    low, high = found.interval or (found.value, found.value)
    return f"{found.value:.1f} [{low:.1f}, {high:.1f}]"


def _signed(value: float) -> str:
    """With a minus sign that is as long as a plus."""
    return f"{value:.1f}".replace("-", "−")


def _draw(
    bins: Sequence[Bin], by_bin: Mapping[str, Sequence[Score]], *, whole: Mapping[str, Score], unit: str
) -> Figure:
    figure, axes = new_axes(width=max(7.2, 1.6 + 0.85 * len(bins)))
    marks = ("o", "s", "^", "D", "v", "P")
    for number, (name, scores) in enumerate(by_bin.items()):
        colour, mark = SERIES[number % len(SERIES)], marks[number % len(marks)]
        places = [place + 0.1 * (number - (len(by_bin) - 1) / 2) for place in range(len(bins))]
        intervals = [found.interval or (found.value, found.value) for found in scores]
        axes.vlines(places, [low for low, _ in intervals], [high for _, high in intervals], color=colour, linewidth=1.2)
        label = f"{name} (all sentences: {whole[name].value:.1f})"
        axes.plot(
            places, [found.value for found in scores], color=colour, marker=mark, ms=5, linewidth=1.6, label=label
        )
    axes.set_xticks(range(len(bins)), [f"{each.name}\n{len(each.lines)}" for each in bins])
    axes.set_xlabel(f"{unit} of the source; below: number of sentences")
    axes.set_ylabel("BLEU")
    axes.set_ylim(bottom=0)
    figure.legend(frameon=False, loc="outside upper center", ncols=min(3, len(by_bin)), fontsize=9)
    return figure
