"""Settings: what wins over what, and what a user reads when something is wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, model_validator

import nasty
from seqloom.core.config import Config, describe_fields, merge, read_config_file, resolve, to_yaml
from seqloom.core.config import Tree as ConfigTree
from seqloom.core.errors import ConfigError
from seqloom.runs.config import RunConfig


class Transformer(Config):
    """A kind of model."""

    kind: Literal["transformer"] = "transformer"
    """Which model."""
    width: int = Field(256, ge=1)
    """Size of every vector between layers."""
    heads: int = 4
    """Attention heads."""
    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Share of activations set to zero."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "Transformer":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be shared by {self.heads} heads")
        return self


class Recurrent(Config):
    """Another kind of model."""

    kind: Literal["recurrent"] = "recurrent"
    """Which model."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The cell."""
    sizes: tuple[int, ...] = ()
    """Size of each layer."""


class Data(Config):
    """Where the text is."""

    train: tuple[Path, ...]
    """Training files."""
    languages: tuple[str, str] | None = None
    """Source and target language."""
    shuffle: bool = True
    """Whether to shuffle."""
    limit: float | Literal["auto"] = "auto"
    """How much to read, with a description so long that it cannot stand in a single line of a file with comments."""


class Run(Config):
    """All settings."""

    seed: int = 1
    """Where all randomness comes from."""
    data: Data = Data(train=(Path("a.de"), Path("a.en")))
    """The text."""
    model: Transformer | Recurrent = Field(Transformer(heads=8), discriminator="kind")
    """The model."""
    weights: dict[str, float] = Field(default_factory=dict)
    """A weight by name."""
    parts: tuple[Data, ...] = ()
    """More text."""


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


class Never(Config):
    """Settings that are always refused."""

    rate: float = 0.0
    """Any number."""

    @model_validator(mode="after")
    def _refuse(self) -> "Never":
        raise ValueError("no good")


class Odd(Config):
    """A section that cannot be had."""

    model: Never
    """The section."""


def refusal(
    *overrides: str,
    file: Path | None = None,
    defaults: dict[str, Any] | None = None,
    cls: type[Config] = Run,
) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(cls, file=file, overrides=overrides, defaults=defaults)
    return str(caught.value)


# --- what wins -------------------------------------------------------------------------------------------------------


def test_overrides_win_over_the_file_and_the_file_over_the_defaults(write: Write) -> None:
    defaults = {"seed": 2, "model": {"kind": "transformer", "width": 32, "heads": 2, "dropout_rate": 0.3}}
    file = write("model: {width: 64, heads: 16}\n")
    run = resolve(Run, defaults=defaults, file=file, overrides=["model.heads=4", "seed=5", "seed=6"])
    assert run.model == Transformer(width=64, heads=4, dropout_rate=0.3)
    assert run.seed == 6


def test_defaults_of_another_kind_do_not_leak(write: Write) -> None:
    defaults = {"seed": 2, "model": {"kind": "transformer", "width": 32}}
    assert resolve(Run, defaults=defaults, file=write("model: {kind: recurrent}")).model == Recurrent()
    assert resolve(Run, defaults=defaults, overrides=["model.kind=recurrent", "model.cell=gru"]).model == Recurrent(
        cell="gru"
    )
    assert resolve(Run, defaults=defaults, overrides=["seed=3"]).model == Transformer(width=32, heads=8)


def test_keys_of_the_file_stay_when_an_override_changes_the_kind(write: Write) -> None:
    file = write("seed: 1\nmodel:\n  width: 32\n")
    assert refusal("model.kind=recurrent", file=file) == (
        f"{file}:3: unknown key model.width (value 32); it is a setting of the kind transformer "
        "(model.kind=transformer)"
    )


def test_an_unknown_key_of_other_kinds_names_them_and_what_this_kind_has() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(RunConfig, overrides=["model.kind=transformer", "model.layers=2"])
    assert re.search("it is a setting of the kinds rnn_lm, .*elmo.* and .*; did you mean", str(caught.value))
    assert "did you mean model.encoder_layers or model.decoder_layers?" in str(caught.value)


def test_setting_one_field_keeps_its_neighbours_in_a_default_section() -> None:
    assert resolve(Run, overrides=["model.width=64"]).model == Transformer(width=64, heads=8)


