"""Published encoders: BERT, RoBERTa and XLM-R, and folders of sentence-transformers, which are made of them.

    config.json, weights, tokeniser      in the folder itself, or in a part such as 0_Transformer
    modules.json                         the parts of a sentence encoder: Transformer, Pooling, Dense, Normalize
    1_Pooling/config.json                how vectors of tokens become one
    2_Dense/config.json, weights         a layer after it

Weights decide what a model has: a pooler, an output for hidden tokens, a table of its own for that output.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.files import read_json, write_atomically
from seqloom.models.bert import BertConfig, DenseActivation, DenseConfig, SentenceConfig
from seqloom.nn.blocks import Activation
from seqloom.nn.packing import Pooling
from seqloom.pretrained.families import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_SYMBOLS,
    MAX_WIDTH,
    Conversion,
    Family,
    choice,
    flag,
    real_number,
    symbol,
    whole_number,
)
from seqloom.pretrained.folder import MAX_CONFIG_BYTES, MODULES, read_settings_file
from seqloom.pretrained.mapping import NamedTensors, StoredTensors, TensorMap
from seqloom.pretrained.renumbering import Roles
from seqloom.pretrained.weights import WeightFiles

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

_OUTPUTS = {
    "bert": (
        ("masked.dense", "cls.predictions.transform.dense"),
        ("masked.norm", "cls.predictions.transform.LayerNorm"),
        ("masked.output", "cls.predictions"),
    ),
    "roberta": (
        ("masked.dense", "lm_head.dense"),
        ("masked.norm", "lm_head.layer_norm"),
        ("masked.output", "lm_head"),
    ),
}
"""The output for hidden tokens: our names and theirs."""

MAX_TOKENIZER_BYTES = 100 << 20
"""Bytes of a file with tokens."""

IGNORED = (r"embeddings\.position_ids", r"cls\.seq_relationship\..*")
"""Buffers that are counted from 0, and the head that tells pairs of sentences from others."""


# --- BERT and RoBERTa ------------------------------------------------------------------------------------------------


def rename(name: str) -> str:
    """Without the prefix that models with a head have; norms of old files have gamma and beta."""
    name = re.sub(r"^(bert|roberta)\.", "", name)
    return re.sub(r"LayerNorm\.(gamma|beta)$", lambda old: f"LayerNorm.{_NORM[old[1]]}", name)


_NORM = {"gamma": "weight", "beta": "bias"}


def read_bert(config: Mapping[str, Any], stored: StoredTensors) -> Conversion:
    """BERT: [CLS] X [SEP], whose ids only the tokeniser knows."""
    symbols = whole_number(config, "vocab_size", most=MAX_SYMBOLS, least=5, default=30_522)
    pad = symbol(config, "pad_token_id", symbols=symbols, default=0)
    # The others are found by `bert_roles`; these are the numbers of the first published models.
    roles = Roles(pad=pad, begin=101, end=102, unknown=100)
    return _conversion(config, stored, roles=roles, symbols=symbols, unused=0, head="bert", epsilon=1e-12)


def bert_roles(folder: Path, roles: Roles) -> Roles:
    """The numbers of [PAD], [CLS], [SEP] and [UNK] in a folder, whatever they are called there."""
    path = folder / "tokenizer_config.json"
    settings = read_settings_file(path) if path.is_file() else {}
    numbers = _token_numbers(folder)
    found: list[int] = []
    for role, name in _BERT_NAMES.items():
        value = settings.get(role, name)
        written = value.get("content") if isinstance(value, dict) else value
        number = numbers.get(written) if isinstance(written, str) else None
        if number is None:
            raise ModelError(f"the tokeniser in {folder} has no {role}: {str(written)[:40]!r} is not in its vocabulary")
        found.append(number)
    if len(set(found)) < len(found):
        raise ModelError(f"the tokeniser in {folder} has one symbol for two of {', '.join(_BERT_NAMES)}")
    pad, begin, end, unknown = found
    return replace(roles, pad=pad, begin=begin, end=end, unknown=unknown)


_BERT_NAMES = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}


def _token_numbers(folder: Path) -> dict[str, int]:
    """The number of each token, by tokenizer.json or vocab.txt."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        path = folder / "vocab.txt"
        if not path.is_file():  # which may be a pipe, too
            raise ModelError(f"{folder} has neither tokenizer.json nor vocab.txt; download the folder again")
        try:
            if path.stat().st_size > MAX_TOKENIZER_BYTES:
                raise ModelError(f"{path} has more than {MAX_TOKENIZER_BYTES:,} bytes")
            lines = path.read_text("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} cannot be read: {error}; download the folder again") from error
        return {token.rstrip("\r"): number for number, token in enumerate(lines)}
    found = read_settings_file(path, largest=MAX_TOKENIZER_BYTES)
    model, added = found.get("model"), found.get("added_tokens", [])
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise ModelError(f"{path} has no table of tokens; download the folder again")
    pairs = [(each.get("content"), each.get("id")) for each in added if isinstance(each, dict)]
    return {str(token): number for token, number in (*vocabulary.items(), *pairs) if type(number) is int}


