"""Training steps of Transformers: ours beside plain torch and Hugging Face transformers.

    python benchmarks/transformer_blocks.py [--quick] [--only gpt-384 gpt-128 masked opus] [--pairs 15] [--threads 2]

    gpt-384   GPT, 6 layers of width 384, windows of 256, 8,000 symbols, dropout 0.2
    gpt-128   GPT, 4 layers of width 128, windows of 64, 65 symbols, no dropout: nanoGPT's settings for a CPU
    masked    masked language model, 4 layers of width 256, 8,000 symbols: ours scores the hidden tokens only
    opus      the shape of OPUS-MT: 6+6 layers of width 512, 58,101 symbols

All contestants of a model have the same weights, of which transformers draws the first, and read the same batches of
random symbols in single precision. First their losses without dropout must agree. Then they train in one process and
in turns. A step is forward, backward, clipping by the norm of the gradient, and AdamW.

    seqloom        the model as `seqloom train` builds it, its loss, and the clipping and optimiser of its trainer
    plain torch    what nanoGPT does on a CPU without `torch.compile`: nn.Linear, nn.LayerNorm, F.gelu (by erf),
                   F.scaled_dot_product_attention(is_causal=True, dropout_p=…), F.cross_entropy over all scores,
                   clip_grad_norm_, and torch.optim.AdamW with its default flags: nanoGPT fuses on CUDA only. It has
                   biases, as GPT-2 has
    transformers   its model with attn_implementation="sdpa" and its own loss where it has one, clip_grad_norm_, and
                   fused AdamW, the default of the Trainer of version 5

All drop numbers in the same places and at the same rate: from the embeddings and the output of each sublayer, and for
gpt from the attention probabilities too, as nanoGPT does. A line without a goal compares with plain torch whose AdamW
is fused: the difference to the claim is the part of the optimiser. The last lines claim ratios of steps per second;
the exit code is 1 if one of them misses its goal or if losses differ. transformers comes from the parity group.
"""

import argparse
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from harness.ending import Outcome, measure_and_exit
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED
from seqloom.models.bert import Bert
from seqloom.models.gpt import Gpt
from seqloom.models.transformer import Transformer
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Symbols
from seqloom.nn.packing import length_mask, pack, packing_of
from seqloom.pretrained import decoder_only, encoder_decoder, encoder_only
from seqloom.pretrained.mapping import imported
from seqloom.pretrained.renumbering import Renumbering
from seqloom.training.optimisers import clip_by_norm, global_norm, gradients, make_optimiser
from seqloom.training.settings import TrainingConfig
from seqloom.training.trainer import keep_freed_memory
from seqloom.training.weights import load_weights

OURS, PLAIN, TRANSFORMERS = "seqloom", "plain torch", "transformers"
PLAIN_FUSED = f"{PLAIN} with fused AdamW"
"""Measured, but not claimed."""
FULL_PAIRS = 15
MAX_DIFFERENCE = 1e-4
"""Of mean losses in nats, in single precision."""
CLIP_NORM, RATE, DECAY = 1.0, 3e-4, 0.01
HIDDEN_SHARE = 0.15
HIDDEN = len(RESERVED)
"""The symbol that stands for hidden tokens."""

Batch = Mapping[str, Tensor]
Loss = Callable[[Batch], Tensor]
"""The mean loss of a batch."""


@dataclass(frozen=True)
class Contest:
    """A model, the size of a step, and the least ratio to each peer."""

    name: str
    about: str
    width: int
    layers: int
    heads: int
    inner: int
    symbols: int
    rows: int
    length: int
    dropout_rate: float
    goal: float

    def quick(self) -> "Contest":
        """The same with sizes that take no time; its ratios mean nothing."""
        tiny = {"width": 16, "layers": 1, "heads": 2, "inner": 32, "symbols": 40, "rows": 2, "length": 12}
        return Contest(**{**vars(self), **tiny, "about": f"{self.about} (tiny sizes: no result)"})


