"""What recordings, handwriting or images of lines say, from a model that was trained on transcripts.

    transcriber = Transcriber.load("run/model")
    transcriber.transcribe(["digits.wav"])[0].text
    transcriber.transcribe(["digits.wav"], beam=16, language_model="lm/model", weight=0.3)

Samples are files, or `Strokes`. They are read in order of length, and what is beside a sample in a batch changes
nothing of its result. Without a beam, the transcript of a CTC model is that of the best path. With one, it is the best
of all whose prefixes were kept (`search/ctc.py`), by itself or together with a language model. A model with an
attention decoder is decoded as translators are: greedily, or by beam search.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.apps.language_model import load_language_model
from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_lines, as_path, as_whole_number, require_callable, shown
from seqloom.core.errors import DataError, ModelError, Problem, UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import UNKNOWN
from seqloom.data.frames import Frames, Strokes, finished, kind_of, read_frames
from seqloom.metrics.scoring import Bootstrap, CorpusScore, check_counts
from seqloom.models.protocols import AttendsToFrames, TranscriptionModel
from seqloom.runs.loading import Loaded, in_words, load_any, require_loaded
from seqloom.runs.readers import require_reader
from seqloom.runs.transcription import frame_kind, score_transcripts
from seqloom.search.beam import beam_search
from seqloom.search.ctc import CtcLanguageModel, ctc_beam_search, greedy_ctc_search
from seqloom.search.ensemble import Fusion
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import TranscriptionConfig
from seqloom.tasks.transcription import frame_search, pad_frames
from seqloom.text.tokenizer import Tokenizer

FRAMES_PER_BATCH = 8_000
"""Frames that are read together."""

SAMPLES_AT_ONCE = 256
"""Samples whose frames are in memory together."""

BEAM = 16
"""Prefixes that are kept, if a language model is given and no beam."""

WEIGHT = 0.3
"""Of a language model."""

Recording = Path | str | Strokes
"""A file, or strokes."""


def ignore_samples(_done: int, _all: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Transcript:
    """What a sample says."""

    text: str
    score: float
    """log P(text ∣ sample), and what a language model and a reward add to it."""
    terms: Mapping[str, float]
    """What the score is the sum of."""
    is_complete: bool
    """Whether no other transcript can have a better score."""


@dataclass(frozen=True)
class TranscriberScores:
    """How well transcripts agree with known ones."""

    wer: CorpusScore
    cer: CorpusScore
    outputs: tuple[str, ...]


class Transcriber:
    """Writes down what recordings, handwriting or images of lines say.

    transcriber = Transcriber.load("run/model")
    transcriber.transcribe(["digits.wav"])[0].text
    """

    def __init__(self, loaded: Loaded) -> None:
        require_loaded(loaded, [], caller="Transcriber")
        if not isinstance(loaded.config.task, TranscriptionConfig):
            raise UsageError(by_origin(f"{loaded.folder} is not a transcriber: {in_words(loaded.config)}"))
        self.loaded, self.config, self.card = loaded, loaded.config, loaded.card
        self.kind = frame_kind(loaded.config)
        self._model = loaded.model.eval()

    def __repr__(self) -> str:
        return f"Transcriber({self.loaded.summary()})"

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the transcripts."""
        return self.loaded.tokenizers.target

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None) -> "Transcriber":
        """Read the directory of a transcriber, or the run in which it was trained."""
        return Transcriber(load_any(folder, device=device))

    def transcribe(
        self,
        samples: Iterable[Recording],
        *,
        progress: Callable[[int, int], None] = ignore_samples,
        **search: Any,
    ) -> list[Transcript]:
        """The transcript of each sample: the first of what `nbest` finds, whose further arguments are `search`."""
        return [best for best, *_ in self.nbest(samples, 1, progress=progress, **search)]

    def nbest(
        self,
        samples: Iterable[Recording],
        count: int,
        *,
        beam: int | None = None,
        language_model: "Path | str | Loaded | None" = None,
        weight: float = WEIGHT,
        reward: float = 0.0,
        frames_per_batch: int = FRAMES_PER_BATCH,
        progress: Callable[[int, int], None] = ignore_samples,
    ) -> list[list[Transcript]]:
        """At most `count` transcripts of each sample, best first.

        `beam` prefixes are kept; without it, the best path is taken if one transcript is all. A `language_model` of the
        same characters counts with this `weight`, and each symbol adds `reward` to the score. `progress` gets the
        samples done, and all.
        """
        require_callable(progress, "progress")
        given, found = self._as_samples(samples), list[list[Transcript]]()
        fused = None if language_model is None else self.fused(language_model, weight)
        for begin in range(0, len(given), SAMPLES_AT_ONCE):
            some = given[begin : begin + SAMPLES_AT_ONCE]
            frames = [self._frames(sample, number) for number, sample in enumerate(some, start=begin + 1)]
            found += self.nbest_of_frames(
                frames, count, beam=beam, language_model=fused, reward=reward, frames_per_batch=frames_per_batch
            )
            progress(len(found), len(given))
        return found

    def transcribe_frames(self, samples: Sequence[Frames], **search: Any) -> list[Transcript]:
        """The transcript of each sample; `search` is what `nbest_of_frames` takes."""
        return [best for best, *_ in self.nbest_of_frames(samples, 1, **search)]

    def nbest_of_frames(
        self,
        samples: Sequence[Frames],
        count: int,
        *,
        beam: int | None = None,
        language_model: CtcLanguageModel | None = None,
        reward: float = 0.0,
        frames_per_batch: int = FRAMES_PER_BATCH,
    ) -> list[list[Transcript]]:
        """What `nbest` gives, for frames as the model reads them, which `finished` of `data/frames.py` gives."""
        at_once = as_whole_number(frames_per_batch, "frames_per_batch", least=1)
        nbest = as_whole_number(count, "count", least=1)
        width = None if beam is None else as_whole_number(beam, "beam", least=1)
        if width is None and (language_model is not None or reward or nbest > 1):
            width = max(BEAM, nbest)
        if width is not None and nbest > width:
            raise UsageError(f"a beam of {width} has no {nbest} transcripts; give beam={nbest} or more")
        search = _Search(width, nbest, language_model, reward)
        found: dict[int, list[Transcript]] = {}
        for places in batches_by_length([len(each) for each in samples], tokens=at_once):
            hypotheses = self._searched([samples[place] for place in places.tolist()], search)
            for place, best in zip(places.tolist(), hypotheses, strict=True):
                found[place] = [
                    Transcript(self.tokenizer.decode(each.symbols), each.score, dict(each.terms), each.is_complete)
                    for each in best
                ]
        return [found[place] for place in range(len(samples))]

    def evaluate(
        self,
        samples: Iterable[Recording],
        texts: Iterable[str],
        *,
        bootstrap: Bootstrap | None = None,
        **search: Any,
    ) -> TranscriberScores:
        """WER and CER of these samples, whose transcripts are known; `search` is what `transcribe` takes."""
        given, right = self._as_samples(samples), as_lines(texts, "texts")
        check_counts([""] * len(given), right)
        outputs = [each.text for each in self.transcribe(given, **search)]
        config = self.config
        drawn = bootstrap or Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        # References are normalised as transcripts were in training.
        wer, cer = score_transcripts(outputs, [config.text.normaliser(text) for text in right], bootstrap=drawn)
        return TranscriberScores(wer, cer, tuple(outputs))

    def fused(self, model: "Path | str | Loaded", weight: float) -> CtcLanguageModel:
        """A language model beside this one. It must cut text into the same pieces; their numbers may differ."""
        loaded = model if isinstance(model, Loaded) else load_language_model(as_path(model, "language_model"))
        reader, theirs, ours = require_reader(loaded), loaded.tokenizers.target, self.tokenizer
        stepper = reader.stepper()
        if theirs != ours:
            if theirs.kind != ours.kind or ours.kind not in ("char", "word"):
                raise UsageError(
                    f"{loaded.folder} cuts text into pieces of kind {theirs.kind}, and {self.loaded.folder} into other "
                    f"ones of kind {ours.kind}; train the language model with data.tokenizers_from={self.loaded.folder}"
                )
            stepper = RenumberedStepper(stepper, ours.vocabulary, theirs.vocabulary)
        return CtcLanguageModel(stepper, weight)

    @torch.inference_mode()
    def _searched(self, samples: Sequence[Frames], search: "_Search") -> list[list[Hypothesis]]:
        frames, lengths = (each.to(self.loaded.device) for each in pad_frames(samples))
        model = self._model
        if isinstance(model, AttendsToFrames):
            memory = model.remember(frames, lengths)
            self._require_numbers(memory.states)
            return search.by_steps(*frame_search(model, memory))
        scores, left = cast("TranscriptionModel", model).frame_scores(frames, lengths)
        self._require_numbers(scores)
        return search.by_frames(scores, left)

    def _require_numbers(self, found: Tensor) -> None:
        if not bool(found.isfinite().all()):
            folder = by_origin(str(self.loaded.folder))
            raise ModelError(f"{folder} gives scores that are not numbers; its weights are damaged")

    def _frames(self, sample: Path | Strokes, number: int) -> Frames:
        if kind_of(sample) != self.kind:
            name = f"sample {number}" if isinstance(sample, Strokes) else str(sample)
            message = f"the model reads samples of kind {self.kind}, and this is {kind_of(sample) or 'something else'}"
            raise DataError(problems=[Problem(message, name)])
        return finished(read_frames(sample, self.config.data.frames), self.kind)

    @staticmethod
    def _as_samples(samples: Any) -> list[Path | Strokes]:
        if isinstance(samples, str | bytes | Path | Strokes) or not isinstance(samples, Iterable):
            raise UsageError(f"samples takes a list of files or strokes, such as ['digits.wav']; got {shown(samples)}")
        found = list(samples)
        for number, sample in enumerate(found, start=1):
            if not isinstance(sample, str | Path | Strokes):
                raise UsageError(f"samples takes files or strokes; sample {number} is {shown(sample)}")
        return [Path(sample) if isinstance(sample, str) else sample for sample in found]


