"""The `llmcurate` command. Thin: parse, call, print; whatever is heavy is imported when used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli_group import DEFAULT, DefaultGroup
from curate.version import __version__

app = typer.Typer(
    name="llmcurate",
    help="Web archives to a language model's training data, and a model trained on it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dedup_app = typer.Typer(cls=DefaultGroup, rich_markup_mode=None, help="Keep one of each copy.")
tokenizer_app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="Train tokenizers; encode token shards."
)
app.add_typer(dedup_app, name="dedup")
app.add_typer(tokenizer_app, name="tokenizer")

Inputs = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(metavar="[IN]...", help="Files, folders or URLs; in a workspace: the newest."),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("-o", "--out", help="Folder to write; in a workspace: the next run."),
]
Workers = Annotated[int, typer.Option(help="Worker processes; 0: one a core.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as one line of JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
Sets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; repeatable."),
]


def _version(value: bool) -> None:
    if value:
        print(f"llmcurate {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    pass


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="The new workspace.")] = Path()) -> None:
    """Make a folder a workspace: llmcurate.yaml and a first recipe."""
    from curate.workspace import create

    for path in create(folder):
        print(f"wrote {path}")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a shipped one by name.")],
    inputs: Inputs = None,
    out: Out = None,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Run a recipe. Again on the same OUT it resumes, or says that all is done.

    Example: llmcurate run c4 archives/*.warc.gz -o out --set c4.min_sentences=5
    """
    from curate import commands

    commands.run(
        recipe, inputs or [], tuple(sets or ()), _how(out, workers, as_json, dry_run, quiet)
    )


def _how(out: Path | None, workers: int, as_json: bool, dry_run: bool, quiet: bool):  # type: ignore[no-untyped-def]
    from curate.commands import How

    return How(out, workers, as_json, dry_run, quiet)


@app.command()
def extract(
    inputs: Inputs = None,
    out: Out = None,
    extractor: Annotated[
        str, typer.Option(help="resiliparse (main text) or text (all visible text).")
    ] = "resiliparse",
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Web archives and HTML to text."""
    from curate import commands

    steps = [("extract", {"extractor": extractor})]
    commands.steps("extract", steps, inputs or [], _how(out, workers, as_json, dry_run, quiet))


@app.command("filter")
def filter_(
    rules: Annotated[str, typer.Argument(help="Filters by name, as c4 or c4@tfds; comma between.")],
    inputs: Inputs = None,
    out: Out = None,
    sets: Sets = None,
    badwords: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="C4's bad word list: a path, or a URL with --set c4.badwords_sha256=."),
    ] = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Drop documents by published rules, each with its reason.

    Example: llmcurate filter c4 corpus.jsonl -o out
    """
    from curate import commands

    chosen: list[tuple[str, dict[str, object]]] = [
        (name.strip(), {}) for name in rules.split(",") if name.strip()
    ]
    more = (*(sets or ()), *((f"c4.badwords={badwords}",) if badwords else ()))
    how = _how(out, workers, as_json, dry_run, quiet)
    commands.steps("filter", chosen, inputs or [], how, more)


@dedup_app.command(DEFAULT, hidden=True)
def dedup(
    inputs: Inputs = None,
    out: Out = None,
    method: Annotated[str, typer.Option(help="How copies are found: exact or minhash.")] = "exact",
    key: Annotated[str, typer.Option(help="What is compared: text or url.")] = "text",
    survivor: Annotated[
        str, typer.Option(help="longest, newest, first, best:COLUMN or prefer-source:A,B.")
    ] = "longest",
    normalize: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option(help="Compare normal forms (text: case and spaces; url: as C4 does)."),
    ] = None,
    preset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Bands and rows of fineweb (default), lee2022, refinedweb or dclm."),
    ] = None,
    bands: Annotated[Optional[int], typer.Option(help="Bands of a signature.")] = None,  # noqa: UP045
    rows: Annotated[Optional[int], typer.Option(help="Rows of a band.")] = None,  # noqa: UP045
    verify: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Least exact Jaccard similarity of a match."),
    ] = None,
    ngram: Annotated[Optional[int], typer.Option(help="Units a shingle: 5 words.")] = None,  # noqa: UP045
    shingle: Annotated[Optional[str], typer.Option(help="word, char or byte.")] = None,  # noqa: UP045
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Keep one document of each set of copies; decisions.parquet says which and why.

    Example: llmcurate dedup corpus/ -o out --method exact --key url --survivor newest

    Near duplicates: llmcurate dedup corpus/ -o out --method minhash --verify 0.8
    """
    from curate import commands

    how = _how(out, workers, as_json, dry_run, quiet)
    near = {"preset": preset, "bands": bands, "rows": rows, "verify": verify}
    near |= {"ngram": ngram, "shingle": shingle}
    near = {name: value for name, value in near.items() if value is not None}
    commands.dedup(method, key, survivor, normalize, near, inputs or [], how)


@tokenizer_app.command("train")
def tokenizer_train(
    inputs: Inputs = None,
    out: Out = None,
    vocab: Annotated[int, typer.Option(help="Tokens wanted, special ones included.")] = 32_000,
    model: Annotated[str, typer.Option(help="bpe (byte level) or unigram.")] = "bpe",
    digits: Annotated[str, typer.Option(help="single or triples.")] = "single",
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a tokenizer: tokenizer.json and its card.

    Example: llmcurate tokenizer train corpus/ -o tok --vocab 32000
    """
    from curate import commands

    steps = [("tokenizer", {"vocab": vocab, "model": model, "digits": digits})]
    how = _how(out, workers, as_json, dry_run, quiet)
    commands.steps("tokenizer", steps, inputs or [], how)


