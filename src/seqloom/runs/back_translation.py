"""Back-translation for few pairs (Sennrich et al., 2016): text of the target language becomes training pairs.

    baseline    a translator trained on the genuine pairs alone: what is to be improved
    reverse     a translator of the same pairs the other way round; with few of them one that counts phrases
    synthetic   each line of the text with its translation by `reverse` as the source, behind a mark
    mixed       genuine pairs, repeated so that they keep their share, and synthetic ones: the model is trained on these

The mark says that a source is a translation (tagged back-translation, Caswell et al., 2019), so that the model can
learn from it without taking its errors for the language. If the model does not score higher than the baseline on the
dev text, the baseline is kept.

run/given.json            the settings that were given, for the two sub-runs
run/baseline, run/reverse the sub-runs, which are ordinary runs
run/data/pairs/           the genuine pairs as text
run/data/synthetic/       translations of the text, in parts: an interrupted run translates none of them again
run/data/mixed/           the pairs that the model is trained on, as ids
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seqloom.core.config import read_config_file
from seqloom.core.errors import DataError, SeqloomError, Stopped, UsageError
from seqloom.core.events import Event, Listener, notice, phase
from seqloom.core.files import read_json, read_lines, write_atomically
from seqloom.core.symbols import BEGIN
from seqloom.data.corpus import Line, text_blocks
from seqloom.data.encoding import PairEncoder
from seqloom.data.plain_text import TextCorpus
from seqloom.data.store import Sentences, Store, StoreWriter
from seqloom.metrics.scoring import CorpusScore
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.loading import Loaded, load_any
from seqloom.runs.model_dir import read_card
from seqloom.runs.translator import translate_lines
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import FlatIds, Tokenizer, Tokenizers

MARK = BEGIN
"""The symbol before each source that the reverse model has made: no other source has it."""

PAIRS, SYNTHETIC, MIXED, GIVEN = "pairs", "synthetic", "mixed", "given.json"

LINES_PER_PART = 2_000
"""Lines whose translations are stored together."""

OWN_SETTINGS = (
    "train", "dev", "source", "target", "encoding", "on_bad_utf8", "monolingual", "synthetic_share", "reverse",
    "back_translation",
)  # fmt: skip
"""Settings of the data that sub-runs do not take from the run: their files are written for them."""

SHARED_SETTINGS = ("seed=", "data.workers=", "evaluation.")
"""What a reverse model of another kind takes from the run."""


class SubRun(Protocol):
    """Trains, or resumes, a run in a folder."""

    def __call__(
        self, folder: Path, overrides: Sequence[str], files: Sequence[str], dev: Sequence[str], *, is_same: bool
    ) -> object:
        """With its training files and its dev files; `is_same` if the model is of the kind of the whole run."""
        ...


def open_monolingual(data: DataConfig, *, formats: Sequence[Format] = FORMATS) -> TextCorpus:
    """The text of the target language, checked."""
    for name in data.monolingual:
        if name in (*data.train, *data.dev):
            raise UsageError(f"{name} is training or dev text and data.monolingual as well; give another text")
    corpus = TextCorpus(
        [Path(name) for name in data.monolingual],
        encoding=data.encoding,
        on_bad=data.on_bad_utf8,
        language=data.target,
        formats=formats,
    )
    corpus.require_text()
    return corpus


def remember_given(run: Path, file: Path | None, overrides: Sequence[str]) -> None:
    """Store what the user set: the sub-runs choose sizes for their own data, as far as the user left them open."""
    values = {} if file is None else dict(read_config_file(file).values)
    write_atomically(run / GIVEN, json.dumps({"file": values, "overrides": list(overrides)}, indent=2) + "\n")


def write_pairs(folder: Path, **texts: Iterable[Line]) -> None:
    """Write pairs as text, those of `train` as train.source and train.target, and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, given in texts.items():
        lines = list(given)
        for side in ("source", "target"):
            rows = (getattr(line, side) for line in lines)
            write_atomically(folder / f"{name}.{side}", "".join(f"{row}\n" for row in rows))


