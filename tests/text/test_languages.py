"""The table of languages."""

import pytest

from seqloom.core.errors import UsageError
from seqloom.text.languages import LANGUAGES, TWO_LETTERS, find_language, is_language_code, language_name


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
