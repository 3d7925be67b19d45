"""Constraints in text become constraints in symbols, and translations obey them."""

import pytest

from seqloom.apps.request import ConstraintSet, constraint_of
from seqloom.apps.translator import Translator
from seqloom.core.errors import UsageError
from seqloom.runs.train import Trained
from seqloom.text.glossary import Glossary

LINE = "The cat sleeps."


@pytest.fixture(scope="module")
def translator(tiny: Trained) -> Translator:
    return Translator.load(tiny.run / "model")


def test_an_empty_set_is_no_constraint(translator: Translator) -> None:
    assert constraint_of(None, translator.loaded.tokenizers.target) is None
    assert constraint_of(ConstraintSet(), translator.loaded.tokenizers.target) is None


def test_a_translation_obeys_its_constraints(translator: Translator) -> None:
    free = translator.translate([LINE])[0]
    word = next(word for word in ("Hund", "Haus", "Tag", "der") if word not in free)
    (begun,), (held,) = translator.search(
        [LINE, LINE], constraints=[ConstraintSet(prefix=word), ConstraintSet(phrases=(word,))]
    )
    assert begun.text.startswith(word)
    assert word in held.text
    (again,) = translator.search([LINE], constraints=[None])
    assert again[0].text == free


def test_a_forbidden_word_does_not_come(translator: Translator) -> None:
    (begun,) = translator.search([LINE], constraints=[ConstraintSet(prefix="der der")])
    assert "der" in begun[0].text
    with pytest.raises(UsageError, match=r"the prefix 'der der' cannot come: .*'der'.* leave out one of the two"):
        translator.search([LINE], constraints=[ConstraintSet(prefix="der der", forbidden=("der",))])


def test_a_message_does_not_repeat_the_whole_of_a_long_prefix(translator: Translator) -> None:
    with pytest.raises(UsageError, match=r"the prefix 'der der .*…' needs [0-9]+ symbols or more") as caught:
        translator.search([LINE], constraints=[ConstraintSet(prefix="der " * 500)])
    assert len(str(caught.value)) < 300


def test_a_glossary_adds_the_terms_of_a_line() -> None:
    glossary = Glossary((("dog", "Hund"), ("fire engine", "Feuerwehrauto")))
    assert ConstraintSet().with_terms("a dog and a dog", glossary).phrases == ("Hund", "Hund")
    assert ConstraintSet(prefix="Da").with_terms("no match", glossary) == ConstraintSet(prefix="Da")


def test_constraint_sets_that_are_not_one_per_line_are_refused(translator: Translator) -> None:
    with pytest.raises(UsageError, match="got 2 constraint sets for 1 lines"):
        translator.search(["a"], constraints=[None, None])


def test_constraints_on_a_line_in_parts(translator: Translator) -> None:
    sentences = translator.config.search.model_copy(update={"split": "sentences"})
    line, glossary = f"{LINE} The dog sleeps.", Glossary((("dog", "Hund"),))
    (found,) = translator.search(
        [line], search=sentences, constraints=[ConstraintSet(prefix="der", forbidden=("das",))]
    )
    first, second = (translator.loaded.tokenizers.target.decode(each.symbols) for each in found[0].hypotheses)
    assert first.startswith("der")
    assert "das" not in first + second
    (found,) = translator.search([line], search=sentences, glossary=glossary)
    first, second = (translator.loaded.tokenizers.target.decode(each.symbols) for each in found[0].hypotheses)
    assert "Hund" in second
    assert "Hund" not in first
    with pytest.raises(UsageError, match=r"line 1 is translated in 2 parts, and it is not known which"):
        translator.search([line], search=sentences, constraints=[ConstraintSet(phrases=("Hund",))])


def test_two_models_translate_together_if_they_share_a_vocabulary(tiny: Trained, translator: Translator) -> None:
    twice = Translator(translator.loaded, [translator.loaded])
    assert twice.translate([LINE]) == translator.translate([LINE])


def test_a_watched_translation_shows_what_was_found(translator: Translator) -> None:
    watched = translator.watch(LINE)
    assert watched.translations[0].text == translator.translate([LINE])[0]
    assert any(node.fate in ("finished", "cut") for node in watched.trace.nodes)
    with pytest.raises(UsageError, match="0 parts"):
        translator.watch("   ")


def test_agreement_returns_one_of_the_outputs_that_were_found(translator: Translator) -> None:
    settings = translator.config.search.model_copy(update={"beam": 4, "nbest": 4})
    plain = {each.text for each in translator.search([LINE], search=settings)[0]}
    chosen = translator.search([LINE], search=settings.model_copy(update={"rerank": "agreement"}))[0]
    assert {each.text for each in chosen} == plain
    assert len({each.text for each in chosen}) == len(chosen)


def test_samples_do_not_depend_on_their_neighbours(translator: Translator) -> None:
    settings = translator.config.search.model_copy(update={"method": "sample", "nbest": 2, "seed": 4})
    alone = translator.search([LINE, "Good morning."], search=settings)
    more = translator.search([LINE, "Good morning.", "The house is big.", "Yes."], search=settings)
    assert [[each.text for each in found] for found in more[:2]] == [[each.text for each in found] for found in alone]