def read_roberta(config: Mapping[str, Any], stored: StoredTensors) -> Conversion:
    """RoBERTa and XLM-R: <s> X </s>; positions are counted from the row after that of the padding symbol."""
    symbols = whole_number(config, "vocab_size", most=MAX_SYMBOLS, least=5, default=50_265)
    pad = symbol(config, "pad_token_id", symbols=symbols, default=1)
    begin = symbol(config, "bos_token_id", symbols=symbols, default=0)
    end = symbol(config, "eos_token_id", symbols=symbols, default=2)
    if pad is None or begin is None or end is None or len({pad, begin, end}) < 3:
        raise ModelError(
            f"config.json has pad_token_id={pad}, bos_token_id={begin} and eos_token_id={end}; three different symbols "
            "are needed"
        )
    roles = Roles(pad=pad, begin=begin, end=end, unknown=None)
    found = _conversion(config, stored, roles=roles, symbols=symbols, unused=pad + 1, head="roberta", epsilon=1e-12)
    model = cast("BertConfig", found.model)
    if model.has_output and model.activation != "gelu":
        raise ModelError(
            f"config.json has hidden_act={config.get('hidden_act')!r}, but the output of this family uses gelu; only "
            "gelu is supported for both"
        )
    return found


def _conversion(
    config: Mapping[str, Any],
    stored: StoredTensors,
    *,
    roles: Roles,
    symbols: int,
    unused: int,
    head: str,
    epsilon: float,
) -> Conversion:
    _refuse_variants(config)
    rows = whole_number(config, "max_position_embeddings", most=MAX_POSITIONS, least=unused + 2, default=512)
    outputs = _OUTPUTS[head] if f"{_OUTPUTS[head][0][1]}.weight" in stored.names else ()
    has_pooler = "pooler.dense.weight" in stored.names
    width = whole_number(config, "hidden_size", most=MAX_WIDTH, default=768)
    heads = whole_number(config, "num_attention_heads", most=MAX_WIDTH, default=12)
    if width % heads:
        raise ModelError(f"config.json has hidden_size={width}, which {heads} attention heads cannot share")
    layers = whole_number(config, "num_hidden_layers", most=MAX_LAYERS, default=12)
    segments = whole_number(config, "type_vocab_size", most=1000, least=0, default=2)
    maps = [
        TensorMap("embedding.weight", ("embeddings.word_embeddings.weight",), rows="target"),
        TensorMap("positions", ("embeddings.position_embeddings.weight",)),
        *([TensorMap("segments", ("embeddings.token_type_embeddings.weight",))] if segments else []),
        *_pair("norm", "embeddings.LayerNorm"),
        *(each for number in range(layers) for each in _layer(f"layers.{number}", f"encoder.layer.{number}")),
        *(_pair("pooler", "pooler.dense") if has_pooler else []),
    ]
    ignored = list(IGNORED)
    is_tied = True
    if outputs:
        is_tied, more = _output(stored, outputs)
        maps += more
        decoder = re.escape(f"{outputs[2][1]}.decoder")
        ignored += [rf"{decoder}\.bias", *([rf"{decoder}\.weight"] if is_tied else [])]
    model = BertConfig(
        width=width,
        heads=heads,
        layers=layers,
        feed_forward=whole_number(config, "intermediate_size", most=16 * MAX_WIDTH, default=3072),
        activation=choice(config, "hidden_act", ACTIVATIONS, default="gelu"),
        dropout_rate=real_number(config, "hidden_dropout_prob", least=0.0, most=0.9, default=0.1),
        epsilon=real_number(config, "layer_norm_eps", least=1e-30, most=0.1, default=epsilon),
        longest=rows - unused,
        unused_positions=unused,
        segments=segments,
        has_output=bool(outputs),
        has_pooler=has_pooler,
        tying="output" if is_tied else "none",
    )
    return Conversion(
        model=model,
        tensors=tuple(maps),
        roles=roles,
        symbols=symbols,
        max_positions=rows - unused,
        ignored=tuple(ignored),
    )


