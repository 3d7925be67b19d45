"""The variational autoencoder: its bound, its divergence, the laws of stepping, and what training keeps in z."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from typer.testing import CliRunner

from laws.stepping import check_stepper_laws
from seqloom.cli.main import app
from seqloom.core.reading import TextIds
from seqloom.core.symbols import BEGIN, END
from seqloom.data.phrasebook import sample_sentences
from seqloom.data.plain_text import Stream, TextLine, encode_text
from seqloom.models.vae import Posterior, Vae, VaeConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.settings import VariationalConfig
from seqloom.tasks.variational import VariationalTask

SYMBOLS = Symbols(source=9, target=9, is_shared=True)


def model_of(**settings: object) -> Vae:
    small: dict[str, object] = {"width": 6, "embedding_width": 5, "latent": 1}
    model = VaeConfig.model_validate(small | settings).build(SYMBOLS, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def test_the_divergence_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    mean, log_variance = (torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    ours = Posterior(mean.requires_grad_(), log_variance.requires_grad_())
    theirs = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, 1.0))
    torch.testing.assert_close(ours.divergence(), theirs)
    gradients = torch.autograd.grad(ours.divergence().sum(), (mean, log_variance))
    expected = torch.autograd.grad(theirs.sum(), (mean, log_variance))
    torch.testing.assert_close(gradients, expected)
    z = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    densities = Normal(mean, (0.5 * log_variance).exp()).log_prob(z).sum(1)
    torch.testing.assert_close(ours.log_density(z), densities)
    # A standard deviation in place of a variance would be seen.
    assert (kl_divergence(Normal(mean, log_variance.exp()), Normal(0.0, 1.0)) - theirs).abs().max() > 0.1


@pytest.mark.parametrize("settings", [{}, {"cell": "gru", "layers": 2, "latent": 4}])
def test_stepping_laws(settings: dict[str, object]) -> None:
    model = model_of(**settings)

    def teacher_forced(_: object, prefix: Tensor) -> Tensor:
        z = torch.zeros(len(prefix), model.latent, dtype=torch.float64)
        return model.output.log_probs(model.decode(prefix, z))

    check_stepper_laws(
        model.stepper, SYMBOLS.source, target_symbols=SYMBOLS.target, teacher_forced=teacher_forced, tolerance=1e-11
    )


def exact_log_prob(model: Vae, line: list[int]) -> float:
    """log ∫ P(w ∣ z) N(z; 0, 1) dz of a model with one latent dimension, by a fine sum."""
    points = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    read = torch.tensor([[BEGIN, *line]]).expand(len(points), -1)
    with torch.no_grad():
        log_probs = model.output.log_probs(model.decode(read, points[:, None]))
    chosen = log_probs[:, range(len(line) + 1), [*line, END]].sum(1)
    log_prior = -0.5 * points.square() - 0.5 * math.log(2 * math.pi)
    return float(torch.logsumexp(chosen + log_prior, 0) + math.log(18 / 4000))


def test_the_bound_is_below_the_exact_probability_and_near_it() -> None:
    model = model_of()
    lines = [[4, 5, 6], [7], [8, 8, 4, 5, 5, 6, 7], [4, 4]]
    text = TextIds.of(lines)
    assert model.reader().is_bound
    found = model.reader().log_probs(text, context="line", progress=lambda _tokens: None)
    bounds = np.add.reduceat(found, text.offsets[:-1])
    exact = np.array([exact_log_prob(model, line) for line in lines])
    assert (bounds <= exact + 0.1).all()  # one draw of the estimate may exceed it slightly
    np.testing.assert_allclose(bounds, exact, atol=0.5)
    # Each line is measured by itself.
    alone = model.reader().log_probs(TextIds.of(lines[2:3]), context="line", progress=lambda _tokens: None)
    np.testing.assert_allclose(alone, found[text.offsets[2] : text.offsets[3]], atol=1e-10)


def stream(folder: Path, count: int) -> Stream:
    rows = [[4 + (number * step) % 5 for step in range(1, 2 + number % 5)] for number in range(count)]

    lines = [TextLine(number, 0, " ".join(map(str, row))) for number, row in enumerate(rows, start=1)]
    encode_text(lines, lambda texts: [[int(each) for each in text.split()] for text in texts], folder, symbols=9)  # type: ignore[arg-type]
    return Stream.open(folder)


def test_noise_belongs_to_the_batch_and_free_nats_cost_nothing(tmp_path: Path) -> None:
    train = stream(tmp_path / "train", 40)

    def task(**settings: object) -> VariationalTask:
        config = VariationalConfig.model_validate({"tokens_per_batch": 60, **settings})
        return VariationalTask(train, train, config=config, total_batches=40, seed=3, device=torch.device("cpu"))

    model, plain = model_of(latent=4), task(annealing=0.0, free_nats=0.0, word_dropout=0.0)
    batch = plain.batch(0, 1)
    assert plain.loss(model, batch).total == plain.loss(model, plain.batch(0, 1)).total
    assert plain.loss(model, batch).total != plain.loss(model, plain.batch(1, 1)).total
    # β = 0 at the first batch: what is left is the reconstruction; free nats only raise the loss.
    eased = task(annealing=0.5, word_dropout=0.0)
    assert [eased.kl_weight(0, index) for index in (0, 10, 20, 39)] == [0.0, 0.5, 1.0, 1.0]
    assert task(annealing=0.5, cycles=2).kl_weight(0, 20) == 0.0
    loss = [task(annealing=0.0, free_nats=free, word_dropout=0.0).loss(model, batch).total.item() for free in (0, 50)]
    assert loss[1] > loss[0]
    figures = plain.validate(model)
    count = sum(len(train.line(line)) for line in range(len(train)))
    assert figures["loss"] == pytest.approx(figures["reconstruction"] + figures["kl"] * len(train) / count)


def test_between_needs_two_texts_and_a_latent_variable(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in sample_sentences("en", count=80, seed=1)))
    run = CliRunner().invoke
    quick = ["training.steps=3", "model.width=8", "model.latent=2", "text.kind=word"]
    made = run(app, ["train", "model.kind=vae", "--train", str(text), "--out", str(tmp_path / "vae"), *quick])
    assert made.exit_code == 0, made.output
    model = str(tmp_path / "vae" / "model")
    found = run(app, ["generate", model, "--between", "The dog is big.", "We have time.", "--steps", "3"])
    assert found.exit_code == 0, found.output
    assert len(found.stdout.splitlines()) == 3
    for arguments, sentence in (
        (["--between", "The dog is big.", " "], "blank"),
        (["--steps", "3"], "--steps requires --between"),
        (["--between", "a", "b", "--prompt", "c"], "cannot be combined"),
    ):
        refused = run(app, ["generate", model, *arguments])
        assert sentence in f"{refused.output} {refused.exception}"


@pytest.mark.slow
def test_a_trained_model_keeps_its_latent_variable_and_texts_change_along_the_way(tmp_path: Path) -> None:
    from seqloom import LanguageModel, train
    from seqloom.core.events import read_events

    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in sample_sentences("en", count=6000, seed=1)))
    settings = [
        "model.kind=vae",
        "text.kind=word",
        "model.width=96",
        "training.steps=1500",
        "training.learning_rate=0.002",
    ]
    train(overrides=settings, train=[str(text)], out=tmp_path / "run")
    validations = [event for event in read_events(tmp_path / "run" / "events.jsonl") if event.kind == "validation"]
    assert validations[-1]["kl"] > 1
    assert validations[-1]["active_units"] >= 1
    model = LanguageModel.load(tmp_path / "run")
    lines = sample_sentences("en", count=6, seed=1)
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        texts = [each.text for each in model.between(first, second, steps=7)]
        assert len(set(texts)) >= 3, texts
        assert texts == [each.text for each in model.between(first, second, steps=7)]
    assert len({each.text for each in model.generate(count=20)}) > 15
