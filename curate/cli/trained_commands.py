"""What the commands on trained models do: generate, which, export, import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.errors import RunFailed, UsageError, as_failure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from curate.api import How


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
        raise as_failure(error) from None
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors", "tokenizers"):
            raise
        raise RunFailed(f"a model needs {error.name}: pip install 'llmcurate[train]'") from None


def generate(
    prompts: list[str],
    file: Path | None,
    model: Path | None,
    max_tokens: int,
    sampling: dict[str, Any],
    batch: int,
    seed: int,
    as_json: bool,
) -> None:
    """`llmcurate generate`: one prompt with its continuation, or several with a line between."""
    if file is not None:
        prompts = [*prompts, *_prompts(file)]
    for one in prompts:
        _check_text(one, "a prompt")
    folder = model or _newest("--model")
    with training():
        from train.generate.generate import complete, load
        from train.generate.sampling import Sampling

        how = Sampling(**sampling)
        found = complete(
            *load(folder),
            prompts or [""],
            max_tokens=max_tokens,
            sampling=how,
            seed=seed,
            batch=batch,
        )
    if as_json:
        outcome = {"seed": seed, "completions": [vars(one) for one in found]}
        print(json.dumps(outcome, ensure_ascii=False))
        return
    print("\n---\n".join(one.prompt + one.text for one in found))


def which(run: Path | None, step: int, shards: Path | None, as_json: bool) -> None:
    """`llmcurate which`."""
    folder = run or _newest("--run")
    with training():
        from train.measure.which import which as documents_of

        found = documents_of(folder, step, shards)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    print(step_text(found))


def step_text(step: dict[str, Any]) -> str:
    """The documents that a training step read."""
    from curate.pages.html import plain
    from curate.terminal.tables import table

    lines = [
        f"step {step['step']} ({step['stage']}): {step['rows']} rows, {step['tokens']} tokens "
        f"of {len(step['documents'])} documents"
    ]
    if "skipped" in step:
        lines.append(f"the step was skipped: {plain(step['skipped'])}")
    rows = [
        [str(d["tokens"]), plain(d["source"] or d["shards"], 40), plain(d["id"])]
        for d in step["documents"]
    ]
    return "\n".join([*lines, *table((), rows, left=(1, 2), indent=2)])


def _prompts(file: Path) -> list[str]:
    """A prompt a line, or the `prompt` (or `text`) of JSON lines. Empty lines count as none."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8, at byte {error.start}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_prompt(line, f"{file}:{number}") if file.suffix == ".jsonl" else line)
    if not found:
        raise UsageError(f"{file} holds no prompt")
    return found


def _prompt(line: str, where: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"{where}: not JSON") from None
    text = value.get("prompt", value.get("text")) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise UsageError(f"{where}: no text under `prompt` or `text`")
    _check_text(text, where)
    return text


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the command line, or half of a surrogate pair in JSON
        raise UsageError(f"{where}: not UTF-8") from None


def _newest(missing: str) -> Path:
    """The newest model of the workspace."""
    from curate.run import workspace

    space = workspace.find()
    if space is None:
        raise UsageError(f"give {missing}, the folder of a trained model, or work in a workspace")
    return space.need("model", "llmcurate pretrain")


def export(inputs: list[str], dtype: str, how: How) -> None:
    """`llmcurate export --format hf`."""
    if len(inputs) > 1:
        raise UsageError("export --format hf takes one trained model; give one folder")
    out = how.out
    if out is None:
        raise UsageError("give -o OUT, the folder to write")
    run = Path(inputs[0]) if inputs else _newest("IN")
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
    from tokenize_kit.card.training_card import write_transformers

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
