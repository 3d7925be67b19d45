"""The experiments in their quick form: what each sentence claims is asserted from its numbers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.drawing.figures import Finding
from seqloom.lab import (
    butterfly,
    collapse,
    forget_bias,
    gates,
    jacobians,
    paths,
    spectra,
    step_bound,
    vanishing,
    window,
)
from seqloom.lab.bench import Countdown
from seqloom.lab.catalogue import EXPERIMENTS

Measure = Callable[[Any], dict[str, Finding]]


@pytest.fixture(scope="module")
def measure() -> Measure:
    """Each experiment once, whoever asks; its findings by name."""
    known: dict[str, dict[str, Finding]] = {}

    def run(module: Any) -> dict[str, Finding]:
        if module.__name__ not in known:
            known[module.__name__] = {finding.name: finding for finding in module.run(quick=True)}
        return known[module.__name__]

    return run


@pytest.mark.parametrize(
    "module",
    [butterfly, collapse, forget_bias, gates, jacobians, paths, spectra, step_bound, vanishing, window],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_every_finding_has_numbers_that_json_can_hold_and_a_picture(module: Any, measure: Measure) -> None:
    for finding in measure(module).values():
        assert json.loads(json.dumps(finding.data, allow_nan=False))["seed"] == 1
        assert finding.sentence.endswith(".")
        figure = finding.draw()
        assert all(axes.get_xlabel() for axes in figure.axes if axes.axison)
        assert any(axes.get_ylabel() for axes in figure.axes)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    first, again, other = (step_bound.run(seed=seed, quick=True)[0].data for seed in (1, 1, 2))
    assert first == again
    assert first != other


# --- vanishing -------------------------------------------------------------------------------------------------------


def test_a_linear_network_decays_by_the_logarithm_of_its_radius(measure: Measure) -> None:
    slopes = measure(vanishing)["slopes"].data["slopes"]
    assert [each["radius"] for each in slopes] == [0.7, 0.9, 1.0, 1.1]
    for each in slopes:
        assert each["predicted"] == pytest.approx(math.log(each["radius"]))
        assert each["linear"] == [pytest.approx(each["predicted"], abs=0.02)]
        assert each["tanh"][0] < each["linear"][0] - 0.1


def test_an_lstm_keeps_more_of_the_gradient_than_a_simple_network(measure: Measure) -> None:
    cells = {each["name"]: each["norms"] for each in measure(vanishing)["gradient-by-lag"].data["cells"]}
    assert all(norms[0] == pytest.approx(1) for norms in cells.values())
    assert cells["LSTM, forget bias 1"][30] > 10 * cells["tanh RNN, ρ = 1"][30]
    assert cells["LSTM, forget bias 4"][30] > 10 * cells["LSTM, forget bias 1"][30]


def test_an_rnn_and_an_lstm_are_taught_to_remember(measure: Measure) -> None:
    cells = measure(vanishing)["memory-horizon"].data["cells"]
    assert [(each["cell"], each["symbols"]) for each in cells] == [("RNN", 16), ("RNN", 8), ("LSTM", 16)]
    assert all(1 <= lag <= 24 for each in cells for lag in each["lags"])


# --- window ----------------------------------------------------------------------------------------------------------


def test_memory_is_quadratic_for_explicit_scores_only(measure: Measure) -> None:
    """At lengths where scores outweigh all else."""
    measure(window)
    generator = torch.Generator().manual_seed(1)
    costs = window.measure(window.ways_of(16), lengths=(256, 512), rounds=1, generator=generator)
    peaks = {way: [cost.peak for cost in costs if cost.way == way] for way in ("explicit", "fused", "local")}
    assert peaks["explicit"][1] / peaks["explicit"][0] == pytest.approx(4, abs=0.3)
    assert peaks["explicit"][0] > 3 * window.HEADS * 256**2 * 4  # scores, weights and a gradient, of four bytes
    assert peaks["fused"][1] / peaks["fused"][0] == pytest.approx(2, abs=0.3)
    assert peaks["local"][1] / peaks["local"][0] == pytest.approx(2, abs=0.1)


def test_all_ways_of_attention_agree_where_the_window_holds_everything() -> None:
    query, key, value = torch.randn(3, 1, 2, 20, 4, generator=torch.Generator().manual_seed(1))
    ways = window.ways_of(20)
    for name in ("fused", "local"):
        torch.testing.assert_close(ways[name](query, key, value), ways["explicit"](query, key, value))


# --- jacobians -------------------------------------------------------------------------------------------------------


def test_the_shortcut_is_right_for_one_step_only(measure: Measure) -> None:
    for errors in (each["by_lag"] for each in measure(jacobians)["shortcut"].data["errors"]):
        assert max(errors[:2]) < 1e-9
        assert min(errors[2:]) > 0.1


def test_the_modulus_of_an_eigenvalue_predicts_the_slope_and_a_sheared_matrix_first_grows(measure: Measure) -> None:
    data = measure(jacobians)["moduli"].data
    for each in data["matrices"]:
        assert each["slope"] == pytest.approx(each["predicted_slope"], abs=0.01)
    normal, sheared, negative = data["matrices"]
    assert max(normal["norms"]) == pytest.approx(1)
    assert max(sheared["norms"]) > 1.5
    assert negative["slope"] > 0
    assert data["closed_form_error"] < 1e-10


def test_steps_long_before_the_only_loss_hardly_contribute(measure: Measure) -> None:
    shares = measure(jacobians)["weight-gradient-by-step"].data["by_lag"]
    assert shares["loss at the last step"][10] < 0.1
    assert shares["loss at every step, the mean"][10] > 0.3


# --- gates and biases ------------------------------------------------------------------------------------------------


def test_keeping_is_the_strongest_of_the_four_paths_and_grows_with_the_bias(measure: Measure) -> None:
    by_bias = {each["bias"]: each["norms"] for each in measure(gates)["gate-terms"].data["biases"]}
    assert max(by_bias[4.0], key=by_bias[4.0].__getitem__) == "kept"
    assert by_bias[-2.0]["kept"] < by_bias[1.0]["kept"] < by_bias[4.0]["kept"] <= 1


def test_products_of_gate_terms_are_off_from_two_steps_on(measure: Measure) -> None:
    for each in measure(gates)["gate-residual"].data["biases"]:
        assert max(each["highest"][:2]) < 1e-9
        assert min(each["mean"][2:]) > 0.002
        assert each["lowest"][5] <= each["mean"][5] <= each["highest"][5]


def test_a_higher_forget_bias_keeps_more_of_the_gradient(measure: Measure) -> None:
    biases = measure(forget_bias)["forget-bias"].data["biases"]
    assert [each["bias"] for each in biases] == [-2, -1, 0, 1, 2, 3, 4]
    slopes = [each["slope"] for each in biases]
    assert slopes[:5] == sorted(slopes[:5])
    highest = max(biases, key=lambda each: float(each["slope"]))
    assert f"{math.exp(highest['slope']):.2f} at {highest['bias']:g}" in measure(forget_bias)["forget-bias"].sentence
    assert biases[-1]["norms"][30] > 1e6 * biases[0]["norms"][30]
    assert biases[0]["log_gate"] == pytest.approx(math.log(1 / (1 + math.exp(2))))


# --- spectra, butterfly, paths, steps --------------------------------------------------------------------------------


def test_starts_have_the_radius_that_they_promise(measure: Measure) -> None:
    found = list(measure(spectra)["starts"].data["spectra"].values())
    assert [each["radius"] for each in found[:2]] == [pytest.approx(1, abs=1e-6)] * 2
    assert found[0]["gain"] == pytest.approx(1, abs=1e-6)
    assert found[1]["gain"] > 1.3


def test_a_step_of_an_open_lstm_reaches_the_unit_circle_and_that_of_a_tanh_network_does_not(measure: Measure) -> None:
    found = measure(spectra)["steps"].data["spectra"]
    assert found["tanh RNN"]["radius"] < 1
    assert found["LSTM, forget bias −2"]["radius"] < 0.7 < found["LSTM, forget bias 4"]["radius"]
    assert len(found["GRU"]["eigenvalues"]) == 24
    assert len(found["LSTM, forget bias 1"]["eigenvalues"]) == 48


def test_wide_radii_part_and_narrow_ones_meet(measure: Measure) -> None:
    cells = {each["name"]: each for each in measure(butterfly)["butterfly"].data["cells"]}
    rates = [cells[f"tanh RNN, ρ = {radius:g}"]["rate"] for radius in butterfly.RADII]
    assert rates == sorted(rates)
    assert rates[0] < -0.1 < 0.1 < rates[-1]
    assert cells["tanh RNN, ρ = 3"]["distances"][-1] > 0.1
    assert cells["tanh RNN, ρ = 3"]["state_norm"] <= math.sqrt(32)


def test_factors_per_step_are_those_of_the_rates_and_in_the_sentence(measure: Measure) -> None:
    finding = measure(butterfly)["butterfly"]
    for each in finding.data["cells"]:
        assert each["factor"] == pytest.approx(math.exp(each["rate"]))
    assert f"a factor of {finding.data['cells'][4]['factor']:.2f} per step" in finding.sentence


def test_attention_reaches_far_inputs_that_the_last_state_has_lost(measure: Measure) -> None:
    readers = {each["name"]: each for each in measure(paths)["paths"].data["readers"]}
    with_, without = readers["RNN with attention"], readers["RNN, last state"]
    assert with_["norms"][30] > 100 * without["norms"][30]
    assert with_["norms"][30] > 0.2 * with_["norms"][0]
    assert with_["norms"][0] < without["norms"][0]
    assert (with_["steps_one_after_another"], readers["attention, no loop"]["steps_one_after_another"]) == (40, 1)


def test_no_step_changes_a_loss_by_more_than_its_bound(measure: Measure) -> None:
    data = measure(step_bound)["step-bound"].data
    limit = data["lipschitz_constant"] * data["rate"]
    for norm, plain, clipped in zip(data["lengths"], data["changes"]["plain"], data["changes"]["clipped"], strict=True):
        assert plain <= limit * norm * 1.001
        assert clipped <= limit * min(norm, data["threshold"]) * 1.001
    assert max(data["changes"]["plain"]) > 10 * max(data["changes"]["clipped"])


# --- collapse --------------------------------------------------------------------------------------------------------


def test_words_become_one_without_negatives_and_only_without(measure: Measure) -> None:
    without, with_them = measure(collapse)["collapse"].data["courses"]
    assert (without["negatives"], with_them["negatives"]) == (0, 5)
    assert without["cosines"][-1] > 0.9 > with_them["cosines"][-1] + 0.1
    assert without["losses"][-1] < 0.5 * with_them["losses"][-1]


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_the_catalogue_names_each_experiment_once_with_a_question() -> None:
    names = [experiment.name for experiment in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert all(experiment.question.endswith("?") and experiment.minutes > 0 for experiment in EXPERIMENTS)


def test_every_experiment_of_the_folder_is_in_the_catalogue_and_has_a_page() -> None:
    folder = Path(collapse.__file__).parent
    written = {file.stem for file in folder.glob("*.py") if "\ndef run(*, seed" in file.read_text(encoding="utf-8")}
    names = {experiment.name for experiment in EXPERIMENTS}
    assert {name.replace("_", "-") for name in written} == names
    pages = Path(__file__).parents[2] / "docs" / "lab"
    assert {page.stem for page in pages.glob("*.md")} == {*names, "index"}


def test_the_time_left_is_what_the_parts_so_far_have_taken() -> None:
    times, lines = iter([0.0, 2.0, 4.0]), []
    countdown = Countdown(lines.append, 4, clock=lambda: next(times))
    countdown.done("first")
    countdown.done("second")
    assert lines == ["first: 1 of 4, about 6 s left", "second: 2 of 4, about 4 s left"]


MEASURED = ("jacobians", "spectra", "gates", "forget-bias", "butterfly", "paths", "step-bound", "collapse")
"""Experiments whose figures do not hang on the last bits of a training, which differ between machines."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_a_page_quotes_what_its_experiment_prints(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "lab" / f"{name}.md").read_text(encoding="utf-8")
    quotes = " ".join(line.removeprefix(">") for line in page.splitlines() if line.startswith(">"))
    (experiment,) = (each for each in EXPERIMENTS if each.name == name)
    for finding in experiment.run(seed=1):
        assert finding.sentence in " ".join(quotes.split())
