"""Inside a Transformer: where each head attends, what each is worth, and how vectors move through the layers.

    heads      softmax(Q Kᵀ / √d) of every head of every layer while a text is read
    ablation   cost = (log P(text) − log P(text ∣ the head gives 0)) / tokens      as if its columns of W_O were 0
    drift      x_0 → x_1 → … → x_L → y of a token: its embedding, after each layer, and as the model leaves it

log P is that of the translation, of the text, for an encoder the sum over tokens of log P(token ∣ all others), each
hidden in turn (Salazar et al., 2020), or for a classifier that of the class which it predicts with all heads, one for
each text. All of it works on any model of texts whose layers attend by heads, trained or imported.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Float64
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from seqloom.apps.classifier import Classifier
from seqloom.apps.encoder import Encoder
from seqloom.core.archive import by_origin
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.reading import TextIds
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.drawing.figures import FIRST, INK, QUIET, SECOND, Finding, as_written, fonts, tidy
from seqloom.look.embedding_map import principal_plane
from seqloom.look.gradients import MAX_TOKENS, READABLE, GradientPair, text_lines, visible_lines
from seqloom.models.protocols import AttendsByHeads, ClassificationModel, TranslationModel
from seqloom.models.reading import ReadsWindow, chosen_log_probs
from seqloom.nn.embeddings import Embedding
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.packing import length_mask, pack, packing_of
from seqloom.nn.probe import listen
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import LoadedModel, in_words
from seqloom.runs.readers import require_reader
from seqloom.tasks.masked_language_modelling import MaskedModel, mask_symbol
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.normalise import is_blank

Attention = SelfAttention | CrossAttention

TOKENS_AT_ONCE = 2048
"""Tokens that are scored together."""
MAX_MAP_PIECES = 64
"""Pieces of a text whose maps of all heads are drawn."""
MAX_NAMED_PIECES = 24
"""Names of pieces along a side of a map; of more pieces, every second or third is named."""
DISTINCT = 0.85 * colormaps["tab20"](np.arange(20))[:, :3]
"""A colour for each path, dark enough for thin lines."""


def encode_text(loaded: LoadedModel, lines: Sequence[str]) -> list[GradientPair]:
    """Lines of one language as a language model, an encoder or a classifier reads them."""
    require_texts(loaded.folder, loaded.config)
    if loaded.config.purpose == "language model":
        return text_lines(loaded, lines)
    seen = visible_lines(lines)
    if loaded.config.purpose == "classifier":
        return [GradientPair([], ids) for ids in Classifier(loaded).ids(seen)]
    encoder = Encoder(loaded)
    return [GradientPair([], [*ids[: encoder.max_tokens], END]) for ids in encoder.ids(lines, prompt="") if ids]


def encode_pair(loaded: LoadedModel, sentence: str, translation: str) -> GradientPair:
    """A sentence and its translation as a translator reads them; what a model wrote may be empty."""
    if is_blank(sentence):
        raise DataError("the sentence is blank")
    source, target = loaded.tokenizers.source.encode(sentence), loaded.tokenizers.target.encode(translation)
    pair = GradientPair([*source, END], [*target, END])
    if (longest := max(len(pair.source), len(pair.target))) > MAX_TOKENS:
        raise UsageError(f"the text has {longest:,} tokens, and {MAX_TOKENS} at most are looked at; give a shorter one")
    return pair


def require_texts(folder: Path, config: RunConfig) -> None:
    """Refuse models that read something else than a text, or a sentence with its translation."""
    task, refused = config.task, None
    if config.model.reads_images:
        refused = "it reads images"
    elif isinstance(task, ClassificationConfig) and task.is_paired:
        refused = "it reads pairs of texts"
    elif config.purpose not in ("translator", "language model", "encoder", "classifier"):
        refused = in_words(config)
    if refused:
        raise UsageError(
            by_origin(
                f"the heads and layers of {folder} cannot be looked at: {refused}. Translators, language models, "
                "encoders and classifiers of single texts are supported"
            )
        )


def head_groups(loaded: LoadedModel) -> dict[str, list[Attention]]:
    """The attention of each layer by its kind, such as "decoder cross" or "self"; a model without heads is refused."""
    require_texts(loaded.folder, loaded.config)
    groups: dict[str, list[Attention]] = {}
    for name, module in loaded.model.named_modules():
        if isinstance(module, SelfAttention | CrossAttention):
            stack, _, place = name.rpartition("layers.")
            groups.setdefault(" ".join(filter(None, [*stack.split("."), place.partition(".")[2]])), []).append(module)
    if not groups:
        raise UsageError(by_origin(f"{loaded.folder} has no heads of attention to look at: {in_words(loaded.config)}"))
    return groups


# --- one text ---------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def read_once(loaded: LoadedModel, pair: GradientPair) -> Float[Tensor, "tokens width"]:
    """The vectors that a model leaves for one text, or for one translation, before its output."""

    def row(ids: Sequence[int]) -> Tensor:
        return torch.tensor([ids], dtype=torch.long, device=loaded.device)

    model, length = loaded.model.eval(), torch.tensor([len(pair.target)], device=loaded.device)
    match loaded.config.purpose:
        case "translator":
            source = Source(row(pair.source), torch.tensor([len(pair.source)], device=loaded.device))
            return cast("TranslationModel", model)(source, row([BEGIN, *pair.target[:-1]]), length)
        case "language model":
            return cast("ReadsWindow", model)(row([BEGIN, *pair.target[:-1]]))[0][0]
        case _:
            return cast("MaskedModel", model).read(row([BEGIN, *pair.target]), length + 1)


@dataclass(frozen=True, eq=False)
class Stack:
    """What the layers of an encoder or a decoder made of one text."""

    name: str
    """Of the module: encoder, decoder, or nothing where there is one stack."""
    ids: tuple[int, ...]
    """The symbols that were read, with those that the model adds."""
    table: Float[Tensor, "symbols width"]
    """Their embeddings."""
    layers: int
    vectors: list[Float[Tensor, "tokens width"]]
    """Before the first layer, after each, and as the model leaves them where that is different."""


def read_stacks(loaded: LoadedModel, pair: GradientPair) -> list[Stack]:
    """The vectors of one text before, between and after all layers."""
    model = loaded.model
    stacks: dict[str, list[nn.Module]] = {}
    for name, module in model.named_modules():
        stack, _, number = name.rpartition("layers.")
        if number.isdecimal():
            stacks.setdefault(stack.rstrip("."), []).append(module)
    looked_up: list[tuple[Tensor, Tensor]] = []
    found: dict[str, list[Tensor]] = {name: [] for name in stacks}

    def keep_lookup(table: nn.Module, inputs: tuple[Tensor, ...], _vectors: Tensor) -> None:
        looked_up.append((inputs[0], cast("Tensor", table.weight)))

    def keep_first(kept: list[Tensor], _layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        kept.append(inputs[0])

    def keep(kept: list[Tensor], _layer: nn.Module, _inputs: Any, vectors: Tensor) -> None:
        kept.append(vectors)

    with ExitStack() as attached:
        for table in (module for module in model.modules() if isinstance(module, Embedding)):
            attached.callback(table.register_forward_hook(keep_lookup).remove)
        for name, layers in stacks.items():
            attached.callback(layers[0].register_forward_pre_hook(partial(keep_first, found[name])).remove)
            for layer in layers:
                attached.callback(layer.register_forward_hook(partial(keep, found[name])).remove)
            if name != list(stacks)[-1]:  # what the last stack leaves is what the model returns
                last = model.get_submodule(f"{name}.norm")
                attached.callback(last.register_forward_hook(partial(keep, found[name])).remove)
        features = read_once(loaded, pair)
    if not bool(torch.isfinite(features).all()):
        folder = by_origin(str(loaded.folder))
        raise ModelError(f"{folder} gives vectors with NaN or infinite numbers; its weights are damaged")
    found[list(stacks)[-1]].append(features)
    result = []
    for (name, vectors), (ids, weight) in zip(found.items(), looked_up, strict=True):
        own = len(vectors[-1])  # symbols that a model reads before the caller's come first and have no feature
        kept = [each[-own:].double().cpu() for each in vectors]
        kept = kept[:-1] if torch.equal(kept[-1], kept[-2]) else kept
        result.append(Stack(name, tuple(ids.flatten().tolist()[-own:]), weight.detach(), len(stacks[name]), kept))
    return result


def _pieces(loaded: LoadedModel, stack: Stack) -> list[str]:
    """The symbols of a stack as text."""
    tokenizers = loaded.tokenizers
    tokenizer = tokenizers.source if stack.name == "encoder" else tokenizers.target
    return [tokenizer.piece(symbol) for symbol in stack.ids]


# --- drift ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drift:
    """How the vectors of tokens move through a stack; places are the embedding, each layer, and the output."""

    stack: str
    tokens: tuple[str, ...]
    places: tuple[str, ...]
    vectors: Float64[np.ndarray, "places tokens width"]
    near: tuple[tuple[tuple[str, ...], ...], ...]
    """The pieces whose embeddings have the largest cosine with the vector, by place and token."""

    @property
    def units(self) -> Float64[np.ndarray, "places tokens width"]:
        lengths = np.linalg.norm(self.vectors, axis=2, keepdims=True)
        return self.vectors / np.where(lengths > 0, lengths, 1.0)

    @property
    def to_embedding(self) -> Float64[np.ndarray, "places tokens"]:
        """Cosine with the embedding."""
        cosines: Float64[np.ndarray, "places tokens"] = (self.units * self.units[0]).sum(2)
        return cosines

    @property
    def to_previous(self) -> Float64[np.ndarray, "steps tokens"]:
        """Cosine with the place before."""
        cosines: Float64[np.ndarray, "steps tokens"] = (self.units[1:] * self.units[:-1]).sum(2)
        return cosines


def drift_of(loaded: LoadedModel, pair: GradientPair, *, near: int = 3) -> list[Drift]:
    """The drift of all tokens of a text in each stack."""
    head_groups(loaded)
    found = []
    for stack in read_stacks(loaded, pair):
        tokenizers = loaded.tokenizers
        tokenizer = tokenizers.source if stack.name == "encoder" else tokenizers.target
        vectors = torch.stack(stack.vectors)  # [places, tokens, width]
        if not bool(vectors.isfinite().all()):
            raise ModelError(by_origin(f"{loaded.folder} gives vectors with NaN or infinite numbers; train it again"))
        table = nn.functional.normalize(stack.table.float().cpu(), dim=1)
        nearest = (nn.functional.normalize(vectors.float(), dim=2) @ table.T).topk(min(near, len(table))).indices
        names = ["embedding", *(f"layer {number}" for number in range(len(vectors) - 1))]
        if len(vectors) > stack.layers + 1:
            names[-1] = "output"
        near_pieces = tuple(
            tuple(tuple(map(tokenizer.piece, symbols)) for symbols in place) for place in nearest.tolist()
        )
        found.append(Drift(stack.name, tuple(_pieces(loaded, stack)), tuple(names), vectors.numpy(), near_pieces))
    return found


def look_at_drift(loaded: LoadedModel, pair: GradientPair, *, near: int = 3) -> list[Finding]:
    """The drift in each stack as findings."""
    return [_drift_finding(loaded, drift) for drift in drift_of(loaded, pair, near=near)]


def _drift_finding(loaded: LoadedModel, drift: Drift) -> Finding:
    cosine, step = drift.to_embedding.mean(1), drift.to_previous.mean(1)
    largest = int(step.argmin())
    own = [
        np.mean([token in near[:1] for token, near in zip(drift.tokens, place, strict=True)]) for place in drift.near
    ]
    sentence = (
        f"{drift.stack.capitalize() or 'Text'} of {len(drift.tokens)} pieces: the mean cosine of a vector with its "
        f"embedding falls from 1 to {cosine[-1]:.2f} ({drift.places[-1]}), and the largest step is to "
        f"{drift.places[largest + 1]} (cosine {step[largest]:.2f}). The nearest piece is the token itself for "
        f"{own[0]:.0%} at the {drift.places[0]} and {own[-1]:.0%} at the end."
    )
    points, shares = principal_plane(drift.units.reshape(-1, drift.units.shape[2]))
    points = points.reshape(len(drift.places), len(drift.tokens), 2)
    data: dict[str, Any] = {
        "model": by_origin(str(loaded.folder)),
        "stack": drift.stack,
        "places": list(drift.places),
        "tokens": list(drift.tokens),
        "cosine_to_embedding": drift.to_embedding.T.tolist(),
        "cosine_to_previous": drift.to_previous.T.tolist(),
        "lengths": np.linalg.norm(drift.vectors, axis=2).T.tolist(),
        "nearest": [[list(place[token]) for place in drift.near] for token in range(len(drift.tokens))],
        "plane": points.transpose(1, 0, 2).tolist(),
        "plane_shares": list(shares),
    }

    def draw() -> Figure:
        figure = Figure(figsize=(11.0, 4.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        at = np.arange(len(drift.places))
        left.plot(at, drift.to_embedding, color=FIRST, linewidth=0.6, alpha=0.35)
        left.plot(at, cosine, "o-", color=FIRST, ms=4, label="with the embedding")
        left.plot(at[1:], step, "s-", color=SECOND, ms=4, label="with the place before")
        left.set_xticks(at, drift.places, rotation=30, ha="right")
        left.set_ylabel("cosine")
        left.legend(frameon=False, fontsize=9)
        tidy(left)
        plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
        drawn = points[:, :READABLE]  # [places, drawn, 2]
        low, high = float(drawn[:, :, 1].min()), float(drawn[:, :, 1].max())
        height = max(high - low, 1e-6) * 1.1
        # Names beside the frame, moved apart where paths end close together.
        at_y = spread_apart(drawn[-1, :, 1], gap=height / (READABLE + 2), low=low, high=high)
        for number, token in enumerate(drift.tokens[:READABLE]):
            path, color = drawn[:, number], DISTINCT[number]
            right.plot(path[:, 0], path[:, 1], color=color, linewidth=1, marker=".", ms=4, alpha=0.8)
            right.plot(*path[0], marker="o", ms=5, color=color, fillstyle="none")
            right.annotate(
                as_written(token),
                xy=(path[-1, 0], path[-1, 1]),
                xytext=(1.04, at_y[number]),
                textcoords=right.get_yaxis_transform(),
                va="center",
                fontsize=8,
                color=INK,
                arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.7, "linestyle": ":", "relpos": (0, 0.5)},
                annotation_clip=False,
                **plain,
            )
        right.set_ylim((low + high - height) / 2, (low + high + height) / 2)
        right.set(xlabel=f"{shares[0]:.0%} of the variance", ylabel=f"{shares[1]:.0%}")
        of = "" if len(drift.tokens) <= READABLE else f" of the first {READABLE} of {len(drift.tokens)} pieces"
        right.set_title(f"paths{of} from the embedding (ring) to the output (name)", fontsize=9, color=INK)
        tidy(right)
        return figure

    return Finding(drift.stack or "drift", "How vectors move through the layers", sentence, data, draw)


def spread_apart(
    places: Float64[np.ndarray, " names"], *, gap: float, low: float, high: float
) -> Float64[np.ndarray, " names"]:
    """Places in the same order between `low` and `high`, moved so that neighbours are at least `gap` apart."""
    order = np.argsort(places, kind="stable")
    steps = gap * np.arange(len(places))
    moved: Float64[np.ndarray, " names"] = np.empty_like(places)
    moved[order] = np.maximum.accumulate(places[order] - steps) + steps  # y_i ← max(y_i, y_{i-1} + gap)
    moved -= (moved - places).mean()  # around the same middle
    moved += max(0.0, low - float(moved.min())) - max(0.0, float(moved.max()) - high)
    return moved


# --- maps of all heads ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """The weights of all heads of one kind while a text is read."""

    name: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Float64[np.ndarray, "layers heads queries keys"]


def head_maps(loaded: LoadedModel, pair: GradientPair) -> list[HeadMaps]:
    """Where every head of every layer attends."""
    groups, model = head_groups(loaded), loaded.model
    if (longest := max(len(pair.source), len(pair.target))) > MAX_MAP_PIECES:
        raise UsageError(
            f"the text has {longest:,} pieces, and maps are drawn of {MAX_MAP_PIECES} at most; give a shorter one"
        )
    paths = {
        module: name for name, module in model.named_modules() if isinstance(module, SelfAttention | CrossAttention)
    }
    with listen(model, *(f"{path}.weights" for path in paths.values())) as trace:
        stacks = {stack.name: _pieces(loaded, stack) for stack in read_stacks(loaded, pair)}
    found = []
    for name, attentions in groups.items():
        values = [trace[f"{paths[each]}.weights"][0][0].double().cpu() for each in attentions]
        weights = torch.stack(values)  # [layers, heads, queries, keys]
        stack = name.rpartition(" ")[0]
        queries = stacks[stack]
        keys = stacks["encoder"] if isinstance(attentions[0], CrossAttention) else queries
        # Symbols that a model reads before those of the caller have rows of their own, which are left out.
        own = weights[:, :, -len(queries) :, -len(keys) :]
        found.append(HeadMaps(name, tuple(queries), tuple(keys), own.numpy()))
    return found


def cross_group(loaded: LoadedModel) -> str:
    """The name of the attention of the decoder to the source among `head_groups`."""
    found = [name for name, group in head_groups(loaded).items() if isinstance(group[0], CrossAttention)]
    if not found:
        raise UsageError(by_origin(f"{loaded.folder} has no heads that attend to a source: {in_words(loaded.config)}"))
    return found[0]


@torch.inference_mode()
def cross_attention_of(loaded: LoadedModel, pair: GradientPair) -> Float64[np.ndarray, "layers heads target source"]:
    """The attention of each head to the source, for given symbols."""
    model = cast("AttendsByHeads", loaded.model.eval())
    source, lengths = _padded([pair.source], loaded.device)
    previous, target_lengths = _padded([[BEGIN, *pair.target[:-1]]], loaded.device)
    weights = model.cross_attention(Source(source, lengths), previous, target_lengths)
    found: Float64[np.ndarray, "layers heads target source"] = torch.cat(list(weights)).double().cpu().numpy()
    return found


def look_at_heads(loaded: LoadedModel, pair: GradientPair) -> list[Finding]:
    """The maps of all heads as findings, a grid of layers and heads each."""
    return [_heads_finding(loaded, maps) for maps in head_maps(loaded, pair)]


def _heads_finding(loaded: LoadedModel, maps: HeadMaps) -> Finding:
    layers, heads, _, keys = maps.weights.shape
    logs = np.log(np.where(maps.weights > 0, maps.weights, 1.0))
    spread = np.exp(-(maps.weights * logs).sum(-1)).mean(-1)  # [layers, heads], positions that share the attention
    sharpest, widest = (np.unravel_index(int(each), spread.shape) for each in (spread.argmin(), spread.argmax()))
    sentence = (
        f"{maps.name.capitalize()}-attention, {layers} layer{'s' if layers > 1 else ''} of {heads} heads: the "
        f"sharpest, {sharpest[0]}/{sharpest[1]}, spreads over {spread.min():.1f} of {keys} positions, the widest, "
        f"{widest[0]}/{widest[1]}, over {spread.max():.1f}."
    )
    data = {
        "model": by_origin(str(loaded.folder)),
        "attention": maps.name,
        "queries": list(maps.queries),
        "keys": list(maps.keys),
        "spread": spread.tolist(),
        "weights": maps.weights.tolist(),
    }

    def draw() -> Figure:
        side = 0.9 + 0.07 * max(len(maps.queries), len(maps.keys))
        figure = Figure(figsize=(0.6 + heads * side, 0.7 + layers * side), layout="constrained")
        grid = figure.subplots(layers, heads, squeeze=False)
        for layer in range(layers):
            for head in range(heads):
                axes: Axes = grid[layer, head]
                weights = maps.weights[layer, head]
                axes.imshow(weights, cmap="Blues", vmin=0, vmax=float(weights.max()), aspect="auto")
                axes.set_xticks([])
                axes.set_yticks([])
                for spine in axes.spines.values():
                    spine.set_color(QUIET)
                if not layer:
                    axes.set_title(f"head {head}", fontsize=8, color=INK)
                if not head:
                    axes.set_ylabel(f"layer {layer}", fontsize=8, color=INK)
        plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
        scale = "rows attend to columns; darkest: the largest weight of each map"
        figure.suptitle(f"{maps.name}-attention\n{scale}", fontsize=9, color=INK)
        named = [range(0, len(side), -(-len(side) // MAX_NAMED_PIECES)) for side in (maps.keys, maps.queries)]
        for axes in grid[-1]:
            axes.set_xticks(named[0], [as_written(maps.keys[at]) for at in named[0]], rotation=90, fontsize=6, **plain)
        for axes in grid[:, -1]:
            axes.yaxis.tick_right()
            axes.set_yticks(named[1], [as_written(maps.queries[at]) for at in named[1]], fontsize=6, **plain)
        return figure

    name = maps.name.replace(" ", "-")
    return Finding(name, f"{maps.name}-attention of every head", sentence, data, draw)


# --- ablation ---------------------------------------------------------------------------------------------------------


@contextmanager
def switched_off(attention: Attention, head: int) -> Iterator[None]:
    """The attention with 0 in place of what a head gives, as if the head's columns of the output matrix were 0."""

    def without(_output: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        joined = inputs[0].clone()  # [tokens, heads · size]
        joined.view(*joined.shape[:-1], attention.heads, -1)[..., head, :] = 0
        return (joined,)

    hook = attention.output.register_forward_pre_hook(without)
    try:
        yield
    finally:
        hook.remove()


def without_heads(model: nn.Module, off: Collection[tuple[int, int]]) -> nn.Module:
    """A copy of a translation model in which these heads of the attention to the source, (layer, head), give 0.

    The rows of their values in the matrix of the memory are 0, so whatever computes with the weights obeys. All other
    weights are those of the model itself.
    """
    shared: dict[int, Any] = {id(each): each for each in (*model.parameters(), *model.buffers())}
    changed = deepcopy(model, shared)
    layers = [module for module in changed.modules() if isinstance(module, CrossAttention)]
    for layer, head in off:
        if not (0 <= layer < len(layers) and 0 <= head < layers[layer].heads):
            heads = layers[0].heads if layers else 0
            raise UsageError(f"there is no head {layer}/{head}: the model has {len(layers)} layers of {heads} heads")
    for layer in {layer for layer, _ in off}:
        memory, size = layers[layer].memory, layers[layer].memory.out_features // 2 // layers[layer].heads
        values = memory.out_features // 2  # their first row; the keys are above them
        with torch.no_grad():
            for name, weights in list(memory.named_parameters(recurse=False)):
                kept = weights.detach().clone()
                for head in (head for at, head in off if at == layer):
                    kept[values + head * size : values + (head + 1) * size] = 0
                setattr(memory, name, nn.Parameter(kept, requires_grad=False))
    return changed


@torch.inference_mode()
def log_prob_of(loaded: LoadedModel, pairs: Sequence[GradientPair]) -> float:
    """log P of all texts together: of translations, of texts, or of tokens that are hidden one at a time."""
    model = loaded.model.eval()
    if loaded.config.purpose == "language model":
        text = TextIds.of([pair.target[:-1] for pair in pairs])
        found = require_reader(loaded).log_probs(text, context="line", progress=lambda _tokens: None)
        return float(found.sum())
    total = 0.0
    score = _translation_log_prob if loaded.config.purpose == "translator" else _hidden_log_prob
    for some in _batches(pairs):
        total += score(loaded, model, some)
    return total


@torch.inference_mode()
def class_log_probs(loaded: LoadedModel, pairs: Sequence[GradientPair]) -> Float64[Tensor, "texts classes"]:
    """log P of each class for each text."""
    model, found = cast("ClassificationModel", loaded.model.eval()), []
    for some in _batches(pairs):
        ids, lengths = _padded([[BEGIN, *pair.target] for pair in some], loaded.device)
        found.append(model.class_scores(ids, lengths, torch.zeros_like(ids)).double().log_softmax(1).cpu())
    return torch.cat(found)


def _translation_log_prob(loaded: LoadedModel, model: nn.Module, pairs: Sequence[GradientPair]) -> float:
    translator = cast("TranslationModel", model)
    source, source_lengths = _padded([pair.source for pair in pairs], loaded.device)
    labels, lengths = _padded([pair.target for pair in pairs], loaded.device)
    previous = torch.cat([labels.new_full((len(labels), 1), BEGIN), labels[:, :-1]], 1)
    features = translator(Source(source, source_lengths), previous, lengths)
    wanted = pack(labels, packing_of(lengths, labels.shape[1]))
    return float(chosen_log_probs(translator.output.log_probs, features, wanted).sum())


def _hidden_log_prob(loaded: LoadedModel, model: nn.Module, pairs: Sequence[GradientPair]) -> float:
    encoder, total = cast("MaskedModel", model), 0.0
    hidden = mask_symbol(loaded.tokenizers.target)
    for pair in pairs:
        ids = torch.tensor([BEGIN, *pair.target], device=loaded.device)  # [time], with BEGIN and END
        inside = torch.arange(1, len(ids) - 1, device=loaded.device)
        for places in inside.split(max(1, TOKENS_AT_ONCE // len(ids))):
            rows = ids.repeat(len(places), 1)
            rows[torch.arange(len(places)), places] = hidden
            states = encoder.read(rows, torch.full_like(places, len(ids))).view(*rows.shape, -1)
            features = encoder.masked_features(states[torch.arange(len(places)), places])
            total += float(chosen_log_probs(encoder.output.log_probs, features, ids[places]).sum())
    return total


def _batches(pairs: Sequence[GradientPair]) -> Iterator[Sequence[GradientPair]]:
    longest = max(max(len(pair.source), len(pair.target)) for pair in pairs)
    rows = max(1, TOKENS_AT_ONCE // longest)
    yield from (pairs[begin : begin + rows] for begin in range(0, len(pairs), rows))


def _padded(texts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(text) for text in texts], device=device)
    padded = torch.zeros(len(texts), int(lengths.max()), dtype=torch.long, device=device)
    padded[length_mask(lengths, padded.shape[1])] = torch.tensor([id for text in texts for id in text], device=device)
    return padded, lengths


@dataclass(frozen=True, eq=False)
class Ablation:
    """What each head is worth: by how much the mean log P of a token, or of a class, falls without it, in nats."""

    tokens: int
    """Of a classifier, classes: one for each text."""
    log_prob: float
    """Of all of them together, with all heads."""
    costs: Mapping[str, Float64[np.ndarray, "layers heads"]]


def ablate(
    loaded: LoadedModel,
    pairs: Sequence[GradientPair],
    *,
    only: str | None = None,
    progress: Callable[[int], None] = lambda _heads: None,
) -> Ablation:
    """Switch off each head in turn, of all kinds or of one only. `progress` gets the number of heads done."""
    groups = head_groups(loaded)
    groups = groups if only is None else {only: groups[only]}
    framed = 1 if loaded.config.purpose == "encoder" else 0  # END is not predicted
    tokens = sum(len(pair.target) - framed for pair in pairs)
    predicted = None
    if loaded.config.purpose == "classifier":
        predicted = class_log_probs(loaded, pairs).argmax(1, keepdim=True)  # [texts, 1], with all heads
        tokens = len(pairs)

    def score() -> float:
        if predicted is None:
            return log_prob_of(loaded, pairs)
        return float(class_log_probs(loaded, pairs).gather(1, predicted).sum())

    whole, done = score(), 0
    if not np.isfinite(whole):
        raise ModelError(
            by_origin(f"{loaded.folder} gives log P of {whole}, so no head can be measured; train it again")
        )
    costs = {name: np.empty((len(group), group[0].heads)) for name, group in groups.items()}
    for name, group in groups.items():
        for layer, attention in enumerate(group):
            for head in range(attention.heads):
                with switched_off(attention, head):
                    costs[name][layer, head] = (whole - score()) / tokens
                done += 1
                progress(done)
    return Ablation(tokens, whole, costs)


def count_heads(loaded: LoadedModel) -> int:
    """All heads of all layers."""
    return sum(each.heads for group in head_groups(loaded).values() for each in group)


def look_at_ablation(
    loaded: LoadedModel, pairs: Sequence[GradientPair], *, progress: Callable[[int], None] = lambda _heads: None
) -> list[Finding]:
    """What each head is worth, as a finding."""
    found = ablate(loaded, pairs, progress=progress)
    ranked = sorted(
        ((float(cost), f"{name} {layer}/{head}") for name, grid in found.costs.items()
         for (layer, head), cost in np.ndenumerate(grid)), reverse=True
    )  # fmt: skip
    every = np.array([cost for cost, _ in ranked])
    half = int(np.searchsorted(np.cumsum(every.clip(min=0)), every.clip(min=0).sum() / 2)) + 1
    kind = {"encoder": "hidden tokens", "classifier": "predicted classes"}.get(loaded.config.purpose, "tokens")
    unit = "text" if loaded.config.purpose == "classifier" else "token"
    sentence = (
        f"Mean log P of {found.tokens:,} {kind} is {found.log_prob / found.tokens:.3f} nats. Without one head it falls "
        f"most for {ranked[0][1]} ({ranked[0][0]:+.3f}) and least for {ranked[-1][1]} ({ranked[-1][0]:+.3f}); "
        f"{half} of {len(ranked)} heads make up half of all costs, and {int((every <= 0).sum())} cost nothing or less."
    )
    data = {
        "model": by_origin(str(loaded.folder)),
        "texts": len(pairs),
        "tokens": found.tokens,
        "log_prob": found.log_prob,
        "costs": {name: grid.tolist() for name, grid in found.costs.items()},
    }

    def draw() -> Figure:
        widths = [grid.shape[1] for grid in found.costs.values()]
        tallest = max(len(grid) for grid in found.costs.values())
        figure = Figure(figsize=(2.0 + 0.62 * sum(widths), 1.6 + 0.5 * tallest), layout="constrained")
        frames = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        limit = max(float(np.abs(every).max()), 1e-12)
        for axes, (name, grid) in zip(frames, found.costs.items(), strict=True):
            image = axes.imshow(grid, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
            for (layer, head), cost in np.ndenumerate(grid):
                ink = "white" if abs(cost) > 0.6 * limit else INK
                axes.text(head, layer, f"{cost:.2f}", ha="center", va="center", fontsize=7, color=ink)
            axes.set_xticks(range(grid.shape[1]))
            axes.set_yticks(range(len(grid)))
            axes.set(xlabel="head", ylabel="layer", title=name)
            axes.title.set_fontsize(10)
        bar = figure.colorbar(image, ax=list(frames), fraction=0.05)
        bar.set_label(f"cost of switching off (nats per {unit})", fontsize=8)
        return figure

    return [Finding("ablation", "What each head is worth", sentence, data, draw)]
