"""Captioning: the summed cross-entropy of the next symbols of a caption, given an image and the caption so far.

Of several right captions of an image, training reads one in each epoch; which one, and how the image is varied, are
functions of seed, epoch and image alone. Validation reads all of them, and compares greedy captions with the best one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from seqloom.core.seeds import seed_for
from seqloom.core.symbols import END, PAD
from seqloom.data.batches import BatchPlan, PairBatch
from seqloom.data.captioned import CaptionedStore
from seqloom.data.images import ImageConfig, Pixels, Scaling, augmented
from seqloom.metrics.scoring import Bootstrap, CorpusScore
from seqloom.metrics.translation import CorpusMetric, score_named
from seqloom.models.protocols import CaptioningModel
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import OutputLimit, SearchConfig
from seqloom.tasks.settings import CaptioningConfig
from seqloom.tasks.translation import pair_loss
from seqloom.text.tokenizer import Tokenizer
from seqloom.training.task import Loss

METRICS: tuple[CorpusMetric, ...] = ("exact-match", "bleu", "chrf")
"""What captions are measured by."""

COVERED_SHARE = 0.998
"""Share of the training captions that fit into the maximum length."""

MIN_LIMIT = 10
"""Symbols that a caption may have in any case, END counted."""


@dataclass(frozen=True)
class CaptionBatch:
    """Images, each with a caption; `captions` hold their symbols with END and PAD after them."""

    pixels: Float[Tensor, "batch channels height width"]
    captions: Int[Tensor, "batch longest"]
    lengths: Int[Tensor, " batch"]
    numbers: Integer[np.ndarray, " batch"]

    def pairs(self, model: nn.Module) -> PairBatch:
        """The same as pairs of a source that the model reads and a target."""
        source = cast("CaptioningModel", model).source(self.pixels)
        return PairBatch(source, self.captions, self.lengths, self.numbers)


class CaptioningTask:
    """Training images and held-out ones on one device; a batch has `config.images_per_batch` images."""

    def __init__(
        self,
        train: CaptionedStore,
        dev: CaptionedStore,
        references: Sequence[str],
        *,
        config: CaptioningConfig,
        images: ImageConfig,
        scaling: Scaling,
        tokenizer: Tokenizer,
        language: str | None,
        seed: int,
        device: torch.device,
    ) -> None:
        """`references` are all captions of the held-out images, as text."""
        self.train, self.dev, self.references = train, dev, references
        self.config, self.images, self.scaling = config, images, scaling
        self.tokenizer, self.language, self.seed, self.device = tokenizer, language, seed, device
        sizes = np.ones(len(train), np.int64)
        self.plan = BatchPlan(sizes, sizes, tokens_per_batch=config.images_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> CaptionBatch:
        images, store = self.plan.batch(epoch, index), self.train
        numbers = store.numbers[images]
        pixels = augmented(store.pixels(images), numbers, self.images, seed=self.seed, epoch=epoch)
        chosen = []
        for image, number in zip(images.tolist(), numbers.tolist(), strict=True):
            places = store.of_image(image)
            chosen.append(places[seed_for(self.seed, "caption", epoch, number) % len(places)])
        return self._collate(store, pixels, chosen, numbers)

    def count(self, batch: CaptionBatch) -> int:
        return int(batch.lengths.sum())

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        return pair_loss(model, batch.pairs(model), smoothing=self.config.label_smoothing)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Loss per symbol of all captions of held-out images; exact match and BLEU of greedy captions of the first."""
        figures = {"loss": self.dev_loss(model)}
        if self.config.dev_images:
            scores = self.score(self._greedy(model, min(self.config.dev_images, len(self.dev))))
            figures |= {score.name.lower().replace(" ", "_"): score.value for score in scores[:2]}
        return figures

    @torch.no_grad()
    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per symbol of all captions of the held-out images, without smoothing."""
        total, count = 0.0, 0
        for images in self._parts(len(self.dev)):
            places = [self.dev.of_image(image) for image in images.tolist()]
            repeated = np.repeat(images, [len(each) for each in places])
            chosen = [place for each in places for place in each]
            batch = self._collate(self.dev, self.dev.pixels(repeated), chosen, self.dev.numbers[repeated])
            loss = pair_loss(model, batch.pairs(model), smoothing=0.0)
            total, count = total + float(loss.total), count + loss.count
        return total / count

    def score(self, outputs: Sequence[str], *, bootstrap: Bootstrap | None = None) -> tuple[CorpusScore, ...]:
        """Exact match with the best answer, BLEU and chrF of captions of the first held-out images."""
        lowercase = self.tokenizer.config.lowercase
        answers = [[self.references[at] for at in self.dev.of_image(image)] for image in range(len(outputs))]
        return score_captions(outputs, answers, language=self.language, lowercase=lowercase, bootstrap=bootstrap)

    def dev_pixels(self, images: Integer[np.ndarray, " batch"]) -> Pixels:
        """Held-out images as the model reads them."""
        return self.scaling.apply(self.dev.pixels(images))

    def describe(self, batch: CaptionBatch) -> str:
        some = ", ".join(map(str, batch.numbers[:5])) + (" …" if len(batch.numbers) > 5 else "")
        return f"{len(batch.numbers)} images with captions of up to {batch.captions.shape[1]} symbols, numbers {some}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _greedy(self, model: nn.Module, count: int) -> list[str]:
        captioner, settings = cast("CaptioningModel", model), SearchConfig(length_overrun=1.0)
        settings, found = settings.with_output_limit(output_limit(self.train)), list[str]()
        for images in self._parts(count):
            source = captioner.source(torch.from_numpy(self.dev_pixels(images)).to(self.device))
            best = greedy_search(captioner.stepper(), source, settings)
            found += [self.tokenizer.decode(each.symbols) for each in best]
        return found

    def _parts(self, count: int) -> Iterator[np.ndarray]:
        """The first held-out images in batches."""
        size = self.config.images_per_batch
        return (np.arange(begin, min(begin + size, count)) for begin in range(0, count, size))

    def _collate(
        self, store: CaptionedStore, pixels: Pixels, places: Sequence[int], numbers: Integer[np.ndarray, " batch"]
    ) -> CaptionBatch:
        """Images, not scaled yet, each with the caption at one of these places."""
        captions = [store.caption(place) for place in places]
        lengths = torch.tensor([len(ids) + 1 for ids in captions])
        symbols = torch.full((len(captions), int(lengths.max())), PAD)
        for row, ids in enumerate(captions):
            symbols[row, : len(ids)] = torch.from_numpy(ids)
            symbols[row, len(ids)] = END
        scaled, device = torch.from_numpy(self.scaling.apply(pixels)), self.device
        return CaptionBatch(scaled.to(device), symbols.to(device), lengths.to(device), numbers)


def output_limit(store: CaptionedStore) -> OutputLimit:
    """The maximum length of captions: all but the longest of these fit. The size of an image does not matter."""
    longest = np.quantile(store.symbols + 1, COVERED_SHARE, method="higher")
    return OutputLimit(0.0, int(max(MIN_LIMIT, longest)))


def score_captions(
    outputs: Sequence[str],
    answers: Sequence[Sequence[str]],
    *,
    language: str | None = None,
    lowercase: bool = False,
    bootstrap: Bootstrap | None = None,
) -> tuple[CorpusScore, ...]:
    """Exact match with the best of the right captions of each image; BLEU and chrF against each of them."""
    return score_named(
        METRICS,
        [output for output, right in zip(outputs, answers, strict=True) for _ in right],
        references=[caption for right in answers for caption in right],
        sources=[str(image) for image, right in enumerate(answers) for _ in right],
        language=language,
        lowercase=lowercase,
        bootstrap=bootstrap,
    )
