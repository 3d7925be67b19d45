"""The benchmark of recurrent layers and of recurrent training: its arithmetic, its contestants, and tiny runs of it."""

import gzip
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "contestants")]

import ours as ours_script  # noqa: E402
import peer_loop  # noqa: E402
import plain_lstm  # noqa: E402
import recurrent_layers  # noqa: E402

import recurrent  # noqa: E402
from harness import corpus, ending, flops, layer_report, layer_rounds, layers, processes, ratios, rounds, toolkits  # noqa: E402
from harness.sizes import LSTM_512, SIZES  # noqa: E402
from seqloom.core.stepping import Source  # noqa: E402
from seqloom.nn.cells.cell import unroll  # noqa: E402
from seqloom.nn.embeddings import Symbols  # noqa: E402
from seqloom.nn.outputs import smoothed_cross_entropy  # noqa: E402

TINY = replace(LSTM_512, name="tiny", width=8, embedding_width=6, dropout_rate=0.0, tokens_per_batch=64)
EXTENT = layers.Extent(2, 3, 4)


def case_named(name: str) -> layers.Case:
    (found,) = (case for case in layers.CASES if case.name == name)
    return found


@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("LSTM", 4 * 2 + 4 * 3),
        ("peephole", 4 * 2 + 4 * 3),
        ("peephole full", 4 * 2 + 7 * 3),
        ("coupled", 3 * 2 + 3 * 3),
        ("GRU", 3 * 2 + 3 * 3),
        ("GRU input", 3 * 2 + 1 + 3 * 3),
        ("Elman relu", 2 + 3),
    ],
)
def test_flops_of_cells_by_hand(name: str, products: int) -> None:
    assert case_named(name).matrices.flops(input_width=5, width=5) == 2 * 5 * 5 * products


def test_flops_of_an_lstm_follow_the_formula_where_widths_differ() -> None:
    assert flops.CellMatrices(4).flops(input_width=3, width=5) == 2 * 4 * 5 * (2 * (3 + 5) + 5)


@pytest.mark.parametrize("case", layers.CASES, ids=lambda case: case.name)
def test_flops_are_those_of_the_products_that_the_plain_loop_makes(case: layers.Case) -> None:
    batch, time, width = 2, 3, 4
    cell, _ = recurrent_layers.build({"program": "ours", "kind": case.kind, "options": dict(case.options)}, width)
    hint = torch.zeros(batch, width, requires_grad=True)  # so that the first step sends a gradient back as all others
    with FlopCounterMode(display=False) as counter:
        outputs, _ = unroll(cell, torch.randn(batch, time, width), cell.begin(hint))
        outputs.backward(torch.randn_like(outputs))
    assert counter.get_total_flops() == batch * time * case.matrices.flops(input_width=width, width=width)


def test_every_cell_and_its_plain_loop_have_the_same_weights_and_give_the_same() -> None:
    entries = layers.entries_for(EXTENT, peak_size=8)
    inputs = torch.randn(EXTENT.batch, EXTENT.time, EXTENT.width)
    by_name = {each.name: each for each in entries}
    for case in layers.CASES:
        found = []
        for name in (case.name, layers.loop_name(case)):
            (entry,) = json.loads(layers.entries_json([by_name[name]]))
            _, layer = recurrent_layers.build(entry, EXTENT.width)
            found.append(layer(inputs))
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", [case for case in layers.CASES if case.is_torch_formula], ids=lambda case: case.name)
def test_torch_layers_have_the_gates_of_the_cells_they_are_compared_with(case: layers.Case) -> None:
    cell, ours = recurrent_layers.build({"program": "ours", "kind": case.kind, "options": dict(case.options)}, 5)
    module, theirs = recurrent_layers.torch_layer(case.peer, 5)
    module.load_state_dict(
        {f"{name}_{end}_l0": getattr(linear, name)
         for end, linear in (("ih", cell.from_input), ("hh", cell.from_state)) for name in ("weight", "bias")}
    )  # fmt: skip
    if case.options.get("update") == "new":
        with torch.no_grad():
            for parameter in module.parameters():
                parameter[5:10].neg_()  # the update gate, the other way round
    inputs = torch.randn(2, 3, 5)
    torch.testing.assert_close(ours(inputs), theirs(inputs), rtol=1e-5, atol=1e-6)