def test_only_named_settings_count_as_set() -> None:
    """Sizes are chosen for those that are not: a learning rate must not fix the number of steps."""
    config = resolve(RunConfig, overrides=["training.learning_rate=0.1", "model.kind=seq2seq", "text.lowercase=true"])
    assert config.training.model_fields_set == {"learning_rate"}
    assert config.model.model_fields_set == {"kind"}
    assert config.text.model_fields_set == {"lowercase"}
    assert config.search.model_fields_set == set()


def test_values_of_overrides_may_be_lists_and_mappings() -> None:
    run = resolve(Run, overrides=["data.train=[x.de, x.en]", "weights={a: 1, b: 2.5}", "weights.c=3"])
    assert run.data.train == (Path("x.de"), Path("x.en"))
    assert run.weights == {"a": 1.0, "b": 2.5, "c": 3.0}


def test_default_values_may_be_paths_and_tuples() -> None:
    assert resolve(Run, defaults={"data": {"train": (Path("x"),)}}).data.train == (Path("x"),)


def test_merging_joins_sections_and_replaces_lists() -> None:
    merged = merge(
        ConfigTree({"a": {"b": 1, "c": [1, 2]}}, {("a", "b"): "one"}),
        ConfigTree({"a": {"c": [3]}}, {("a", "c"): "two"}),
    )
    assert merged == ConfigTree({"a": {"b": 1, "c": [3]}}, {("a", "b"): "one", ("a", "c"): "two"})


# --- YAML ------------------------------------------------------------------------------------------------------------


def test_yaml_traps_are_closed(write: Write) -> None:
    tree = read_config_file(
        write(
            "a: no\nb: [yes, on, off, y]\nc: 1e-3\nd: 12:30\ne: 010\nf: 1_000\ng: 2001-01-01\nh: true\ni: '1'\nj: ~\n"
        )
    )
    assert tree.values == {
        "a": "no",
        "b": ["yes", "on", "off", "y"],
        "c": 0.001,
        "d": "12:30",
        "e": "010",
        "f": 1000,
        "g": "2001-01-01",
        "h": True,
        "i": "1",
        "j": None,
    }
    assert tree.places[("f",)].endswith("run.yaml:6")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\ndata:\n  x: 1\nseed: 2\n", "run.yaml:4: seed is given twice, first in line 1; keep one of them"),
        ("model:\n  a: 1\n  a: 1\n", "run.yaml:3: model.a is given twice, first in line 2; keep one of them"),
        (
            "seed:\n\t- 1\n",
            "run.yaml:2: not valid YAML: found character '\\t' that cannot start any token (indent with",
        ),
        ("seed: @x\n", "run.yaml:1: not valid YAML: found character '@' that cannot start any token (put the text in"),
        ("a: 1\nb: *x\n", "run.yaml:2: not valid YAML: an alias (*x) is not supported"),
        ("a: 1\nb: &x 1\n", "run.yaml:2: not valid YAML: an anchor (&x) is not supported"),
        ("a: !!python/name:os.system\n", "cannot be read as 'python/name:os.system'; write the plain value"),
        ("a: !own [1]\n", "run.yaml:1: the tag '!own' is not supported"),
        ("a:\n  " + "[" * 5000, "run.yaml:1: not valid YAML: nested too deeply"),
        ("- seed\n", "run.yaml:1: settings are keys with values, such as `seed: 1`; found [seed]"),
        ("? [a]\n: 1\n", "run.yaml:1: a key must be a single word"),
        ("a: 1\n---\nb: 1\n", "run.yaml:2: not valid YAML: but found another document"),
        ("a: \x01\n", "run.yaml:1: not valid YAML: unacceptable character"),
        (f"a: {'1' * 5000}\n", "11… is too large a number; give at most 18 digits"),
    ],
)
def test_bad_yaml_is_named_with_its_line(write: Write, text: str, message: str) -> None:
    assert message in refusal(file=write(text))


def test_a_file_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"seed: 1\nname: caf\xe9\n")
    assert refusal(file=path).startswith(f"{path}:2: settings must be UTF-8 text")


