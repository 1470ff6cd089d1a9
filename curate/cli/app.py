"""The `llmcurate` command: its options, its exit codes, one line for an error.

Modules of commands parse, call and print; they import heavy libraries when they run.
"""

from __future__ import annotations

import gc
import re
import sys
from typing import Annotated

import typer

from curate.cli.options import app, join
from llmcurate.base.errors import LlmcurateError, disk_error
from llmcurate.base.index import index_of
from llmcurate.base.start import late_pandas
from llmcurate.base.terminal import echo, end_on_sigterm, say, tell
from llmcurate.version import __version__

join(index_of("curate")["command"].values())


def _version(value: bool) -> None:
    if value:
        echo(f"llmcurate {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    pass


def main() -> None:
    """The command: one line for an error, its exit code, a traceback only with --debug."""
    end_on_sigterm()
    late_pandas()
    gc.set_threshold(20_000, 20, 20)  # modules and kernels are many objects, and none is garbage
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    sys.exit(invoke(arguments, debug))


def invoke(arguments: list[str], debug: bool = False) -> int:
    """Runs the command line and returns its exit code."""
    from curate.engines import idle_workers

    command = typer.main.get_command(app)
    try:
        result = command.main(arguments, prog_name="llmcurate", standalone_mode=False)
        if result == 130:  # newer parsers of the command line turn Ctrl-C into this code
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        if debug:
            import traceback

            tell(getattr(error, "trace", ""), end="")
            tell(traceback.format_exc(), end="")
        return _report(error)
    finally:
        idle_workers.stop()


# How Arrow and DuckDB begin or end what they say of a parquet file that is damaged.
_DAMAGE = re.compile(r"magic bytes|thrift|TProtocol|[Cc]orrupt|Unexpected end of stream")


def _report(error: Exception) -> int:
    """Prints one line for an error; returns the exit code."""
    name = type(error).__name__
    if isinstance(error, LlmcurateError):
        say(f"llmcurate: {error}")
        return error.exit_code
    if hasattr(error, "format_message"):  # an error of the parser of the command line
        if name == "NoArgsIsHelpError":
            echo(error.format_message())
            return 2
        ctx = getattr(error, "ctx", None)
        hint = f"; see {ctx.command_path.rstrip()} --help" if ctx else ""
        text = " ".join(error.format_message().split()).rstrip(".")
        say(f"llmcurate: {text}{hint}")
        return int(getattr(error, "exit_code", 2))
    if name == "Abort":  # Ctrl-C, as the parser of the command line raises it
        say("stopped; the same command goes on from here")
        return 130
    disk_full = disk_error(error)
    first_line = str(error).splitlines()[0] if str(error) else ""
    message = str(disk_full) if disk_full else f"{name}: {first_line.rstrip('.')}"
    if isinstance(error, OSError) and error.filename and error.strerror and not disk_full:
        message = f"{error.filename}: {error.strerror.lower()}"
    if _DAMAGE.search(first_line):
        message += "; `llmcurate check OUT` names damaged files of a run, --repair makes them anew"
    hint = "" if disk_full else " (--debug shows where)"
    say(f"llmcurate: {message}{hint}")
    return 1


if __name__ == "__main__":
    main()