CONTESTS = (
    Contest("gpt-384", "GPT 6 × 384, length 256", 384, 6, 6, 1536, 8_000, 8, 256, 0.2, 1.2),
    Contest("gpt-128", "GPT 4 × 128, length 64", 128, 4, 4, 512, 65 + len(RESERVED), 12, 64, 0.0, 1.1),
    Contest("masked", "masked LM 4 × 256", 256, 4, 4, 1024, 8_000, 16, 128, 0.1, 1.5),
    Contest("opus", "OPUS-MT shape", 512, 6, 8, 2048, 58_101, 16, 32, 0.1, 1.2),
)


# --- contestants ------------------------------------------------------------------------------------------------------


@dataclass
class Contestant:
    """A model that trains."""

    name: str
    model: nn.Module
    loss: Loss
    optimiser: Optimizer
    seconds: list[float] = field(default_factory=list)
    """Of one step, a round each."""

    def step(self, batch: Batch) -> None:
        """Forward, backward, clipping, update."""
        self.optimiser.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        if self.name == OURS:  # as the trainer does
            values = gradients(self.model.parameters())
            clip_by_norm(values, CLIP_NORM, norm=global_norm(values).item())
        else:
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimiser.step()

    def measured_loss(self, batch: Batch) -> float:
        """Without dropout."""
        self.model.eval()
        with torch.no_grad():
            found = self.loss(batch).item()
        self.model.train()
        return found


def peer(name: str, model: nn.Module, loss: Loss, *, fused: bool | None) -> Contestant:
    """With weight decay on matrices only, as ours; `fused=None` is the default of AdamW."""
    weights = list(model.parameters())
    groups = [
        {"params": [each for each in weights if each.dim() > 1], "weight_decay": DECAY},
        {"params": [each for each in weights if each.dim() < 2], "weight_decay": 0.0},
    ]
    return Contestant(name, model.train(), loss, AdamW(groups, lr=RATE, betas=(0.9, 0.98), fused=fused))


@dataclass(frozen=True)
class StateDict:
    """The tensors of a model in memory, as a folder would give them; a tied tensor has one name."""

    state: Mapping[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.state)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.state[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        return self.state[name].dtype

    def tensor(self, name: str) -> Tensor:
        return self.state[name]


def import_weights(theirs: Any, contest: Contest) -> nn.Module:
    """Our model with the weights of theirs, as `seqloom import` makes it, and with the same symbols."""
    families = {each.model_type: each for module in (decoder_only, encoder_only) for each in module.FAMILIES}
    families["marian"] = encoder_decoder.MARIAN
    family = families[theirs.config.model_type]
    state, first = theirs.state_dict(), dict[int, str]()
    for name, tensor in state.items():
        first.setdefault(tensor.data_ptr(), name)
    stored = StateDict({family.rename(name): state[name] for name in first.values()})
    conversion = family.read(theirs.config.to_dict(), stored)
    same = Renumbering(tuple(range(contest.symbols)))
    rates = {"dropout_rate": contest.dropout_rate}
    if contest.name.startswith("gpt"):
        rates["attention_dropout_rate"] = contest.dropout_rate
    settings = conversion.model.model_copy(update=rates)
    symbols = Symbols(contest.symbols, contest.symbols, is_shared=True)
    model: nn.Module = settings.build(symbols, seed=1)
    weights = {
        each.ours: imported(each, stored.tensor, {"source": same, "target": same}).clone()
        for each in conversion.tensors
    }
    with torch.no_grad():
        load_weights(model, weights, origin="transformers")
    reseed(model, 1)
    return model.train()


def ours(model: nn.Module, loss: Loss) -> Contestant:
    config = TrainingConfig(learning_rate=RATE, weight_decay=DECAY)
    return Contestant(OURS, model, loss, make_optimiser(model, config))


class PlainGpt(nn.Module):
    """A GPT as nanoGPT writes it, with one table for both ends."""

    def __init__(self, contest: Contest, epsilon: float = 1e-5) -> None:
        super().__init__()
        width = contest.width
        self.words = nn.Embedding(contest.symbols, width)
        self.places = nn.Embedding(contest.length, width)
        self.dropout = nn.Dropout(contest.dropout_rate)
        self.blocks = nn.ModuleList(PlainBlock(contest, epsilon) for _ in range(contest.layers))
        self.norm = nn.LayerNorm(width, eps=epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.words(ids) + self.places(torch.arange(ids.shape[1])))  # [rows, time, width]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


class PlainBlock(nn.Module):
    """x + dropout(attention(norm(x))), then x + dropout(feed_forward(norm(x)))."""

    def __init__(self, contest: Contest, epsilon: float) -> None:
        super().__init__()
        width, self.heads, self.rate = contest.width, contest.heads, contest.dropout_rate
        self.first, self.second = nn.LayerNorm(width, eps=epsilon), nn.LayerNorm(width, eps=epsilon)
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, contest.inner), nn.Linear(contest.inner, width)
        self.after_attention, self.after_feed_forward = nn.Dropout(self.rate), nn.Dropout(self.rate)

    def forward(self, x: Tensor) -> Tensor:
        rows, time, width = x.shape
        parts = self.qkv(self.first(x)).split(width, dim=2)  # [rows, time, width] each
        split = [part.view(rows, time, self.heads, -1).transpose(1, 2) for part in parts]  # [rows, heads, time, size]
        rate = self.rate if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*split, dropout_p=rate, is_causal=True)
        x = x + self.after_attention(self.mixed(mixed.transpose(1, 2).contiguous().view(rows, time, width)))
        return x + self.after_feed_forward(self.outer(F.gelu(self.inner(self.second(x)))))


