"""The benchmark of training steps: its contestants compute the same loss. Nothing is timed here."""

import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]

import transformer_blocks  # noqa: E402
from seqloom.models.gpt import GptConfig  # noqa: E402
from seqloom.nn.embeddings import Symbols  # noqa: E402

CONTESTS = {contest.name: contest.quick() for contest in transformer_blocks.CONTESTS}


def test_the_plain_gpt_scores_as_ours() -> None:
    contest = CONTESTS["gpt-128"]
    sizes = {"width": contest.width, "heads": contest.heads, "layers": contest.layers, "longest": contest.length}
    config = GptConfig.model_validate({**sizes, "feed_forward": contest.inner, "activation": "gelu"})
    model = config.build(Symbols(contest.symbols, contest.symbols, is_shared=True), seed=1).eval()
    plain = transformer_blocks.plain_copy(model, contest).eval()
    ids = torch.randint(4, contest.symbols, (3, contest.length))
    with torch.no_grad():
        ours = model.output(model(ids)[0])
        torch.testing.assert_close(plain(ids), ours, rtol=0, atol=1e-5)
        plain.blocks[0].inner.weight.mul_(1.5)  # type: ignore[union-attr, operator]
        assert not torch.allclose(plain(ids), ours, atol=1e-3)


@pytest.mark.parity
@pytest.mark.parametrize("name", list(CONTESTS))
def test_contestants_have_one_loss_and_learn(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers is installed by `make parity`")
    contest = CONTESTS[name]
    contestants, text = transformer_blocks.line_up(contest), transformer_blocks.batches(contest, number=2)
    assert [each.name for each in contestants][:1] == [transformer_blocks.OURS]
    assert transformer_blocks.losses_agree(contestants, text[0])
    before = [each.measured_loss(text[0]) for each in contestants]
    for each in contestants:
        for _ in range(20):
            each.step(text[0])
    assert all(each.measured_loss(text[0]) < loss for each, loss in zip(contestants, before, strict=True))
    for weight in contestants[0].model.parameters():
        weight.data.mul_(1.5)
    assert not transformer_blocks.losses_agree(contestants, text[0])
