"""Recordings, strokes or images with transcripts: opened, split, stored as frames, trained on and measured.

run/data/train/     the frames of the training samples with their transcripts as ids, memory-mapped
run/data/dev/       the held-out samples likewise

Their kind, the rate of sound and the numbers of a frame are found when sizes are chosen, and are part of the settings
(`data.frames`, `model.features`). Without dev tables, samples drawn by the seed are held out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.core.declaration import FrameFacts
from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.events import Event, Listener, notice, progress
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import UNKNOWN
from seqloom.data.frames import FrameKind, FramesConfig, read_frames
from seqloom.data.transcribed import Checked, FrameStore, FrameWriter, Sample, check_samples, read_tables
from seqloom.data.waves import MelConfig, mel_bank
from seqloom.metrics.error_rate import ErrorRate
from seqloom.metrics.scoring import Bootstrap, CorpusScore, score
from seqloom.nn.ctc import frames_needed
from seqloom.runs.config import RunConfig
from seqloom.runs.detection import sample_text
from seqloom.runs.loading import Loaded, find_model
from seqloom.runs.model_dir import DevResult, read_settings
from seqloom.runs.sizing import Sizing, choose_frame_sizes
from seqloom.tasks.settings import TranscriptionConfig
from seqloom.tasks.transcription import TranscriptionTask
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer

MAX_RATE = 16_000
"""Samples per second that are read by default; speech has little above half of it."""

BANDS = (40, 32, 24, 16, 8, 4)
"""Mel bands, of which the first number is taken that suits the rate."""

DYNAMIC_RANGE = 10.0
"""Nats that sound is below its loudest part at most, by default: about what recordings in a room have above noise."""

WARP = 0.25
"""How far frequencies of recordings are warped, by default: more than heights of images, as voices differ more."""

SHOWN_SAMPLES = 3
"""Samples that a message names."""


def size_samples(config: RunConfig, files: Sequence[Path], *, listener: Listener) -> Sizing:
    """Sizes for the samples that these tables name, and how they become frames."""
    checked = _read(config, "train", [str(file) for file in files], listener=listener)
    _held_out(config, len(checked))
    frames = _frames_for(config, checked)
    texts = [sample.text or "" for sample in checked.samples]
    needed = np.array([max(1, frames_needed([ord(letter) for letter in text])) for text in texts])
    facts = FrameFacts(
        samples=len(checked),
        frames=int(checked.frames.sum()),
        symbols=sum(map(len, texts)),
        features=frames.features(checked.kind),
        # Of most samples: what has fewer is too short for its transcript, or will be left out.
        least_per_symbol=float(np.quantile(checked.frames / needed, 0.01)),
    )
    sizing = sizes_for(config, facts)
    found: dict[str, Any] = {"kind": checked.kind}
    if checked.kind == "sound":
        mel = frames.mel
        found["mel"] = {"rate": mel.rate, "bands": mel.bands, "dynamic_range": mel.dynamic_range}
        found["vary"] = {"warp": frames.vary.warp}
    if config.training.start_from is not None:
        found = frames.model_dump(mode="json")
    return replace(sizing, defaults={**sizing.defaults, "data": {"frames": found}})


def sizes_for(config: RunConfig, facts: FrameFacts) -> Sizing:
    """Sizes for such samples, given the settings that were set."""
    training = config.training
    steps = training.steps if "steps" in training.model_fields_set else None
    return choose_frame_sizes(facts, config.model, steps=steps, is_started=training.start_from is not None)


def _frames_for(config: RunConfig, checked: Checked) -> FramesConfig:
    """How these samples become frames: as the settings say, as the model to start from does, or as suits them."""
    given = config.data.frames
    if config.training.start_from is not None:
        start = read_settings(find_model(Path(config.training.start_from)))
        given = start.data.frames.model_copy(update={"vary": given.vary})
    if given.kind not in (None, checked.kind):
        where = (
            f"training.start_from={config.training.start_from} reads"
            if config.training.start_from
            else "data.frames.kind="
        )
        raise UsageError(f"{where} {given.kind}, but the training samples are of kind {checked.kind}")
    if checked.kind == "sound" and "warp" not in given.vary.model_fields_set:
        given = given.model_copy(update={"vary": given.vary.model_copy(update={"warp": WARP})})
    if checked.kind != "sound" or config.training.start_from is not None:
        return given.model_copy(update={"kind": checked.kind})
    mel = given.mel
    if "rate" not in mel.model_fields_set:
        mel = mel.model_copy(update={"rate": max(1_000, min(MAX_RATE, checked.rate))})
    if "bands" not in mel.model_fields_set:
        mel = next((fit for bands in BANDS if _fits(fit := mel.model_copy(update={"bands": bands}))), mel)
    if "dynamic_range" not in mel.model_fields_set:
        mel = mel.model_copy(update={"dynamic_range": DYNAMIC_RANGE})
    mel_bank(mel)  # refuses what does not fit
    return given.model_copy(update={"kind": checked.kind, "mel": mel})


def _fits(mel: MelConfig) -> bool:
    try:
        mel_bank(mel)
    except ConfigError:
        return False
    return True


def open_samples(config: RunConfig, *, listener: Listener) -> "TranscribedFiles":
    """Open and check the samples of a run. Without dev tables, some of the training samples are held out."""
    train = _read(config, "train", config.data.train, listener=listener)
    fingerprints = {"train": train.fingerprint}
    if config.data.dev:
        dev = _read(config, "dev", config.data.dev, listener=listener)
        if dev.kind != train.kind:
            raise DataError(f"the dev samples are of kind {dev.kind}, and the training samples of kind {train.kind}")
        return TranscribedFiles(train.samples, dev.samples, {**fingerprints, "dev": dev.fingerprint})
    count = _held_out(config, len(train))
    random = np.random.default_rng(seed_for(config.seed, "held-out samples"))
    held = set(random.choice(len(train), count, replace=False).tolist())
    notice(listener, f"no dev table: {count:,} of {len(train):,} samples are held out for validation")
    parts = [[sample for at, sample in enumerate(train.samples) if (at in held) == is_dev] for is_dev in (False, True)]
    return TranscribedFiles(tuple(parts[0]), tuple(parts[1]), fingerprints)


def named_files(config: RunConfig) -> list[Path]:
    """The recordings or images that the tables of a run name."""
    data = config.data
    tables = [Path(name) for name in (*data.train, *data.dev)]
    samples = read_tables(tables, encoding=data.encoding, on_bad=data.on_bad_utf8)
    return sorted({sample.source for sample in samples if isinstance(sample.source, Path)})


def _read(config: RunConfig, side: str, names: Sequence[str], *, listener: Listener) -> Checked:
    data = config.data
    if folder := next((name for name in names if Path(name).is_dir()), None):
        raise UsageError(f"--{side} {folder} is a folder; give a table that names its files and their transcripts")
    samples = read_tables([Path(name) for name in names], encoding=data.encoding, on_bad=data.on_bad_utf8)
    return check_samples(samples, data.frames, progress=partial(progress, listener, f"reading {side} samples"))


def _held_out(config: RunConfig, samples: int) -> int:
    """Samples that are held out for validation: none where there are dev tables."""
    if config.data.dev:
        return 0
    count = min(config.data.held_out, samples // 10)
    if count == 0:
        few = "1 sample is" if samples == 1 else f"{samples} samples are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev table")
    return count


@dataclass(frozen=True)
class TranscribedFiles:
    """The samples of a run."""

    train: tuple[Sample, ...]
    dev: tuple[Sample, ...]
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"samples": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split the transcripts into pieces."""
        tokenizer = train_tokenizer((sample.text or "" for sample in self.train), config.text, listener=listener)
        return Tokenizers(tokenizer, tokenizer)

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store frames and transcripts below `run`/data, and report samples that are too short for theirs."""
        tokenizer = tokenizers.target
        for name, samples in (("train", self.train), ("dev", self.dev)):
            short: list[str] = []
            tokens = unknown = 0
            with FrameWriter(run / "data" / name, symbols=tokenizer.size) as writer:
                for number, sample in enumerate(samples, start=1):
                    (ids,) = tokenizer.encode_many([sample.text or ""])
                    frames = read_frames(sample.source, config.data.frames)
                    if not ids or config.model.frames_left(len(frames)) < frames_needed(ids):
                        short.append(f"{sample.name()} ({len(frames):,} frames, {len(ids):,} symbols)")
                        continue
                    writer.append(frames, ids, line=number)
                    tokens, unknown = tokens + len(ids), unknown + ids.count(UNKNOWN)
                    progress(listener, f"storing {name} frames", number, len(samples))
                count = writer.samples
                if not count and short:
                    raise DataError(
                        f"all {len(samples):,} {name} samples are too short for their transcripts: {short[0]}"
                    )
            listener(
                Event("encoded", {"name": name, "lines": count, "tokens": tokens, "unknown": unknown / max(1, tokens)})
            )
            if short:
                shown = ", ".join(short[:SHOWN_SAMPLES]) + (", …" if len(short) > SHOWN_SAMPLES else "")
                notice(
                    listener,
                    f"{name}: {len(short):,} of {len(samples):,} samples are too short for their transcripts and are "
                    f"left out: {shown}",
                )


@dataclass(frozen=True)
class TranscribedData:
    """The samples of a run, stored: what a model that transcribes learns from."""

    tokenizers: Tokenizers
    train: FrameStore
    dev: FrameStore

    @staticmethod
    def load(run: Path, config: RunConfig) -> "TranscribedData":
        """What `TranscribedFiles.encode` stored. A DataError names a file that is missing or damaged."""
        features = config.data.frames.features(frame_kind(config))
        train, dev = (FrameStore.open(run / "data" / name, features=features) for name in ("train", "dev"))
        return TranscribedData(Tokenizers.load(run / "text"), train, dev)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> TranscriptionTask:  # noqa: ARG002
        """What the model is trained for."""
        assert isinstance(config.task, TranscriptionConfig)
        return TranscriptionTask(
            self.train,
            self.dev,
            config=config.task,
            kind=frame_kind(config),
            vary=config.data.frames.vary,
            frames_left=config.model.frames_left,
            tokenizer=self.tokenizers.target,
            seed=config.seed,
            device=device,
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {
            "files": list(config.data.train),
            "samples": len(self.train),
            "frames": int(self.train.lengths.sum(dtype=np.int64)),
            "tokens": len(self.train.ids),
            "data": self.train.fingerprint(),
            "tokenizers": [self.tokenizers.target.fingerprint],
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return [sample_text(self.train.ids, self.tokenizers.target)]

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """WER and CER of greedy transcripts of the dev samples."""
        task, config = self.task(loaded.config, device=loaded.device, listener=listener), loaded.config
        bootstrap = Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        outputs, references = task.dev_outputs(loaded.model), task.dev_texts()
        measured = score_transcripts(outputs, references, bootstrap=bootstrap)
        listener(Event("scores", {"data": "dev", "lines": len(outputs), "scores": [asdict(each) for each in measured]}))
        return DevResult(measured, len(outputs))


def frame_kind(config: RunConfig) -> FrameKind:
    """What the samples of a run are; known since its sizes were chosen."""
    kind = config.data.frames.kind
    if kind is None:
        raise ConfigError("data.frames.kind is not set: sound, strokes or image")
    return kind


def score_transcripts(
    outputs: Sequence[str], references: Sequence[str], *, bootstrap: Bootstrap | None = None
) -> tuple[CorpusScore, ...]:
    """WER and CER."""
    metrics = (ErrorRate("word"), ErrorRate("character"))
    return tuple(score(metric, outputs, references=references, bootstrap=bootstrap) for metric in metrics)