def test_loop_over_torch_cells_equals_the_torch_layer() -> None:
    cell, loop = recurrent_layers.torch_cells(5)
    module, layer = recurrent_layers.torch_layer("nn.LSTM", 5)
    module.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    inputs = torch.randn(2, 3, 5)
    torch.testing.assert_close(loop(inputs), layer(inputs), rtol=1e-5, atol=1e-6)


def test_a_call_leaves_no_gradient_behind() -> None:
    module, layer = recurrent_layers.torch_layer("nn.RNN", 4)
    recurrent_layers.make_call(module, layer, (2, 3, 4))()
    assert all(parameter.grad is None for parameter in module.parameters())


def test_calls_are_repeated_until_a_measurement_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(recurrent_layers.time, "perf_counter", lambda: now[0])

    def watch(seconds: float, least_calls: int) -> recurrent_layers.Stopwatch:
        def call() -> None:
            now[0] += seconds

        return recurrent_layers.Stopwatch(call, least_seconds=0.05, least_calls=least_calls)

    short, long, peak = watch(0.004, 1), watch(0.7, 1), watch(0.2, 3)
    assert [each.warm()["calls"] for each in (short, long, peak)] == [13, 1, 3]
    assert short.time() == {"calls": 13, "seconds": pytest.approx(0.052)}


def test_every_round_has_what_is_due_in_an_order_of_its_own() -> None:
    entries = layers.entries_for(EXTENT, peak_size=8)
    orders = [layer_rounds.order_of(entries, number, seed=1) for number in range(7)]
    seldom = {index for index, entry in enumerate(entries) if entry.is_seldom}
    assert {entries[index].name for index in seldom} == {
        name for case in layers.CASES if not case.has_goal for name in (case.name, layers.loop_name(case))
    }
    for number, order in enumerate(orders):
        due = set(range(len(entries))) - (set() if number % 3 == 0 else seldom)
        assert sorted(order) == sorted(due)
    assert orders[0] != orders[3]
    assert orders[1] == layer_rounds.order_of(entries, 1, seed=1)


def test_timings_pair_the_rounds_that_two_layers_share() -> None:
    timings = layer_rounds.Timings({"sgemm": {0: 10.0, 1: 20.0, 2: 40.0}, "a": {0: 5.0, 2: 10.0}})
    assert timings.pairs("a", "sgemm") == ([5.0, 10.0], [10.0, 40.0])
    assert timings.share_of_peak("a") == pytest.approx((0.5 + 0.25) / 2)
    assert (timings.rate("a"), timings.span("sgemm")) == (7.5, (10.0, 40.0))


def test_rates_are_useful_flops_by_seconds() -> None:
    class Fake:
        def ask(self, command: str) -> dict[str, float]:
            return {"calls": 4} if command.startswith("warm") else {"calls": 4, "seconds": 0.5}

    entries = layers.entries_for(EXTENT, peak_size=8)
    timings = layer_rounds.time_entries(Fake(), entries, what="x", pairs=4, seed=1)  # type: ignore[arg-type]
    assert timings.rates["sgemm"] == dict.fromkeys(range(4), 4 * 2 * 8**3 / 0.5)
    assert timings.rates["LSTM"][2] == 4 * 6 * (10 * 4 * 4 * 4) / 0.5
    assert list(timings.rates["LSTM norm"]) == [0, 3]


def timings_of(rates: dict[str, float]) -> layer_rounds.Timings:
    """Every entry at a rate of 1, but these."""
    names = [entry.name for entry in layers.entries_for(EXTENT, peak_size=8)]
    return layer_rounds.Timings({name: dict.fromkeys(range(7), rates.get(name, 1.0)) for name in names})