def test_an_empty_file_sets_nothing(write: Write) -> None:
    assert resolve(Run, file=write("# nothing\n")) == Run()


# --- messages --------------------------------------------------------------------------------------------------------


def test_an_unknown_key_names_place_path_value_and_the_nearest(write: Write) -> None:
    file = write("seed: 1\nmodel:\n  haeds: 8\n")
    assert refusal(file=file) == f"{file}:3: unknown key model.haeds (value 8); did you mean model.heads?"
    assert refusal("model.haeds=8") == (
        "override 'model.haeds=8': unknown key model.haeds (value 8); did you mean model.heads?"
    )


def test_a_key_of_another_section_is_found_there() -> None:
    assert refusal("data.heads=8").endswith("unknown key data.heads (value 8); did you mean model.heads?")
    assert refusal("cell=gru").endswith("unknown key cell (value gru); did you mean model.cell (of kind recurrent)?")


def test_settings_that_do_not_go_together_have_the_place_of_one_that_is_named(write: Write) -> None:
    said = "model: width 10 cannot be shared by 4 heads"
    heads = {"model": {"heads": 4}}
    overrides = ("model.width=10", "model.dropout_rate=0.5")
    assert refusal(*overrides, defaults=heads) == f"override 'model.width=10': {said}"
    assert refusal(*overrides, "model.heads=4") == f"override 'model.width=10': {said}"
    file = write("seed: 2\nmodel:\n  heads: 4\n  width: 10\n")
    assert refusal("model.dropout_rate=0.5", file=file) == f"{file}:4: {said}"
    # Of what is named nothing was set: no override is to blame.
    assert refusal("model.rate=0.5", cls=Odd) == "settings: model: no good"
    assert refusal(file=write("model:\n  rate: 0.5\n"), cls=Odd) == f"{file}:1: model: no good"


def test_a_key_like_nothing_lists_what_there_is() -> None:
    assert refusal("model.zzz=1", "model.kind=recurrent").endswith(
        "unknown key model.zzz (value 1); model has kind, cell, sizes"
    )
    assert refusal("zzz=1").endswith("; there are seed, data, model, weights, parts")


def test_an_unknown_kind_lists_the_known_ones(write: Write) -> None:
    file = write("model:\n  width: 3\n  kind: recurrant\n")
    assert refusal(file=file) == (
        f"{file}:3: model.kind = recurrant: no such kind; did you mean recurrent? (known kinds: transformer, recurrent)"
    )


def test_a_word_that_is_a_setting_of_some_kind_is_sent_there() -> None:
    assert refusal("model.kind=gru").endswith(
        "model.kind = gru: no such kind; set model.kind=recurrent model.cell=gru (known kinds: transformer, recurrent)"
    )
    assert refusal("model.kind=zzz").endswith("no such kind (known kinds: transformer, recurrent)")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=x", "seed = x: expected whole number"),
        ("seed=1e3", "seed = 1000.0: expected whole number; write 1000"),
        ("seed=010", "seed = '010': expected whole number; write it without quotes and without leading zeros"),
        ("seed=true", "seed = true: expected whole number"),
        ("seed=null", "seed = null: expected whole number"),
        ("seed.deep=3", "seed = {deep: 3}: expected whole number"),
        ("model.width=0", "model.width = 0: expected whole number, at least 1"),
        ("model.dropout_rate=1.0", "model.dropout_rate = 1.0: expected number, at least 0, below 1"),
        ("data.shuffle=no", "data.shuffle = 'no': expected true or false; write true or false"),
        ("data.limit=much", "data.limit = much: expected number or auto"),
        ("data.train=a.de", "data.train = a.de: expected list of path"),
        ("data=null", "data = null: expected section (train, languages, shuffle, limit)"),
        ("model=3", "model = 3: expected section with kind: transformer, recurrent"),
        ("weights.a=b", "weights.a = b: expected number (the whole is a mapping from text to number)"),
        ("data.languages=[true, en]", 'data.languages.0 = true: expected text (the whole is a list of 2 (text,'),
        ("data.languages=[true, en]", 'put it in quotes: "true"'),
        ("model.heads=7", "model: width 256 cannot be shared by 7 heads"),
        ("parts=[{}]", "parts.0.train is missing: Training files."),
        ("parts=[{trian: []}]", "unknown key parts.0.trian (value []); did you mean parts.0.train?"),
    ],
)  # fmt: skip
def test_a_wrong_value_says_what_was_expected(override: str, message: str) -> None:
    said = refusal(override)
    assert message in said
    assert said.startswith(f"override {override!r}: ")


