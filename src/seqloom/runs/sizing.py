"""Zero-config: sizes chosen from the data, each with its reason."""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from seqloom.core.config import Config
from seqloom.core.errors import SeqloomError
from seqloom.data.corpus import ParallelCorpus
from seqloom.data.plain_text import TextCorpus
from seqloom.text.languages import find_language
from seqloom.text.marks import count_words, is_one_word
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.tokenizer import Segmentation, word_cutter
from seqloom.text.tokenizer_training import ALL_CHARACTERS, ALL_WORDS

SAMPLE = 20_000
"""Lines looked at to learn how long sentences are."""


Kind = Literal["word", "char", "bpe", "unigram"]
WordPairs = Literal["single words", "words and phones", "words and tags"]

CLOSED_SHARE = 0.01
"""Tags of words are those in at least so many of the lines."""

MOST_LABELS = 200
"""Different words that may be labels of a class, not words to be spelled."""


@dataclass(frozen=True)
class DataFacts:
    """What the sizes are chosen from."""

    pairs: int
    source_characters: float
    """Mean characters in a source line."""
    target_characters: float
    """Mean characters in a target line."""
    are_unspaced: bool
    """Whether a side is written without spaces between words."""
    source_words: float = 0.0
    """Mean words in a source line."""
    target_words: float = 0.0
    """Mean words in a target line."""
    alphabet: int = 0
    """Different characters of both sides."""
    words: WordPairs | None = None
    """What the pairs are, if they are words and not sentences."""

    def tokens(self, kind: Kind, size: int) -> float:
        """About how many tokens the longer side has in all, its ends counted, if text is cut into pieces so."""
        characters = max(self.source_characters, self.target_characters)
        if kind == "char":
            longer = characters
        elif kind == "word" and self.source_words:
            longer = max(self.source_words, self.target_words)
        else:
            # A subword is about four letters; Chinese and its like have more to say in one. Where characters alone
            # nearly fill the vocabulary, there is no room for longer pieces.
            is_spelled = size < 1.3 * self.alphabet
            longer = characters / (1.2 if is_spelled else 2.0 if self.are_unspaced else 4.0)
        return self.pairs * (longer + 2)


@dataclass(frozen=True)
class Reason:
    """Why some settings were chosen as they are."""

    paths: tuple[str, ...]
    text: str


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
    """The defaults on which sizings for very different texts agree: those that no text changes."""
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
    sample = list(islice(corpus, SAMPLE))
    sides = [line.source for line in sample], [line.target for line in sample]
    characters, words = ([sum(map(of, side)) / max(1, len(side)) for side in sides] for of in (len, count_words))
    return DataFacts(
        pairs=len(corpus),
        source_characters=characters[0],
        target_characters=characters[1],
        are_unspaced=any(_is_unspaced(language) for language in languages),
        source_words=words[0],
        target_words=words[1],
        alphabet=len(set().union(*sides[0], *sides[1])),
        words=_word_pairs(*sides),
    )


