"""The rungs of each task, from counting to a Transformer, and how the minutes are divided among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.declaration import Purpose
from seqloom.core.errors import UsageError

MIN_NEURAL_MINUTES = 0.3
"""Minutes below which a neural network learns nothing worth a place in the table."""

FEW_PAIRS = 50
"""Pairs below which only rungs that can learn from so few are climbed."""

REPORT_SHARE = 0.05
"""Share of the budget that is kept for translating the test set with each rung and for the report."""

CURVE_SIZES = (1_000, 5_000, 20_000)
"""Pairs of the learning curves, besides all of them."""


@dataclass(frozen=True)
class Rung:
    """A way to learn translation: the settings of a run, and what it costs."""

    name: str
    """Names its folder and its row."""
    overrides: tuple[str, ...] = ()
    config: Path | None = None
    """A config file, for rungs of the user's own."""
    is_counted: bool = False
    """Whether it counts, and takes the time it takes, or is trained until its minutes are over."""
    is_twin: bool = False
    """Of counted rungs: whether it is fitted within the comparison, in seconds, and is no run."""
    share: float = 1.0
    """Its part of the minutes for trained rungs, in proportion to the others."""
    minutes: float = 0.1
    """Counted rungs: minutes for a corpus of any size, roughly."""
    minutes_per_thousand: float = 0.0
    """Counted rungs: the same for each thousand pairs."""
    learns_from_few: bool = False
    """Whether it can learn something from less than `FEW_PAIRS` pairs."""
    sentence: str = ""
    """What it is, for the report."""

    def expected_minutes(self, pairs: int) -> float:
        """About how long a counted rung takes."""
        return self.minutes + self.minutes_per_thousand * pairs / 1000


LADDER = (
    Rung(
        "dictionary",
        ("model.kind=dictionary",),
        is_counted=True,
        minutes_per_thousand=0.01,
        learns_from_few=True,
        sentence="each word is replaced by its likeliest translation; the order of the words stays",
    ),
    Rung(
        "channel",
        ("model.kind=channel",),
        is_counted=True,
        minutes=0.3,
        minutes_per_thousand=0.04,
        learns_from_few=True,
        sentence="the noisy channel: translations of single words, weighed with an n-gram model of the target",
    ),
    Rung(
        "phrases",
        ("model.kind=phrases",),
        is_counted=True,
        minutes=0.6,
        minutes_per_thousand=0.2,
        sentence="phrases of several words with reordering and an n-gram model, weights tuned on the dev set",
    ),
    Rung(
        "rnn",
        ("model.kind=seq2seq", "model.attention=none"),
        share=0.15,
        sentence="a recurrent encoder and decoder, which pass the sentence through one vector",
    ),
    Rung(
        "attention",
        ("model.kind=seq2seq",),
        share=0.25,
        sentence="the same with attention to the source words",
    ),
    Rung(
        "transformer",
        ("model.kind=transformer",),
        share=0.6,
        sentence="attention alone, with all positions read at once",
    ),
)
"""The history of the field, in its order."""


def _twin(name: str, sentence: str) -> Rung:
    return Rung(name, is_counted=True, is_twin=True, learns_from_few=True, sentence=sentence)


def _network(name: str, overrides: tuple[str, ...], sentence: str, *, share: float = 1.0) -> Rung:
    return Rung(name, overrides, share=share, learns_from_few=True, sentence=sentence)


TAGGING = (
    _twin("majority", "each word gets the tag that it has most often"),
    _twin("hmm", "a hidden Markov model of tags, of second order, with endings for unknown words"),
    _network("window", ("model.encoder=window",), "a network that sees two words on each side", share=0.5),
    _network("one-way", ("model.directions=1",), "a recurrent network that reads from left to right"),
    _network("two-way", (), "a recurrent network that reads both ways"),
    _network("crf", ("model.output=crf",), "the same, with the tags of a sentence chosen together", share=1.5),
    _network("transformer", ("model.encoder=transformer",), "attention between all words"),
)