@pytest.mark.parametrize("override", ["seed", "=3", "a b=3", "model..heads=3", ".seed=1"])
def test_an_override_must_have_its_form(override: str) -> None:
    assert refusal(override).startswith(f"override {override!r} is not of the form path.to.field=value")


def test_all_problems_are_told_five_of_them_in_full(write: Write) -> None:
    said = refusal(
        "seed=x", "model.width=y", "model.heads=z", "data.shuffle=3", "data.train=3", "data.limit=q", "one=1"
    ).split("\n")
    assert len(said) == 6
    assert said[0].startswith("override 'one=1': unknown key one")
    assert said[-1] == "… and 2 more problems like these"


def test_a_language_called_no_needs_no_quotes() -> None:
    assert resolve(Run, overrides=["data.languages=[no, en]"]).data.languages == ("no", "en")


# --- the class -------------------------------------------------------------------------------------------------------


def test_settings_are_frozen_strict_and_closed() -> None:
    run = Run(seed=3)
    with pytest.raises(ConfigError, match="seed of Run cannot be changed: settings are read-only"):
        run.seed = 4  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"^Run: seed = '3': expected whole number"):
        Run(seed="3")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^Run: unknown key sed \(value 3\); did you mean seed\?"):
        Run(sed=3)  # type: ignore[call-arg]
    assert Transformer(dropout_rate=0).dropout_rate == 0.0


def test_fields_are_described_by_their_docstrings() -> None:
    docs = {(doc.path, doc.kind): doc for doc in describe_fields(Run)}
    width = docs["model.width", "transformer"]
    assert (width.type, width.default) == ("whole number, at least 1", "256")
    assert width.description == "Size of every vector between layers."
    assert docs["data.train", None].default == "required"
    assert docs["model", None].type == "section with kind: transformer, recurrent"
    assert docs["model.sizes", "recurrent"].type == "list of whole number"
    assert docs["data.languages", None].type == "list of 2 (text, text) or null"
    assert all(doc.description for doc in docs.values())


# --- there and back --------------------------------------------------------------------------------------------------

TEXT = st.one_of(
    nasty.texts(most=2, longest=30, without="\0"),
    st.sampled_from(["no", "1e3", "010", "~", "", "a: b", "# x"]),
)
WHOLE = st.integers(1 - 10**18, 10**18 - 1)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
MODELS = st.one_of(
    st.builds(
        Transformer, width=st.sampled_from([8, 64]), heads=st.sampled_from([1, 8]), dropout_rate=st.floats(0, 0.9)
    ),
    st.builds(Recurrent, cell=st.sampled_from(["lstm", "gru"]), sizes=st.lists(WHOLE).map(tuple)),
)
DATA = st.builds(
    Data,
    train=st.lists(TEXT.map(Path)).map(tuple),
    languages=st.one_of(st.none(), st.tuples(TEXT, TEXT)),
    limit=st.one_of(st.just("auto"), NUMBERS),
)
RUNS = st.builds(
    Run,
    seed=WHOLE,
    data=DATA,
    model=MODELS,
    weights=st.dictionaries(TEXT, NUMBERS),
    parts=st.lists(DATA, max_size=2).map(tuple),
)


@given(RUNS, st.booleans())
def test_a_written_file_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, run: Run, comments: bool) -> None:
    path = tmp_path_factory.mktemp("config") / "run.yaml"
    path.write_bytes(to_yaml(run, comments=comments).encode())
    assert resolve(Run, file=path) == run


def test_comments_explain_each_field() -> None:
    text = to_yaml(Run(weights={"x": 0.5}), comments=True)
    assert "\n# The model.\nmodel:\n  # Which model.\n  kind: transformer\n  # Size of every vector" in text
    assert "weights: {x: 0.5}" in text
    assert max(map(len, text.split("\n"))) <= 100
    assert "#" not in to_yaml(Run(), comments=False)
