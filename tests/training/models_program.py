"""Real models trained in ranks of their own, in float64: what a process computes is compared with what two do."""

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from seqloom.core.symbols import END
from seqloom.data.corrupt import BartNoise
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.data.store import Store, StoreWriter
from seqloom.models.bert import BertConfig
from seqloom.models.elmo import ElmoConfig
from seqloom.models.gpt import GptConfig
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.init import seeded
from seqloom.nn.lora import adapt
from seqloom.tasks.bidirectional_language_modelling import BidirectionalTask
from seqloom.tasks.denoising import DenoisingTask
from seqloom.tasks.language_modelling import LanguageModellingTask
from seqloom.tasks.masked_language_modelling import MaskedLanguageModellingTask
from seqloom.tasks.settings import (
    BidirectionalConfig,
    DenoisingConfig,
    LanguageModellingConfig,
    MaskedLanguageModellingConfig,
    TranslationConfig,
)
from seqloom.tasks.translation import DevSet, TranslationTask
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.distributed import World, join
from seqloom.training.optimisers import freeze
from seqloom.training.trainer import Trainer
from training.toy import settings

SYMBOLS = 12
CPU = torch.device("cpu")


def make_data(folder: Path) -> None:
    """Forty short pairs and sixty short sentences of random symbols."""
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 9, size=(40, 2))
    sides = [[[*generator.integers(4, SYMBOLS, size=n).tolist(), END] for n in lengths[:, side]] for side in (0, 1)]
    with StoreWriter(folder / "pairs", symbols=SYMBOLS) as pairs:
        pairs.append(sides[0], sides[1], list(range(1, 41)))
    sentences = [generator.integers(4, SYMBOLS, size=n).tolist() for n in generator.integers(1, 9, size=60)]
    with StreamWriter(folder / "text", symbols=SYMBOLS) as text:
        text.append(sentences, list(range(1, 61)))


def translation(folder: Path, **changes: object) -> TranslationTask:
    store = Store.open(folder / "pairs")
    tokenizer = train_tokenizer(["a", "bcdefghijk"], TextConfig(kind="char", size=SYMBOLS))
    config = TranslationConfig.model_validate({"dev_lines": 5, **changes})
    dev = DevSet(store, ["x"] * len(store), tokenizer, "de")
    return TranslationTask(store, dev, config=config, tokens_per_batch=40, seed=1, device=CPU)


def modelling(folder: Path, **changes: object) -> LanguageModellingTask:
    text = Stream.open(folder / "text")
    config = LanguageModellingConfig.model_validate({"windows": "random", "rows": 4, "length": 9, **changes})
    return LanguageModellingTask(text, text, config=config, seed=3, device=CPU)


def both_ways(folder: Path) -> BidirectionalTask:
    text = Stream.open(folder / "text")
    return BidirectionalTask(text, text, config=BidirectionalConfig(tokens_per_batch=50), seed=3, device=CPU)


def hidden(folder: Path) -> MaskedLanguageModellingTask:
    text = Stream.open(folder / "text")
    config = MaskedLanguageModellingConfig(length=12, tokens_per_batch=50, next_sentence=True)
    return MaskedLanguageModellingTask(text, text, config=config, mask=4, seed=3, device=CPU)


def restored(folder: Path) -> DenoisingTask:
    text = Stream.open(folder / "text")
    config = DenoisingConfig(length=12, tokens_per_batch=50)
    # The first symbol of a line, whichever it is, is taken for that of its language.
    languages = tuple(range(4, SYMBOLS))
    return DenoisingTask(text, text, config=config, noise=BartNoise(4), languages=languages, seed=3, device=CPU)


TRANSFORMER = TransformerConfig(width=16, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=64)


class Frozen:
    """A Transformer of which the encoder is not trained, with the embeddings, which the decoder shares."""

    def build(self, symbols: Symbols, *, seed: int) -> Transformer:
        model = TRANSFORMER.build(symbols, seed=seed)
        freeze(model, ["encoder.*", "decoder.layers.*.bias"])
        return model