CLASSIFICATION = (
    _twin("majority", "every text gets the most frequent label"),
    _twin("bayes", "naive Bayes over n-grams of words"),
    _network("bert", ("model.kind=bert",), "a Transformer encoder with a head of classes, from random weights"),
)

FORECASTING = (
    _twin("last", "the last value"),
    _twin("season", "the values of the last period"),
    _twin("average", "the mean of the last period, or of ten rows"),
    _twin("ridge", "a linear map of a window, by least squares; its length is chosen on the dev rows"),
    _network("linear", ("model.design=linear",), "the same map, trained in steps", share=0.5),
    _network("mlp", ("model.design=mlp",), "a window with a hidden layer", share=0.5),
    _network("recurrent", ("model.design=recurrent",), "a recurrent network over the history"),
    _network("transformer", ("model.design=transformer",), "attention between patches of the history"),
)

LADDERS: Mapping[str, tuple[Rung, ...]] = {
    "translation": LADDER,
    "tagging": TAGGING,
    "classification": CLASSIFICATION,
    "forecasting": FORECASTING,
}
"""The rungs by the kind of the task, as task.kind names it."""

PURPOSES: Mapping[str, tuple[Purpose, str]] = {
    "translation": ("translator", "translate"),
    "tagging": ("tagger", "tag words"),
    "classification": ("classifier", "classify"),
    "forecasting": ("forecaster", "forecast"),
}
"""What a model of a task is, and what it does, for messages."""


def choose_rungs(names: Sequence[str], own: Sequence[Path], *, kind: str = "translation") -> tuple[Rung, ...]:
    """The rungs of these names (all without any), and one for each config file of the user's own."""
    ladder = LADDERS[kind]
    known = {rung.name: rung for rung in ladder}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown rung {name!r}; the rungs are {', '.join(known)}, and --rung adds a config file")
    chosen = [rung for rung in ladder if not names or rung.name in names]
    for path in own:
        name = path.stem
        if name in {rung.name for rung in chosen}:
            raise UsageError(f"--rung {path}: there is a rung named {name} already; rename the file")
        chosen.append(own_rung(name, path, kind=kind))
    return tuple(chosen)


def own_rung(name: str, path: Path, *, kind: str = "translation") -> Rung:
    """The rung of a config file; whether it counts or is trained follows from its model."""
    from seqloom.core.config import resolve
    from seqloom.runs.config import RunConfig

    config = resolve(RunConfig, defaults={} if kind == "translation" else {"task": {"kind": kind}}, file=path)
    purpose, verb = PURPOSES[kind]
    if config.purpose != purpose:
        raise UsageError(f"--rung {path}: model.kind={config.model.kind} does not {verb}; choose another model")
    return Rung(
        name,
        config=path,
        is_counted=config.model.is_fitted,
        share=0.4 if kind == "translation" else 1.0,
        learns_from_few=kind != "translation",
        minutes_per_thousand=0.2 if config.model.is_fitted else 0.0,
        sentence=f"the settings of {path.name}",
    )


def refused(rung: Rung, *, pairs: int, left: float | int) -> str | None:
    """Why a rung is not climbed with so many pairs and minutes left, as a sentence; None if it is."""
    if pairs < FEW_PAIRS and not rung.learns_from_few:
        return f"{pairs:,} pairs are too few; it needs at least {FEW_PAIRS}"
    if rung.is_counted and rung.expected_minutes(pairs) > left:
        return (
            f"it takes about {rung.expected_minutes(pairs):.1f} minutes with {pairs:,} pairs, and {max(0.0, left):.1f} "
            "are left; raise --minutes"
        )
    if not rung.is_counted and left < MIN_NEURAL_MINUTES:
        return (
            f"its share of the budget, {max(0.0, left):.1f} minutes, is below {MIN_NEURAL_MINUTES:g}; raise --minutes"
        )
    return None


def share_minutes(rungs: Sequence[Rung], left: float | int) -> Mapping[str, float]:
    """The minutes of each trained rung among these, of those that are left for all of them."""
    trained = [rung for rung in rungs if not rung.is_counted]
    total = sum(rung.share for rung in trained)
    return {rung.name: max(0.0, left) * rung.share / total for rung in trained}
