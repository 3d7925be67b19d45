"""CTranslate2 as an engine: it searches an exported model, and returns ids and scores as the searches here do.

Supported settings, and how exactly:

    mode ctranslate2                exactly, with peer_length_penalty: these are its own rules, so results are those of
                                    the search here in that mode
    mode seqloom                    by its own beam search, as the next lines describe
    beam, nbest                     its own beam search: a finished hypothesis frees its place for the next candidate
    length_normalisation none       log P(Y∣X), by length_penalty 0
    length_normalisation mean       log P(Y∣X) / |Y| with the end counted, by length_penalty 1 and the end returned
    length_normalisation power      log P(Y∣X) / |Y|^alpha, likewise
    length_normalisation gnmt       only with alpha 0, which is none: it has no ((5 + |Y|) / 6)^alpha
    length_factor, length_constant  exactly: sentences of one limit are searched together
    tokens_per_batch                its batches of tokens
    prefixes                        with `none` only: it leaves them out of the score, where they are added again

Any other setting that is not at its default is refused. With no length penalty it stops once its best candidate ends
and `nbest` are finished; with one, once `beam` are finished, whatever might come later.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.files import check_manifest, directory_manifest, read_json, write_atomically
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, RESERVED
from seqloom.interop.ctranslate2 import (
    LEAST_POSITIONS,
    Quantization,
    has_position_table,
    require_ctranslate2,
    require_transformer,
    write_ctranslate2,
)
from seqloom.runs.loading import LoadedModel
from seqloom.search.peers.rules import rules_of
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import Tokenizers
from seqloom.version import __version__

FORMAT = 1
"""The number of the layout of an exported directory; a newer one is refused."""

DESCRIPTION = "seqloom.json"
"""The description of an exported directory, next to the files that CTranslate2 reads."""

FOLLOWED = frozenset(
    {
        *("beam", "nbest", "mode", "length_normalisation", "alpha", "length_factor", "length_constant"),
        "length_overrun",
        *("tokens_per_batch", "split"),
    }
)
"""The search settings that this engine supports, or that act before it (split); in its own mode,
peer_length_penalty as well."""


@dataclass(frozen=True)
class Description:
    """What is needed to use an exported model, beyond what CTranslate2 itself reads."""

    source: str | None
    """Source language."""
    target: str | None
    """Target language."""
    quantization: str
    """How the weights are stored."""
    positions: int | None
    """The most tokens on a side, the end counted; none where positions are relative."""
    longest: int
    """Tokens of a source sentence, the end counted, up to which the model was trained."""
    search: Mapping[str, Any]
    """The settings of the search that the model was trained with."""
    version: str
    """The version of Seqloom that wrote it."""
    files: Mapping[str, Any]
    """Size and SHA-256 of the other files."""
    format: int = FORMAT

    def to_json(self) -> str:
        """The content of `seqloom.json`."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def write_directory(
    loaded: LoadedModel, folder: Path, *, quantization: Quantization = "none", readme: str | None = None
) -> None:
    """Write a model for this engine into an existing folder, with its tokenisers and description."""
    write_engine_files(loaded, folder, quantization=quantization)
    loaded.tokenizers.save(folder / "text")
    if readme is not None:
        write_atomically(folder / "README.md", readme)
    description = Description(
        source=loaded.card.source,
        target=loaded.card.target,
        quantization=quantization,
        positions=max_positions(loaded) if has_position_table(require_transformer(loaded.model)) else None,
        longest=loaded.config.data.longest,
        search=loaded.search_settings().model_dump(mode="json"),
        version=__version__,
        files=directory_manifest(folder),
    )
    write_atomically(folder / DESCRIPTION, description.to_json())


def write_engine_files(loaded: LoadedModel, folder: Path, *, quantization: Quantization) -> None:
    """Write what CTranslate2 itself reads."""
    has_table = has_position_table(require_transformer(loaded.model))
    source, target = (
        [side.piece(id) for id in range(side.size)] for side in (loaded.tokenizers.source, loaded.tokenizers.target)
    )
    positions = max_positions(loaded) if has_table else 0
    write_ctranslate2(folder, loaded.model, pieces=(source, target), quantization=quantization, positions=positions)


def max_positions(loaded: LoadedModel) -> int:
    """Rows of a position table: for the longest source in training, and its longest translation."""
    longest = torch.tensor([loaded.config.data.longest])
    (limit,) = loaded.search_settings().hard_limits(Source(longest.new_empty(1, 0), longest))
    return max(LEAST_POSITIONS, loaded.config.data.longest, limit)


@dataclass(frozen=True)
class Asked:
    """The settings of a search, as options of the engine."""

    power: float
    """The p of |Y|^p by which log P is divided."""
    min_length: int
    """Symbols before the end. Where there are some, the end has no probability before, and all others have more."""
    has_cut_last: bool
    """Whether hypotheses that were cut come after all finished ones, as ours do, or by their score, as there."""