def _refuse_variants(config: Mapping[str, Any]) -> None:
    kind = config.get("position_embedding_type", "absolute")
    if kind not in ("absolute", None):
        raise ModelError(f"config.json has position_embedding_type={kind!r}; only absolute positions are supported")
    for name in ("is_decoder", "add_cross_attention"):
        if flag(config, name, default=False):
            raise ModelError(f"config.json has {name}=true: this model is a decoder, which is not supported")


def _pair(ours: str, theirs: str) -> list[TensorMap]:
    return [TensorMap(f"{ours}.{part}", (f"{theirs}.{part}",)) for part in ("weight", "bias")]


def _layer(ours: str, theirs: str) -> list[TensorMap]:
    joined = [
        TensorMap(
            f"{ours}.self.qkv.{part}",
            tuple(f"{theirs}.attention.self.{each}.{part}" for each in ("query", "key", "value")),
        )
        for part in ("weight", "bias")
    ]
    return [
        *joined,
        *_pair(f"{ours}.self.output", f"{theirs}.attention.output.dense"),
        *_pair(f"{ours}.around_self.norm", f"{theirs}.attention.output.LayerNorm"),
        *_pair(f"{ours}.feed_forward.inner", f"{theirs}.intermediate.dense"),
        *_pair(f"{ours}.feed_forward.outer", f"{theirs}.output.dense"),
        *_pair(f"{ours}.around_feed_forward.norm", f"{theirs}.output.LayerNorm"),
    ]


def _output(stored: StoredTensors, outputs: Sequence[tuple[str, str]]) -> tuple[bool, list[TensorMap]]:
    """Whether the output has the table of the words, as the file says, and its tensors."""
    (dense, norm, (ours, theirs)) = outputs
    table, words = f"{theirs}.decoder.weight", "embeddings.word_embeddings.weight"
    # Files name the bias twice, or once by either name.
    biases = [name for name in (f"{theirs}.bias", f"{theirs}.decoder.bias") if name in stored.names]
    if len(biases) == 2 and not torch.equal(*map(stored.tensor, biases)):
        raise ModelError(f"the weights hold two different biases of the output, {biases[0]} and {biases[1]}")
    is_tied = (
        table not in stored.names
        or words not in stored.names
        or (stored.shape(table) == stored.shape(words) and torch.equal(stored.tensor(table), stored.tensor(words)))
    )
    maps = [*_pair(*dense), *_pair(*norm)]
    maps.append(TensorMap(f"{ours}.bias", (biases[0] if biases else f"{theirs}.bias",), rows="target"))
    if not is_tied:
        maps.append(TensorMap(f"{ours}.weight", (table,), rows="target"))
    return is_tied, maps


FAMILIES = (
    Family("bert", ("BertModel", "BertForMaskedLM", "BertForPreTraining"), read_bert, rename, bert_roles),
    Family("roberta", ("RobertaModel", "RobertaForMaskedLM"), read_roberta, rename),
    Family("xlm-roberta", ("XLMRobertaModel", "XLMRobertaForMaskedLM"), read_roberta, rename),
)


# --- sentence-transformers -------------------------------------------------------------------------------------------