@dataclass(frozen=True)
class _Search:
    """How transcripts are searched for; without a beam, greedily."""

    beam: int | None
    nbest: int
    language_model: CtcLanguageModel | None
    reward: float

    def by_frames(
        self, scores: Float[Tensor, "batch time symbols"], lengths: Int[Tensor, " batch"]
    ) -> list[list[Hypothesis]]:
        """Of a CTC model."""
        if self.beam is None:
            return [[found] for found in greedy_ctc_search(scores, lengths)]
        return ctc_beam_search(
            scores, lengths, beam=self.beam, nbest=self.nbest, language_model=self.language_model, reward=self.reward
        )

    def by_steps(self, stepper: Stepper, source: Source) -> list[list[Hypothesis]]:
        """Of a decoder."""
        settings = SearchConfig(length_normalisation="none", alpha=0.0, reward=self.reward)
        if self.beam is None:
            return [[found] for found in greedy_search(stepper, source, settings)]
        lm = self.language_model
        if lm is not None and lm.weight:
            stepper = Fusion(stepper, lm.stepper, weight=lm.weight, is_normalised=False)
        settings = settings.model_copy(update={"beam": self.beam, "nbest": self.nbest})
        return beam_search(stepper, source, settings)


class RenumberedStepper:
    """A language model whose pieces have other numbers, as one of our numbers.

    A piece that it does not know is its unknown symbol.
    """

    def __init__(self, stepper: Stepper, ours: Sequence[str], theirs: Sequence[str]) -> None:
        known = {piece: number for number, piece in enumerate(theirs)}
        self._stepper = stepper
        self._theirs = torch.tensor([known.get(piece, UNKNOWN) for piece in ours])  # by our number

    @property
    def begin(self) -> int:
        return self._stepper.begin

    @property
    def end(self) -> int:
        return self._stepper.end

    def start(self, source: Source) -> State:
        return self._stepper.start(source)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        theirs = self._theirs.to(last.device)
        step = self._stepper.step(state, theirs[last])
        assert step.symbols is None  # language models offer all
        return Step(step.log_probs[:, theirs], step.state)