def make_mixture(
    run: Path, config: RunConfig, *, sub_run: SubRun, formats: Sequence[Format], listener: Listener
) -> None:
    """Make everything up to the mixed pairs; what an earlier process finished is not done again."""
    if (run / "data" / MIXED).is_dir():
        return
    try:
        for name, what in (
            ("baseline", "a model of the genuine pairs, to compare with"),
            ("reverse", "the reverse model"),
        ):
            phase(listener, f"back-translation: training {what}, in {run / name}")
            _train_part(run, name, config, sub_run=sub_run)
        sources = _translate(run, config, formats=formats, listener=listener)
    except Stopped as error:
        raise Stopped(
            f"stopped during back-translation. Resume with: seqloom train --resume {run}", error.code
        ) from error
    _mix(run, config, sources, formats=formats, listener=listener)


def _train_part(run: Path, name: str, config: RunConfig, *, sub_run: SubRun) -> None:
    sides, languages = ("source", "target"), (config.data.source, config.data.target)
    if name == "reverse":
        sides, languages = sides[::-1], languages[::-1]
    files, dev = ([str(run / "data" / PAIRS / f"{part}.{side}") for side in sides] for part in ("train", "dev"))
    codes = [f"data.{side}={code}" for side, code in zip(("source", "target"), languages, strict=True) if code]
    given, is_same = _given(run), name == "baseline" or config.data.reverse == "same"
    if not is_same:
        given = ["model.kind=phrases", *(each for each in given if each.startswith(SHARED_SETTINGS))]
    sub_run(run / name, [*given, *codes], files, dev, is_same=is_same)


