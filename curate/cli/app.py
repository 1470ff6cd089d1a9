"""The entry point of the `llmcurate` command: global options, exit codes, one line per error. A
command's module parses arguments, calls other packages and prints the result. Heavy libraries are
imported only when a command runs."""

from __future__ import annotations

import gc
import re
import sys
from typing import Annotated

import typer

from curate.cli.options import app, join_for
from llmcurate.base.errors import LlmcurateError, disk_error
from llmcurate.base.start import late_pandas
from llmcurate.base.terminal import echo, end_on_sigterm, print_lines, say, stopped
from llmcurate.version import __version__


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


def whole_app() -> typer.Typer:
    join_for([])
    return app


def main() -> None:
    """Run the command of sys.argv and exit with its code; print tracebacks only with --debug."""
    end_on_sigterm()
    late_pandas()
    gc.set_threshold(20_000, 20, 20)  # imports create many objects, and none of them is garbage
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    sys.exit(invoke(arguments, debug))


def invoke(arguments: list[str], debug: bool = False) -> int:
    from curate.engines import idle_workers

    join_for(arguments)
    command = typer.main.get_command(app)
    try:
        result = command.main(arguments, prog_name="llmcurate", standalone_mode=False)
        if result == 130:  # newer versions of click turn Ctrl-C into this code
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        say(stopped())
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        if debug:
            import traceback

            print_lines(getattr(error, "trace", ""), end="")
            print_lines(traceback.format_exc(), end="")
        return _report(error)
    finally:
        idle_workers.stop()


# Words in Arrow's and DuckDB's messages about a damaged parquet file.
_DAMAGE = re.compile(r"magic bytes|thrift|TProtocol|[Cc]orrupt|Unexpected end of stream")


def _report(error: Exception) -> int:
    name = type(error).__name__
    if isinstance(error, LlmcurateError):
        say(f"llmcurate: {error}")
        return error.exit_code
    if hasattr(error, "format_message"):  # an error of click
        if name == "NoArgsIsHelpError":
            echo(error.format_message())
            return 2
        ctx = getattr(error, "ctx", None)
        hint = f"; see {ctx.command_path.rstrip()} --help" if ctx else ""
        if (
            ctx
            and "extra argument" in str(error)
            and any("--on" in p.opts for p in ctx.command.params)
        ):
            hint = f"; texts are given by --on{hint}"
        text = " ".join(error.format_message().split()).rstrip(".")
        say(f"llmcurate: {text}{hint}")
        return int(getattr(error, "exit_code", 2))
    if name == "Abort":  # Ctrl-C, as click raises it
        say(stopped())
        return 130
    disk_full = disk_error(error)
    first_line = str(error).splitlines()[0] if str(error) else ""
    message = str(disk_full) if disk_full else f"{name}: {first_line.rstrip('.')}"
    if isinstance(error, OSError) and error.filename and error.strerror and not disk_full:
        message = f"{error.filename}: {error.strerror.lower()}"
    if _DAMAGE.search(first_line):
        message += (
            "; `llmcurate check OUT` names the damaged files of a run, --repair restores them"
        )
    hint = "" if disk_full else " (--debug prints a traceback)"
    say(f"llmcurate: {message}{hint}")
    return 1


if __name__ == "__main__":
    main()
