"""Which source pieces a translation rests on: attributions of log P(y_t ∣ y_<t, source) to the vectors of the source.

    F_t(x)                 log P(y_t ∣ y_<t, x), x the embedded source, a vector x_k for each piece
    gradient × input       a[t, k] = x_k · ∂F_t/∂x_k
    integrated gradients   a[t, k] = (x_k − b_k) · ∫₀¹ ∂F_t/∂x_k (b + α (x − b)) dα      (Sundararajan et al., 2017)
    occlusion              a[t, k] = F_t(x) − F_t(x with b_k in place of x_k)

The baseline b is 0: a source of as many pieces without any content. Integrated gradients are complete, so the sum of a
row is F_t(x) − F_t(b); what the sum over so many steps lacks of that is the gap. The integral is a Gauss-Legendre sum.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from seqloom.core.archive import by_origin
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN
from seqloom.drawing.figures import Finding, as_written, fonts
from seqloom.look.gradients import TABLES, GradientPair
from seqloom.models.protocols import TranslationModel
from seqloom.runs.loading import LoadedModel, in_words

Method = Literal["gradient_x_input", "integrated_gradients", "occlusion"]
METHODS: tuple[Method, ...] = get_args(Method)

TOKENS_AT_ONCE = 4096
"""Tokens of both sides that are differentiated together."""
FIRST_STEPS, MAX_STEPS = 16, 512
"""Steps of an integral that chooses their number: they are doubled until the gap is small enough."""
MAX_GAP = 0.01
"""The relative gap at which they are enough."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """a[t, k] of one sentence pair."""

    method: Method
    matrix: Float64[np.ndarray, "target source"]
    log_probs: Float64[np.ndarray, " target"]
    """F_t(x)."""
    gap: float | None = None
    """Σ_t |Σ_k a[t, k] − (F_t(x) − F_t(b))| / Σ_t |F_t(x) − F_t(b)|, of integrated gradients."""
    steps: int | None = None


def attribution_of(
    model: nn.Module,
    source: Int[Tensor, " source"],
    target: Int[Tensor, " target"],
    *,
    method: Method,
    steps: int | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Attribution | None:
    """The attribution of each target symbol to each source symbol, END among them, by a translator in eval mode.

    Without a number of `steps`, integrated gradients take as many as bring the gap below `MAX_GAP`, up to `MAX_STEPS`.
    None if it was cancelled.
    """
    if steps is not None and not 1 <= steps <= MAX_STEPS:
        raise UsageError(f"steps={steps} is out of range; give 1 to {MAX_STEPS}")
    passes = _Passes(model, source, target)
    whole = passes.values(torch.ones(1, len(source)))[0]  # [target]
    if method == "occlusion":
        without = passes.values(1.0 - torch.eye(len(source)))  # [source, target]
        return Attribution(method, (whole - without).T.copy(), whole)
    if method == "gradient_x_input":
        matrix = passes.gradients(torch.ones(1), torch.ones(1))
        return Attribution(method, matrix, whole)
    change = whole - passes.values(torch.zeros(1, len(source)))[0]  # [target]
    count = steps or FIRST_STEPS
    while not is_cancelled():
        nodes, weights = np.polynomial.legendre.leggauss(count)
        at = torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)  # from [−1, 1] to [0, 1]
        matrix = passes.gradients(*at)
        gap = float(np.abs(matrix.sum(1) - change).sum() / max(np.abs(change).sum(), 1e-12))
        if steps is not None or gap <= MAX_GAP or count >= MAX_STEPS:
            return Attribution(method, matrix, whole, gap, count)
        count *= 2
    return None


class _Passes:
    """Teacher-forced passes over one pair, with the source vectors scaled."""

    def __init__(self, model: nn.Module, source: Int[Tensor, " source"], target: Int[Tensor, " target"]) -> None:
        self._model, self._source, self._target = model, source, target
        self._previous = torch.cat([target.new_tensor([BEGIN]), target[:-1]])
        self._rows = max(1, TOKENS_AT_ONCE // (len(source) + len(target)))

    def values(self, scales: Float[Tensor, "rows source"]) -> Float64[np.ndarray, "rows target"]:
        """F_t of every row, whose source vectors are multiplied by these numbers."""
        with torch.no_grad():
            found = [self._forward(some)[1] for some in scales.split(self._rows)]
        values: Float64[np.ndarray, "rows target"] = torch.cat(found).double().cpu().numpy()
        return values

    def gradients(
        self, scales: Float[Tensor, " steps"], weights: Float[Tensor, " steps"]
    ) -> Float64[np.ndarray, "target source"]:
        """Σ_α weight_α x_k · ∂F_t/∂x_k (α x), for the scales α."""
        source, target = len(self._source), len(self._target)
        total = np.zeros((target, source))
        for some, share in zip(scales.split(self._rows), weights.split(self._rows), strict=True):
            with torch.enable_grad():
                leaf, values = self._forward(some[:, None].expand(-1, source))
                for t in range(target):
                    (slope,) = torch.autograd.grad(values[:, t].sum(), leaf, retain_graph=t + 1 < target)
                    # leaf = α x, and x · slope is summed over the numbers of each vector: [rows, source]
                    products = (slope.detach().double() * self._plain.double()).view(len(some), source, -1).sum(2)
                    total[t] += (share.double().to(products.device) @ products).cpu().numpy()
        return total

    def _forward(self, scales: Tensor) -> tuple[Tensor, Tensor]:
        """The scaled source vectors, and F_t of each row."""
        rows = len(scales)
        sources, previous = (ids.expand(rows, -1).contiguous() for ids in (self._source, self._previous))
        lengths = [ids.new_full((rows,), ids.shape[1]) for ids in (sources, previous)]
        model = cast("TranslationModel", self._model)
        with self._scaled(sources, scales) as kept:
            features = model(Source(sources, lengths[0]), previous, lengths[1])  # [rows · target, width]
        if not kept:
            raise ModelError(
                "the source symbols of this model pass no known embedding as they are, so nothing can be attributed to "
                "them; embed them with seqloom.nn.embeddings.Embedding, without symbols around the source"
            )
        wanted = self._target.repeat(rows)[:, None]
        return kept[0], model.output.log_probs(features).gather(1, wanted).view(rows, -1)

    @contextmanager
    def _scaled(self, sources: Tensor, scales: Tensor) -> Iterator[list[Tensor]]:
        kept: list[Tensor] = []

        def scale(_module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> Tensor | None:
            # The target begins with BEGIN, which no source has, so a table of both sides is no trouble.
            if not torch.equal(given[0].flatten(), sources.flatten()):
                return None
            self._plain = vectors.detach()
            leaf = self._plain * scales.to(vectors).reshape(*vectors.shape[:-1], 1)
            kept.append(leaf.requires_grad_(torch.is_grad_enabled()))
            return kept[-1]

        handles = [
            module.register_forward_hook(scale) for module in self._model.modules() if isinstance(module, TABLES)
        ]
        try:
            yield kept
        finally:
            for handle in handles:
                handle.remove()


def require_attributable(loaded: LoadedModel) -> None:
    """Refuse what is not a translator that was trained in steps."""
    if loaded.config.purpose != "translator":
        raise UsageError(
            by_origin(f"only a translation can be attributed to a source, but {loaded.folder} is not a translator: ")
            + in_words(loaded.config)
        )


def look_at_attribution(
    loaded: LoadedModel, pair: GradientPair, *, method: Method = "integrated_gradients", steps: int | None = None
) -> list[Finding]:
    """The attribution of one pair as a finding."""
    require_attributable(loaded)
    source, target = (torch.tensor(side, dtype=torch.long, device=loaded.device) for side in (pair.source, pair.target))
    found = attribution_of(loaded.model.eval(), source, target, method=method, steps=steps)
    assert found is not None
    pieces = [loaded.tokenizers.source.piece(symbol) for symbol in pair.source]
    written = [loaded.tokenizers.target.piece(symbol) for symbol in pair.target]
    return [_finding(loaded, found, source=pieces, target=written)]


def _finding(loaded: LoadedModel, found: Attribution, *, source: Sequence[str], target: Sequence[str]) -> Finding:
    t, k = divmod(int(np.abs(found.matrix).argmax()), found.matrix.shape[1])
    sentence = (
        f"By {found.method.replace('_x_', ' × ').replace('_', ' ')}, {target[t]!r} rests most on {source[k]!r}: "
        f"{found.matrix[t, k]:+.2f} of log P {found.log_probs[t]:.2f}."
    )
    if found.gap is not None:
        sentence += f" In {found.steps} steps the rows miss {found.gap:.2%} of what they should add up to."
    data = {
        "model": by_origin(str(loaded.folder)),
        "method": found.method,
        "source": list(source),
        "target": list(target),
        "matrix": found.matrix.tolist(),
        "log_probs": found.log_probs.tolist(),
        "gap": found.gap,
        "steps": found.steps,
    }

    def draw() -> Figure:
        figure = Figure(figsize=(2.4 + 0.42 * len(source), 1.6 + 0.3 * len(target)), layout="constrained")
        axes = figure.subplots()
        limit = max(float(np.abs(found.matrix).max()), 1e-12)
        image = axes.imshow(found.matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.set_xticks(
            range(len(source)), list(map(as_written, source)), rotation=60, ha="right", family=fonts(), parse_math=False
        )
        axes.set_yticks(range(len(target)), list(map(as_written, target)), family=fonts(), parse_math=False)
        figure.colorbar(image, ax=axes, fraction=0.04).set_label("share of log P (nats)", fontsize=8)
        return figure

    return Finding("attribution", "What each piece of the translation rests on", sentence, data, draw)