@tokenizer_app.command("encode")
def tokenizer_encode(
    inputs: Inputs = None,
    out: Out = None,
    tokenizer: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="tokenizer.json or its folder; in a workspace: the newest."),
    ] = None,
    shard_tokens: Annotated[int, typer.Option(help="Tokens of a shard at most.")] = 100_000_000,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Encode documents into token shards that a trainer reads."""
    from curate import commands

    how = _how(out, workers, as_json, dry_run, quiet)
    commands.encode(tokenizer, shard_tokens, inputs or [], how)


@app.command()
def pretrain(
    shards: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="Folder of token shards; in a workspace: the newest."),
    ] = None,
    out: Out = None,
    model: Annotated[str, typer.Option(help="A preset: tiny or small.")] = "tiny",
    steps: Annotated[Optional[int], typer.Option(help="Optimiser steps.", min=1)] = None,  # noqa: UP045
    seed: Annotated[int, typer.Option(help="Decides weights and the order of rows.")] = 0,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a small language model on token shards; resumes from its newest checkpoint.

    Example: llmcurate pretrain shards/ -o model --steps 200 --set pretrain.lr=0.001
    """
    from curate import commands

    how = _how(out, workers, as_json, dry_run, quiet)
    commands.pretrain(shards, model, steps, seed, tuple(sets or ()), how)


@app.command()
def export(
    inputs: Inputs = None,
    out: Out = None,
    compression: Annotated[str, typer.Option(help="zst, gz or none.")] = "zst",
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Write a corpus as JSON lines, all columns: OUT/jsonl/part-*.jsonl.zst."""
    from curate import commands

    how = _how(out, workers, as_json, dry_run, quiet)
    commands.steps("export", [("export", {"compression": compression})], inputs or [], how)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The beginning of the text.")] = "",
    model: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of a trained model; in a workspace: the newest."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 100,
    temperature: Annotated[float, typer.Option(min=0)] = 0.8,
    top_k: Annotated[int, typer.Option(min=0)] = 50,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Continue a text with a trained model."""
    from curate import commands

    print(commands.generate(prompt, model, max_tokens, temperature, top_k, seed))


@app.command()
def explain(
    id: Annotated[str, typer.Argument(help="A document's id.")],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--out", "--in", help="A run's folder; in a workspace: all runs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what happened to a document: rules, values, thresholds, cuts, copies."""
    from curate import commands

    commands.explain(id, out, as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The demo's workspace.")] = Path("demo"),
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build a small web, run the whole chain over it, and check the result against the truth."""
    from curate.demo.run import run_demo

    run_demo(out, workers, as_json, quiet, tuple(sets or ()))


def main() -> None:
    """The console script: one line for an error, its exit code, a traceback only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    sys.exit(invoke(arguments, debug))


def invoke(arguments: list[str], debug: bool = False) -> int:
    """Runs the command line and returns its exit code."""
    command = typer.main.get_command(app)
    try:
        result = command.main(arguments, prog_name="llmcurate", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        if debug:
            import traceback

            print(getattr(error, "trace", "") or "", end="", file=sys.stderr)
            traceback.print_exc()
        return _report(error)


def _report(error: Exception) -> int:
    """Prints one line for an error; returns the exit code."""
    from curate.errors import CurateError, disk_error

    name = type(error).__name__
    if isinstance(error, CurateError):
        print(f"llmcurate: {error}", file=sys.stderr)
        return error.exit_code
    if hasattr(error, "format_message"):  # what the parser of the command line raises
        if name == "NoArgsIsHelpError":
            print(error.format_message())
            return 2
        ctx = getattr(error, "ctx", None)
        hint = f"; see {ctx.command_path} --help" if ctx else ""
        text = " ".join(error.format_message().split()).rstrip(".")
        print(f"llmcurate: {text}{hint}", file=sys.stderr)
        return int(getattr(error, "exit_code", 2))
    if name == "Abort":  # what the parser of the command line makes of Ctrl-C
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    full = disk_error(error)
    message = str(full) if full else f"{name}: {str(error).splitlines()[0] if str(error) else ''}"
    hint = "" if full else " (--debug shows where)"
    print(f"llmcurate: {message}{hint}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