def plain_copy(model: Gpt, contest: Contest) -> PlainGpt:
    """The plain GPT with our weights."""
    plain = PlainGpt(contest)
    named = {"words.weight": "embedding.weight", "places.weight": "positions.weight"}
    named |= {f"norm.{part}": f"norm.{part}" for part in ("weight", "bias")}
    for number in range(contest.layers):
        pairs = {"first": "around_self.norm", "second": "around_feed_forward.norm", "qkv": "self.qkv"}
        pairs |= {"mixed": "self.output", "inner": "feed_forward.inner", "outer": "feed_forward.outer"}
        for theirs, own in pairs.items():
            for part in ("weight", "bias"):
                named[f"blocks.{number}.{theirs}.{part}"] = f"layers.{number}.{own}.{part}"
    weights = model.state_dict()
    plain.load_state_dict({theirs: weights[own].clone() for theirs, own in named.items()})
    return plain


# --- models -----------------------------------------------------------------------------------------------------------


def line_up(contest: Contest) -> list[Contestant]:
    """The contestants of a model, ours first."""
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "transformers is not installed; run `make parity` once, or pip install transformers"
        ) from error
    torch.manual_seed(1)
    make = gpts if contest.name.startswith("gpt") else masked if contest.name == "masked" else translators
    return make(contest, transformers)


def gpts(contest: Contest, transformers: Any) -> list[Contestant]:
    config = transformers.GPT2Config(
        vocab_size=contest.symbols,
        n_positions=contest.length,
        n_embd=contest.width,
        n_layer=contest.layers,
        n_head=contest.heads,
        n_inner=contest.inner,
        resid_pdrop=contest.dropout_rate,
        embd_pdrop=contest.dropout_rate,
        attn_pdrop=contest.dropout_rate,
        activation_function="gelu",  # by erf, as nanoGPT's
        bos_token_id=BEGIN,
        eos_token_id=END,
        attn_implementation="sdpa",
    )
    theirs = transformers.GPT2LMHeadModel(config)
    model = cast("Gpt", import_weights(theirs, contest))
    plain, fused = plain_copy(model, contest), plain_copy(model, contest)

    def our_loss(batch: Batch) -> Tensor:
        features, _ = model(batch["ids"][:, :-1])
        labels = batch["ids"][:, 1:].flatten()
        return model.output.cross_entropy(features.flatten(0, 1), labels) / len(labels)

    def loss_of(scores: Callable[[Tensor], Tensor]) -> Loss:
        return lambda batch: F.cross_entropy(scores(batch["ids"][:, :-1]).flatten(0, 1), batch["ids"][:, 1:].flatten())

    return [
        ours(model, our_loss),
        peer(PLAIN, plain, loss_of(plain), fused=None),
        peer(PLAIN_FUSED, fused, loss_of(fused), fused=True),
        peer(TRANSFORMERS, theirs, loss_of(lambda ids: theirs(ids, use_cache=False).logits), fused=True),
    ]