@dataclass(frozen=True)
class Found:
    """A hypothesis of the engine: its ids without begin and end, its score, and whether it came to an end."""

    ids: tuple[int, ...]
    score: float
    is_finished: bool


class CTranslate2Engine:
    """Translates ids with an exported model.

    engine = CTranslate2Engine(Path("model-ctranslate2"))
    engine.translate_ids([engine.tokenizers.source.encode("Guten Morgen.")], SearchConfig(length_normalisation="mean"))
    """

    def __init__(self, folder: Path, *, device: str = "cpu", workers: int = 1, threads: int = 0) -> None:
        """`workers` batches are searched at a time, each by so many `threads` (0: the engine chooses)."""
        library = require_ctranslate2()
        self.folder = folder
        self.description = read_description(folder)
        self._sources = read_tokens(folder, "source")
        self._targets = read_tokens(folder, "target")
        self._ids = {token: number for number, token in enumerate(self._targets)}
        try:
            self._translator = library.Translator(
                str(folder), device=device, inter_threads=workers, intra_threads=threads
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder} cannot be read by CTranslate2 {library.__version__}: {error}") from error

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenisers that were exported with the model."""
        return Tokenizers.load(self.folder / "text")

    @property
    def search(self) -> SearchConfig:
        """The settings of the search that were exported with the model."""
        return SearchConfig.model_validate_json(json.dumps(self.description.search))

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchConfig,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Found]]:
        """At most `settings.nbest` hypotheses for each source, best first; of our mode, finished ones before cut ones.

        A source may end with END or leave it out. Hypotheses begin with their prefix, if there is one.
        """
        asked = asked_of(settings)
        tokens = [self._source_tokens(ids, number) for number, ids in enumerate(sources)]
        lengths = torch.tensor([len(each) + 1 for each in tokens], dtype=torch.long)
        without_ids = Source(torch.empty(len(lengths), 0, dtype=torch.long), lengths)
        limits = settings.limits(without_ids)
        self._require_room(tokens, limits)
        begun: list[list[str]] | None = None
        head_starts = [0.0] * len(tokens)  # log P of each prefix, which the engine leaves out of its scores
        if prefixes is not None and any(prefixes):
            if asked.power:
                raise UsageError(
                    "CTranslate2 leaves a prefix out of the score, so it cannot be divided by a length; "
                    "set search.length_normalisation=none, or in its own mode search.peer_length_penalty=0"
                )
            if len(prefixes) != len(sources):
                raise DataError(f"got {len(prefixes)} prefixes for {len(sources)} sources; each source needs one")
            begun = [[self._targets[id] for id in ids] for ids in prefixes]
            scored = self._translator.score_batch(tokens, begun, max_input_length=0)
            head_starts = [float(sum(each.log_probs[:-1])) for each in scored]

        def search(limits: Mapping[int, int]) -> dict[int, list[Found]]:
            """What is found for each of these sentences up to its limit; those of one limit are searched together."""
            waiting: dict[int, Any] = {}
            for limit in dict.fromkeys(limits.values()):
                numbers = [number for number, own in limits.items() if own == limit]
                started = self._translator.translate_batch(
                    [tokens[number] for number in numbers],
                    target_prefix=None if begun is None else [begun[number] for number in numbers],
                    max_batch_size=settings.tokens_per_batch,
                    batch_type="tokens",
                    asynchronous=True,
                    beam_size=settings.beam,
                    num_hypotheses=settings.nbest,
                    length_penalty=asked.power,
                    # So the end is counted, as it is here, and a cut hypothesis differs from a finished one.
                    return_end_token=True,
                    max_input_length=0,
                    max_decoding_length=limit,
                    min_decoding_length=min(asked.min_length, limit),
                    return_scores=True,
                )
                waiting.update(zip(numbers, started, strict=True))
            found: dict[int, list[Found]] = {number: [] for number in waiting}
            for number, each in waiting.items():
                result = each.result()
                for written, score in zip(result.hypotheses, result.scores, strict=True):
                    is_finished = bool(written) and written[-1] == RESERVED[END]
                    ids = tuple(self._ids[token] for token in (written[:-1] if is_finished else written))
                    found[number].append(Found(ids, float(score) + head_starts[number], is_finished))
            return found

        found = search(dict(enumerate(limits)))
        most = self.description.positions
        longer = [limit if most is None else min(limit, most) for limit in settings.hard_limits(without_ids)]
        # As in our own search, a sentence whose best hypothesis has not ended gets more room.
        found |= search({at: longer[at] for at in found if longer[at] > limits[at] and not found[at][0].is_finished})
        return [
            sorted(found[at], key=lambda one: asked.has_cut_last and not one.is_finished) for at in range(len(sources))
        ]

    def score_ids(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, tokens_per_batch: int = 4096
    ) -> list[list[float]]:
        """log P(y_t ∣ x, y_<t) of each symbol of the given targets, and then of END."""
        if len(sources) != len(targets):
            raise DataError(f"got {len(targets)} targets for {len(sources)} sources; each source needs one")
        given = [self._source_tokens(ids, number) for number, ids in enumerate(sources)]
        wanted = [[self._targets[id] for id in ids] for ids in targets]
        self._require_room(given, [len(each) + 1 for each in wanted])
        scored = self._translator.score_batch(
            given, wanted, max_batch_size=tokens_per_batch, batch_type="tokens", max_input_length=0
        )
        return [[float(value) for value in each.log_probs] for each in scored]

    def _source_tokens(self, ids: Sequence[int], number: int) -> list[str]:
        inner = ids[:-1] if ids and ids[-1] == END else ids
        if not inner:
            raise DataError(f"source {number} has no tokens, which CTranslate2 does not translate; leave it out")
        return [self._sources[id] for id in inner]

    def _require_room(self, tokens: Sequence[list[str]], limits: Sequence[int]) -> None:
        most = self.description.positions
        for number, (each, limit) in enumerate(zip(tokens, limits, strict=True)):
            needed = max(len(each) + 1, limit)
            if most is not None and needed > most:
                raise UsageError(
                    f"source {number} has {len(each) + 1} tokens and may get {limit}, but {self.folder} has a table "
                    f"of {most} positions; cut the sentence, or lower search.length_factor"
                )


def asked_of(settings: SearchConfig) -> Asked:
    """The options of the engine for these settings; what it does not support is refused."""
    is_its_own = settings.mode == "ctranslate2"
    followed = FOLLOWED | {"peer_length_penalty"} if is_its_own else FOLLOWED
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name not in followed and value != field.get_default(call_default_factory=True):
            raise UsageError(f"search.{name}={value} is not supported by CTranslate2; remove it, or --engine")
    if is_its_own:
        rules = rules_of("ctranslate2", settings.peer_length_penalty)
        return Asked(rules.length_penalty, min_length=rules.min_length, has_cut_last=False)
    if settings.mode != "seqloom":
        raise UsageError(f"search.mode={settings.mode} is not supported by CTranslate2; set search.mode=ctranslate2")
    kind = settings.length_normalisation
    if kind == "gnmt" and settings.alpha > 0:
        raise UsageError(
            f"search.length_normalisation=gnmt with search.alpha={settings.alpha} is not supported by CTranslate2: "
            "it divides by |Y|^p; set search.mode=ctranslate2 for its own rules, or "
            "search.length_normalisation=mean, power or none"
        )
    powers = {"none": 0.0, "mean": 1.0, "power": settings.alpha, "gnmt": 0.0}
    return Asked(power=powers[kind], min_length=0, has_cut_last=True)


def read_description(folder: Path) -> Description:
    """The description of an exported directory, whose files are checked first."""
    path = folder / DESCRIPTION
    if not folder.is_dir():
        raise UsageError(f"{folder}: directory not found; create one with: seqloom export MODEL --to ctranslate2")
    if not path.is_file():
        raise ModelError(
            f"{folder} was not exported by Seqloom: it has no {DESCRIPTION}; create one with: "
            "seqloom export MODEL --to ctranslate2"
        )
    try:
        values = read_json(path)
        if values["format"] > FORMAT:
            raise ModelError(
                f"{path} has format {values['format']}, and this version reads up to {FORMAT}; use a newer one"
            )
        kinds: dict[str, Any] = {"quantization": str, "version": str, "longest": int, "search": dict, "files": dict}
        kinds |= {"source": str | None, "target": str | None, "positions": int | None, "format": int}
        for name, kind in kinds.items():
            if not isinstance(values[name], kind):
                raise TypeError(f"{name} is {str(values[name])[:40]!r}")
        if min(values["longest"], values["positions"] or 1) < 1:
            raise ValueError("a length is less than 1")
        description = Description(**{field.name: values[field.name] for field in fields(Description)})
        damage = check_manifest(folder, description.files)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}; export the model again") from error
    if damage:
        raise ModelError(f"{folder} is damaged: {'; '.join(damage[:3])}; export the model again")
    return description


def read_tokens(folder: Path, side: str) -> list[str]:
    """The tokens of a side in the order of their ids, as the engine reads them."""
    shared = folder / "shared_vocabulary.json"
    path = shared if shared.is_file() else folder / f"{side}_vocabulary.json"
    try:
        tokens: list[str] = read_json(path)
        if not isinstance(tokens, list):
            raise TypeError("it is not a list of tokens")
        "".join(tokens).encode("utf-8")  # refuses lone surrogates
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; export the model again") from error
    return tokens
