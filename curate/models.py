"""What the commands on trained models do: export, import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from curate.commands import How


@contextmanager
def training() -> Iterator[None]:
    """Errors of `train`, and its absence, as ours."""
    try:
        from train.errors import TrainError
    except ModuleNotFoundError as error:
        raise RunFailed(f"a model needs {error.name}: pip install 'llmcurate[train]'") from None
    try:
        yield
    except TrainError as error:
        failure = RunFailed(str(error))
        failure.exit_code = error.exit_code
        raise failure from None
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors", "tokenizers"):
            raise
        raise RunFailed(f"a model needs {error.name}: pip install 'llmcurate[train]'") from None


def export(inputs: list[str], dtype: str, how: How) -> None:
    """`llmcurate export --format hf`."""
    from curate import workspace

    if len(inputs) > 1:
        raise UsageError("export --format hf takes one trained model; give one folder")
    out = how.out
    if out is None:
        raise UsageError("give -o OUT, the folder to write")
    if inputs:
        run = Path(inputs[0])
    else:
        space = workspace.find()
        if space is None:
            raise UsageError("give the folder of a trained model, or work in a workspace")
        run = space.need("model", "llmcurate pretrain")
    with training():
        from train.hf.export import chosen
        from train.hf.export import export as write

        if how.dry_run:
            checkpoint, _, family = chosen(run)
            print(f"export: {checkpoint} as {family.architecture} to {out}")
            return
        found = write(run, out, dtype=dtype, finish=_tokenizer_files)
    text = (
        f"{out}: {found['architecture']}, {found['parameters']:,} parameters in {found['dtype']}, "
        f"{found['bytes'] / 1e6:,.1f} MB, from {found['checkpoint']}"
    )
    _tell(found | {"out": str(out)}, text, how.as_json, how.quiet)


def _tokenizer_files(folder: Path, tokenizer: Tokenizer, end: str | None) -> None:
    """tokenizer_config.json and special_tokens_map.json; texts begin with the end-of-text token."""
    from tokenize_kit.transformers_files import write_transformers

    write_transformers(folder, tokenizer, end)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        values = json.loads(path.read_bytes())
        if end is not None:
            values["bos_token"] = end
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def import_(folder: Path, out: Path, context: int | None, as_json: bool, quiet: bool) -> None:
    """`llmcurate import`."""
    with training():
        from train.hf.load import import_model

        found = import_model(folder, out, context=context)
    text = (
        f"{out}: {found['parameters']:,} parameters of a {found['family']} model, "
        f"{found['vocab']:,} tokens, context {found['context']:,}"
    )
    _tell(found | {"out": str(out)}, text, as_json, quiet)


def _tell(found: dict[str, Any], text: str, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    elif not quiet:
        print(text)