def masked(contest: Contest, transformers: Any) -> list[Contestant]:
    config = transformers.BertConfig(
        vocab_size=contest.symbols,
        hidden_size=contest.width,
        num_hidden_layers=contest.layers,
        num_attention_heads=contest.heads,
        intermediate_size=contest.inner,
        max_position_embeddings=contest.length,
        hidden_dropout_prob=contest.dropout_rate,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
        attn_implementation="sdpa",
    )
    theirs = transformers.BertForMaskedLM(config)
    model = cast("Bert", import_weights(theirs, contest))

    def our_loss(batch: Batch) -> Tensor:
        states = model.read(batch["read"], torch.full((len(batch["read"]),), batch["read"].shape[1]))
        places = (batch["labels"] >= 0).flatten().nonzero().flatten()
        labels = batch["labels"].flatten()[places]
        features = model.masked_features(states.index_select(0, places))
        return model.output.cross_entropy(features, labels) / len(labels)

    def their_loss(batch: Batch) -> Tensor:
        loss: Tensor = theirs(batch["read"], labels=batch["labels"]).loss
        return loss

    return [ours(model, our_loss), peer(TRANSFORMERS, theirs, their_loss, fused=True)]


def translators(contest: Contest, transformers: Any) -> list[Contestant]:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", contest.layers), ("attention_heads", contest.heads), ("ffn_dim", contest.inner))
    }
    config = transformers.MarianConfig(
        vocab_size=contest.symbols,
        d_model=contest.width,
        **sides,
        dropout=contest.dropout_rate,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="swish",
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        max_position_embeddings=512,
        scale_embedding=True,
        attn_implementation="sdpa",
    )
    theirs = transformers.MarianMTModel(config)
    model = cast("Transformer", import_weights(theirs, contest))

    def our_loss(batch: Batch) -> Tensor:
        source = Source(batch["source"], batch["source_lengths"])
        features = model(source, batch["previous"], batch["lengths"])
        labels = pack(batch["labels"], packing_of(batch["lengths"], batch["labels"].shape[1]))
        return model.output.cross_entropy(features, labels) / len(labels)

    def their_loss(batch: Batch) -> Tensor:
        found = theirs(
            input_ids=batch["source"],
            attention_mask=(batch["source"] != PAD).long(),
            decoder_input_ids=batch["previous"],
            use_cache=False,
        )
        return F.cross_entropy(found.logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=PAD)

    return [ours(model, our_loss), peer(TRANSFORMERS, theirs, their_loss, fused=True)]


