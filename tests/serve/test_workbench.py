"""The API of the workbench: what it shows is what the model does, and only its own page may ask."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from live_server import Answer, RunningServer, TinyModels, running_server, wait_until
from seqloom import Translator
from seqloom.apps.request import ConstraintSet
from seqloom.core.errors import UsageError
from seqloom.core.symbols import BEGIN, END
from seqloom.look.gradients import GradientPair
from seqloom.look.inside import log_prob_of, switched_off, without_heads
from seqloom.nn.multihead import CrossAttention
from seqloom.nn.probe import listen
from seqloom.runs.translator import source_batch
from seqloom.serve.actions import open_actions
from seqloom.serve.groups import GroupCancellation, ignore_parts
from seqloom.serve.keys import add_key
from seqloom.serve.looking import TranslatorLooking
from seqloom.serve.runs import EventReader, find_runs, summarise_run
from tiny_runs import TINY

OWN = {"x-seqloom": "1"}
SENTENCE = "the old man reads a book."


def ask(server: RunningServer, path: str, data: Any = None, **headers: str) -> Answer:
    return server.call(f"/api/{path}", data, headers={**OWN, **headers})


def events_of(answer: Answer) -> list[dict[str, Any]]:
    return [json.loads(block[6:]) for block in answer.body.decode().split("\n\n") if block.startswith("data: ")]


@pytest.fixture(scope="module")
def translator(tiny_models: TinyModels) -> Translator:
    return Translator.load(tiny_models.english_german)


@pytest.fixture(scope="module")
def seen(server: RunningServer) -> dict[str, Any]:
    """What is seen of one sentence."""
    found: dict[str, Any] = ask(server, "look", {"model": "en-de", "source": SENTENCE}).json
    return found


def target_of(seen: dict[str, Any]) -> list[int]:
    return [piece["id"] for piece in seen["target"]["pieces"]]


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_models_say_what_can_be_looked_at(server: RunningServer) -> None:
    about = ask(server, "models").json
    assert [(each["name"], each["purpose"]) for each in about["models"]] == [
        ("en-de", "translator"), ("de-en", "translator"), ("lm", "language model")
    ]  # fmt: skip
    translator, _, language_model = about["models"]
    assert (translator["kind"], translator["attention"]) == ("transformer", {"layers": 1, "heads": 2})
    assert all(translator["can"].values())
    assert not translator["why_not"]
    assert translator["search"]["beam"] == 4
    assert len(translator["examples"]) == 3
    assert language_model["can"]["reach"]
    assert "reads no source" in language_model["why_not"]["attention"]
    assert about["has_runs"]


def test_attention_is_what_the_layers_compute(
    server: RunningServer, seen: dict[str, Any], translator: Translator
) -> None:
    target = target_of(seen)
    source = [piece["id"] for piece in seen["source"]["pieces"]]
    previous = torch.tensor([[BEGIN, *target[:-1]]])
    model = translator.loaded.model
    with torch.inference_mode(), listen(model, "decoder.layers.0.cross.weights") as trace:
        model(source_batch([source], translator.loaded.device), previous, torch.tensor([len(target)]))
    heard = trace["decoder.layers.0.cross.weights"][0][0].double().numpy()  # [heads, target, source]
    np.testing.assert_allclose(seen["attention"], heard.mean(0), rtol=0, atol=1e-6)
    every = ask(server, "attention", {"model": "en-de", "source": SENTENCE, "target": target}).json
    np.testing.assert_allclose(every["weights"][0], heard, rtol=0, atol=1e-6)
    assert len(seen["words"]["attention"]) == len(seen["target"]["words"])
    np.testing.assert_allclose(np.sum(seen["words"]["attention"], axis=1), 1.0, atol=1e-5)
    assert [seen["source"]["text"][each["begin"] : each["end"]] for each in seen["source"]["words"][:-1]] == [
        "the", "old", "man", "reads", "a", "book", "."
    ]  # fmt: skip


def test_a_search_is_that_of_the_translation_and_its_leaves_are_the_n_best(
    server: RunningServer, seen: dict[str, Any], translator: Translator
) -> None:
    plain = server.call("/translate", {"q": SENTENCE, "source": "en", "target": "de"}).json["translatedText"]
    (sentence,) = ask(server, "translate", {"model": "en-de", "text": SENTENCE}).json["sentences"]
    assert seen["translation"] == sentence["translation"] == plain
    leaves = [leaf for leaf in seen["tree"]["leaves"] if leaf["returned"]]
    assert [leaf["text"] for leaf in leaves] == [each["text"] for each in seen["hypotheses"]]
    nbest = translator.search([SENTENCE], nbest=4)[0]
    assert [each["score"] for each in seen["hypotheses"]] == pytest.approx([each.score for each in nbest], abs=1e-5)
    for record in (*seen["tree"]["leaves"], *seen["tree"]["nodes"], *seen["hypotheses"]):
        assert sum(record["terms"].values()) == pytest.approx(record["score"], abs=1e-9)
    for piece in seen["target"]["pieces"]:
        assert piece["probability"] + sum(each["probability"] for each in piece["rivals"]) <= 1 + 1e-9
    log_prob = sum(np.log(piece["probability"]) for piece in seen["target"]["pieces"])
    assert log_prob == pytest.approx(seen["log_prob"], abs=1e-4)


def test_a_rival_or_a_pruned_node_gives_what_a_search_gives_after_these_symbols(
    server: RunningServer, seen: dict[str, Any], translator: Translator
) -> None:
    target, nodes = target_of(seen), {node["number"]: node for node in seen["tree"]["nodes"]}
    pruned = next(node for node in nodes.values() if node["fate"] == "pruned" and node["step"] > 1)
    path = [pruned]
    while path[-1]["parent"] is not None:
        path.append(nodes[path[-1]["parent"]])
    rival = seen["target"]["pieces"][1]["rivals"][1]["id"]
    for prefix in ([target[0], rival], [node["symbol"] for node in reversed(path)]):
        found = ask(server, "look", {"model": "en-de", "source": SENTENCE, "prefix": prefix}).json
        ours = translator.watch(SENTENCE, constraints=ConstraintSet(prefix_ids=tuple(prefix)), nbest=4)
        assert [each["text"] for each in found["hypotheses"]] == [
            translator.tokenizers.target.decode(each.hypotheses[0].symbols) for each in ours.translations
        ]
        assert target_of(found)[: len(prefix)] == prefix
    whole = ask(server, "look", {"model": "en-de", "source": SENTENCE, "prefix": [target[0], END]}).json
    assert target_of(whole) == [target[0], END]
    for wrong in ([BEGIN], [10**6], [END, 5]):
        assert ask(server, "look", {"model": "en-de", "source": SENTENCE, "prefix": wrong}).status == 400


def test_no_head_off_changes_nothing_and_all_off_is_a_pass_with_these_weights_zeroed(
    server: RunningServer, seen: dict[str, Any], translator: Translator
) -> None:
    loaded: Any = translator.loaded
    none = ask(server, "look", {"model": "en-de", "source": SENTENCE, "off": []}).json
    assert {**none, "seconds": 0} == {**seen, "seconds": 0}
    found = ask(server, "look", {"model": "en-de", "source": SENTENCE, "off": [[0, 0], [0, 1]]}).json
    pair = GradientPair([piece["id"] for piece in found["source"]["pieces"]], target_of(found))
    whole = log_prob_of(loaded, [pair])
    zeroed = Translator.load(translator.loaded.folder)  # with W_O at 0, not the values
    (cross,) = (module for module in zeroed.loaded.model.modules() if isinstance(module, CrossAttention))
    with torch.no_grad():
        cross.output.weight.zero_()  # type: ignore[union-attr]
    without: Any = zeroed.loaded
    assert found["log_prob"] == pytest.approx(log_prob_of(without, [pair]), abs=1e-4)
    assert abs(found["log_prob"] - whole) > 1e-4
    assert zeroed.translate([SENTENCE]) == [found["translation"]]
    costs = ask(server, "attention", {"model": "en-de", "source": SENTENCE, "target": pair.target}).json["cost"]
    attention = next(module for module in loaded.model.modules() if isinstance(module, CrossAttention))
    with switched_off(attention, 1):
        assert costs[0][1] == pytest.approx(whole - log_prob_of(loaded, [pair]), abs=1e-5)
    shared = without_heads(loaded.model, [(0, 1)])
    assert shared.encoder.embedding.weight is loaded.model.encoder.embedding.weight  # type: ignore[union-attr]
    assert ask(server, "look", {"model": "en-de", "source": SENTENCE, "off": [[1, 0]]}).status == 400


def test_settings_of_the_search_are_those_of_the_request(server: RunningServer, translator: Translator) -> None:
    given = {"beam": 2, "alpha": 0.0, "stop": "first"}
    found = ask(server, "look", {"model": "en-de", "source": SENTENCE, "search": given}).json
    assert found["search"] == {**given, "nbest": 2}
    ours = translator.watch(SENTENCE, **given, nbest=2)
    assert [each["score"] for each in found["hypotheses"]] == pytest.approx(
        [each.score for each in ours.translations], abs=1e-5
    )
    for wrong in ({"beam": 17}, {"beam": True}, {"alpha": -1}, {"stop": "now"}, []):
        assert ask(server, "look", {"model": "en-de", "source": SENTENCE, "search": wrong}).status in (200, 400)
    assert ask(server, "look", {"model": "en-de", "source": SENTENCE, "search": {"beam": 17}}).status == 400


def test_sentences_of_a_text_are_placed_and_joined(server: RunningServer) -> None:
    text = "  The old man. A dog sleeps!\n\nIt is late.  "
    found = ask(server, "translate", {"model": "en-de", "text": text}).json
    assert [text[each["begin"] : each["end"]] for each in found["sentences"]] == [
        "The old man.", "A dog sleeps!", "It is late."
    ]  # fmt: skip
    one, two, three = (each["translation"] for each in found["sentences"])
    assert found["text"] == f"  {one} {two}\n\n{three}  "
    only = ask(server, "translate", {"model": "en-de", "text": text, "sentence": 1}).json
    assert [each["translation"] for each in only["sentences"]] == [None, two, None]
    assert 0 <= found["unknown_share"] <= 1
    strange = ask(server, "translate", {"model": "en-de", "text": "the ☺☺☺ man"}).json
    assert strange["unknown_share"] > 0
    terms = ask(server, "translate", {"model": "en-de", "text": "a dog", "terms": [["dog", "Zebra"]]}).json
    assert "Zebra" in terms["text"]


def test_lenses_answer_for_given_symbols(server: RunningServer, seen: dict[str, Any]) -> None:
    given = {"model": "en-de", "source": SENTENCE, "target": target_of(seen)}
    shape = (len(target_of(seen)), len(seen["source"]["pieces"]))
    complete = ask(server, "reasons", {**given, "method": "integrated_gradients"}).json
    assert np.shape(complete["matrix"]) == shape
    assert complete["gap"] <= 0.01
    occluded = ask(server, "reasons", {**given, "method": "occlusion"}).json
    assert occluded["gap"] is None
    assert sum(occluded["log_probs"]) == pytest.approx(seen["log_prob"], abs=1e-4)
    reach = ask(server, "reach", given).json
    assert [each["name"] for each in reach["maps"]] == ["source", "target"]
    assert np.shape(reach["maps"][0]["matrix"]) == shape
    assert reach["profile"][0]["lag"] == 0
    pieces = ask(server, "pieces", {"model": "en-de", "text": "the \u200b\u05d0 man"}).json
    assert {"\\u200b", "א"} <= {each["shown"] for each in pieces["pieces"] if each["unknown"]}
    assert next(each for each in pieces["pieces"] if each["shown"] == "א")["direction"] == "rtl"
    assert ask(server, "reach", {"model": "lm", "source": "the old man"}).json["maps"][0]["name"] == "text"


def test_next_tokens_are_those_of_the_language_model(server: RunningServer, tiny_models: TinyModels) -> None:
    prompt = "the old man"
    found = ask(server, "next", {"model": "lm", "prompt": prompt}).json
    assert len(found["tokens"]) == 10
    model = seqloom.LanguageModel.load(tiny_models.language_model)
    score = model.score([prompt])[0]
    ids = model.tokenizer.encode(prompt)
    before_end = -np.log(found["perplexity"]) * len(ids)
    (end,) = [each["probability"] for each in found["tokens"] if each["id"] == END] or [None]
    listed = ask(server, "next", {"model": "lm", "prompt": prompt, "temperature": 0}).json["tokens"]
    assert [each["probability"] for each in listed] == [1.0]
    assert listed[0]["id"] == found["tokens"][0]["id"]
    assert sum(np.log(each["probability"]) for each in found["pieces"]) == pytest.approx(before_end, abs=1e-6)
    assert score.log_prob < before_end
    assert end is None or score.log_prob == pytest.approx(before_end + np.log(end), abs=0.05)
    few = ask(server, "next", {"model": "lm", "prompt": prompt, "top_p": 0.01}).json["tokens"]
    assert len(few) < 10
    assert sum(each["probability"] for each in few) == pytest.approx(1.0)


def test_sentences_are_translated_scored_and_compared(server: RunningServer) -> None:
    *progress, result = events_of(ask(server, "sentences", {"model": "en-de", "other": "en-de", "limit": 18}))
    assert [each["done"] for each in progress] == [0, 16, 18, 34, 36]
    assert [row["chrf"] for row in result["rows"]] == sorted(row["chrf"] for row in result["rows"])
    assert all(row["chrf"] == row["other"]["chrf"] for row in result["rows"])  # two models that are one
    assert (result["wins"], result["losses"], result["ties"]) == (0, 0, 18)
    assert (result["bootstrap"]["difference"], result["bootstrap"]["p"]) == (0.0, 1.0)
    pairs = [["a dog", "ein Hund"], ["the man", "der Mann"]]
    *_, pasted = events_of(ask(server, "sentences", {"model": "en-de", "pairs": pairs}))
    assert {row["source"] for row in pasted["rows"]} == {"a dog", "the man"}
    assert {"BLEU", "chrF2"} == {each["name"].rpartition(" ")[2] for each in pasted["scores"]}
    for wrong in ([["a", ""]], [["a"]], [], [["a", "b"]] * 501):
        assert ask(server, "sentences", {"model": "en-de", "pairs": wrong}).status == 400


# --- who may ask, and what is told ------------------------------------------------------------------------------------


def test_only_pages_of_this_server_may_ask(server: RunningServer) -> None:
    question = {"model": "en-de", "text": "a dog"}
    host = f"127.0.0.1:{server.port}"
    assert (
        ask(server, "translate", question, origin=f"http://{host}", **{"sec-fetch-site": "same-origin"}).status == 200
    )
    assert server.call("/api/translate", question).status == 403
    assert server.call("/api/models").status == server.call("/api/runs").status == 403
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
                    {"sec-fetch-site": "same-site"}):  # fmt: skip
        assert ask(server, "translate", question, **headers).status == 403
        assert ask(server, "models", **headers).status == 403
    form = {**OWN, "content-type": "text/plain"}
    assert server.call("/api/translate", json.dumps(question).encode(), headers=form).status == 415
    refused = server.call("/api/models", method="OPTIONS", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in refused.headers


def test_errors_have_no_paths_and_the_log_has_no_texts(server: RunningServer, tiny_models: TinyModels) -> None:
    secret = "xyzzy plugh"
    answers = [
        ask(server, path, {"model": model, "source": secret, "text": secret, "prompt": secret, "target": target})
        for path in ("look", "attention", "reasons", "reach", "pieces", "translate", "next")
        for model in ("en-de", "lm", "../en-de")
        for target in ([], [5, END], [5, END, 5], "5", [10**9], [-1])
    ]
    own = {"content-type": "application/json"}
    bodies = (
        b"[",
        b"[]",
        b'"\xff"',
        {"model": "en-de", "source": " "},
        {"model": []},
        {"model": "en-de", "source": [1]},
    )
    answers += [ask(server, "look", data, **own) for data in bodies]
    assert {answer.status for answer in answers} <= {200, 400, 404}
    for answer in answers:
        if answer.status != 200:
            assert set(answer.json) == {"error"}
            assert str(tiny_models.english_german.parent) not in answer.json["error"]["message"]
    assert "xyzzy" not in server.log.read_text(encoding="utf-8")


def test_limits_and_keys_are_those_of_the_server(tiny_models: TinyModels, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "page")
    words = [str(tiny_models.english_german), "--keys", str(tmp_path / "keys"), "serve.characters=20"]
    with running_server([f"en-de={words[0]}", *words[1:]], tmp_path) as server:
        assert ask(server, "models").status == 401
        assert ask(server, "models", authorization="Bearer wrong").status == 401
        own = {"authorization": f"Bearer {key}"}
        assert ask(server, "models", **own).json["needs_key"]
        refused = ask(server, "look", {"model": "en-de", "source": "a" * 21}, **own)
        assert refused.status == 400
        assert "the limit is 20" in refused.json["error"]["message"]


def test_the_description_lists_all_operations(server: RunningServer) -> None:
    paths = server.call("/openapi.json").json["paths"]
    for name in ("models", "translate", "look", "attention", "reasons", "reach", "pieces", "next", "sentences", "runs"):
        assert f"/api/{name}" in paths
    assert server.call("/api/none").json["error"]["message"].startswith("there is nothing")


# --- models that show less --------------------------------------------------------------------------------------------


def about(path: Path, **options: Any) -> dict[str, Any]:
    actions = open_actions("translator", path, [], **options)
    ((found,),) = actions["about"]([["{}"]], {}, GroupCancellation(), ignore_parts)
    with pytest.raises(UsageError, match=r"."):
        actions["attention"]([['{"source": "a", "target": [5]}']], {}, GroupCancellation(), ignore_parts)
    result: dict[str, Any] = found
    return result


def test_models_without_attention_say_why_and_what_works(tmp_path: Path, corpus: tuple[list[str], list[str]]) -> None:
    train, dev = corpus
    settings = [each for each in TINY if not each.startswith(("model.feed", "model.heads"))]
    plain = [*settings, "model.kind=seq2seq", "model.attention=none", "model.cell=rnn", "model.embedding_width=8"]
    seqloom.train(train=train, dev=dev, out=tmp_path / "plain", overrides=plain)
    found = about(tmp_path / "plain")
    assert found["can"] == {"watch": True, "attention": False, "heads": False, "reasons": True, "reach": True}
    assert "transformer has it" in found["why_not"]["attention"]
    with_engine = TranslatorLooking(Translator.load(tmp_path / "plain"), tmp_path / "plain", has_engine=True)
    assert not any(with_engine.about({}, lambda: False)["can"].values())
    with pytest.raises(UsageError, match="without --engine"):
        with_engine.look({"source": "a dog"}, lambda: False)
    seqloom.train(train=train, dev=dev, out=tmp_path / "phrases", overrides=["model.kind=phrases"])
    found = about(tmp_path / "phrases")
    assert not any(found["can"].values())
    assert "kind phrases" in found["why_not"]["watch"]
    assert len(found["examples"]) == 3


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    write(folder, {"event": "model", "steps": 100}, {"event": "step", "step": 10, "loss": 5.0, "learning_rate": 0.1})
    return folder


def write(run: Path, *records: dict[str, Any], end: str = "\n") -> None:
    with (run / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(record) + end for record in records))


def test_events_are_read_as_they_are_written(run: Path) -> None:
    reader = EventReader(run / "events.jsonl")
    ((first,), has_more) = reader.read()
    assert (first["step"], first["loss"], first["rate"], has_more) == (10, 5.0, 0.1, False)
    assert reader.read() == ([], False)
    write(run, {"event": "step", "step": 20, "loss": 4.0}, end="")  # its line break is still missing
    assert reader.read() == ([], False)
    with (run / "events.jsonl").open("a") as file:
        file.write('\n{"event": "step", "st')  # and the process dies
    assert [point["step"] for point in reader.read()[0]] == [20]
    # The resumed run ends the torn line and goes on from its checkpoint.
    write(run, {"event": "model", "steps": 100}, end="\n")
    with (run / "events.jsonl").open("a") as file:
        file.write("\n")
    write(run, {"event": "resumed", "step": 15, "steps": 100}, {"event": "step", "step": 20, "loss": 3.5})
    write(run, {"event": "validation", "step": 20, "loss": 3.9, "bleu": 1.5})
    points = [{name: value for name, value in each.items() if name != "id"} for each in reader.read()[0]]
    assert points == [{"rewind": 15}, {"step": 20, "loss": 3.5}, {"step": 20, "dev_loss": 3.9, "bleu": 1.5}]
    again = EventReader(run / "events.jsonl", place=first["id"])
    assert [each.get("step", each.get("rewind")) for each in again.read()[0]] == [20, 15, 20, 20]
    (run / "events.jsonl").write_text('{"event": "step", "step": 1, "loss": 9.0}\n')  # a new run under the old name
    assert [each.get("step", each.get("rewind")) for each in reader.read()[0]] == [0, 1]


def test_the_state_of_a_run_is_that_of_its_process(run: Path) -> None:
    assert find_runs([run.parent]) == {"first": run}
    assert summarise_run(run).record() == {"state": "stopped", "step": 10, "steps": 100, "seconds_left": None}
    program = "import sys, time\nfrom pathlib import Path\nfrom seqloom.training.run_guard import locked\n"
    program += "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    command = [sys.executable, "-c", program, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        write(run, {"event": "step", "step": 30, "loss": 2.0, "eta": 7.5})
        assert summarise_run(run).record() == {"state": "training", "step": 30, "steps": 100, "seconds_left": 7.5}
        process.kill()
    assert summarise_run(run).state == "stopped"
    write(run, {"event": "finished", "step": 100})
    assert summarise_run(run).state == "finished"


def test_a_run_that_trains_shows_its_next_step(tiny_models: TinyModels, run: Path, tmp_path: Path) -> None:
    words = [f"en-de={tiny_models.english_german}", "--runs", str(run.parent)]
    with running_server(words, tmp_path / "server") as server:
        (record,) = ask(server, "runs").json["runs"]
        assert (record["name"], record["step"], record["model"]) == ("first", 10, None)
        for wrong in ("second", "..", "%2e%2e", "first%2f..%2ffirst"):
            assert ask(server, f"runs/{wrong}/events").status == 404
        found: list[dict[str, Any]] = []

        def follow() -> None:
            found.extend(events_of(ask(server, "runs/first/events")))

        listener = threading.Thread(target=follow)
        listener.start()
        time.sleep(0.8)
        write(run, {"event": "step", "step": 20, "loss": 4.0})
        listener.join(30)
        assert [each.get("step") for each in found] == [10, 20, None]
        assert found[-1] == {"end": "stopped"}
        later = events_of(ask(server, f"runs/first/events?after={found[0]['id']}"))
        assert [each.get("step") for each in later] == [20, None]
        wait_until(lambda: any(each["event"] == "request" for each in server.events()))
