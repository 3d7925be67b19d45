"""The table of languages."""

import pytest

from seqloom.core.errors import UsageError
from seqloom.text.languages import (
    LANGUAGES,
    TWO_LETTERS,
    choose_code,
    find_language,
    is_language_code,
    language_name,
)


def test_the_table_has_unique_two_letter_codes_and_names() -> None:
    assert len(LANGUAGES) > 100
    assert all(len(code) == 2 and code == language.code for code, language in LANGUAGES.items())
    assert len({language.name for language in LANGUAGES.values()}) == len(LANGUAGES)
    assert list(LANGUAGES) == sorted(LANGUAGES)


def test_every_language_has_a_code_of_three_letters() -> None:
    assert set(TWO_LETTERS.values()) == set(LANGUAGES)
    assert all(len(code) == 3 for code in TWO_LETTERS)


@pytest.mark.parametrize(
    ("code", "name", "is_unspaced"),
    [
        ("de", "German", False),
        ("zh", "Chinese", True),
        ("ja", "Japanese", True),
        ("th", "Thai", True),
        ("ko", "Korean", False),
        ("vi", "Vietnamese", False),
        ("ar", "Arabic", False),
        ("he", "Hebrew", False),
        ("ur", "Urdu", False),
    ],
)
def test_known_languages(code: str, name: str, is_unspaced: bool) -> None:
    language = find_language(code)
    assert (language.name, language.is_unspaced) == (name, is_unspaced)


def test_regions_scripts_and_other_codes_are_understood() -> None:
    assert [language_name(code) for code in ("pt-BR", "zh_Hant", "EN", "cmn", "iw")] == [
        "Portuguese",
        "Chinese",
        "English",
        "Chinese",
        "Hebrew",
    ]


def test_an_unknown_code_is_its_own_name_but_cannot_be_found() -> None:
    assert language_name("tlh") == "tlh"
    with pytest.raises(UsageError, match=r"'germn' is not the code .* did you mean de"):
        find_language("germn")


@pytest.mark.parametrize("code", ["de", "pt-BR", "zh_Hant_TW", "sr_RS.UTF-8@latin", "x-klingon", "de-1996", "deu_Latn"])
def test_codes_of_languages_have_a_shape(code: str) -> None:
    assert is_language_code(code)


@pytest.mark.parametrize("text", ["", 'en-"<&', "en de", "de-", "-de", "12", "de\n", "ä", "en" + "-abcd" * 7])
def test_other_texts_are_no_codes(text: str) -> None:
    assert not is_language_code(text)


NLLB = ["deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", "arb_Arab", "nob_Latn", "por_Latn", "srp_Cyrl", "kor_Hang"]
MBART = ["de_DE", "en_XX", "zh_CN", "pt_XX", "ko_KR"]
OPUS = ["deu", "cmn_Hans", "cmn_Hant", "zho", "por", "pt_BR"]


@pytest.mark.parametrize(
    ("codes", "typed", "code"),
    [
        *((NLLB, typed, "deu_Latn") for typed in ("de", "deu", "ger", "deu_Latn", "DEU-latn", "German", "de_AT")),
        *((MBART, typed, "de_DE") for typed in ("de", "deu", "deu_Latn", "de-de", "german")),
        *((NLLB, typed, "zho_Hans") for typed in ("zh", "zh-CN", "cmn", "zh_Hans", "Chinese")),
        *((NLLB, typed, "zho_Hant") for typed in ("zh-TW", "zh_Hant", "zho_Hant")),
        *((NLLB, "no", "nob_Latn"), (NLLB, "sr", "srp_Cyrl"), (NLLB, "pt-BR", "por_Latn"), (NLLB, "ko", "kor_Hang")),
        *((OPUS, "zh_Hant", "cmn_Hant"), (OPUS, "pt-BR", "pt_BR"), (OPUS, "pt", "por"), (OPUS, "zh", "zho")),
    ],
)
def test_codes_of_models_are_found_by_other_codes_and_names(codes: list[str], typed: str, code: str) -> None:
    assert choose_code(typed, codes) == code


def test_languages_that_a_model_does_not_know_or_has_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="does not know the language 'dutch'; nearest: deu_Latn"):
        choose_code("dutch", NLLB)
    with pytest.raises(UsageError, match="does not know the language 'sr_Latn'; nearest: srp_Cyrl"):
        choose_code("sr_Latn", NLLB)
    with pytest.raises(UsageError, match="'zh' can be zh_CN, zh_TW in this model; choose one of them"):
        choose_code("zh", ["zh_CN", "zh_TW"])
    with pytest.raises(UsageError, match="nearest: de, fr"):
        choose_code("", ["fr", "de"])