def _given(run: Path) -> list[str]:
    """The settings that were given, as overrides, without those of the data that sub-runs have themselves."""
    try:
        found = read_json(run / GIVEN)
    except OSError:  # a process that was killed before it was written
        return []
    flat = [f"{name}={json.dumps(value)}" for name, value in _flat(found["file"]).items()]
    own = tuple(f"data.{name}=" for name in OWN_SETTINGS)
    return [each for each in (*flat, *found["overrides"]) if not each.startswith(own)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _translate(run: Path, config: RunConfig, *, formats: Sequence[Format], listener: Listener) -> list[str]:
    """Translations of all lines of the text; blank for blank ones and for those that were cut."""
    lines = [line.text for line in open_monolingual(config.data, formats=formats)]
    folder, loaded = run / "data" / SYNTHETIC, list[Loaded]()

    def translate(first: int, some: Sequence[str], progress: Callable[[int], None]) -> list[str]:  # noqa: ARG001
        if not loaded:
            reverse = load_any(run / "reverse")
            given: dict[str, Any] = {"greedy": {"beam": 1}, "sample": {"method": "sample", "seed": config.seed}}
            chosen = reverse.config.search.model_copy(update=given.get(config.data.back_translation, {}))
            loaded.append(replace(reverse, config=reverse.config.model_copy(update={"search": chosen})))
        best = translate_lines(loaded[0], some, progress=progress)
        return ["" if is_cut else text for text, is_cut in zip(best.texts, best.is_cut, strict=True)]

    found = translate_in_parts(lines, folder, translate, what="back-translating", listener=listener)
    if len(found) != len(lines):
        raise DataError(
            f"{folder} holds translations of {len(found):,} lines, but data.monolingual has {len(lines):,}; remove "
            f"{folder}, and resume with: seqloom train --resume {run}"
        )
    return found


def translate_in_parts(
    lines: Sequence[str],
    folder: Path,
    translate: Callable[[int, Sequence[str], Callable[[int], None]], list[str]],
    *,
    what: str,
    listener: Listener,
) -> list[str]:
    """Translations of lines, which are stored in parts; those that an earlier process has stored are not made again.

    `translate` gets the number of the first line of a part, counted from 0, the lines, and a function that it calls
    with the number of lines that were finished.
    """
    found = list[str]()
    folder.mkdir(parents=True, exist_ok=True)
    for part, begin in enumerate(range(0, len(lines), LINES_PER_PART)):
        path, some = folder / f"{part:05}.txt", lines[begin : begin + LINES_PER_PART]
        if not path.is_file():
            done = begin

            def progress(count: int) -> None:
                nonlocal done
                done += count
                listener(Event("progress", {"what": what, "done": done, "all": len(lines)}))

            write_atomically(path, "".join(f"{text}\n" for text in translate(begin, some, progress)))
        found += read_lines(path)
    return found


@dataclass(frozen=True)
class MarkedEncoder:
    """Encodes sources with a symbol before each."""

    tokenizer: Tokenizer
    mark: int

    def __call__(self, lines: list[str]) -> FlatIds:
        found = self.tokenizer.encode_flat(lines)
        starts = np.cumsum(found.lengths) - found.lengths
        # A blank line stays one, so that its pair is dropped.
        is_filled = found.lengths > 0
        return FlatIds(
            np.insert(found.ids, starts[is_filled], self.mark).astype(found.ids.dtype), found.lengths + is_filled
        )


def _mix(
    run: Path, config: RunConfig, sources: Sequence[str], *, formats: Sequence[Format], listener: Listener
) -> None:
    """Store genuine and synthetic pairs together."""
    tokenizers, genuine = Tokenizers.load(run / "text"), Store.open(run / "data" / "train")
    encoder = PairEncoder(MarkedEncoder(tokenizers.source, MARK), tokenizers.target.encode_flat, config.data.longest)
    text = open_monolingual(config.data, formats=formats)
    # The dev text decides which model is kept, so none of it may be learned.
    held_out = set(read_lines(run / "data" / PAIRS / "dev.target"))
    seen: set[str] = set()
    lines, dropped = list[Line](), 0
    for line, source in zip(text, sources, strict=True):
        dropped += line.text in held_out
        if not (is_blank(line.text) or is_blank(source) or line.text in seen or line.text in held_out):
            seen.add(line.text)
            lines.append(Line(line.number, 0, source, line.text))
    if dropped:
        notice(listener, f"{dropped:,} lines of data.monolingual are also in the dev text; they are left out")
    if not lines:
        notice(listener, "the reverse model translates no line to its end: there are no synthetic pairs")
    share = config.data.synthetic_share
    copies = max(1, round(len(lines) / len(genuine) * (1 - share) / share))
    symbols = max(tokenizers.source.size, tokenizers.target.size)
    everything = np.arange(len(genuine))
    kept = 0
    with StoreWriter(run / "data" / MIXED, symbols=symbols) as writer:
        for _ in range(copies):
            sources_again, targets_again = (
                Sentences(side.ids, side.lengths.astype(np.int64)) for side in (genuine.sources, genuine.targets)
            )
            writer.append_flat(sources_again, targets_again, genuine.lines(everything))
        for block in text_blocks(lines):
            examples = encoder(block)
            writer.append_flat(examples.sources, examples.targets, examples.lines)
            kept += examples.report.kept
    counted = "once" if copies == 1 else f"{copies} times"
    notice(
        listener,
        f"training pairs: {len(genuine):,} genuine ones, each {counted}, and {kept:,} synthetic ones of {len(text):,} "
        "lines of text",
    )


def keep_the_better(run: Path, scores: tuple[CorpusScore, ...], *, listener: Listener) -> tuple[CorpusScore, ...]:
    """Replace the model of a run by its baseline if that is at least as good; the scores of what is kept.

    Both were measured on the same dev text, with the search settings of the run.
    """
    baseline = read_card(run / "baseline" / "model")
    first, before = scores[0], baseline.measured[0]
    if first.name != before.name:
        raise SeqloomError(f"{run / 'baseline'} was measured by {before.name}, but {run} by {first.name}")
    if first.value > before.value:
        notice(
            listener,
            f"back-translation: {first.name} {first.value:.1f} on dev text, {before.value:.1f} with the genuine pairs "
            "alone",
        )
        return scores
    notice(
        listener,
        f"back-translation does not help: {first.name} {first.value:.1f} on dev text, {before.value:.1f} with the "
        "genuine pairs alone; the model of the genuine pairs is kept",
    )
    new, model = run / "model.kept", run / "model"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(run / "baseline" / "model", new)
    shutil.rmtree(model)
    new.rename(model)
    return baseline.measured
