"""Learning from the prompt: a small GPT completes mappings that it has never seen, from examples of them.

    mapping     f: 8 keys → 8 values, each value drawn by itself             8⁸, about 17 million mappings
    training    k₁ f(k₁) k₂ f(k₂) …, another f in every text                 loss at the values alone
    test        k examples with different keys, then one of the 8 keys       mappings that training did not draw

The weights cannot hold the answer: it is in the prompt or nowhere. With probability k/8 the key is among the examples;
otherwise each value is equally likely. So the best that anyone can do is

    P(right) = k/8 + (1 − k/8) · 1/8        from 1/8 at k = 0, which is chance, to 1 at k = 8

A model gets there by looking up the key among the examples and copying what follows (Olsson et al., 2022): one layer
tells each value the key before it, the next one finds the value whose key is the last one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from seqloom.core.seeds import seed_for
from seqloom.core.symbols import BEGIN, RESERVED
from seqloom.drawing.figures import FIRST, QUIET, SECOND, Finding
from seqloom.lab.bench import Countdown, Say, frames, generator_for, rounded, silent, take_step
from seqloom.models.gpt import Gpt, GptConfig
from seqloom.nn.embeddings import Symbols

KEYS = VALUES = 8
FIRST_VALUE = len(RESERVED) + KEYS
SYMBOLS = FIRST_VALUE + VALUES
"""Reserved symbols, then keys, then values."""

Mappings = Int[Tensor, "texts keys"]
"""The value of every key, from 0 on."""


@dataclass(frozen=True)
class Plan:
    """The sizes of the model, of its training and of the test."""

    width: int = 64
    heads: int = 4
    layers: int = 2
    pairs: int = 16
    """Examples in a text of training; keys may come again."""
    texts: int = 64
    """In a step."""
    steps: int = 1000
    learning_rate: float = 3e-3
    tests: int = 2000
    """Mappings on which each number of examples is tested."""


QUICK = Plan(width=16, heads=2, steps=20, texts=8, tests=50)


def draw_mappings(count: int, generator: torch.Generator) -> Mappings:
    """Mappings whose values are independent."""
    return torch.randint(VALUES, (count, KEYS), generator=generator)


def numbers_of(mappings: Mappings) -> Int[Tensor, " texts"]:
    """A number for each mapping, the same for equal ones only."""
    return (mappings * VALUES ** torch.arange(KEYS)).sum(1)


def write(mappings: Mappings, keys: Int[Tensor, "texts pairs"]) -> Int[Tensor, "texts symbols"]:
    """BEGIN, then each key and its value."""
    values = mappings.gather(1, keys)
    pairs = torch.stack([keys + len(RESERVED), values + FIRST_VALUE], 2).flatten(1)  # [texts, 2 · pairs]
    return F.pad(pairs, (1, 0), value=BEGIN)


def train(plan: Plan, *, seed: int, say: Say) -> tuple[Gpt, Int[Tensor, " seen"], list[float]]:
    """A model, the numbers of the mappings it has seen, and its loss at values by step."""
    settings = GptConfig(
        width=plan.width,
        heads=plan.heads,
        layers=plan.layers,
        longest=1 + 2 * plan.pairs,
        positions="rotary",
        dropout_rate=0.0,
    )
    model = settings.build(Symbols(source=SYMBOLS, target=SYMBOLS, is_shared=True), seed=seed_for(seed, "model"))
    optimiser = AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=0.01)
    generator, countdown = generator_for(seed, "training"), Countdown(say, 10)
    seen, losses = [], []
    for step in range(plan.steps):
        for group in optimiser.param_groups:  # a short warm-up, then down to 0
            group["lr"] = plan.learning_rate * min((step + 1) / (0.05 * plan.steps), 1 - step / plan.steps)
        mappings = draw_mappings(plan.texts, generator)
        keys = torch.randint(KEYS, (plan.texts, plan.pairs), generator=generator)
        text = write(mappings, keys)
        scores = model.output(model(text[:, :-1])[0][:, 1::2])  # [texts, pairs, symbols], after each key
        loss = F.cross_entropy(scores.flatten(0, 1), text[:, 2::2].flatten())
        take_step(optimiser, loss, clip_norm=1.0)
        seen.append(numbers_of(mappings))
        losses.append(loss.item())
        if (step + 1) * 10 // plan.steps > step * 10 // plan.steps:
            countdown.done(f"step {step + 1:,}, loss {losses[-1]:.3f}")
    return model.eval(), torch.cat(seen).unique(), losses


def unseen(count: int, seen: Int[Tensor, " seen"], generator: torch.Generator) -> Mappings:
    """Mappings that are not among those of training."""
    drawn = draw_mappings(2 * count, generator)
    return drawn[~torch.isin(numbers_of(drawn), seen)][:count]


@torch.no_grad()
def is_right(
    model: Gpt, mappings: Mappings, *, examples: int, generator: torch.Generator, shown: Mappings | None = None
) -> Bool[Tensor, " texts"]:
    """Whether the likeliest value is that of a key after so many examples, of the mappings or of those `shown`."""
    order = torch.rand(mappings.shape, generator=generator).argsort(1)  # [texts, keys]
    asked = torch.randint(KEYS, (len(mappings), 1), generator=generator)
    prompt = write(mappings if shown is None else shown, order[:, :examples])
    features, _ = model(torch.cat([prompt, asked + len(RESERVED)], 1))
    found = model.output(features[:, -1])[:, FIRST_VALUE:].argmax(1)  # [texts]
    right: Tensor = found == mappings.gather(1, asked)[:, 0]
    return right


def best_possible(examples: int) -> float:
    """The highest possible accuracy: that of a predictor that knows how the texts are generated."""
    known = examples / KEYS
    return known + (1 - known) / VALUES


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Accuracy on unseen mappings by the number of examples."""
    plan = QUICK if quick else Plan()
    model, seen, losses = train(plan, seed=seed, say=say)
    generator = generator_for(seed, "test")
    counts = range(KEYS + 1)
    found, misled = [], []
    for examples in counts:
        mappings = unseen(plan.tests, seen, generator)
        others = unseen(plan.tests, seen, generator)
        found.append(is_right(model, mappings, examples=examples, generator=generator).double().mean().item())
        wrong = is_right(model, mappings, examples=examples, generator=generator, shown=others)
        misled.append(wrong.double().mean().item())
    return [finding(plan, seed=seed, seen=len(seen), losses=losses, found=found, misled=misled)]