def test_claims_of_layers_have_the_goals_of_their_widths() -> None:
    timings = timings_of({"peephole": 0.85, "GRU before": 0.61, "LSTM": 0.94, "coupled, plain loop": 1.01})
    memory = {name: [100] for name in [*layers.PEERS, *(case.name for case in layers.CASES)]} | {"GRU": [120, 121]}
    missed = {}
    for width in (512, 256, 128):
        claims = layer_report.claims_of_layers(layers.Extent(1, 1, width), timings, memory)
        assert len(claims) == 3 * 11
        assert not any("norm" in each.about for each in claims)
        missed[width] = {each.about for each in claims if not each.is_reached}
    always = {"LSTM {} vs nn.LSTM", "LSTM {} vs its plain loop", "peephole {} vs its plain loop",
              "GRU before {} vs its plain loop", "coupled {} vs its plain loop",
              "GRU {} peak memory vs nn.GRU"}  # fmt: skip
    by_width = {
        512: {"peephole {} GFLOP/s vs nn.LSTM", "GRU before {} GFLOP/s vs nn.GRU"},
        256: {"GRU before {} GFLOP/s vs nn.GRU"},
        128: set[str](),
    }
    for width, names in by_width.items():
        assert missed[width] == {name.format(width) for name in always | names}


def test_nothing_is_claimed_of_memory_where_it_cannot_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(layer_report.claims_of_layers(EXTENT, timings_of({}), None)) == 2 * 11
    layer_report.report_layers(EXTENT, timings_of({}), None, rounds=7, version="x")
    assert "not measured: this system does not tell it" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["64x64", "axbxc", "0x1x2", "1x2x3x4", ""])
def test_sizes_of_layers_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write BATCHxTIMExWIDTH"):
        layers.read_extent(text)
    assert layers.read_extent("2x3x4") == EXTENT


@pytest.mark.slow
def test_peak_memory_grows_with_what_is_kept_for_the_backward_pass() -> None:
    entries = [each for each in layers.entries_for(EXTENT, peak_size=8) if each.name in ("nn.LSTM", "peephole")]
    peaks = {}
    for time in (50, 200):
        contestant = processes.Contestant(
            "memory",
            [sys.executable, BENCHMARKS / "contestants" / "recurrent_memory.py", "--threads", "1",
             "--entries", layers.entries_json(entries), "--shape", "32", str(time), "64"],
            threads=1,
        )  # fmt: skip
        with processes.all_running([contestant]):
            if not contestant.facts["can_measure"]:
                pytest.skip("this system does not tell the peak of a process")
            peaks[time] = layer_rounds.peak_memory(contestant, entries, what="x", repeats=2)
    for entry in entries:
        short, long = peaks[50][entry.name], peaks[200][entry.name]
        kept = 4 * 200 * 32 * 64 * 4  # four gates, the least that a backward pass can do with
        assert min(long) > kept
        assert 2.5 < min(long) / max(short) < 6
        assert max(long) < 1.2 * min(long)


def test_flops_of_a_recurrent_pair_by_hand() -> None:
    shape = flops.RecurrentShape(width=4, embedding_width=3, layers=2, symbols=7)
    found = flops.recurrent_flops(shape, np.array([3]), np.array([5]))
    encoder = 2 * (4 * 2 * (3 + 2)) + 2 * (4 * 2 * (4 + 2))
    decoder = 4 * 4 * (3 + 4) + 4 * 4 * (4 + 4)
    assert found.per_source_token == 6 * (encoder + 4 * 4)
    assert found.per_target_token == 6 * (decoder + 8 * 3 + 7 * 3)
    assert found.attention_per_target_token * 5 == pytest.approx(12 * 4 * 3 * 5)


def test_recurrent_flops_count_every_matrix_of_the_plain_model_once_per_token() -> None:
    model = plain_lstm.Translator(50, json.loads(TINY.to_json()))
    matrices = sum(weight.numel() for name, weight in model.named_parameters()
                   if weight.dim() == 2 and "embedding" not in name)  # fmt: skip
    found = flops.recurrent_flops(TINY.shape(50), np.array([1]), np.array([1]))
    assert found.per_source_token + found.per_target_token == 6 * matrices


