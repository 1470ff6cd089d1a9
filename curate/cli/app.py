"""The `llmcurate` command. Thin: parse, call, print; whatever is heavy is imported when used."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from curate.cli.browse import browse
from curate.cli.decontaminate import decontaminate
from curate.cli.dedup import dedup_app
from curate.cli.fetch import fetch
from curate.cli.forecast import AsIf, Price, Sample, scaled_how
from curate.cli.language import language_app
from curate.cli.mix import mix
from curate.cli.model import model_app
from curate.cli.options import (
    Address,
    DryRun,
    EngineName,
    Exchange,
    Inputs,
    Json,
    Out,
    Quiet,
    Scratch,
    Sets,
    Workers,
    how_of,
)
from curate.cli.perplexity import perplexity_app
from curate.cli.quality import quality_app
from curate.cli.refresh import forget, refresh
from curate.cli.search import search_app
from curate.cli.stats import stats
from curate.cli.tokenizer import tokenizer_app
from curate.cli.trained import generate, import_, which
from curate.cli.whatif import whatif
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
app.add_typer(dedup_app, name="dedup")
app.add_typer(language_app, name="language")
app.add_typer(model_app, name="model")
app.add_typer(perplexity_app, name="perplexity")
app.add_typer(quality_app, name="quality")
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(search_app, name="search")


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
    from curate.run.workspace import create

    for path in create(folder):
        print(f"wrote {path}")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a shipped one by name.")],
    inputs: Inputs = None,
    out: Out = None,
    sets: Sets = None,
    workers: Workers = 0,
    engine: EngineName = "local",
    address: Address = None,
    exchange: Exchange = None,
    scratch: Scratch = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    sample: Sample = None,
    as_if: AsIf = None,
    price: Price = None,
) -> None:
    """Run a recipe. Again on the same OUT it resumes, or says that all is done.

    Examples: llmcurate run c4 archives/*.warc.gz -o out --set c4.min_sentences=5
    llmcurate run c4 crawl/ -o all --dry-run --sample out --workers 1000   (what all of it takes)
    """
    from curate.cli import commands

    how = how_of(out, workers, as_json, dry_run, quiet, engine, address, scratch, exchange)
    how = scaled_how(how, sample, as_if, price)
    commands.run(recipe, inputs or [], tuple(sets or ()), how)


@app.command()
def extract(
    inputs: Inputs = None,
    out: Out = None,
    extractor: Annotated[
        str,
        typer.Option(
            help="blocks, resiliparse, trafilatura or justext (main text), or text (all of it)."
        ),
    ] = "blocks",
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Web archives and HTML to text.

    Example: llmcurate extract crawl.warc.gz -o out --set extract.format=markdown
    """
    from curate.cli import commands

    steps = [("extract", {"extractor": extractor})]
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("extract", steps, inputs or [], how, tuple(sets or ()))


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
    from curate.cli import commands

    chosen: list[tuple[str, dict[str, object]]] = [
        (name.strip(), {}) for name in rules.split(",") if name.strip()
    ]
    more = (*(sets or ()), *((f"c4.badwords={badwords}",) if badwords else ()))
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("filter", chosen, inputs or [], how, more)


@app.command()
def pretrain(
    shards: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="Folder of token shards; in a workspace: the newest."),
    ] = None,
    out: Out = None,
    model: Annotated[
        str, typer.Option(help="A preset (llmcurate model list), or a folder to start from.")
    ] = "tiny",
    steps: Annotated[Optional[int], typer.Option(help="Optimiser steps.", min=1)] = None,  # noqa: UP045
    lr: Annotated[Optional[float], typer.Option(help="The highest learning rate.")] = None,  # noqa: UP045
    optimizer: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="adamw, muon, adafactor or lion."),
    ] = None,
    schedule: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="cosine, wsd, wsd-sqrt, linear, inverse-sqrt or constant."),
    ] = None,
    attention: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="auto (it is said what that is, and why), sdpa, triton, flex or eager."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides weights and the order of rows.")] = 0,
    sets: Sets = None,
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a small language model on token shards; resumes from its newest checkpoint.

    Example: llmcurate pretrain shards/ -o model --steps 200 --lr 0.001 --set pretrain.rows=8
    """
    from curate.cli import commands

    settings = {"steps": steps, "lr": lr, "optimizer": optimizer, "schedule": schedule}
    settings |= {"attention": attention}
    given = {name: value for name, value in settings.items() if value is not None}
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.pretrain(shards, {"model": model, "seed": seed, **given}, tuple(sets or ()), how)


@app.command()
def export(
    inputs: Inputs = None,
    out: Out = None,
    format: Annotated[
        str, typer.Option(help="jsonl (a corpus) or hf (a trained model, for transformers).")
    ] = "jsonl",
    compression: Annotated[str, typer.Option(help="jsonl: zst, gz or none.")] = "zst",
    dtype: Annotated[str, typer.Option(help="hf: float32 or bfloat16.")] = "float32",
    workers: Workers = 0,
    as_json: Json = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Write a corpus as JSON lines, or a trained model as a folder that transformers opens.

    Examples: llmcurate export corpus/ -o out  (OUT/jsonl/part-*.jsonl.zst, all columns)
    llmcurate export model/ -o hf-model --format hf --dtype bfloat16
    """
    from curate.cli import commands
    from curate.cli import trained_commands as trained
    from curate.errors import UsageError

    if format == "hf":
        trained.export(inputs or [], dtype, how_of(out, workers, as_json, dry_run, quiet))
        return
    if format != "jsonl":
        raise UsageError(f"--format {format}: choose jsonl or hf")
    how = how_of(out, workers, as_json, dry_run, quiet)
    commands.steps("export", [("export", {"compression": compression})], inputs or [], how)


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
    from curate.cli import commands

    commands.explain(id, out, as_json)


app.command()(fetch)
app.command()(generate)
app.command()(which)
app.command("import")(import_)
app.command()(decontaminate)
app.command()(stats)
app.command()(whatif)
app.command()(browse)
app.command()(mix)
app.command()(refresh)
app.command()(forget)


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


# Commands that are sure to work on documents, and options with which they do not.
_ON_DOCUMENTS = (
    "run", "extract", "filter", "dedup", "decontaminate", "language", "perplexity", "quality",
)  # fmt: skip
_NO_RUN = {
    "--help", "-h", "--dry-run", "clusters", "compare", "train", "evaluate", "threshold", "score",
    "convert",
}  # fmt: skip


def main() -> None:
    """The console script: one line for an error, its exit code, a traceback only with --debug."""
    gc.set_threshold(20_000, 20, 20)  # modules and kernels are many objects, and none is garbage
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    sys.exit(invoke(arguments, debug))


def invoke(arguments: list[str], debug: bool = False) -> int:
    """Runs the command line and returns its exit code."""
    from curate.engines import idle_workers

    command = typer.main.get_command(app)
    elsewhere = any(a.startswith("--engine") for a in arguments)
    here = bool(arguments[:1]) and arguments[0] in _ON_DOCUMENTS and not elsewhere
    if here and not _NO_RUN.intersection(arguments):
        idle_workers.start()
    try:
        result = command.main(arguments, prog_name="llmcurate", standalone_mode=False)
        if result == 130:  # what newer parsers of the command line make of Ctrl-C, in silence
            raise KeyboardInterrupt
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
    finally:
        idle_workers.stop()


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
