"""Attributions to the source: they are what captum computes, and what their formulas say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from look.test_gradients import LINES, SIZES, loaded_model
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN
from seqloom.look.attribution import MAX_GAP, METHODS, attribution_of, look_at_attribution
from seqloom.look.gradients import GradientPair, text_pairs
from seqloom.runs.loading import LoadedModel

KINDS = [*SIZES, "seq2seq without attention"]


@pytest.fixture(params=KINDS)
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> LoadedModel:
    """With tables of their own for source and target, so that a hook on one sees the source alone."""
    settings = ["model.attention=none"] if "without" in request.param else []
    found = loaded_model(request.param.split()[0], tmp_path / "model", "model.tying=none", *settings)
    found.model.double()
    return found


def sides(loaded: LoadedModel) -> tuple[Tensor, Tensor]:
    (pair, *_) = text_pairs(loaded, LINES)
    return torch.tensor(pair.source), torch.tensor(pair.target)


def forward_of(loaded: LoadedModel, source: Tensor, target: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """F as a function of the source vectors [rows, source, width], and those of the source itself."""
    model: Any = loaded.model
    previous = torch.cat([torch.tensor([BEGIN]), target[:-1]])
    table = model.encoder.embedding

    def forward(vectors: Tensor) -> Tensor:
        rows = len(vectors)

        def replaced(_module: nn.Module, _given: Any, found: Tensor) -> Tensor:
            return vectors.reshape(found.shape)

        hook = table.register_forward_hook(replaced)
        try:
            lengths = torch.full((rows,), len(source)), torch.full((rows,), len(target))
            features = model(Source(source.expand(rows, -1), lengths[0]), previous.expand(rows, -1), lengths[1])
        finally:
            hook.remove()
        log_probs = model.output.log_probs(features).view(rows, len(target), -1)
        return log_probs.gather(2, target.expand(rows, -1)[:, :, None])[:, :, 0]  # [rows, target]

    return forward, table(source)[None].detach()


def test_the_rows_of_integrated_gradients_add_up_to_what_the_source_changes(loaded: LoadedModel) -> None:
    source, target = sides(loaded)
    forward, vectors = forward_of(loaded, source, target)
    change = (forward(vectors) - forward(torch.zeros_like(vectors)))[0].detach().numpy()
    found = attribution_of(loaded.model, source, target, method="integrated_gradients")
    assert found is not None
    assert found.gap is not None
    missing = np.abs(found.matrix.sum(1) - change).sum() / np.abs(change).sum()
    assert missing == pytest.approx(found.gap, abs=1e-9)
    assert missing <= MAX_GAP
    coarse = attribution_of(loaded.model, source, target, method="integrated_gradients", steps=1)
    assert coarse is not None
    assert coarse.gap is not None
    assert coarse.gap > found.gap  # so the steps were needed


def test_occlusion_is_the_fall_of_log_p_without_a_piece(loaded: LoadedModel) -> None:
    source, target = sides(loaded)
    forward, vectors = forward_of(loaded, source, target)
    found = attribution_of(loaded.model, source, target, method="occlusion")
    assert found is not None
    for at in range(len(source)):
        without = vectors.clone()
        without[0, at] = 0
        fall = (forward(vectors) - forward(without))[0].detach().numpy()
        np.testing.assert_allclose(found.matrix[:, at], fall, rtol=0, atol=1e-12)


@pytest.mark.parity
def test_attributions_equal_those_of_captum(loaded: LoadedModel) -> None:
    attr = pytest.importorskip("captum.attr", reason="captum is not installed; it is one of the parity group")
    source, target = sides(loaded)
    forward, vectors = forward_of(loaded, source, target)
    steps = 20
    ours = {
        method: attribution_of(
            loaded.model, source, target, method=method, steps=steps if method == "integrated_gradients" else None
        )
        for method in METHODS
    }
    mask = torch.arange(len(source))[None, :, None].expand_as(vectors)

    def theirs(method: str, *, is_wrong: bool = False) -> np.ndarray:
        rows, base = [], torch.roll(vectors, 1, dims=2) if is_wrong else torch.zeros_like(vectors)
        for t in range(len(target)):
            given = vectors.clone().requires_grad_()
            if method == "gradient_x_input":
                found = attr.InputXGradient(forward).attribute(given, target=t).sum(2)
            elif method == "integrated_gradients":
                integrated = attr.IntegratedGradients(forward)
                found = integrated.attribute(given, base, target=t, n_steps=steps, method="gausslegendre").sum(2)
            else:
                ablated = attr.FeatureAblation(forward).attribute(vectors, base, target=t, feature_mask=mask)
                found = ablated[:, :, 0]  # the same for all numbers of a vector
            rows.append(found[0].detach().numpy())
        return np.stack(rows)

    for method, found in ours.items():
        assert found is not None
        np.testing.assert_allclose(found.matrix, theirs(method), rtol=0, atol=1e-6, err_msg=method)
    for method in ("integrated_gradients", "occlusion"):  # with another baseline they are others
        found = ours[method]  # type: ignore[index]
        assert found is not None
        assert np.abs(found.matrix - theirs(method, is_wrong=True)).max() > 1e-3


def test_a_finding_names_its_method_and_its_gap(loaded: LoadedModel) -> None:
    (pair, *_) = text_pairs(loaded, LINES)
    (finding,) = look_at_attribution(loaded, pair)
    assert finding.data["steps"] >= 16
    assert "integrated gradients" in finding.sentence
    assert "steps the rows miss" in finding.sentence
    finding.draw()


def test_what_cannot_be_attributed_is_refused(tmp_path: Path) -> None:
    loaded = loaded_model("transformer", tmp_path / "model")
    source, target = sides(loaded)
    with pytest.raises(UsageError, match="steps=0"):
        attribution_of(loaded.model, source, target, method="integrated_gradients", steps=0)
    framed = loaded_model("transformer", tmp_path / "model", "model.frame.source_before=[3]")
    with pytest.raises(ModelError, match="without symbols around the source"):
        attribution_of(framed.model, source, target, method="occlusion")
    pair = GradientPair(source.tolist(), target.tolist())
    assert look_at_attribution(loaded, pair, method="occlusion")[0].data["gap"] is None