_POOLINGS: Mapping[str, Pooling] = {"cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last"}
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_DENSE_ACTIVATIONS: Mapping[str, DenseActivation] = {
    "Identity": "none",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
}
_LIMITS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "xlm-roberta", "distilbert", "camembert", "albert", "xlnet")
)
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class SentenceModules:
    """The parts of a folder of sentence-transformers."""

    transformer: Path
    """The folder with config.json, weights and tokeniser."""
    sentence: SentenceConfig
    dense: tuple[Path, ...]
    """Folders of the layers after the pooling."""
    names: tuple[str, ...]
    """All folders that modules.json names, the folder itself left out."""

    @staticmethod
    def read(folder: Path) -> "SentenceModules | None":
        """The parts that modules.json names; None if there is no such file."""
        if not (folder / MODULES).is_file():
            return None
        parts = _parts(folder)
        kinds = [kind for kind, _ in parts if kind != "Dropout"]  # which does nothing outside of training
        layers = kinds[2:-1] if kinds[-1:] == ["Normalize"] else kinds[2:]
        if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in layers):
            raise ModelError(
                f"{folder / MODULES} names the parts {', '.join(kinds)[:100]}; supported are Transformer, Pooling, any "
                "number of Dense and Normalize, in this order"
            )
        places = dict(reversed(parts))
        dense = tuple(place for kind, place in parts if kind == "Dense")
        limits = _limits(places["Transformer"])
        sentence = SentenceConfig(
            pooling=_pooling(places["Pooling"] / "config.json"),
            dense=tuple(_dense(place / "config.json") for place in dense),
            normalise=kinds[-1] == "Normalize",
            longest=_longest(places["Transformer"], limits),
            lowercase=flag(limits, "do_lower_case", default=False),
            prompt=_prompt(folder),
        )
        names = tuple(dict.fromkeys(place.name for _, place in parts if place != folder))
        return SentenceModules(places["Transformer"], sentence, dense, names)

    def extend(self, conversion: Conversion, stored: NamedTensors, *, root: Path) -> tuple[Conversion, NamedTensors]:
        """The conversion of the Transformer with the other parts, and the weights of all."""
        model, sentence = conversion.model, self.sentence
        if not isinstance(model, BertConfig):
            raise ModelError(
                f"{MODULES} describes a sentence encoder, and of these only BERT, RoBERTa and XLM-R are supported, not "
                f"{model.kind}"
            )
        if sentence.longest is not None and sentence.longest > model.longest:
            sentence = sentence.model_copy(update={"longest": model.longest})
        maps = [
            TensorMap(f"sentence.dense.{number}.{part}", (_dense_name(number, part),))
            for number, layer in enumerate(sentence.dense)
            for part in (("weight", "bias") if layer.has_bias else ("weight",))
        ]
        parts = tuple(WeightFiles.open(place) for place in self.dense)
        extended = replace(
            conversion,
            model=model.model_copy(update={"sentence": sentence}),
            tensors=(*conversion.tensors, *maps),
        )
        home = "" if self.transformer == root else f"{self.transformer.name}/"
        return extended, JoinedTensors(stored, parts, home, tuple(place.name for place in self.dense))


@dataclass(frozen=True)
class JoinedTensors:
    """The tensors of a Transformer, and those of the layers after its pooling as `dense.0.weight` and so on."""

    stored: NamedTensors
    parts: tuple[StoredTensors, ...]
    home: str
    """What comes before the names of the Transformer: its folder and a slash, or nothing."""
    folders: tuple[str, ...]
    """The folders of the layers."""

    def original(self, name: str) -> str:
        stored, own = self._place(name)
        if stored is self.stored:
            return f"{self.home}{self.stored.original(own)}"
        return f"{self.folders[self.parts.index(stored)]}/{own}"

    @property
    def names(self) -> tuple[str, ...]:
        own = ((number, part.names) for number, part in enumerate(self.parts))
        return (*self.stored.names, *(_dense_name(number, _last(name)) for number, names in own for name in names))

    def shape(self, name: str) -> tuple[int, ...]:
        stored, own = self._place(name)
        return stored.shape(own)

    def dtype(self, name: str) -> torch.dtype:
        stored, own = self._place(name)
        return stored.dtype(own)

    def tensor(self, name: str) -> Tensor:
        stored, own = self._place(name)
        return stored.tensor(own)

    def _place(self, name: str) -> tuple[StoredTensors, str]:
        for number, part in enumerate(self.parts):
            for own in part.names:
                if _dense_name(number, _last(own)) == name:
                    return part, own
        return self.stored, name


def write_sentence_modules(folder: Path, config: BertConfig) -> None:
    """Name the parts of a sentence encoder in its folder, which has no weights yet, where these differ from `config`.

    The folder of an encoder of tokens becomes that of a sentence encoder.
    """
    sentence, found = config.sentence, SentenceModules.read(folder)
    if found is not None and (found.sentence.pooling, found.sentence.normalise) == (
        sentence.pooling,
        sentence.normalise,
    ):
        return
    parts = [("Transformer", folder), ("Pooling", folder / "1_Pooling")] if found is None else _parts(folder)
    parts = [(kind, place) for kind, place in parts if kind != "Normalize"]
    if found is None:
        limits = {"max_seq_length": min(config.longest, sentence.longest or config.longest), "do_lower_case": False}
        write_atomically(folder / _LIMITS[0], json.dumps(limits, indent=2) + "\n")
    if found is None or found.sentence.pooling != sentence.pooling:
        modes = {name: _POOLINGS.get(mode) == sentence.pooling for name, mode in _OLD_POOLINGS.items()}
        place = dict(parts)["Pooling"]
        place.mkdir(exist_ok=True)
        values = {"word_embedding_dimension": config.width, **modes}
        write_atomically(place / "config.json", json.dumps(values, indent=2) + "\n")
    if sentence.normalise:
        parts.append(("Normalize", folder / f"{len(parts)}_Normalize"))
    modules = [
        {
            "idx": at,
            "name": str(at),
            "path": "" if place == folder else place.name,
            "type": f"sentence_transformers.models.{kind}",
        }
        for at, (kind, place) in enumerate(parts)
    ]
    write_atomically(folder / MODULES, json.dumps(modules, indent=2) + "\n")