def _word_pairs(sources: Sequence[str], targets: Sequence[str]) -> WordPairs | None:
    """Whether pairs are two words each, or a word and its phones or tags. Labels of a few classes are no words."""
    singles = [side for side in (sources, targets) if _most(" " not in line.strip() for line in side)]
    is_open = any(len(set(side)) > min(MOST_LABELS, len(side) // 2) for side in singles)
    if not is_open or not all(_most(map(is_one_word, side)) or _are_tagged(side) for side in (sources, targets)):
        return None
    if len(singles) == 2:
        return "single words"
    (other,) = (side for side in (sources, targets) if side is not singles[0])
    return "words and phones" if _most(map(is_one_word, other)) else "words and tags"


def _are_tagged(lines: Sequence[str]) -> bool:
    """Whether lines are one word each, with tags of a small set: `run V PST`."""
    known = Counter(word for line in lines for word in set(line.split()))
    tags = {word for word, count in known.items() if count >= CLOSED_SHARE * len(lines)}
    return _most(sum(word not in tags for word in line.split()) == 1 for line in lines)


def _most(claims: Iterable[bool]) -> bool:
    given = list(claims)
    return sum(given) >= 0.9 * len(given)


@dataclass(frozen=True)
class Rung:
    """What suits up to so many pairs."""

    pairs: int
    vocabulary: int
    width: int
    feed_forward: int
    layers: int
    heads: int
    dropout_rate: float
    learning_rate: float
    warmup: int
    passes: int
    """Times the data is gone through."""
    tokens_per_batch: int = 4096


LADDER = (
    Rung(2_000, 1_000, 64, 128, 2, 4, 0.3, 3e-3, 200, 300, tokens_per_batch=1024),
    Rung(10_000, 4_000, 128, 256, 3, 4, 0.3, 3e-3, 500, 120),
    Rung(100_000, 8_000, 128, 256, 4, 4, 0.3, 4e-3, 1_000, 60),
    Rung(500_000, 12_000, 256, 1024, 4, 4, 0.2, 2e-3, 2_000, 30),
    Rung(2_000_000, 16_000, 384, 1536, 6, 6, 0.1, 1e-3, 4_000, 15, tokens_per_batch=8192),
    Rung(sys.maxsize, 32_000, 512, 2048, 6, 8, 0.1, 7e-4, 4_000, 5, tokens_per_batch=8192),
)
"""Sizes that published systems use for so much data, from captions (29,000 pairs) to newspapers (millions)."""


@dataclass(frozen=True)
class RecurrentRung:
    """What suits up to so many pairs, if the model is recurrent; all else is as for any model."""

    pairs: int
    width: int
    embedding_width: int
    layers: int


RECURRENT_LADDER = (
    RecurrentRung(2_000, 64, 64, 1),
    RecurrentRung(10_000, 128, 128, 1),
    RecurrentRung(100_000, 256, 256, 1),
    RecurrentRung(500_000, 384, 384, 2),
    RecurrentRung(2_000_000, 512, 512, 2),
    RecurrentRung(sys.maxsize, 1024, 512, 2),
)
"""From the examples for captions and small corpora to the thousand units that the papers of 2015 give to millions."""

RECURRENT_RATE = 1e-3
"""The highest rate for recurrent models: that of the example for captions. The Transformer's would be too much."""


def choose_sizes(
    facts: DataFacts,
    *,
    steps: int | None = None,
    kind: str = "transformer",
    width: int | None = None,
    pieces: Kind | None = None,
    vocabulary: int | None = None,
) -> Sizing:
    """Model, vocabulary, batches and schedule for this much data, and for this many steps if they are given.

    `kind` is that of the model, `width` its width, `pieces` and `vocabulary` the kind and number of the pieces of text,
    where these were chosen already: what belongs to them follows.
    """
    rung = next(rung for rung in LADDER if facts.pairs <= rung.pairs)
    text, text_reason = _text(facts, rung, pieces)
    tokens = facts.tokens(pieces or text["kind"], vocabulary or text["size"])
    if steps is None:
        steps = round_figure(max(500.0, rung.passes * tokens / rung.tokens_per_batch))
    every = max(min(10, steps), min(1000, round_figure(steps / 40)))
    model, model_reasons = _recurrent(facts, rung, width) if kind == "seq2seq" else _transformer(rung)
    defaults: dict[str, Any] = {
        "data": {"tokens_per_batch": rung.tokens_per_batch},
        "text": text,
        "model": model,
        "training": {
            "steps": steps,
            "learning_rate": min(rung.learning_rate, RECURRENT_RATE) if kind == "seq2seq" else rung.learning_rate,
            "warmup": min(rung.warmup, steps // 4),
            "clip_norm": 1.0,
            "validate_every": every,
            "save_every": every,
            "patience": 10,
            "average": 10,
            "log_every": max(1, min(50, every // 4)),
        },
    }
    summary = f"{facts.pairs:,} pairs, about {round_figure(tokens):,} tokens on the longer side, so:"
    return Sizing(
        defaults,
        summary,
        (
            text_reason,
            *model_reasons,
            Reason(("data.tokens_per_batch",), f"batches of {rung.tokens_per_batch:,} tokens"),
            *training_reasons(defaults["training"]),
        ),
    )


def _text(facts: DataFacts, rung: Rung, pieces: Kind | None) -> tuple[dict[str, Any], Reason]:
    """The section of the text and its reason: subwords, or letters where the pairs are words."""
    paths = ("text.size", "text.kind")
    if pieces is None and facts.words is not None:
        why = f"single characters as pieces: the pairs are {facts.words}, where letters score higher than subwords"
        return {"kind": "char", "size": ALL_CHARACTERS, "shared": True}, Reason(paths, why)
    why = f"{rung.vocabulary:,} joint subword pieces: more would be too rare to learn in this much text"
    return {"kind": "bpe", "size": rung.vocabulary, "shared": True}, Reason(paths, why)


def _transformer(rung: Rung) -> tuple[dict[str, Any], tuple[Reason, ...]]:
    """The section of a Transformer and its reasons."""
    section = {
        "kind": "transformer",
        "width": rung.width,
        "feed_forward": rung.feed_forward,
        "encoder_layers": rung.layers,
        "decoder_layers": rung.layers,
        "heads": rung.heads,
        "dropout_rate": rung.dropout_rate,
    }
    size = Reason(
        ("model.kind", "model.width", "model.encoder_layers", "model.decoder_layers", "model.heads"),
        f"a Transformer of width {rung.width}, {rung.layers}+{rung.layers} layers, {rung.heads} heads: a larger "
        "one learns this data by heart",
    )
    return section, (size, _dropout_reason(rung.dropout_rate))


def _recurrent(facts: DataFacts, rung: Rung, width: int | None) -> tuple[dict[str, Any], tuple[Reason, ...]]:
    """The section of a recurrent model and its reasons. Where its width is given, the symbols' vectors have it too."""
    own = next(own for own in RECURRENT_LADDER if facts.pairs <= own.pairs)
    section = {
        "kind": "seq2seq",
        "width": own.width,
        "embedding_width": own.embedding_width if width is None else width,
        "encoder_layers": own.layers,
        "decoder_layers": own.layers,
        "dropout_rate": rung.dropout_rate,
    }
    size = Reason(
        ("model.kind", "model.width", "model.embedding_width", "model.encoder_layers", "model.decoder_layers"),
        f"a recurrent model of width {own.width}, {own.layers}+{own.layers} layers, symbols of width "
        f"{own.embedding_width}: a larger one learns this data by heart",
    )
    follows = Reason(("model.kind", "model.embedding_width"), f"symbols of width {width}, as wide as the states")
    return section, (size if width is None else follows, _dropout_reason(rung.dropout_rate))


def _dropout_reason(rate: float) -> Reason:
    amount, asks, strength = ("little", "needs", "strong") if rate >= 0.3 else ("much", "allows", "light")
    return Reason(("model.dropout_rate",), f"dropout {rate:g}: {amount} data {asks} {strength} regularisation")


def training_reasons(training: Mapping[str, Any], *, falling: str = "as 1/√step") -> Iterator[Reason]:
    """Why a model is trained at such a rate, and which weights are kept.

    How many passes over the data the steps are is known once the text is encoded (`passes_text`).
    """
    steps, checks = training["steps"], training["steps"] // training["validate_every"]
    yield Reason(("training.steps",), f"{steps:,} step{'' if steps == 1 else 's'} at most")
    if checks > training["patience"]:
        yield Reason(("training.patience",), "an earlier end when the dev loss has stood still for ten validations")
    yield Reason(
        ("training.learning_rate", "training.warmup"),
        f"a learning rate up to {training['learning_rate']:g} over {training['warmup']:,} steps, then falling "
        f"{falling}",
    )
    if checks >= training["average"]:
        yield Reason(
            ("training.average",), "the mean of the last ten checkpoints as the model, if it beats the best one"
        )


def passes_text(steps: int, *, per_pass: float) -> str:
    """How often the training text is read in so many steps, of which one pass takes `per_pass`."""
    passes = steps / per_pass
    over = "less than one pass" if passes < 0.95 else "about one pass" if passes < 1.5 else f"about {passes:.0f} passes"
    return f"{steps:,} step{'' if steps == 1 else 's'}: {over} over the training text"


def _at(settings: Mapping[str, Any], path: str) -> Any:
    section, name = path.split(".")
    return settings[section].get(name)


def _is_unspaced(code: str | None) -> bool:
    if code is None:
        return False
    try:
        return find_language(code).is_unspaced
    except SeqloomError:
        return False


def round_figure(number: float | int) -> int:
    """To two digits that count: 12,345 becomes 12,000."""
    return int(float(f"{number:.1e}"))


# Zero-config for language models and word vectors: sizes chosen from the text, each with its reason.


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


def _pieces_of_text(facts: TextFacts, kind: Kind, *, most: int, minimum_count: int) -> tuple[dict[str, Any], Reason]:
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
    text, pieces = _pieces_of_text(facts, kind, most=33_000 if tokens < 5_000_000 else 50_000, minimum_count=2)
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
    text, pieces = _pieces_of_text(facts, kind, most=ALL_WORDS, minimum_count=1)
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
    text, pieces = _pieces_of_text(facts, kind, most=ALL_WORDS, minimum_count=1)
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
