"""Learning from the prompt: memory cannot solve the task, and a trained model solves it as well as anyone can."""

import pytest
import torch

from seqloom.lab.bench import generator_for, silent
from seqloom.lab.few_shot import (
    FIRST_VALUE,
    KEYS,
    QUICK,
    VALUES,
    Plan,
    best_possible,
    draw_mappings,
    is_right,
    numbers_of,
    run,
    train,
    unseen,
    write,
)


def test_a_text_shows_a_mapping() -> None:
    mappings = torch.tensor([[3, 1, 4, 1, 5, 2, 6, 5]])
    assert write(mappings, torch.tensor([[2, 0, 2]]))[0].tolist() == [1, 6, FIRST_VALUE + 4, 4, FIRST_VALUE + 3, 6, 16]


def test_no_test_mapping_was_seen_in_training() -> None:
    _, seen, _ = train(QUICK, seed=1, say=silent)
    assert len(seen) == len(set(seen.tolist())) <= QUICK.steps * QUICK.texts
    known = draw_mappings(40, generator_for(1, "training"))  # the first that training draws
    assert torch.isin(numbers_of(known[: QUICK.texts]), seen).all()
    everything = torch.cat([numbers_of(draw_mappings(60, generator_for(3, "test"))), seen])
    found = unseen(50, everything[:30], generator_for(3, "test"))
    assert len(found) == 50
    assert not torch.isin(numbers_of(found), everything[:30]).any()


def test_the_best_possible_is_that_of_looking_up_and_guessing() -> None:
    """Found by a reader that knows the rule, on drawn texts."""
    assert (best_possible(0), best_possible(KEYS)) == (1 / VALUES, 1.0)
    generator = torch.Generator().manual_seed(1)
    for examples in (0, 3, 7):
        mappings = draw_mappings(20_000, generator)
        order = torch.rand(mappings.shape, generator=generator).argsort(1)
        asked = torch.randint(KEYS, (len(mappings), 1), generator=generator)
        is_shown = (order[:, :examples] == asked).any(1)
        guessed = torch.randint(VALUES, (len(mappings),), generator=generator)
        right = is_shown | (guessed == mappings.gather(1, asked)[:, 0])
        assert float(right.double().mean()) == pytest.approx(best_possible(examples), abs=0.012)


def test_the_finding_has_its_numbers() -> None:
    (finding,) = run(quick=True)
    assert f"{finding.data['accuracy'][8]:.2f} with 8 (1.00)" in finding.sentence
    assert len(finding.data["accuracy"]) == len(finding.data["best_possible"]) == KEYS + 1
    assert len(finding.draw().axes) == 2


@pytest.mark.slow
def test_accuracy_rises_from_chance_to_one() -> None:
    model, seen, _ = train(Plan(), seed=2, say=silent)
    generator = generator_for(2, "test")
    for examples in range(KEYS + 1):
        mappings = unseen(2000, seen, generator)
        found = float(is_right(model, mappings, examples=examples, generator=generator).double().mean())
        assert found == pytest.approx(best_possible(examples), abs=0.05), examples
    assert found >= 0.9