def copy_weights(theirs: plain_lstm.Translator, ours: Any) -> None:
    """All that both models have; ours has a bridge beside, theirs hands on the last states of the encoder."""
    pairs = [
        (ours.encoder.embedding.weight, theirs.source_embedding.weight),
        (ours.decoder.embedding.weight, theirs.target_embedding.weight),
        (ours.output.weight, theirs.output.weight),
        (ours.output.bias, theirs.output.bias),
        (ours.decoder.join.weight, theirs.join.weight),
        (ours.decoder.join.bias, theirs.join.bias),
        (ours.decoder.attention.score.from_memory.weight, theirs.attention.weight.T),
    ]
    stacks = [
        (theirs.encoder, "", ours.encoder.layers.rightward),
        (theirs.encoder, "_reverse", ours.encoder.layers.leftward),
        (theirs.decoder, "", ours.decoder.stack.cells),
    ]
    for lstm, suffix, cells in stacks:
        for layer, cell in enumerate(cells):
            for end, linear in (("ih", cell.from_input), ("hh", cell.from_state)):
                pairs += [
                    (getattr(linear, name), getattr(lstm, f"{name}_{end}_l{layer}{suffix}"))
                    for name in ("weight", "bias")
                ]
    with torch.no_grad():
        for target, source in pairs:
            target.copy_(source)
    copied = sum(target.numel() for target, _ in pairs)
    assert copied == sum(parameter.numel() for parameter in theirs.parameters())
    bridge = sum(parameter.numel() for parameter in ours.bridge.parameters())
    assert copied + bridge == sum(parameter.numel() for parameter in ours.parameters())


def test_ours_and_the_plain_loop_have_the_same_loss_on_the_same_weights_from_the_same_start() -> None:
    size = json.loads(TINY.to_json())
    theirs = plain_lstm.Translator(20, size).eval()
    ours = ours_script.model_config(size).build(Symbols(20, 20, is_shared=True), seed=1).eval()
    copy_weights(theirs, ours)
    generator = np.random.default_rng(1)
    sentences = [[generator.integers(3, 20, n).astype(np.int32) for n in lengths] for lengths in ((4, 7, 1), (5, 2, 6))]
    source, previous, labels = peer_loop.Pairs(*sentences).tensors([0, 1, 2])
    source_lengths, lengths = (torch.tensor([len(ids) for ids in side]) for side in sentences)

    memory, start = theirs.read(source)
    scores = theirs.write(previous, memory, start=start, is_padding=source == peer_loop.PAD)
    expected = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=peer_loop.PAD, label_smoothing=0.1)
    begun = ours.start(Source(source, source_lengths))
    is_real = (source != peer_loop.PAD)[:, :, None]
    torch.testing.assert_close(begun.memory.values * is_real, memory * is_real, rtol=1e-5, atol=1e-6)
    state = replace(begun, layers=tuple((start[0][layer], start[1][layer]) for layer in range(size["layers"])))
    features = ours.decoder(previous, lengths, start=state)
    total = smoothed_cross_entropy(
        features, ours.output.weight, ours.output.bias, labels[labels != peer_loop.PAD], smoothing=0.1
    )
    torch.testing.assert_close(total / lengths.sum(), expected, rtol=1e-5, atol=1e-6)


def test_peers_go_through_a_given_plan_epoch_after_epoch() -> None:
    generator = np.random.default_rng(1)
    sides = [[generator.integers(3, 9, n).astype(np.int32) for n in (2, 3, 4, 5)] for _ in range(2)]
    pairs = peer_loop.Pairs(*sides)
    size = json.loads(TINY.to_json())
    model, scores = plain_lstm.make(9, size)
    epochs = [[[0, 1], [2], [3]], [[3, 2], [1, 0]]]
    trainer = peer_loop.PeerTrainer(model, scores, train=pairs, dev=pairs, size=size, plan=epochs.__getitem__)
    assert [trainer.step()["tokens"] for _ in range(5)] == [5, 4, 5, 9, 5]
    plan = plain_lstm.batches_of_ours(pairs, size)
    assert sorted(index for batch in plan(0) for index in batch) == [0, 1, 2, 3]


def test_runs_on_other_batches_are_not_compared() -> None:
    ours = rounds.Measured("a", {}, (10, 20), (5, 6), (1.0, 1.0))
    recurrent.check_same_batches(ours, replace(ours, name="b", seconds=(2.0, 3.0)))
    with pytest.raises(processes.ContestantError, match="these are not the same batches"):
        recurrent.check_same_batches(ours, replace(ours, name="b", tokens=(10, 21)))