class Adapted:
    """A Transformer with adapters, which alone are trained."""

    def build(self, symbols: Symbols, *, seed: int) -> Transformer:
        model = TRANSFORMER.build(symbols, seed=seed)
        with seeded(seed):
            adapt(model, rank=2, scale=2.0, dropout=0.2, targets=("query", "value", "inner"))
        return model


MODELS: dict[str, tuple[object, Callable[[Path], object]]] = {
    "transformer": (TRANSFORMER, translation),
    "frozen": (Frozen(), translation),
    "adapted": (Adapted(), translation),
    "guesses": (TRANSFORMER.model_copy(update={"positions": "bias"}), lambda at: translation(at, teacher_forcing=0.5)),
    "seq2seq": (Seq2SeqConfig(width=6, embedding_width=4), translation),
    "feeding": (Seq2SeqConfig(width=6, embedding_width=4, input_feeding=True, skip="residual"), translation),
    "rnn_lm": (
        # Which clusters of the output a batch uses depends on the batch.
        RnnLmConfig(width=6, cell="gru", layers=2, tying="none", output="adaptive", cutoffs=(3, 6)),
        lambda at: modelling(at, burn_in=2),
    ),
    "nce": (
        # The normaliser is a parameter of a single number.
        RnnLmConfig(width=6, layers=2, learns_log_z=True),
        lambda at: modelling(at, objective={"kind": "nce", "samples": 3, "log_z": "learned"}),
    ),
    "gpt": (
        GptConfig(width=16, heads=4, key_heads=2, layers=2, positions="rotary", norm_kind="rms", gated=True, longest=9),
        modelling,
    ),
    "denoiser": (TRANSFORMER, restored),
    "elmo": (ElmoConfig(width=6, layers=2), both_ways),
    "bert": (
        BertConfig(width=16, heads=2, layers=2, feed_forward=64, longest=12, has_pooler=True, has_pair_output=True),
        hidden,
    ),
}


def alive_bytes() -> int:
    """The memory of all tensors that Python knows of, and of their gradients."""
    found = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    found += [each.grad for each in found if each.is_leaf and each.grad is not None]
    # Of a tensor that is spread over ranks the share is a tensor of its own.
    plain = [each.untyped_storage() for each in found if "DTensor" not in type(each).__name__]
    return sum({storage.data_ptr(): storage.nbytes() for storage in plain}.values())


def train_model(name: str, folder: Path, run: Path, *, world: World, **changes: object) -> None:
    """Train a model for a few steps on the data of a folder, and write what it needed and what it gave."""
    config, make_task = MODELS[name]
    model: nn.Module = config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)  # type: ignore[attr-defined]
    task = make_task(folder)
    batch, needed = task.batch, []  # type: ignore[attr-defined]

    def measured(epoch: int, index: int) -> object:
        needed.append(alive_bytes())
        return batch(epoch, index)

    task.batch = measured  # type: ignore[attr-defined]
    values = {"steps": 3, "batches_per_step": 3, "clip_norm": 0.5, "weight_decay": 0.01, "table_updates": "dense"}
    trainer = Trainer(
        model.double(),
        task,  # type: ignore[arg-type]
        settings(**{**values, **changes}),
        run=run,
        seed=7,
        device=CPU,
        world=world,
    )
    trainer.train()
    whole = {name: tensor.tolist() for name, tensor in trainer.model.state_dict().items()}
    (run / f"found.{world.rank}").write_text(json.dumps({"needed": needed[-1], "weights": whole}))


def main(run: Path, options: dict[str, object]) -> int:
    """Train some models one after another, each in a folder of its own."""
    torch.set_num_threads(1)
    names = options.pop("models")
    with join(CPU) as world:
        for name in names:  # type: ignore[attr-defined]
            (run / name).mkdir(exist_ok=True)
            train_model(name, run.parent, run / name, world=world, **options)
    return 0
