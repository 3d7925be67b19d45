"""Language models in a worker: every kind of them completes and scores as it does in process."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seqloom
from seqloom.apps.language_model import LanguageModel, open_language_model, write_model_as_arpa
from seqloom.serve.completion import Detokenizer, LanguageModelActions, written_prompt
from seqloom.serve.groups import GroupCancellation, ignore_parts
from tiny_runs import TINY_LM, write_text

LINES = ("The old man reads a book.", "", "She  is\there, Öl ☃.")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    text = str(write_text(folder / "text.en"))
    spelled = [*TINY_LM, "model.kind=rnn_lm", "text.kind=char", "text.byte_fallback=true", "text.size=400"]
    seqloom.train(train=[text], out=folder / "spelled", overrides=spelled)
    seqloom.train(train=[text], out=folder / "counted", overrides=["model.kind=ngram", "model.order=3"])
    seqloom.train(
        train=[text],
        out=folder / "elmo",
        overrides=["model.kind=elmo", *(each for each in TINY_LM if not each.startswith("task."))],
    )
    write_model_as_arpa(folder / "counted", folder / "counted.arpa.gz")
    names = {"spelled": "spelled", "counted": "counted", "elmo": "elmo", "arpa": "counted.arpa.gz"}
    return {name: open_language_model(folder / path) for name, path in names.items()}


@pytest.mark.parametrize("name", ["spelled", "counted", "elmo", "arpa"])
def test_every_language_model_scores_and_completes(models: dict[str, LanguageModel], name: str) -> None:
    model = models[name]
    actions = LanguageModelActions(model)
    text = "\n".join(LINES) + "\n"
    whole = {"echo": True, "max_tokens": 0, "logprobs": 3}
    ((scored,),) = actions.complete([[written_prompt(text, seed=1)]], whole, GroupCancellation(), ignore_parts)
    found = scored["choices"][0]["logprobs"]["token_logprobs"]
    expected = model.score(LINES)
    assert found[0] is None
    assert sum(found[1:]) == pytest.approx(sum(each.log_prob for each in expected), abs=1e-3)
    assert len(found) == scored["prompt_tokens"] == 1 + sum(each.tokens for each in expected)

    prompts = ["", "The old", "The old ", "A dog.\nThe"]
    groups = [[written_prompt(prompt, seed=9) for prompt in prompts]]
    options = {"n": 3, "best_of": 3, "max_tokens": 30, "temperature": 1.5}
    search = {"method": "sample", "temperature": 1.5, "length_constant": 30, "length_factor": 0.0}
    for past in (False, True):
        wanted = {**options, "past_line_ends": past}
        (results,) = actions.complete(groups, wanted, GroupCancellation(), ignore_parts)
        for prompt, result in zip(prompts, results, strict=True):
            texts = model.generate(prompt, count=3, seed=9, search=search, past_line_ends=past)
            assert [choice["text"] for choice in result["choices"]] == [each.continuation for each in texts]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_pieces_add_up_to_the_text_of_all_of_them(models: dict[str, LanguageModel], data: st.DataObject) -> None:
    tokenizer = models[data.draw(st.sampled_from(["spelled", "counted", "elmo"]))].tokenizer
    symbols = data.draw(st.lists(st.integers(3, tokenizer.size - 1), max_size=12))
    text = Detokenizer(tokenizer)
    assert "".join(map(text.add, symbols)) + text.rest() == tokenizer.decode(symbols)


def test_many_lines_are_read_in_turns(models: dict[str, LanguageModel], monkeypatch: pytest.MonkeyPatch) -> None:
    actions = LanguageModelActions(models["counted"])
    groups = [[written_prompt("The man\n" * 9, seed=1)], [written_prompt("A dog\nruns", seed=2)]]
    options = {"echo": True, "max_tokens": 4, "logprobs": 2, "n": 2, "best_of": 2}
    at_once = actions.complete(groups, options, GroupCancellation(), ignore_parts)
    monkeypatch.setattr("seqloom.serve.completion.MAX_SCORES", 2 * models["counted"].tokenizer.size)
    assert actions.complete(groups, options, GroupCancellation(), ignore_parts) == at_once
