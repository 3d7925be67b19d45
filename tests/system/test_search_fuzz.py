"""Odd requests: every one gives a translation or a sentence that says what is wrong; never a crash, a NaN or a hang."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seqloom.apps.request import ConstraintSet
from seqloom.apps.translator import Translator
from seqloom.core.errors import ConfigError, SeqloomError
from seqloom.data.phrasebook import sample_pairs
from seqloom.runs.train import train
from seqloom.search.settings import SearchConfig

SETTINGS: dict[str, Sequence[Any]] = {
    "beam": (1, 2, 3, 5, 8, 0, -1, 10**9),
    "nbest": (1, 2, 4, 0, 10**9),
    "stop": ("exact", "first", "k_finished", "never"),
    "length_normalisation": ("none", "mean", "power", "gnmt", "avg"),
    "alpha": (0.0, 0.6, 2.0, 10.0, -1.0, math.nan, math.inf),
    "reward": (0.0, 0.5, -0.5, 100.0, math.nan),
    "coverage": (0.0, 0.2, 5.0, -1.0),
    "coverage_floor": (1e-4, 1.0, 0.0),
    "end_normalisation": (0.0, 0.5, 3.0),
    "end_kind": ("multiply", "add"),
    "shortest_factor": (0.0, 0.5, 3.0),
    "shortest_constant": (0, 3, 50),
    "no_repeat": (0, 1, 2, 3),
    "repetition_penalty": (1.0, 1.5, 0.0),
    "never": ((), (0, 7), (10**6,)),
    "groups": (1, 2, 3),
    "diversity": (0.0, 0.5, 50.0),
    "mode": ("seqloom", "seqloom", "ctranslate2", "huggingface", "opennmt-lua", "opennmt-py", "fairseq", "marian"),
    "peer_length_penalty": (None, 0.0, 1.0, -2.0),
    "peer_early_stopping": (False, True, "never"),
    "peer_forced_end": (False, True),
    "rerank": ("none", "agreement"),
    "method": ("beam", "beam", "sample"),
    "temperature": (0.0, 0.5, 1.0, 50.0, -1.0),
    "top_k": (0, 1, 5, 10**6),
    "top_p": (1.0, 0.5, 0.01, 0.0),
    "min_p": (0.0, 0.3, 1.0, 2.0),
    "seed": (1, 0, 2**63),
    "length_factor": (0.0, 0.5, 1.0, 2.0),
    "length_constant": (0, 1, 4, 10),
    "tokens_per_batch": (1, 7, 64, 4096),
}
WORDS = (
    "the",
    "cat",
    "Haus",
    "der",
    "",
    " ",
    "\t",
    "\0",
    "\u200b",
    "😀",
    "ß",
    "ﬁ",
    "中文",
    "\ud7ff",
    "a" * 60,
    ".",
    "<s>",
    "</s>",
)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """Barely trained, so that its outputs wander."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    names = []
    for split, size in (("train", 80), ("dev", 10)):
        pairs = sample_pairs("en", "de", count=size, seed=3, split=split)  # type: ignore[arg-type]
        for side in ("source", "target"):
            path = folder / f"{split}.{side}"
            path.write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
            names.append(str(path))
    overrides = (
        *("text.size=150", "model.width=8", "model.feed_forward=8", "model.heads=2", "data.longest=20"),
        *("model.encoder_layers=1", "model.decoder_layers=1", "training.steps=2", "training.warmup=1"),
    )
    trained = train(None, overrides, out=folder / "run", train=names[:2], dev=names[2:])
    assert trained is not None
    return Translator.load(trained.model)


def some_line(draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.choice((0, 1, 2, 3, 5, 15))))


def some_words(draw: random.Random) -> tuple[str, ...]:
    return tuple(draw.choice(WORDS) for _ in range(draw.choice((0, 0, 0, 1, 2))))


def some_constraints(draw: random.Random) -> ConstraintSet | None:
    if draw.random() < 0.6:
        return None
    prefix = draw.choice(("", "", "der", "der Hund", "\0"))
    return ConstraintSet(prefix, some_words(draw), some_words(draw), some_words(draw))


def ask(translator: Translator, number: int) -> str:
    """One request; what became of it."""
    draw = random.Random(number)
    names = draw.sample(sorted(SETTINGS), draw.choice((0, 1, 2, 3, 6)))
    given = {name: draw.choice(SETTINGS[name]) for name in names}
    lines = [some_line(draw) for _ in range(draw.choice((0, 1, 2, 4)))]
    constraints = [some_constraints(draw) for _ in lines] if draw.random() < 0.5 else None
    about = f"request {number}: {given}, {lines!r}, {constraints}"
    try:
        # As a user's settings come: on top of small limits, so that no request may take long.
        settings = SearchConfig(**{"length_factor": 1.0, "length_constant": 4, "beam": 3, **given})
    except ConfigError:
        return "refused settings"
    if settings.beam * settings.nbest > 100 or settings.nbest > 50:
        return "too large to try"
    try:
        found = translator.search(lines, search=settings, constraints=constraints)
    except SeqloomError as error:
        return "refused" if str(error).strip() else f"refused without a word: {about}"
    assert len(found) == len(lines), about
    for translations in found:
        assert translations, about
        for translation in translations:
            assert isinstance(translation.text, str)
            assert translation.score is None or not math.isnan(translation.score), about
            for hypothesis in translation.hypotheses:
                assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score, abs=1e-6), about
    return "translated"


def check(translator: Translator, numbers: range) -> dict[str, int]:
    outcomes: dict[str, int] = {}
    for number in numbers:
        outcome = ask(translator, number)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_odd_requests_end_well(translator: Translator) -> None:
    outcomes = check(translator, range(40))
    assert outcomes["translated"] > 10
    assert outcomes["refused"] > 0
    assert outcomes["refused settings"] > 1


@pytest.mark.slow
def test_ten_thousand_odd_requests_end_well(translator: Translator) -> None:
    outcomes = check(translator, range(1_000, 11_000))
    assert outcomes["translated"] > 3_000
