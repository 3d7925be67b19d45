"""Zero-config: sizes chosen from the data, each with its reason."""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from seqloom.core.config import Config
from seqloom.core.declaration import (
    CaptionFacts,
    DataFacts,
    FrameFacts,
    ImageFacts,
    LabelledFacts,
    Learning,
    ModelSettings,
    ModelSizes,
    Pieces,
    Reason,
    SeriesFacts,
    TaggedFacts,
    TextFacts,
    WordPairs,
)
from seqloom.core.errors import SeqloomError
from seqloom.data.corpus import ParallelCorpus
from seqloom.data.plain_text import TextCorpus
from seqloom.tasks.settings import (
    BidirectionalConfig,
    LanguageModellingConfig,
    MaskedLanguageModellingConfig,
    VariationalConfig,
)
from seqloom.text.languages import find_language
from seqloom.text.marks import count_words, is_one_word, is_unsegmented
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.symbols import split_symbols
from seqloom.text.tokenizer import ALL_CHARACTERS, ALL_WORDS, Segmentation, SideName, word_cutter

SAMPLED_LINES = 20_000
"""Lines from which the length of sentences is estimated."""

MIN_TAG_SHARE = 0.01
"""Tags of words are those in at least so many of the lines."""

MAX_LABELS = 200
"""Different words that may be labels of a class, not words to be spelled."""


@dataclass(frozen=True)
class Sizing:
    """Defaults for the config, what they follow from, and a reason for each choice."""

    defaults: dict[str, Any]
    summary: str
    reasons: tuple[Reason, ...]

    def reasons_in(self, config: Config, *, inherited: Collection[str] = ()) -> list[str]:
        """The choices that a file or an override left as they are; sections that were `inherited` were not chosen."""
        settings = config.model_dump(mode="json")
        chosen = [
            reason.text
            for reason in self.reasons
            if all(_at(settings, path) == _at(self.defaults, path) for path in reason.paths)
            and not any(path.split(".")[0] in inherited for path in reason.paths)
        ]
        return [self.summary, *chosen] if chosen else []


def settled(sizings: Iterable[Sizing]) -> dict[str, Any]:
    """The defaults that are equal in sizings for very different texts."""
    first, *others = (sizing.defaults for sizing in sizings)
    return {
        section: {
            name: value
            for name, value in values.items()
            if all(other[section].get(name, other) == value for other in others)
        }
        for section, values in first.items()
    }


def facts_of(corpus: ParallelCorpus, languages: tuple[str | None, str | None]) -> DataFacts:
    """Look at the first lines of a corpus."""
    sample = list(islice(corpus, SAMPLED_LINES))
    sides = [split_symbols(line.source)[0] for line in sample], [line.target for line in sample]
    characters, words = ([sum(map(of, side)) / max(1, len(side)) for side in sides] for of in (len, count_words))
    are_unspaced = False
    for language in filter(None, languages):
        with suppress(SeqloomError):  # an unknown language
            are_unspaced |= find_language(language).is_unspaced
    return DataFacts(
        pairs=len(corpus),
        source_characters=characters[0],
        target_characters=characters[1],
        are_unspaced=are_unspaced,
        are_unsegmented=any(map(is_unsegmented, sides)),
        source_words=words[0],
        target_words=words[1],
        alphabet=len(set().union(*sides[0], *sides[1])),
        words=_word_pairs(*sides),
        phones=_phone_side(*sides),
    )


def _phone_side(sources: Sequence[str], targets: Sequence[str]) -> SideName | None:
    """The side that spells the words of the other in phones, if one does."""
    if _word_pairs(sources, targets) != "words and phones":
        return None
    return "target" if _most(" " not in line.strip() for line in sources) else "source"


