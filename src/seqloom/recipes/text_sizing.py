"""Zero-config for language models and word vectors: sizes chosen from the text, each with its reason."""

import sys
from dataclasses import dataclass
from typing import Any

from seqloom.data.text import TextCorpus
from seqloom.recipes.sizing import SAMPLE, Kind, Reason, Sizing, round_figure, training_reasons
from seqloom.text.kinds import Segmentation, word_cutter
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.training import ALL_CHARACTERS, ALL_WORDS


@dataclass(frozen=True)
class TextFacts:
    """What the sizes are chosen from."""

    lines: int
    characters: int
    """Of the whole text, by the lines that were looked at."""
    words: int
    """Likewise, cut as they will be: marks are words of their own unless words are what stands between spaces."""

    def tokens(self, kind: Kind) -> int:
        """About how many tokens the text has if it is cut this way, the end of each line counted."""
        # A piece is about four letters.
        pieces = {"char": self.characters, "word": self.words}
        return pieces.get(kind, self.characters // 4) + self.lines


EXTREMES = (TextFacts(10, 500, 100), TextFacts(40_000, 2_000_000, 450_000), TextFacts(10**8, 6 * 10**9, 10**9))
"""Texts from tiny to huge, to see which choices depend on the text at all."""


def text_facts(corpus: TextCorpus, *, segmentation: Segmentation = "words") -> TextFacts:
    """Look at the first lines of a text."""
    characters = words = count = 0
    cut = word_cutter(segmentation)
    for line in corpus:
        characters, count = characters + len(line.text), count + 1
        words += 0 if is_blank(line.text) else len(cut(collapse_spaces(line.text)))
        if count == SAMPLE:
            break
    share = len(corpus) / max(1, count)
    return TextFacts(len(corpus), characters=round(characters * share), words=round(words * share))


# --- pieces -----------------------------------------------------------------------------------------------------------


def _text(facts: TextFacts, kind: Kind, *, most: int, minimum_count: int) -> tuple[dict[str, Any], Reason]:
    """The section of the text: how many pieces, and why."""
    section: dict[str, Any] = {"kind": kind, "shared": True}
    paths = ("text.kind", "text.size", "text.minimum_count")
    if kind == "char":
        section |= {"size": ALL_CHARACTERS, "minimum_count": 1}
        return section, Reason(paths, f"single characters as pieces, up to {ALL_CHARACTERS:,} different ones")
    if kind == "word":
        section |= {"size": most, "minimum_count": minimum_count}
        rare = "seen at least once" if minimum_count == 1 else f"seen at least {minimum_count} times"
        why = "the rest is <unk>, which is learned from the rare ones" if minimum_count > 1 else "all of them"
        return section, Reason(paths, f"up to {most:,} different words, {rare}: {why}")
    ladder = ((100_000, 1_000), (1_000_000, 4_000), (10_000_000, 8_000), (100_000_000, 16_000), (sys.maxsize, 32_000))
    size = next(size for characters, size in ladder if facts.characters <= characters)
    section |= {"size": size, "minimum_count": 1}
    return section, Reason(paths, f"{size:,} subword pieces: more would be too rare to learn in this much text")


def _summary(facts: TextFacts, kind: Kind) -> str:
    unit = {"word": "words", "char": "characters"}.get(kind, "subword pieces")
    lines = "1 line" if facts.lines == 1 else f"{facts.lines:,} lines"
    return f"{lines}, about {round_figure(facts.tokens(kind)):,} {unit}, so:"


# --- models that are trained step by step -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TextRung:
    """What suits up to so many tokens."""

    tokens: int
    width: int
    layers: int
    dropout_rate: float
    learning_rate: float
    rows: int
    passes: int
    """Times the text is gone through."""


TEXT_LADDER = (
    TextRung(20_000, 64, 1, 0.3, 5e-3, 8, 40),
    TextRung(200_000, 128, 1, 0.3, 4e-3, 16, 30),
    TextRung(1_500_000, 256, 1, 0.3, 3e-3, 32, 20),
    TextRung(10_000_000, 400, 2, 0.4, 2e-3, 32, 15),
    TextRung(100_000_000, 650, 2, 0.2, 1e-3, 64, 5),
    TextRung(sys.maxsize, 1024, 2, 0.1, 1e-3, 128, 2),
)
"""From a story to newspapers: widths that published recurrent language models use for so much text."""

LENGTHS: dict[Kind, int] = {"char": 128, "word": 35, "bpe": 64, "unigram": 64}
"""Tokens of a window, through which gradients flow back: a few sentences' worth of characters or pieces."""

GENERATED: dict[Kind, int] = {"char": 500, "word": 100, "bpe": 150, "unigram": 150}
"""Tokens that are generated at most, unless asked otherwise."""


VALIDATION_SHARE = 0.15
"""Tokens read for validation at most, for each that is learned from."""

FEWEST_VALIDATIONS = 4
"""However large the dev text is: the best of fewer is no choice."""


def choose_recurrent(
    facts: TextFacts, *, kind: Kind, steps: int | None, model: str = "rnn_lm", dev_tokens: int = 0
) -> Sizing:
    """Sizes of a recurrent language model of this text, cut into pieces of this kind; `dev_tokens` are held out."""
    tokens = facts.tokens(kind)
    rung = next(rung for rung in TEXT_LADDER if tokens <= rung.tokens)
    length = LENGTHS[kind]
    rows = max(1, min(rung.rows, tokens // (4 * length)))  # at least four windows in a row
    length = max(1, min(length, tokens // 4))
    if steps is None:
        steps = round_figure(max(200.0, rung.passes * tokens / (rows * length)))
    often = max(min(10, steps), min(1000, round_figure(steps / 40)))
    affordable = round_figure(dev_tokens / (VALIDATION_SHARE * rows * length))
    every = max(often, min(affordable, steps // FEWEST_VALIDATIONS))
    text, pieces = _text(facts, kind, most=33_000 if tokens < 5_000_000 else 50_000, minimum_count=2)
    training = {
        "steps": steps,
        "learning_rate": rung.learning_rate,
        "schedule": "cosine",
        "warmup": min(100, steps // 4),
        "clip_norm": 1.0,
        "validate_every": every,
        "save_every": every,
        "patience": 10,
        "average": 10,
        "log_every": max(1, min(50, every // 4)),
    }
    depth = 2 if model == "elmo" else rung.layers
    sizes = {"width": rung.width, "layers": depth, "dropout_rate": rung.dropout_rate}
    task: dict[str, Any] = {"kind": "language_modelling", "rows": rows, "length": length}
    batch = Reason(("task.rows", "task.length"), f"{rows} rows of text side by side, {length} tokens of each at a time")
    if model == "elmo":
        task = {"kind": "bidirectional_language_modelling", "tokens_per_batch": rows * length}
        batch = Reason(("task.tokens_per_batch",), f"batches of {rows * length:,} tokens, a sentence by itself")
    defaults = {
        "text": text,
        "model": {"kind": model, **sizes},
        "task": task,
        "training": training,
        "search": _search(kind),
    }
    layers = "1 layer" if depth == 1 else f"{depth} layers{' in each direction' if model == 'elmo' else ''}"
    model_paths = ("model.kind", "model.width", "model.layers")
    return Sizing(
        defaults,
        _summary(facts, kind),
        (
            pieces,
            Reason(model_paths, f"{layers} of width {rung.width}: a larger model learns this text by heart"),
            Reason(("model.dropout_rate",), f"dropout {rung.dropout_rate:g}"),
            batch,
            *([_rare_validation(every)] if every > often else []),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


def _rare_validation(every: int) -> Reason:
    why = f"reading the dev text more often would take more than {VALIDATION_SHARE:.0%} of the tokens"
    return Reason(("training.validate_every", "training.save_every"), f"a validation every {every:,} steps: {why}")


def _search(kind: Kind) -> dict[str, Any]:
    """Texts are drawn from a language model; their length has no source to go by."""
    return {"method": "sample", "length_factor": 0.0, "length_constant": GENERATED[kind]}


# --- models with a loop of their own ----------------------------------------------------------------------------------


def choose_ngram(facts: TextFacts, *, kind: Kind) -> Sizing:
    """Pieces and order of an n-gram model."""
    order = 8 if kind == "char" else 5
    text, pieces = _text(facts, kind, most=ALL_WORDS, minimum_count=1)
    return Sizing(
        {"text": text, "model": {"kind": "ngram", "order": order}, "search": _search(kind)},
        _summary(facts, kind),
        (
            pieces,
            Reason(("model.kind", "model.order"), f"n-grams up to order {order}: longer ones hardly come twice"),
        ),
    )


FEW_TOKENS = 200_000
"""Tokens of a text below which neighbours of word vectors are mostly chance."""


def too_small(tokens: int) -> str | None:
    """That word vectors come from too little text, if they do."""
    if tokens >= FEW_TOKENS:
        return None
    return (
        f"{tokens:,} tokens are far too few for word vectors: neighbours and analogies are mostly chance; train on at "
        "least a million, or take vectors that were trained on more"
    )


def choose_vectors(facts: TextFacts, *, kind: Kind) -> Sizing:
    """Words and sizes of word vectors."""
    minimum = 5 if facts.words > 200_000 else 2 if facts.words > 20_000 else 1
    text, pieces = _text(facts, kind, most=ALL_WORDS, minimum_count=1)
    width, epochs = (100, 5) if facts.words > 1_000_000 else (50, 20)
    times = "once" if minimum == 1 else f"{minimum} times"
    return Sizing(
        {"text": text, "model": {"kind": "word2vec", "width": width, "epochs": epochs, "minimum_count": minimum}},
        _summary(facts, kind),
        (
            pieces,
            Reason(("model.kind", "model.minimum_count"), f"vectors for words seen at least {times}"),
            Reason(("model.kind", "model.width"), f"vectors of width {width}: less text teaches fewer numbers"),
            Reason(("model.kind", "model.epochs"), f"{epochs} passes over the text"),
        ),
    )