def batches(contest: Contest, *, number: int) -> list[Batch]:
    """Batches of random symbols for all contestants of a model."""
    generator = torch.Generator().manual_seed(7)
    rows, length = contest.rows, contest.length

    def drawn(columns: int) -> Tensor:
        return torch.randint(HIDDEN + 1, contest.symbols, (rows, columns), generator=generator)

    found: list[Batch] = []
    for _ in range(number):
        if contest.name.startswith("gpt"):
            found.append({"ids": drawn(length + 1)})
        elif contest.name == "masked":
            ids = drawn(length)
            ids[:, 0], ids[:, -1] = BEGIN, END
            is_hidden = torch.rand(ids.shape, generator=generator) < HIDDEN_SHARE
            is_hidden[:, [0, -1]], is_hidden[:, 1] = False, True
            labels = ids.masked_fill(~is_hidden, -100)
            found.append({"read": ids.masked_fill(is_hidden, HIDDEN), "labels": labels})
        else:  # sentences of half the length up to all of it
            sides = {}
            for side in ("source", "target"):
                lengths = torch.randint(length // 2, length + 1, (rows,), generator=generator)
                ids = drawn(int(lengths.max()))
                ids[torch.arange(rows), lengths - 1] = END
                sides[side] = ids.masked_fill(~length_mask(lengths, ids.shape[1]), PAD), lengths
            labels, lengths = sides["target"]
            previous = F.pad(labels[:, :-1], (1, 0), value=BEGIN)
            found.append(
                {
                    "source": sides["source"][0],
                    "source_lengths": sides["source"][1],
                    "previous": previous.masked_fill(~length_mask(lengths, labels.shape[1]), PAD),
                    "lengths": lengths,
                    "labels": labels,
                }
            )
    return found


# --- measuring --------------------------------------------------------------------------------------------------------


def losses_agree(contestants: Sequence[Contestant], batch: Batch) -> bool:
    """Whether all have the same loss with the same weights; says so."""
    found = {each.name: each.measured_loss(batch) for each in contestants}
    apart = max(found.values()) - min(found.values())
    print(f"\nLosses at equal weights: {', '.join(f'{name} {loss:.6f}' for name, loss in found.items())}")
    return math.isfinite(apart) and apart <= MAX_DIFFERENCE


def measure(contestants: Sequence[Contestant], text: Sequence[Batch], *, pairs: int, what: str) -> None:
    """Time some steps of each in every round, in another order each time."""
    lengths = {}
    for contestant in contestants:
        contestant.step(text[0])  # what is allocated at the first step
        begin = time.perf_counter()
        contestant.step(text[1])
        lengths[contestant.name] = max(1, min(10, int(0.5 / (time.perf_counter() - begin))))
    countdown = Countdown(f"{what}: round", pairs)
    for number in range(pairs):
        order = list(contestants)
        random.Random(number).shuffle(order)
        for contestant in order:
            gc.collect()
            steps = lengths[contestant.name]
            begin = time.perf_counter()
            for step in range(steps):
                contestant.step(text[(number + step) % len(text)])
            contestant.seconds.append((time.perf_counter() - begin) / steps)
        countdown.tick()


def hold(contest: Contest, *, pairs: int, threads: int) -> tuple[list[Claim], bool]:
    """The claims of a contest, and whether losses agree."""
    say(f"{contest.about}: building models")
    contestants, text = line_up(contest), batches(contest, number=8)
    print(f"\n### {contest.about}: {contest.rows} rows of {contest.length}, dropout {contest.dropout_rate:g}")
    is_good = losses_agree(contestants, text[0])
    measure(contestants, text, pairs=pairs, what=contest.about)
    print(f"\n{threads} threads, medians of {pairs} rounds.\n\n| contestant | ms per step | range |\n|---|---:|---:|")
    for each in contestants:
        low, high = 1000 * min(each.seconds), 1000 * max(each.seconds)
        print(f"| {each.name} | {1000 * statistics.median(each.seconds):,.1f} | {low:,.1f} – {high:,.1f} |", flush=True)
    rates = {each.name: [1 / seconds for seconds in each.seconds] for each in contestants}
    claims = {
        each.name: claim(
            rates[OURS], rates[each.name], goal=contest.goal, about=f"{contest.about} training step vs {each.name}"
        )
        for each in contestants[1:]
    }
    if PLAIN_FUSED in claims:
        found = claims.pop(PLAIN_FUSED)
        print(f"\nWithout a goal: {found.ratio:.2f} [{found.low:.2f}, {found.high:.2f}] {found.about}", flush=True)
    return list(claims.values()), is_good


def compare(given: argparse.Namespace) -> Outcome:
    """All contests that were asked for."""
    keep_freed_memory()
    torch.set_num_threads(given.threads)
    claims, is_good = [], True
    for contest in CONTESTS:
        if contest.name in given.only:
            sized = contest.quick() if given.quick else contest
            found, agree = hold(sized, pairs=given.pairs, threads=given.threads)
            claims, is_good = [*claims, *found], is_good and agree
            gc.collect()
    return Outcome(claims, is_good)


def read_arguments() -> argparse.Namespace:
    names = [contest.name for contest in CONTESTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny models: shows that it runs, measures nothing")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some of the models")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of the arithmetic (default 2)")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda _folder: compare(given))


if __name__ == "__main__":
    main()
