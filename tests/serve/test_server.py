"""The life of a server: start, answers, refusals to start, end."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seqloom
from live_server import Answer, RunningServer, TinyModels, running_server
from seqloom import Translator
from seqloom.serve.actions import open_actions
from seqloom.serve.groups import GroupCancellation, ignore_parts
from seqloom.serve.keys import add_key
from seqloom.serve.server import bind
from tiny_runs import TINY


def test_a_line_is_translated_the_same_by_each_dialect(server: RunningServer) -> None:
    text = "the old man reads a book."
    plain = server.call("/translate", {"q": text, "source": "en", "target": "de"})
    listed = server.call("/translate", {"q": [text, ""], "source": "en-GB", "target": "de_AT"})
    apertium = server.call("/translate?langpair=en%7Cde&q=the+old+man+reads+a+book.")
    assert plain.status == listed.status == apertium.status == 200
    assert listed.json["translatedText"] == [plain.json["translatedText"], ""]
    numbers = ["42", "☺ ...", "{0}: 10 %", "<b>7</b>"]  # a model would make sentences of them
    assert server.call("/translate", {"q": numbers, "source": "en", "target": "de"}).json["translatedText"] == numbers
    assert apertium.json["responseData"]["translatedText"] == plain.json["translatedText"]


def test_an_answer_is_sent_at_once() -> None:
    """Head and body of an answer are two packets: without TCP_NODELAY, the second waits for the client's delay."""
    listener = bind("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert (accepted.proto, accepted.type) == (socket.IPPROTO_TCP, socket.SOCK_STREAM)


def test_health_readiness_metrics_and_description(server: RunningServer) -> None:
    assert server.call("/health").json == {"status": "ok"}
    assert server.call("/ready").status == 200
    assert server.metric("seqloom_ready_workers") == 1
    assert "/translate" in server.call("/openapi.json").json["paths"]
    assert server.call("/no/such/page").status == 404


def exit_of(*words: str) -> tuple[int, str]:
    """Exit code and message of a server that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "seqloom", "serve", *words], capture_output=True, text=True, timeout=120, check=False
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


def test_what_cannot_be_served_is_one_sentence_and_an_exit_code(
    tiny_models: TinyModels, server: RunningServer, tmp_path: Path
) -> None:
    model = str(tiny_models.english_german)
    assert exit_of(model, "--port", str(server.port))[0] == 2
    code, message = exit_of(model, "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "--keys" in message
    (tmp_path / "keys").write_text("nonsense\n")
    code, message = exit_of(model, "--port", "0", "--keys", str(tmp_path / "keys"))
    assert code == 2
    assert "keys:1" in message
    damaged = tmp_path / "damaged"
    subprocess.run(["cp", "-r", f"{model}/model", str(damaged)], check=True)
    weights = damaged / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-100:] = b"x" * 100
    weights.write_bytes(data)
    code, message = exit_of(str(damaged), "--port", "0")
    assert code == 4, message


def check_keys_of_deepl(server: RunningServer, key: str, other: str) -> None:
    """DeepL's dialect refuses with 403, and shows nobody the glossaries and usage of another key."""

    def call(path: str, data: Any = None, *, key: str = key, method: str | None = None) -> Answer:
        return server.call(f"/v2/{path}", data, headers={"Authorization": f"DeepL-Auth-Key {key}"}, method=method)

    assert server.call("/v2/usage").status == call("usage", key="wrong").status == 403
    assert server.call("/v2/usage", {"auth_key": key}).status == 200
    counts = [call("usage", key=each).json["character_count"] for each in (key, other)]
    fields = {"text": ["a dog"], "source_lang": "EN", "target_lang": "DE"}
    assert call("translate", fields, key=other).status == 200
    assert [call("usage", key=each).json["character_count"] for each in (key, other)] == [counts[0], counts[1] + 5]
    terms = {"name": "mine", "source_lang": "en", "target_lang": "de", "entries": "dog\tZebra"}
    identity = call("glossaries", terms).json["glossary_id"]
    assert call("glossaries", key=other).json == {"glossaries": []}
    for method, path in (("GET", ""), ("GET", "/entries"), ("DELETE", "")):
        assert call(f"glossaries/{identity}{path}", key=other, method=method).status == 404
    assert call("translate", {**fields, "glossary_id": identity}, key=other).status == 400
    assert "Zebra" in call("translate", {**fields, "glossary_id": identity}).json["translations"][0]["text"]


def test_a_key_is_shown_once_and_needed_then(tiny_models: TinyModels, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    made = subprocess.run(
        [sys.executable, "-m", "seqloom", "keys", "add", "tester", "--file", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    key = made.stdout.strip()
    assert key not in file.read_text()
    other = add_key(file, "another")
    with running_server([str(tiny_models.english_german), "--keys", str(file)], tmp_path) as server:
        question = {"q": "a dog", "source": "en", "target": "de"}
        assert server.call("/translate", question).status == 400
        assert server.call("/translate", {**question, "api_key": "wrong"}).status == 403
        assert server.call("/translate", {**question, "api_key": key}).status == 200
        assert server.call("/translate", question, headers={"Authorization": f"Bearer {key}"}).status == 200
        check_keys_of_deepl(server, key, other)
        assert server.stop() == 0
        assert key not in server.log.read_text()
        assert [event["event"] for event in server.events()][-1] == "stopped"


@pytest.mark.slow
def test_a_memory_answers_what_it_has(tiny_models: TinyModels, tmp_path: Path) -> None:
    memory = tmp_path / "memory.tsv"
    memory.write_text("the dog is old.\tDer Hund hat Jahre.\n", encoding="utf-8")
    words = [f"en-de={tiny_models.english_german}", "--memory", str(memory)]
    with running_server(words, tmp_path / "server") as server:
        question = {"source": "en", "target": "de"}
        texts = [" the dog is old.\n", "<p>the dog is old.</p>", "the cat is old."]
        plain = server.call("/translate", {**question, "q": texts}).json["translatedText"]
        marked = server.call("/translate", {**question, "q": texts[1], "format": "html"}).json["translatedText"]
        assert plain[0] == " Der Hund hat Jahre.\n"
        assert marked == "<p>Der Hund hat Jahre.</p>"
        assert "Jahre" not in plain[2]
        detailed = server.call("/translate", {**question, "q": texts[2], "details": True}).json
        match = {"percentage": 80, "source": "the dog is old.", "target": "Der Hund hat Jahre."}
        assert detailed["memory"] == [match]
        assert 0 <= detailed["confidence"] <= 1


@pytest.mark.parity
def test_ctranslate2_translates_plain_lines_and_our_search_the_others(tiny_models: TinyModels, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from seqloom.apps.engine import open_engine
    from seqloom.apps.request import Request

    line, settings = "the old man reads a book", ["search.beam=3", "search.length_normalisation=power"]
    engine = open_engine(tiny_models.english_german, settings)
    expected = engine.run([line], Request(engine.settings.model_copy(update={"split": "sentences"})))[0][0].text
    words = [f"en-de={tiny_models.english_german}", *settings, "--engine", "ctranslate2"]
    with running_server(words, tmp_path / "server") as server:
        question = {"source": "en", "target": "de"}
        answers = server.call("/translate", {**question, "q": [line, "the <b>old</b> man %s"]}).json["translatedText"]
        assert answers[0] == expected
        assert answers[1].count("<b>") == answers[1].count("%s") == 1
        notices = [event for event in server.events() if event["event"] == "notice"]
        assert len(notices) == 1


def test_a_model_without_attention_carries_tags_too(corpus: tuple[list[str], list[str]], tmp_path: Path) -> None:
    train, dev = corpus
    settings = [each for each in TINY if not each.startswith("model.")]
    settings += ["model.kind=seq2seq", "model.width=16", "model.attention=none"]
    seqloom.train(train=train, dev=dev, out=tmp_path / "run", overrides=settings)
    actions = open_actions("translator", tmp_path / "run", [])
    lines = ["the old man reads a book.", "the <b>old</b> man reads {0} books."]
    options = {"tags": True, "align": True, "nbest": 2}
    (plain, tagged), *_ = actions["translate"]([lines], options, GroupCancellation(), ignore_parts)
    assert plain["text"] == Translator.load(tmp_path / "run").translate(lines[:1])[0]
    for text in (tagged["text"], *(each["text"] for each in tagged["alternatives"])):
        assert [text.count(tag) for tag in ("<b>", "</b>", "{0}")] == [1, 1, 1]
