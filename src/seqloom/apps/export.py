"""Export: a trained model in the form that other programs run.

ctranslate2   a directory: the model, our tokenisers, and how to use them
argos         a `.argosmodel` file for Argos Translate and LibreTranslate
onnx          a directory: encoder and decoder step as ONNX graphs, with our tokenisers
huggingface   a folder that transformers opens
peft          a folder with the adapter of a run for PEFT
arpa          a file of n-grams for KenLM, SRILM and others
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, assert_never

from seqloom.apps.language_model import write_model_as_arpa
from seqloom.apps.lexicon import FILE as LEXICON
from seqloom.apps.search_settings import resolved
from seqloom.core.archive import extract_archive, is_archive, write_archive
from seqloom.core.errors import UsageError
from seqloom.core.files import new_place, require_file, require_new, sha256_of, write_atomically
from seqloom.interop.argos import (
    Package,
    differences,
    require_codes,
    require_sentencepiece,
    sentencepiece_for_argos,
    write_package,
)
from seqloom.interop.ctranslate2 import Quantization, require_ctranslate2, require_transformer
from seqloom.interop.ctranslate2_engine import max_positions, write_directory, write_engine_files
from seqloom.interop.huggingface import require_exportable, write_huggingface
from seqloom.interop.onnx import require_onnx, wrap, write_onnx
from seqloom.interop.onnx_stepper import write_graphs
from seqloom.interop.peft import write_peft
from seqloom.interop.published import is_imported, write_published
from seqloom.nn.fast.int8 import MIN_WEIGHTS, keep_scales, kept_scales, row_scales
from seqloom.runs.adapters import FOLDER, is_adapter
from seqloom.runs.loading import LoadedModel, check_archived, find_model, in_words, load, require_translator
from seqloom.runs.model_dir import (
    INT8_FORMAT,
    PUBLISHED,
    add_file,
    has_file,
    listed_files,
    read_card,
    read_settings,
    require_exact_weights,
    save_model,
    stored_tables,
    stored_weights,
)
from seqloom.search.settings import Precision
from seqloom.text.languages import language_name
from seqloom.version import __version__

# --- archives ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """An archive that was written, or a folder that was unpacked."""

    path: Path
    files: int
    bytes: int
    """The size of the archive."""
    sha256: str
    """Of the archive; it is the same for the same model."""


def pack(model: Path, out: Path, *, precision: Precision = "float32") -> Packed:
    """Write a model directory, or the model of a finished run, to a zip archive; whole or not at all.

    Its files are checked first, and only those listed in its manifest are included. With the precision int8, large
    matrices are rounded as by `search.precision=int8`, which becomes the default setting of the archive.
    """
    if out.suffix.lower() != ".zip":
        raise UsageError(f"{out}: the name of an archive must end in .zip, such as {out.with_name(f'{out.name}.zip')}")
    require_new(out, named_by=None)
    folder = find_model(model)
    if precision == "int8":
        with TemporaryDirectory() as temporary:
            return _write(_rounded(folder, Path(temporary) / "model"), out)
    return _write(folder, out)


def _write(folder: Path, out: Path) -> Packed:
    read_card(folder)
    names = ["manifest.json", *listed_files(folder)]
    need = sum((folder / name).stat().st_size for name in names)
    with new_place(out, named_by=None, need=need) as partial:
        write_archive(partial, {name: folder / name for name in names})
    return Packed(out, len(names), out.stat().st_size, sha256_of(out))


def _rounded(folder: Path, place: Path) -> Path:
    """A copy of a model with large matrices in eight bits."""
    loaded = load(folder, device="cpu")
    require_translator(folder, loaded.config)
    if not loaded.config.model.is_rounded_by_int8:
        raise UsageError(
            f"{folder} cannot be packed with --precision int8: it is a {loaded.config.model.kind} model, whose cells "
            "need float32; leave out --precision"
        )
    scales = kept_scales(loaded.model) or row_scales(loaded.model)
    if not scales:
        raise UsageError(
            f"{folder} cannot be packed with --precision int8: no linear layer (attention, feed-forward) has "
            f"{MIN_WEIGHTS:,} weights or more, the limit for eight bits, and tables of symbols (embeddings, output) "
            "stay as they are; leave out --precision"
        )
    keep_scales(loaded.model, scales)
    weights = stored_weights(loaded.model)
    search = loaded.config.search.model_copy(update={"precision": "int8"})
    config = loaded.config.model_copy(update={"search": search})
    card = replace(loaded.card, format=INT8_FORMAT)
    save_model(
        place,
        config,
        tokenizers=loaded.tokenizers,
        weights=weights,
        card=card,
        calibration=loaded.calibration,
        tables=stored_tables(folder),
        published=folder / PUBLISHED,
    )
    if has_file(folder, LEXICON):
        add_file(place, LEXICON, write=lambda path: shutil.copyfile(folder / LEXICON, path))
    return place


def unpack(archive: Path, folder: Path) -> Packed:
    """Extract a model directory from an archive; whole, with every file checked, or not at all."""
    require_file(archive)
    if not is_archive(archive):
        raise UsageError(f"{archive} is not a model archive: its name does not end in .zip")
    with new_place(folder, named_by=None) as partial:
        names = extract_archive(archive, partial)
        check_archived(archive, partial, names)
    return Packed(folder, len(names), archive.stat().st_size, sha256_of(archive))


ExportKind = Literal["ctranslate2", "argos", "onnx", "huggingface", "peft", "arpa"]
"""Export formats. A new one is a function below and a case in `export`."""


@dataclass(frozen=True)
class Exported:
    """An export that was written."""

    kind: ExportKind
    path: Path
    quantization: Quantization
    bytes: int
    """The size of the file, or of all files of the directory."""
    notes: tuple[str, ...] = ()
    """Differences in behaviour, a sentence each."""


def export(
    model: Path,
    to: ExportKind,
    *,
    out: Path | None = None,
    quantization: Quantization | None = None,
    from_code: str | None = None,
    to_code: str | None = None,
) -> Exported:
    """Export a model directory, or the model of a finished run; by default to a new name beside it."""
    if out is not None:
        require_new(out)
    folders = {"huggingface": "folders of Hugging Face", "peft": "folders of PEFT"}
    unquantized = {"onnx": "ONNX graphs", "arpa": "ARPA files", **folders}
    if to in unquantized and quantization not in (None, "none"):
        what = unquantized[to]
        raise UsageError(f"--quantization {quantization} is not supported for {what}")
    name = model.resolve().name
    if to == "arpa":
        file = out or beside(model, f"{name}.arpa")
        require_new(file)
        write_model_as_arpa(model, file)
        return Exported("arpa", file, quantization="none", bytes=file.stat().st_size)
    if to == "peft":
        return export_peft(model, out or beside(model, f"{name}-peft"))
    if to == "huggingface" and is_imported(folder := find_model(model)):
        return export_published(folder, out or beside(model, f"{name}-huggingface"))
    # Libraries that are missing are reported before the weights are read.
    config = resolved(model, [])
    text = config.text
    if config.purpose in ("classifier", "tagger", "forecaster", "transcriber", "summariser", "captioner"):
        raise UsageError(f"{model} cannot be exported: {in_words(config)}, or pack it with seqloom pack")
    if config.data.symbols:
        raise UsageError(
            f"{model} cannot be exported: other programs do not read the symbols beside its sources "
            f"(data.symbols=[{', '.join(map(str, config.data.symbols))}]); pack it with seqloom pack"
        )
    if to == "onnx":
        require_onnx()
    elif to == "ctranslate2" or (
        to == "argos" and text.kind == "unigram"
    ):  # no other model can become an Argos package
        require_ctranslate2()
    loaded = load(model, device="cpu")
    match to:
        case "ctranslate2":
            folder = out or beside(model, f"{name}-ctranslate2")
            return export_ctranslate2(loaded, folder, quantization=quantization or "none")
        case "argos":
            codes = require_codes(from_code or loaded.card.source, to_code or loaded.card.target)
            package = Package(*codes, version="1.0")
            file = out or beside(model, f"{package.name}.argosmodel")
            return export_argos(loaded, file, from_code=codes[0], to_code=codes[1], quantization=quantization or "int8")
        case "onnx":
            return export_onnx(loaded, out or beside(model, f"{name}-onnx"))
        case "huggingface":
            return export_huggingface(loaded, out or beside(model, f"{name}-huggingface"))
        case _:
            assert_never(to)


def beside(model: Path, name: str) -> Path:
    """A path next to a model."""
    return model.resolve().parent / name


# --- CTranslate2 ------------------------------------------------------------------------------------------------------


def export_ctranslate2(loaded: LoadedModel, folder: Path, *, quantization: Quantization = "none") -> Exported:
    """Write a directory that CTranslate2 loads, with our tokenisers and how to use them; whole or not at all."""
    require_transformer(loaded.model)
    with new_place(folder) as partial:
        partial.mkdir()
        write_directory(loaded, partial, quantization=quantization, readme=_readme(loaded, folder.name))
    return Exported("ctranslate2", folder, quantization, _size(folder))


# --- Argos ------------------------------------------------------------------------------------------------------------


def export_argos(
    loaded: LoadedModel,
    file: Path,
    *,
    from_code: str,
    to_code: str,
    version: str = "1.0",
    quantization: Quantization = "int8",
) -> Exported:
    """Write a package that Argos Translate and LibreTranslate install; whole or not at all."""
    require_transformer(loaded.model)
    tokenizer = loaded.tokenizers.source
    require_sentencepiece(tokenizer.config)
    codes = require_codes(from_code, to_code)
    package = Package(*codes, version=version)
    notes = differences(tokenizer.config, from_code=codes[0])
    readme = f"# {_languages(*codes)}\n\nA package for Argos Translate, exported by Seqloom {__version__}.\n"
    if notes:
        readme += "\nArgos processes text slightly differently:\n\n" + "".join(f"- {note}\n" for note in notes)
    with new_place(file) as partial, TemporaryDirectory() as folder:
        write_engine_files(loaded, Path(folder), quantization=quantization)
        model = {f"model/{each.name}": each.read_bytes() for each in Path(folder).iterdir()}
        tokenizer.save(Path(folder) / "text")
        unigram = (Path(folder) / "text" / "unigram.model").read_bytes()
        contents = {
            **model,
            "metadata.json": package.metadata().encode(),
            "sentencepiece.model": sentencepiece_for_argos(unigram, tokenizer.normaliser, from_code=codes[0]),
            "README.md": readme.encode(),
        }
        write_package(partial, package, contents=contents)
    return Exported("argos", file, quantization, _size(file), tuple(notes))


# --- ONNX -------------------------------------------------------------------------------------------------------------


def export_onnx(loaded: LoadedModel, folder: Path) -> Exported:
    """Write a directory with both graphs, what they take and give, and our tokenisers; whole or not at all."""
    if any("\ud800" <= each <= "\udfff" for each in str(folder)):
        raise UsageError(f"{str(folder)!a} is not valid UTF-8, which ONNX needs; choose another --out")
    positions = max_positions(loaded)
    wrap(loaded.model, positions=positions)  # refuses unsupported models before anything is written
    with new_place(folder) as partial:
        partial.mkdir()
        write_graphs(partial, write_onnx(partial, loaded.model, positions=positions))
        loaded.tokenizers.save(partial / "text")
        readme = f"""# {_languages(loaded.card.source, loaded.card.target)}