def test_toolkits_are_told_to_train_the_same_model(tmp_path: Path) -> None:
    onmt, eole = toolkits.onmt_settings(LSTM_512, tmp_path), toolkits.eole_settings(LSTM_512, tmp_path)
    assert (onmt["encoder_type"], onmt["decoder_type"], onmt["rnn_type"]) == ("brnn", "rnn", "LSTM")
    assert (onmt["layers"], onmt["hidden_size"], onmt["word_vec_size"]) == (2, 512, 512)
    assert (onmt["global_attention"], onmt["input_feed"], onmt["dropout"]) == ("general", 0, [0.1])
    assert "share_embeddings" not in onmt
    model = eole["model"]
    assert (model["architecture"], model["input_feed"], model["embeddings"]) == ("rnn", 0, {"word_vec_size": 512})
    assert model["encoder"] == {"encoder_type": "brnn", "layers": 2, "hidden_size": 512, "rnn_type": "LSTM"}
    assert model["decoder"]["global_attention"] == "general"
    assert eole["training"]["batch_size"] == 4096
    transformer = toolkits.onmt_settings(SIZES["transformer-256"], tmp_path)
    assert (transformer["enc_layers"], transformer["share_embeddings"]) == (3, True)
    assert transformer["attention_dropout"] == [0.1]


def run_script(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["recurrent.py", *options, "--threads", "1"])
    monkeypatch.setattr(ending, "exit_on_termination", lambda: None)
    monkeypatch.setattr(recurrent, "PEAK_SIZE", 32)
    with pytest.raises(SystemExit) as ended:
        recurrent.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.slow
def test_tiny_layers_end_to_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_script(monkeypatch, "--layers-only", "--quick", "--sizes", "2x3x8", "--least-seconds", "0.0001")
    output = capsys.readouterr().out
    claims = ratios.read_claims(output)
    assert len(claims) in (22, 33)  # without and with memory
    assert code == (0 if all(each.is_reached for each in claims) else 1)
    assert "### Layers, batch 2, time 3, width 8" in output
    for name in [*layers.PEERS, *(case.name for case in layers.CASES)]:
        assert f"\n| {name} | " in output


@pytest.fixture
def tiny_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Multi30k as the benchmarks look for it, but with a few sentences of a few words."""
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    generator = random.Random(1)
    for split, lines in (("train", 60), ("val", 8)):
        for language in ("de", "en"):
            words = [f"{language}{number}" for number in range(12)]
            text = "".join(" ".join(generator.choices(words, k=generator.randint(2, 9))) + "\n" for _ in range(lines))
            with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(text)
    monkeypatch.setenv("SEQLOOM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(corpus, "FOLDER", tmp_path / "stored")
    return folder


@pytest.mark.slow
def test_tiny_training_end_to_end(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "peers" / "eole" / "bin" / "eole"
    program.parent.mkdir(parents=True)
    log = "".join(f"Step {step}/20; 9/{rate} tok/s; 1 sec\\n" for step, rate in ((5, 7), (10, 1), (15, 2), (20, 3)))
    program.write_text(f"#!{sys.executable}\nprint('{log}')\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PEERS_HOME", str(tmp_path / "peers"))
    monkeypatch.setattr(recurrent, "LSTM_512", TINY)
    monkeypatch.setattr(recurrent, "FULL_STEPS", 2)
    code = run_script(monkeypatch, "--training-only", "--pairs", "7")
    output = capsys.readouterr().out
    plain, eole = ratios.read_claims(output)
    assert (plain.about, plain.goal_text) == ("tiny training vs torch.nn.LSTM loop", "low>0.95")
    assert (eole.about, eole.goal_text, eole.is_reached) == ("tiny training vs eole", "1.1", True)
    assert "| OpenNMT-py | not measured: no venv |" in output
    assert "| eole, beside | | | 2 | 1 – 3 | |" in output
    assert code == (0 if plain.is_reached else 1)


def test_without_data_it_says_so_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SEQLOOM_DATA", raising=False)
    monkeypatch.setattr(corpus, "FOLDER", tmp_path / "stored")
    assert run_script(monkeypatch, "--quick") == 2
    said = capsys.readouterr()
    assert "SEQLOOM_DATA= has no folder multi30k" in said.err
    assert "--layers-only needs no data" in said.err
    assert said.out == ""


def test_toolkits_are_left_out_of_a_quick_run_with_a_word() -> None:
    found = recurrent.beside_toolkits(None, None, size=TINY, threads=1, is_quick=True)  # type: ignore[arg-type]
    assert [(beside.name, beside.reason) for beside, _ in found] == [
        ("OpenNMT-py", "not measured: --quick"),
        ("eole", "not measured: --quick"),
    ]