def _dense_name(number: int, part: str) -> str:
    return f"dense.{number}.{part}"


def _last(name: str) -> str:
    """`weight` of `linear.weight`; another layout keeps its name, which is then unknown."""
    return name.removeprefix("linear.")


def _parts(folder: Path) -> list[tuple[str, Path]]:
    """The last word of the type of each part, and its folder."""
    path = folder / MODULES
    try:
        found = read_json(path, largest=MAX_CONFIG_BYTES)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; download the folder again") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}; download the folder again") from error
    if not isinstance(found, list) or not 0 < len(found) <= 20:
        raise ModelError(f"{path} is not a list of 1 to 20 parts; download the folder again")
    parts: list[tuple[str, Path]] = []
    for each in found:
        kind, name = (each.get("type"), each.get("path")) if isinstance(each, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(name, str):
            raise ModelError(f"{path} has a part without type or path: {str(each)[:60]}")
        if name and (not _FOLDER_NAME.fullmatch(name) or ".." in name):
            raise ModelError(f"{path} names the folder {name[:60]!r}, which is not a plain name of a folder in it")
        parts.append((kind.rpartition(".")[2][:40], folder / name if name else folder))
    return parts


def _pooling(path: Path) -> Pooling:
    config = read_settings_file(path)
    if "pooling_mode" in config:
        value = config["pooling_mode"]
        modes = list(map(str, value)) if isinstance(value, list) else [str(value)]
    else:
        modes = [mode for name, mode in _OLD_POOLINGS.items() if flag(config, name, default=False)]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ModelError(
            f"{path} names the pooling {', '.join(modes)[:60] or 'none'}; supported is one of cls, mean, max, lasttoken"
        )
    if not flag(config, "include_prompt", default=True):
        raise ModelError(f"{path} has include_prompt=false: leaving prompts out of the pooling is not supported")
    return _POOLINGS[modes[0]]


def _dense(path: Path) -> DenseConfig:
    config = read_settings_file(path)
    named = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    word = named.rpartition(".")[2] if isinstance(named, str) else str(named)
    if word not in _DENSE_ACTIVATIONS:
        raise ModelError(f"{path} has activation_function={word[:60]!r}; known: {', '.join(_DENSE_ACTIVATIONS)}")
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, "sentence_embedding"):
            raise ModelError(f"{path} has {name}={str(config[name])[:60]!r}; only sentence_embedding is supported")
    return DenseConfig(
        width=whole_number(config, "out_features", most=MAX_WIDTH),
        activation=_DENSE_ACTIVATIONS[word],
        has_bias=flag(config, "bias", default=True),
    )


def _limits(folder: Path) -> Mapping[str, Any]:
    """How many tokens are read, and whether text is lower-cased."""
    for name in _LIMITS:
        if (folder / name).is_file():
            return read_settings_file(folder / name)
    return {}


def _longest(folder: Path, limits: Mapping[str, Any]) -> int | None:
    """Tokens that are read of a text, if the folder bounds them; newer ones leave that to the tokeniser."""
    if limits.get("max_seq_length") is not None:
        return whole_number(limits, "max_seq_length", least=3, most=1_000_000)
    path = folder / "tokenizer_config.json"
    found = read_settings_file(path).get("model_max_length") if path.is_file() else None
    return found if type(found) is int and 3 <= found <= 1_000_000 else None  # without a limit, it is 10³⁰


def _prompt(folder: Path) -> str:
    """The text before each text, if the folder has a default one."""
    path = folder / "config_sentence_transformers.json"
    if not path.is_file():
        return ""
    config = read_settings_file(path)
    name, prompts = config.get("default_prompt_name"), config.get("prompts", {})
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(prompt, str) or len(prompt) > 10_000:
        raise ModelError(f"{path} has default_prompt_name={str(name)[:60]!r}, but no such text among its prompts")
    return prompt
