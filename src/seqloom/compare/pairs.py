"""Translators compared: the sets of sentence pairs, what the doctor finds in them, and translations scored."""

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.apps.translator import Translator
from seqloom.compare.results import (
    RungResult,
    bleu_by_length,
    bleu_of,
    score_lines,
    word_counts,
    words_by_frequency,
)
from seqloom.compare.rungs import CURVE_SIZES, Rung
from seqloom.compare.splits import Splits, make_splits, read_splits
from seqloom.compare.subject import Clock, Order
from seqloom.core.errors import SeqloomWarning
from seqloom.core.events import Listener, ignore, notice, phase, progress_counter
from seqloom.core.files import write_atomically
from seqloom.doctor.examination import diagnose
from seqloom.metrics.scoring import score
from seqloom.runs.model_dir import read_card

WARM_UP_LINES = 8
"""Lines translated before the speed is measured, so that nothing is compiled or read from disk in between."""


class Pairs:
    """Sentence pairs below a folder."""

    sizes: Sequence[int] = CURVE_SIZES

    def __init__(self, folder: Path, order: Order, *, listener: Listener, clock: Clock) -> None:
        self.folder, self.order = folder, order
        self._listener, self._clock = listener, clock
        self._splits: Splits | None = None

    @property
    def splits(self) -> Splits:
        """The text of all rungs."""
        assert self._splits is not None
        return self._splits

    def size(self) -> int:
        return self.splits.train_pairs

    def prepare(self) -> None:
        self._splits = read_splits(self.folder)
        if self._splits is not None:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        phase(self._listener, "reading the text")
        order = self.order
        self._splits = make_splits(
            self.folder,
            train=order.train,
            dev=order.dev,
            test=order.test,
            languages=order.languages,
            encoding=order.encoding,
            sizes=self.sizes,
            seed=order.seed,
            listener=self._listener,
        )

    def examine(self) -> dict[str, Any]:
        phase(self._listener, "the doctor looks at the text")
        files = {name: self.splits.files(name) for name in ("train", "dev", "test")}
        found = diagnose(
            files["train"],
            dev=files["dev"],
            test=files["test"],
            languages=(self.splits.source, self.splits.target),
            listener=ignore,
        )
        notice(self._listener, f"doctor: {found.verdict.sentence}")
        return {
            "verdict": found.verdict.sentence,
            "faults": [
                {"severity": fault.severity, "title": fault.title, "sentence": fault.sentence} for fault in found.faults
            ],
        }

    def files(self, part: str) -> list[str]:
        return [str(path) for path in self.splits.files(part)]

    def overrides(self) -> list[str]:
        return self.splits.overrides()

    def count(self, rung: Rung, folder: Path) -> RungResult:  # noqa: ARG002
        raise AssertionError(f"{rung.name} is a run")

    def measure(self, rung: Rung, run: Path, *, minutes: float, is_improving: bool) -> RungResult:
        """Translate the test set and score it."""
        sources, references = self.splits.lines("test")
        language = self.splits.target
        texts, seconds = self._translate(run, sources, rung.name)
        write_atomically(run / "test.txt", "".join(f"{text}\n" for text in texts))
        bleu, chrf, signatures = score_lines(texts, references, language=language, seed=self.order.seed)
        model = run / "model"
        known = word_counts(self.splits.lines("train")[1])
        return RungResult(
            rung.name,
            bleu,
            chrf,
            minutes=minutes,
            sentences_per_second=len(sources) / max(seconds, 1e-9),
            megabytes=sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6,
            parameters=read_card(model).parameters,
            is_improving=is_improving,
            signatures=signatures,
            by_length=bleu_by_length(sources, texts, references, language=language),
            by_frequency=words_by_frequency(texts, references, known=known),
        )

    def score_point(self, run: Path, what: str) -> float:
        sources, references = self.splits.lines("test")
        texts, _ = self._translate(run, sources, what)
        return score(bleu_of(self.splits.target), texts, references=references).value

    def _translate(self, run: Path, sources: Sequence[str], name: str) -> tuple[list[str], float]:
        """Translations of lines, and the seconds that they took."""
        translator = Translator.load(run / "model")
        count = progress_counter(self._listener, f"{name}: translating the test set", len(sources))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SeqloomWarning)
            translator.search(sources[:WARM_UP_LINES])
            began = self._clock()
            found = translator.search(sources, progress=count)
            return [each[0].text for each in found], self._clock() - began