def finding(
    plan: Plan, *, seed: int, seen: int, losses: Sequence[float], found: Sequence[float], misled: Sequence[float]
) -> Finding:
    """The accuracies as a finding."""
    counts = range(KEYS + 1)
    best = [best_possible(examples) for examples in counts]
    listed = ", ".join(f"{found[k]:.2f} with {k} ({best[k]:.2f})" for k in (0, 1, 2, 4, 8))
    sentence = (
        f"A GPT of {plan.layers} layers completes mappings that it has never seen, by the number of examples in the "
        f"prompt: {listed}; in brackets, the best possible. With {KEYS} examples of another mapping it is right in "
        f"{misled[-1]:.2f}, and chance is {1 / VALUES:.3f}: the answers come from the prompt."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "plan": asdict(plan),
        "mappings_seen": seen,
        "final_loss": rounded(losses[-1:])[0],
        "examples": list(counts),
        "accuracy": rounded(found),
        "best_possible": rounded(best),
        "accuracy_with_examples_of_another_mapping": rounded(misled),
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        left.plot(counts, best, color=QUIET, linestyle=(0, (4, 3)), label="best possible")
        left.plot(counts, found, "o-", color=FIRST, ms=5, label="unseen mappings")
        left.plot(counts, misled, "s-", color=SECOND, ms=4, label="examples of another mapping")
        left.set(ylim=(0, 1.02), xlabel="examples in the prompt", ylabel="accuracy")
        left.legend(frameon=False, fontsize=9)
        right.plot(range(1, len(losses) + 1), losses, color=FIRST, linewidth=1)
        right.set(ylim=(0, None), xlabel="step", ylabel="loss at values (nats)")
        return figure

    return Finding("few-shot", "Accuracy on unseen mappings by number of examples", sentence, data, draw)