def _word_pairs(sources: Sequence[str], targets: Sequence[str]) -> WordPairs | None:
    """Whether pairs are two words each, or a word and its phones or tags. Labels of a few classes do not count."""
    singles = [side for side in (sources, targets) if _most(" " not in line.strip() for line in side)]
    is_open = any(len(set(side)) > min(MAX_LABELS, len(side) // 2) for side in singles)
    if not is_open or not all(_most(map(is_one_word, side)) or _are_tagged(side) for side in (sources, targets)):
        return None
    if len(singles) == 2:
        return "single words"
    (other,) = (side for side in (sources, targets) if side is not singles[0])
    return "words and phones" if _most(map(is_one_word, other)) else "words and tags"


def _are_tagged(lines: Sequence[str]) -> bool:
    """Whether lines are one word each, with tags of a small set: `run V PST`."""
    known = Counter(word for line in lines for word in set(line.split()))
    tags = {word for word, count in known.items() if count >= MIN_TAG_SHARE * len(lines)}
    return _most(sum(word not in tags for word in line.split()) == 1 for line in lines)


def _most(claims: Iterable[bool]) -> bool:
    given = list(claims)
    return sum(given) >= 0.9 * len(given)


@dataclass(frozen=True)
class Rung:
    """What suits up to so many pairs, whatever the model."""

    pairs: int
    vocabulary: int
    dropout_rate: float
    learning_rate: float
    warmup: int
    passes: int
    """Passes over the data."""
    tokens_per_batch: int = 4096
    subword_sampling: float = 0.0
    """`task.subword_sampling` for pieces of kind bpe."""
    consistency: float = 0.0
    """`task.consistency`."""


LADDER = (
    Rung(2_000, 1_000, 0.3, 3e-3, 200, 300, tokens_per_batch=1024),
    Rung(10_000, 4_000, 0.3, 3e-3, 500, 120),
    Rung(100_000, 8_000, 0.3, 4e-3, 1_000, 60),
    Rung(500_000, 12_000, 0.2, 2e-3, 2_000, 30),
    Rung(2_000_000, 16_000, 0.1, 1e-3, 4_000, 15, tokens_per_batch=8192),
    Rung(sys.maxsize, 32_000, 0.1, 7e-4, 4_000, 5, tokens_per_batch=8192),
)
"""What published systems use for so much data, from captions (29,000 pairs) to newspapers (millions)."""


def choose_sizes(
    facts: DataFacts,
    model: ModelSettings,
    *,
    steps: int | None = None,
    pieces: Pieces | None = None,
    vocabulary: int | None = None,
    is_started: bool = False,
    is_joint: bool = False,
    has_symbols: bool = False,
    passes: int | None = None,
) -> Sizing:
    """Model, vocabulary, batches and schedule for this much data, and for this many steps if they are given.

    `model` holds the settings of the model that were given, `pieces` and `vocabulary` are the kind and number of the
    pieces of text, where these were given. `is_started` says that it starts from a trained model, whose text may have
    no other cuts, and which learns at a low rate. `is_joint` says that one vocabulary for both sides was requested,
    `has_symbols` that whole symbols are beside the sources, `passes` how often the text is read at most.
    """
    rung = next(rung for rung in LADDER if facts.pairs <= rung.pairs)
    text: dict[str, Any] = {"kind": "bpe", "size": rung.vocabulary, "shared": True}
    why = f"{rung.vocabulary:,} joint subword pieces: more would be too rare to learn in this much text"
    if pieces is None and facts.words is not None:
        text = {"kind": "char", "size": ALL_CHARACTERS, "shared": True}
        why = f"single characters as pieces: the pairs are {facts.words}, where letters score higher than subwords"
    elif pieces is None and has_symbols:
        text = {"kind": "char", "size": ALL_CHARACTERS, "shared": True}
        why = "single characters as pieces, beside the symbols of data.symbols"
    counted, tying = facts, dict[str, str]()
    if pieces is None and facts.phones is not None and not is_joint and _may_have_sides(model):
        # A phone is one symbol, so its side has as many as it has words between spaces.
        if facts.phones == "target":
            counted = replace(facts, target_characters=facts.target_words)
        else:
            counted = replace(facts, source_characters=facts.source_words)
        tying = {"tying": "output"}
        text |= {"shared": False, facts.phones: {"kind": "word", "segmentation": "spaces", "size": ALL_WORDS}}
        why = f"letters as pieces, and whole phones on the {facts.phones} side: the pairs are {facts.words}"
    tokens = counted.tokens(pieces or text["kind"], vocabulary or text["size"])
    if steps is None:
        steps = round_figure(max(500.0, min(rung.passes, passes or rung.passes) * tokens / rung.tokens_per_batch))
    every = max(min(10, steps), min(1000, round_figure(steps / 40)))
    sizes = model.sizes_for_pairs(facts)
    amount, verb, strength = ("little", "needs", "strong") if rung.dropout_rate >= 0.3 else ("much", "allows", "light")
    dropout = f"dropout {rung.dropout_rate:g}: {amount} data {verb} {strength} regularisation"
    training = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "warmup": min(rung.warmup, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
    }
    task = {
        "subword_sampling": 0.0
        if (pieces or text["kind"]) != "bpe" or is_started or has_symbols
        else rung.subword_sampling,
        "consistency": 0.0 if is_started else rung.consistency,
    }
    return Sizing(
        {
            "data": {"tokens_per_batch": rung.tokens_per_batch},
            "text": text,
            "model": {**_model_section(model, sizes, dropout_rate=rung.dropout_rate), **tying},
            "task": task,
            "training": training,
        },
        f"{facts.pairs:,} pairs, about {round_figure(tokens):,} tokens on the longer side, so:",
        (
            Reason(("text.size", "text.kind"), why),
            *sizes.reasons,
            Reason(("model.dropout_rate",), dropout),
            Reason(("data.tokens_per_batch",), f"batches of {rung.tokens_per_batch:,} tokens"),
            *_regularisation_reasons(task),
            *training_reasons(training),
        ),
    )


def _may_have_sides(model: ModelSettings) -> bool:
    """Whether the sides may have vocabularies of their own: the model can be tied so, and nothing else was asked."""
    fields = type(model).model_fields
    return "tying" in fields and not ("tying" in model.model_fields_set and model.needs_shared_vocabulary)


def _regularisation_reasons(task: Mapping[str, float]) -> Iterator[Reason]:
    if rate := task["subword_sampling"]:
        yield Reason(("task.subword_sampling",), f"BPE-dropout {rate:g}: the text in other pieces each time it is read")
    if weight := task["consistency"]:
        yield Reason(("task.consistency",), f"two passes over each batch, which should agree (weight {weight:g})")


@dataclass(frozen=True)
class ContrastiveRung:
    """What suits up to so many pairs from which vectors of sentences are learned."""

    pairs: int
    vocabulary: int
    dropout_rate: float
    learning_rate: float
    pairs_per_batch: int
    passes: int
    """Passes over the pairs."""


CONTRASTIVE_LADDER = (
    ContrastiveRung(2_000, 2_000, 0.1, 1e-3, 128, 60),
    ContrastiveRung(10_000, 8_000, 0.1, 1e-3, 256, 30),
    ContrastiveRung(100_000, 8_000, 0.1, 1e-3, 256, 12),
    ContrastiveRung(2_000_000, 16_000, 0.1, 5e-4, 512, 4),
    ContrastiveRung(sys.maxsize, 32_000, 0.1, 5e-4, 1024, 2),
)
"""From phrases to crawled text."""


def choose_contrastive_sizes(
    facts: DataFacts, model: ModelSettings, *, steps: int | None = None, is_started: bool = False
) -> Sizing:
    """Sizes of an encoder of sentences for this many pairs.

    `is_started` says that it starts from a trained model: then text and model are those of that one.
    """
    rung = next(rung for rung in CONTRASTIVE_LADDER if facts.pairs <= rung.pairs)
    sizes = model.sizes_for_pairs(facts)
    passes = min(FINE_TUNING_PASSES, rung.passes) if is_started else rung.passes
    if steps is None:
        steps = round_figure(max(200.0, passes * facts.pairs / rung.pairs_per_batch))
    every = max(min(10, steps), min(1000, round_figure(steps / 20)))
    training = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "schedule": "cosine",
        "warmup": min(200, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
    }
    pieces = f"{rung.vocabulary:,} joint subword pieces: more would be too rare to learn in this much text"
    batch = f"batches of {rung.pairs_per_batch} pairs, each told from all others"
    return Sizing(
        {
            "text": {"kind": "bpe", "size": rung.vocabulary, "shared": True},
            "model": {
                **_model_section(model, sizes, dropout_rate=rung.dropout_rate),
                **model.sentence_settings(),
            },
            "task": {"kind": "contrastive", "pairs_per_batch": rung.pairs_per_batch},
            "training": training,
        },
        f"{facts.pairs:,} pairs, so:",
        (
            Reason(("text.size", "text.kind"), pieces),
            *sizes.reasons,
            Reason(("model.dropout_rate",), f"dropout {rung.dropout_rate:g}"),
            Reason(("task.pairs_per_batch",), batch),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


def choose_fitted_pair_sizes(facts: DataFacts, model: ModelSettings) -> Sizing:
    """Sizes of a model that is fitted to these pairs by a loop of its own, which works on whole words."""
    text = {"kind": "word", "size": ALL_WORDS, "shared": False, "minimum_count": 1}
    sizes, words = model.sizes_for_pairs(facts), facts.tokens("word", ALL_WORDS)
    reasons = [Reason(("text.kind", "text.size", "text.shared"), "all words of both sides, each side with its own")]
    if facts.are_unsegmented:
        text["segmentation"] = "characters"
        reasons.append(Reason(("text.segmentation",), "each character as a word where no spaces separate words"))
    return Sizing(
        {"text": text, "model": {"kind": model.kind, **sizes.settings}},
        f"{facts.pairs:,} pairs, about {round_figure(words):,} words on the longer side, so:",
        (*reasons, *sizes.reasons),
    )


def _model_section(model: ModelSettings, sizes: ModelSizes, *, dropout_rate: float) -> dict[str, Any]:
    dropout = {"dropout_rate": dropout_rate} if "dropout_rate" in type(model).model_fields else {}
    return {"kind": model.kind, **sizes.settings, **dropout}


def _checks(every: int) -> dict[str, int]:
    """Validations and checkpoints every so many steps, and what follows from them."""
    log_every = max(1, min(50, every // 4))
    return {"validate_every": every, "save_every": every, "patience": 10, "average": 10, "log_every": log_every}


def training_reasons(training: Mapping[str, Any], *, falling: str = "as 1/√step") -> Iterator[Reason]:
    """Why a model is trained at such a rate, and which weights are kept.

    How many passes over the data the steps are is known once the text is encoded (`passes_text`).
    """
    steps, checks = training["steps"], training["steps"] // training["validate_every"]
    yield Reason(("training.steps",), f"{steps:,} step{'' if steps == 1 else 's'} at most")
    if 0 < training["patience"] < checks:
        yield Reason(("training.patience",), "an earlier end when the dev loss has not improved for ten validations")
    warmup = f"{training['warmup']:,} step{'' if training['warmup'] == 1 else 's'}"
    rate = f"a learning rate up to {training['learning_rate']:g} over {warmup}, then falling {falling}"
    yield Reason(("training.learning_rate", "training.warmup"), rate)
    if checks >= training["average"]:
        mean = "the mean of the last ten checkpoints as the model, if it beats the best one"
        yield Reason(("training.average",), mean)


def passes_text(steps: int, *, per_pass: float, what: str = "text") -> str:
    """How often the training text (or `what` there is) is read in so many steps, of which one pass takes `per_pass`."""
    passes = steps / per_pass
    over = "less than one pass" if passes < 0.95 else "about one pass" if passes < 1.5 else f"about {passes:.0f} passes"
    return f"{steps:,} step{'' if steps == 1 else 's'}: {over} over the training {what}"


def _at(settings: Mapping[str, Any], path: str) -> Any:
    *sections, name = path.split(".")
    for section in sections:
        settings = settings[section]
    return settings.get(name)


def round_figure(number: float | int) -> int:
    """To two digits that count: 12,345 becomes 12,000."""
    return int(float(f"{number:.1e}"))


# Models of plain text.


EXTREMES = (TextFacts(10, 500, 100), TextFacts(40_000, 2_000_000, 450_000), TextFacts(10**8, 6 * 10**9, 10**9))
"""Texts from tiny to huge, to see which choices depend on the text at all."""


def text_facts(corpus: TextCorpus, *, segmentation: Segmentation = "words") -> TextFacts:
    """Look at the first lines of a text."""
    lines, cut = [line.text for line in islice(corpus, SAMPLED_LINES)], word_cutter(segmentation)
    words = sum(len(cut(collapse_spaces(line))) for line in lines if not is_blank(line))
    share = len(corpus) / max(1, len(lines))
    return TextFacts(len(corpus), characters=round(sum(map(len, lines)) * share), words=round(words * share))


def _pieces_of_text(facts: TextFacts, kind: Pieces, *, most: int, minimum_count: int) -> tuple[dict[str, Any], Reason]:
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


def _summary(facts: TextFacts, kind: Pieces) -> str:
    unit = {"word": "words", "char": "characters"}.get(kind, "subword pieces")
    lines = "1 line" if facts.lines == 1 else f"{facts.lines:,} lines"
    return f"{lines}, about {round_figure(facts.tokens(kind)):,} {unit}, so:"


@dataclass(frozen=True)
class TextRung:
    """What suits up to so many tokens, whatever the model."""

    tokens: int
    dropout_rate: float
    learning_rate: float
    rows: int
    passes: int
    """Passes over the text."""


TEXT_LADDER = (
    TextRung(20_000, 0.3, 5e-3, 8, 40),
    TextRung(200_000, 0.3, 4e-3, 16, 30),
    TextRung(1_500_000, 0.3, 3e-3, 32, 20),
    TextRung(10_000_000, 0.4, 2e-3, 32, 15),
    TextRung(100_000_000, 0.2, 1e-3, 64, 5),
    TextRung(sys.maxsize, 0.1, 1e-3, 128, 2),
)
"""From a story to newspapers."""

LENGTHS: dict[Pieces, int] = {"char": 128, "word": 35, "bpe": 64, "unigram": 64, "published": 64}
"""Tokens of a window, through which gradients flow back: a few sentences' worth of characters or pieces."""

GENERATED: dict[Pieces, int] = {"char": 500, "word": 100, "bpe": 150, "unigram": 150, "published": 150}
"""Default maximum of generated tokens."""


VALIDATION_SHARE = 0.15
"""Tokens read for validation at most, for each that is learned from."""

MIN_VALIDATIONS = 4
"""Validations of a run, however large the dev text is: fewer leave nothing to choose from."""


def choose_text_sizes(
    facts: TextFacts,
    model: ModelSettings,
    task: LanguageModellingConfig | BidirectionalConfig | VariationalConfig | MaskedLanguageModellingConfig,
    *,
    pieces: Pieces,
    steps: int | None = None,
    dev_tokens: int = 0,
) -> Sizing:
    """Sizes of a model that is trained in steps on this text; `dev_tokens` are held out."""
    tokens = facts.tokens(pieces)
    rung = next(rung for rung in TEXT_LADDER if tokens <= rung.tokens)
    sizes = model.sizes_for_text(facts, pieces)
    length = sizes.window or LENGTHS[pieces]
    rows = max(1, min(rung.rows, tokens // (4 * length)))  # at least four windows in a row
    length = max(1, min(length, tokens // 4))
    if steps is None:
        steps = round_figure(max(200.0, rung.passes * tokens / (rows * length)))
    often = max(min(10, steps), min(1000, round_figure(steps / 40)))
    affordable = round_figure(dev_tokens / (VALIDATION_SHARE * rows * length))
    every = max(often, min(affordable, steps // MIN_VALIDATIONS))
    text, text_reason = _pieces_of_text(facts, pieces, most=33_000 if tokens < 5_000_000 else 50_000, minimum_count=2)
    batch, batch_reason = task.batch_sizes(rows, length)
    why = f"reading the dev text more often would take more than {VALIDATION_SHARE:.0%} of the tokens"
    rare_reason = Reason(
        ("training.validate_every", "training.save_every"), f"a validation every {every:,} steps: {why}"
    )
    training = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "schedule": "cosine",
        "warmup": min(sizes.warmup, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
    }
    return Sizing(
        {
            "text": text,
            "model": _model_section(model, sizes, dropout_rate=rung.dropout_rate),
            "task": {"kind": task.kind, **batch},
            "training": training,
            "search": _search(pieces),
        },
        _summary(facts, pieces),
        (
            text_reason,
            *sizes.reasons,
            Reason(("model.dropout_rate",), f"dropout {rung.dropout_rate:g}"),
            batch_reason,
            *([rare_reason] if every > often else []),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


def choose_fitted_sizes(facts: TextFacts, model: ModelSettings, *, pieces: Pieces) -> Sizing:
    """Sizes of a model that is fitted to this text by a loop of its own."""
    text, text_reason = _pieces_of_text(facts, pieces, most=ALL_WORDS, minimum_count=1)
    sizes = model.sizes_for_text(facts, pieces)
    defaults: dict[str, Any] = {"text": text, "model": {"kind": model.kind, **sizes.settings}}
    if model.purpose == "language model":
        defaults["search"] = _search(pieces)
    return Sizing(defaults, _summary(facts, pieces), (text_reason, *sizes.reasons))


# Classifiers.


@dataclass(frozen=True)
class LabelledRung:
    """What suits up to so many examples, whatever the model."""

    examples: int
    dropout_rate: float
    learning_rate: float
    tokens_per_batch: int
    passes: int
    """Passes over the examples."""


LABELLED_LADDER = (
    LabelledRung(2_000, 0.3, 1e-3, 512, 60),
    LabelledRung(20_000, 0.3, 1e-3, 1024, 30),
    LabelledRung(200_000, 0.2, 1e-3, 2048, 10),
    LabelledRung(sys.maxsize, 0.1, 5e-4, 4096, 4),
)
"""From some hundred questions to millions of reviews."""

FINE_TUNING_PASSES = 5
"""Passes over labelled data for a model that starts from a trained one."""
FINE_TUNING_STEPS = 400.0
"""Steps at least, if it classifies texts."""

LABELLED_EXTREMES = tuple(
    LabelledFacts(facts, classes=2, longest=length) for facts, length in zip(EXTREMES, (40, 400, 4000), strict=True)
)
"""Labelled texts from tiny to huge."""


FINAL_CHECKPOINTS = 3
"""Of twenty, whose mean is the model: the learning rate is low by then."""

MIN_TEXTS, MAX_LONG_BATCH = 16, 8192
"""Texts of a batch, of average length, and the tokens beyond which it does not grow to have them."""


def choose_labelled_sizes(
    facts: LabelledFacts, model: ModelSettings, *, pieces: Pieces, steps: int | None = None, is_started: bool = False
) -> Sizing:
    """Sizes of a classifier for this much labelled text.

    `is_started` says that it starts from a trained model: then text and model are those of that one.
    """
    rung = next(rung for rung in LABELLED_LADDER if facts.text.lines <= rung.examples)
    tokens, sizes = facts.text.tokens(pieces), model.sizes_for_labels(facts, pieces)
    learning = sizes.learning or Learning(rung.learning_rate, rung.tokens_per_batch, rung.passes, rung.dropout_rate)
    passes, batch = (FINE_TUNING_PASSES if is_started else learning.passes), learning.tokens_per_batch
    dropout_rate = learning.dropout_rate
    smoothing = {} if sizes.learning is None else {"label_smoothing": learning.label_smoothing}
    if sizes.learning is not None:  # some texts at least, however long they are
        batch = max(batch, min(MAX_LONG_BATCH, MIN_TEXTS * tokens // max(1, facts.text.lines)))
    if steps is None:
        steps = round_figure(max(FINE_TUNING_STEPS if is_started else 200.0, passes * tokens / batch))
    every = max(min(10, steps), min(1000, round_figure(steps / (40 if sizes.learning is None else 20))))
    text, text_reason = _pieces_of_text(facts.text, pieces, most=50_000, minimum_count=1)
    training = {
        "steps": steps,
        "learning_rate": min(learning.learning_rate, sizes.max_learning_rate),
        "schedule": "cosine",
        "warmup": min(100, steps // 4),
        "clip_norm": 1.0,
        **({} if sizes.learning is None else {"betas": list(learning.betas)}),
        **_checks(every),
        **({} if sizes.learning is None else {"average": FINAL_CHECKPOINTS, "final": "last", "patience": 0}),
    }
    amount, strength = ("few", "strong") if dropout_rate >= 0.3 else ("many", "light")
    return Sizing(
        {
            "text": {**text, **model.text_settings},
            "model": _model_section(model, sizes, dropout_rate=dropout_rate),
            "task": {"kind": "classification", "tokens_per_batch": batch, **smoothing},
            "training": training,
        },
        f"{facts.text.lines:,} examples of {facts.classes:,} classes, so:",
        (
            text_reason,
            *sizes.reasons,
            Reason(("model.dropout_rate",), f"dropout {dropout_rate:g}: {amount} examples, {strength} dropout"),
            Reason(("task.tokens_per_batch",), f"batches of {batch:,} tokens"),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


@dataclass(frozen=True)
class TaggedRung:
    """What suits up to so many tagged words, whatever the model."""

    words: int
    dropout_rate: float
    learning_rate: float
    tokens_per_batch: int
    passes: int
    """Passes over the sentences."""


TAGGED_LADDER = (
    TaggedRung(20_000, 0.4, 5e-3, 256, 30),
    TaggedRung(100_000, 0.4, 5e-3, 512, 20),
    TaggedRung(1_000_000, 0.33, 5e-3, 512, 12),
    TaggedRung(sys.maxsize, 0.2, 3e-3, 1024, 4),
)
"""From some hundred sentences to the largest treebanks."""

TAGGED_EXTREMES = tuple(TaggedFacts(words // 16, words, (17,)) for words in (320, 200_000, 10**8))
"""Tagged texts from tiny to huge."""


def choose_tagged_sizes(
    facts: TaggedFacts, model: ModelSettings, *, steps: int | None = None, is_started: bool = False
) -> Sizing:
    """Sizes of a tagger for this much tagged text; `is_started` says that it starts from a trained model."""
    rung = next(rung for rung in TAGGED_LADDER if facts.words <= rung.words)
    sizes, batch = model.sizes_for_tags(facts), rung.tokens_per_batch
    passes = FINE_TUNING_PASSES if is_started else rung.passes
    if steps is None:
        steps = round_figure(max(200.0, passes * facts.words / batch))
    every = max(min(10, steps), min(1000, round_figure(steps / 20)))
    training = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "schedule": "cosine",
        "warmup": min(100, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
    }
    text = {"kind": "word", "segmentation": "spaces", "size": ALL_WORDS, "minimum_count": 1, "shared": False}
    columns = f"{len(facts.tags)} column{'' if len(facts.tags) == 1 else 's'}"
    return Sizing(
        {
            "text": text,
            "model": _model_section(model, sizes, dropout_rate=rung.dropout_rate),
            "task": {"kind": "tagging", "tokens_per_batch": batch},
            "training": training,
        },
        f"{facts.sentences:,} sentences, {facts.words:,} words with tags in {columns}, so:",
        (
            Reason(("text.size", "text.minimum_count"), "all words and their letters"),
            *sizes.reasons,
            Reason(("model.dropout_rate",), f"dropout {rung.dropout_rate:g}"),
            Reason(("task.tokens_per_batch",), f"batches of {batch:,} words"),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


@dataclass(frozen=True)
class ImageRung:
    """What suits up to so many images, whatever the model."""

    images: int
    learning_rate: float
    images_per_batch: int
    passes: int
    """Passes over the images."""


IMAGE_LADDER = (
    ImageRung(5_000, 2e-3, 64, 170),
    ImageRung(20_000, 1e-3, 64, 60),
    ImageRung(200_000, 1e-3, 128, 30),
    ImageRung(sys.maxsize, 5e-4, 256, 10),
)
"""From some hundred images to millions."""

MAX_SHIFT = 4
"""Pixels by which training images are moved at most, unless more is set."""

IMAGE_EXTREMES = tuple(
    ImageFacts(images, classes=2, size=(side, side), channels=3)
    for images, side in ((100, 8), (50_000, 32), (10**7, 224))
)
"""Images from tiny to huge."""


def choose_image_sizes(
    facts: ImageFacts, model: ModelSettings, *, steps: int | None = None, is_started: bool = False
) -> Sizing:
    """Sizes of a classifier for so many images; `is_started` says that it starts from a trained model."""
    rung = next(rung for rung in IMAGE_LADDER if facts.images <= rung.images)
    sizes, batch = model.sizes_for_images(facts), rung.images_per_batch
    passes = FINE_TUNING_PASSES if is_started else rung.passes
    if steps is None:
        steps = round_figure(max(200.0, passes * facts.images / batch))
    every = max(min(10, steps), min(1000, round_figure(steps / 40)))
    shift = min(MAX_SHIFT, min(facts.size) // 8)
    training: dict[str, Any] = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "weight_decay": 0.05,
        "schedule": "cosine",
        "warmup": min(100, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
        "patience": 0,  # on the way down the cosine, few dev images improve late
    }
    pixels = f"{shift} pixel{'' if shift == 1 else 's'}"
    return Sizing(
        {
            "data": {"images": {"shift": shift}},
            "model": _model_section(model, sizes, dropout_rate=0.1),
            "task": {"kind": "classification", "images_per_batch": batch},
            "training": training,
        },
        f"{facts.images:,} images of {facts.classes:,} classes, so:",
        (
            *sizes.reasons,
            Reason(("model.dropout_rate",), "dropout 0.1"),
            Reason(("task.images_per_batch",), f"batches of {batch:,} images"),
            *([Reason(("data.images.shift",), f"training images are moved by up to {pixels}")] if shift else []),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


# Models that transcribe.


@dataclass(frozen=True)
class FrameRung:
    """What suits up to so many frames, whatever the model."""

    frames: int
    dropout_rate: float
    learning_rate: float
    frames_per_batch: int
    passes: int
    """Passes over the samples."""


FRAME_LADDER = (
    FrameRung(30_000, 0.2, 3e-3, 4_000, 100),
    FrameRung(1_000_000, 0.3, 3e-3, 8_000, 30),
    FrameRung(10_000_000, 0.3, 2e-3, 16_000, 20),
    FrameRung(sys.maxsize, 0.2, 1e-3, 32_000, 10),
)
"""From some minutes of speech to days."""

FRAME_EXTREMES = tuple(
    FrameFacts(frames // 200, frames, frames // 20, features=40, least_per_symbol=least)
    for frames, least in ((20_000, 1.0), (500_000, 3.0), (10**9, 9.0))
)
"""Samples from few to many."""


def choose_frame_sizes(
    facts: FrameFacts, model: ModelSettings, *, steps: int | None = None, is_started: bool = False
) -> Sizing:
    """Sizes of a model that transcribes so many frames; `is_started` says that it starts from a trained model."""
    rung = next(rung for rung in FRAME_LADDER if facts.frames <= rung.frames)
    sizes = model.sizes_for_frames(facts)
    passes = FINE_TUNING_PASSES if is_started else rung.passes
    if steps is None:
        steps = round_figure(max(300.0, passes * 1.1 * facts.frames / rung.frames_per_batch))  # with padding
    every = max(min(10, steps), min(1000, round_figure(steps / 20)))
    training: dict[str, Any] = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": min(100, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
        "patience": 0,  # on the way down the cosine, transcripts improve late
    }
    return Sizing(
        {
            "data": {},
            "text": {"kind": "char", "size": ALL_CHARACTERS, "shared": True},
            "model": _model_section(model, sizes, dropout_rate=rung.dropout_rate),
            "task": {"kind": "transcription", "frames_per_batch": rung.frames_per_batch},
            "training": training,
        },
        f"{facts.samples:,} samples, about {round_figure(facts.frames):,} frames, so:",
        (
            Reason(("text.kind", "text.size"), "transcripts are written character by character"),
            *sizes.reasons,
            Reason(("model.dropout_rate",), f"dropout {rung.dropout_rate:g}"),
            Reason(("task.frames_per_batch",), f"batches of {rung.frames_per_batch:,} frames"),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


# Captions of images.


@dataclass(frozen=True)
class CaptionRung:
    """What suits up to so many images with captions, whatever the model."""

    images: int
    learning_rate: float
    images_per_batch: int
    passes: int
    """Passes over the images."""


CAPTION_LADDER = (
    CaptionRung(1_000, 1e-3, 32, 150),
    CaptionRung(20_000, 1.5e-3, 64, 36),
    CaptionRung(200_000, 1e-3, 128, 25),
    CaptionRung(sys.maxsize, 5e-4, 256, 10),
)
"""From some hundred images to millions."""

MAX_CAPTION_WORDS = 4_000
"""Different words up to which each is one symbol: more are mostly rare."""

MAX_CAPTION_SHIFT = 2
"""Pixels by which training images are moved at most, unless more is set: captions may speak of what is at a border."""

CAPTION_EXTREMES = tuple(
    CaptionFacts(images, 2 * images, words, (side, side), 3)
    for images, words, side in ((100, 20, 8), (8_000, 8_000, 64), (10**7, 10**5, 224))
)
"""Images with captions from few to many."""


def choose_caption_sizes(
    facts: CaptionFacts, model: ModelSettings, *, steps: int | None = None, is_started: bool = False
) -> Sizing:
    """Sizes of a model that describes so many images; `is_started` says that it starts from a trained model."""
    rung = next(rung for rung in CAPTION_LADDER if facts.images <= rung.images)
    sizes, batch = model.sizes_for_captions(facts), rung.images_per_batch
    passes = FINE_TUNING_PASSES if is_started else rung.passes
    if steps is None:
        steps = round_figure(max(200.0, passes * facts.images / batch))
    every = max(min(10, steps), min(1000, round_figure(steps / 20)))
    shift = min(MAX_CAPTION_SHIFT, min(facts.size) // 16)
    training: dict[str, Any] = {
        "steps": steps,
        "learning_rate": min(rung.learning_rate, sizes.max_learning_rate),
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup": min(200, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
        "patience": 0,  # on the way down the cosine, captions improve late
    }
    are_words = facts.words <= MAX_CAPTION_WORDS
    text: dict[str, Any] = {"kind": "bpe", "size": 8_000, "shared": True}
    why = f"8,000 subword pieces: {facts.words:,} different words are mostly rare"
    if are_words:
        segmentation = "characters" if facts.are_unsegmented else "words"
        text = {"kind": "word", "segmentation": segmentation, "size": ALL_WORDS, "shared": True}
        why = f"all {facts.words:,} {'characters' if facts.are_unsegmented else 'words'}, each one symbol"
    pixels = f"{shift} pixel{'' if shift == 1 else 's'}"
    return Sizing(
        {
            "data": {"images": {"shift": shift}},
            "text": text,
            "model": _model_section(model, sizes, dropout_rate=0.1),
            "task": {"kind": "captioning", "images_per_batch": batch},
            "training": training,
        },
        f"{facts.images:,} images of {facts.size[0]} x {facts.size[1]} pixels with {facts.captions:,} captions, so:",
        (
            Reason(("text.kind", "text.size"), why),
            *sizes.reasons,
            Reason(("model.dropout_rate",), "dropout 0.1"),
            Reason(("task.images_per_batch",), f"batches of {batch:,} images"),
            *([Reason(("data.images.shift",), f"training images are moved by up to {pixels}")] if shift else []),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


# Forecasters.


SERIES_PASSES = 10
"""Passes over all windows of the training rows. Neighbouring windows are nearly the same, so that few are needed."""

SERIES_STEPS = 500, 20_000
"""Steps of a run at least and at most, unless more are set."""

WINDOWS_PER_BATCH = 32

SERIES_EXTREMES = (
    SeriesFacts(60, 15, 1, None),
    SeriesFacts(8_640, 2_880, 7, 24),
    SeriesFacts(10**7, 10**6, 300, 168),
)
"""Series from tiny to huge."""


def choose_series_sizes(
    facts: SeriesFacts, model: ModelSettings, *, steps: int | None = None, windows_per_batch: int | None = None
) -> Sizing:
    """Sizes of a forecaster for so many rows."""
    sizes, batch = model.sizes_for_series(facts), windows_per_batch or WINDOWS_PER_BATCH
    if steps is None:
        least, most = SERIES_STEPS
        steps = round_figure(min(max(SERIES_PASSES * facts.rows / batch, float(least)), float(most)))
    every = max(min(10, steps), min(1000, round_figure(steps / 20)))
    training: dict[str, Any] = {
        "steps": steps,
        "learning_rate": min(1.0, sizes.max_learning_rate),
        "schedule": "cosine",
        "warmup": min(100, steps // 4),
        "clip_norm": 1.0,
        **_checks(every),
        "patience": 0,  # dev windows overlap: few errors of the same days move all of their mean
    }
    several = "1 series" if facts.columns == 1 else f"{facts.columns:,} series"
    cycle = f"a period of {facts.period:,} rows" if facts.period else "no period"
    return Sizing(
        {
            "model": {"kind": model.kind, **sizes.settings},
            "task": {"kind": "forecasting", "windows_per_batch": batch},
            "training": training,
        },
        f"{facts.rows:,} training rows of {several}, {cycle}, so:",
        (
            *sizes.reasons,
            Reason(("task.windows_per_batch",), f"batches of {batch:,} windows"),
            *training_reasons(training, falling="as a cosine"),
        ),
    )


def _search(pieces: Pieces) -> dict[str, Any]:
    """Texts are sampled from a language model; no source determines their length."""
    return {"method": "sample", "length_factor": 0.0, "length_constant": GENERATED[pieces]}


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