A translator as ONNX graphs, exported by Seqloom {__version__}.

| file | content |
|---|---|
| `encoder.onnx` | ids, lengths → memory and the first state |
| `step.onnx` | last symbols, state, memory → log-probabilities and the next state |
| `graphs.json` | the names of these tensors, and how many positions there are |
| `text/` | the tokenisers, which Seqloom reads |

`seqloom.interop.onnx_stepper.OnnxStepper("{folder.name}")` is a stepper for every search of Seqloom.
"""
        write_atomically(partial / "README.md", readme)
    return Exported("onnx", folder, "none", _size(folder))


# --- Hugging Face -----------------------------------------------------------------------------------------------------


def export_huggingface(loaded: LoadedModel, folder: Path) -> Exported:
    """Write a folder that transformers opens, model and tokeniser; whole or not at all."""
    require_exportable(loaded)
    with new_place(folder) as partial:
        partial.mkdir()
        notes = write_huggingface(partial, loaded, positions=max_positions(loaded))
        readme = f"""# {_languages(loaded.card.source, loaded.card.target)}

A translator for transformers, exported by Seqloom {__version__}.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{folder.name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder.name}")
found = model.generate(**tokenizer(["…"], return_tensors="pt", padding=True))
print(tokenizer.batch_decode(found, skip_special_tokens=True))
```
"""
        readme += "".join(f"\n- {note}" for note in notes) + ("\n" if notes else "")
        write_atomically(partial / "README.md", readme)
    return Exported("huggingface", folder, "none", _size(folder), tuple(notes))


def export_published(model: Path, folder: Path) -> Exported:
    """Write an imported model, or one that was trained from it, in its published form; whole or not at all."""
    require_exact_weights(model, read_card(model))
    with new_place(folder) as partial:
        partial.mkdir()
        write_published(partial, model)
    return Exported("huggingface", folder, "none", _size(folder))


def export_peft(model: Path, folder: Path) -> Exported:
    """Write the adapter of a run, or an adapter directory, as a folder that PEFT opens; whole or not at all."""
    adapter = model / FOLDER if is_adapter(model / FOLDER) else model
    if not is_adapter(adapter):
        if (model / "run.json").is_file() and read_settings(model).training.lora is not None:
            raise UsageError(
                f"{model} has not finished, so it has no adapter yet; finish it with: seqloom train --resume {model}"
            )
        raise UsageError(f"{model} has no adapter, which only a run with training.lora leaves; use --to huggingface")
    with new_place(folder) as partial:
        partial.mkdir()
        write_peft(partial, adapter)
    return Exported("peft", folder, "none", _size(folder))


# --- sizes and READMEs ------------------------------------------------------------------------------------------------


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _languages(source: str | None, target: str | None) -> str:
    return f"{language_name(source or '?')} to {language_name(target or '?')}"


def _readme(loaded: LoadedModel, name: str) -> str:
    shared = loaded.tokenizers.is_shared
    vocabulary = "shared_vocabulary.json" if shared else "target_vocabulary.json"
    return f"""# {_languages(loaded.card.source, loaded.card.target)}

A translator for CTranslate2, exported by Seqloom {__version__}.

| file | content |
|---|---|
| `model.bin`, `config.json`, `*_vocabulary.json` | what CTranslate2 loads |
| `text/` | the tokenisers, which Seqloom reads |
| `seqloom.json` | languages, quantisation, settings of the search, SHA-256 of every file |

The engine takes the pieces of a normalised line; it adds begin and end itself:

```python
import json
from pathlib import Path

import ctranslate2
from seqloom.text.tokenizer import Tokenizers

text = Tokenizers.load(Path("{name}/text"))
translator = ctranslate2.Translator("{name}")
found = translator.translate_batch(
    [text.source.pieces("…")], beam_size=4, max_decoding_length=100, min_decoding_length=0
)
ids = {{piece: id for id, piece in enumerate(json.load(open("{name}/{vocabulary}")))}}
print(text.target.decode([ids[piece] for piece in found[0].hypotheses[0]]))
```

`seqloom.interop.ctranslate2_engine.CTranslate2Engine` does the same from ids to ids.
"""
