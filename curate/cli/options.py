"""The Typer app, the layout of its help, shared options, and groups of commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperCommand, TyperGroup

from curate.cli import completion
from curate.steps.registry import limits_text
from llmcurate.base.disk.files import make_folder, url_of
from llmcurate.base.errors import UsageError
from llmcurate.base.index import Declared, declared, index_of
from llmcurate.base.terminal import COMMAND, SECOND, width, wrapped

if TYPE_CHECKING:
    from curate.formats.read_settings import ReadSettings
    from curate.run.records import Options
    from curate.run.workspace import Workspace

DEFAULT = "default"
# The panels of `llmcurate --help`, and the order of commands within them.
PANELS = ("Curate", "Look", "Tokenizer", "Train", "Operate", "Lab")
ORDER = (
    "demo init run fetch extract filter dedup decontaminate language quality perplexity mix"
    " recipes steps browse explain whatif stats search train encode eval convert pretrain generate"
    " evaluate compare export import which refresh forget check schema warmup model scaling"
).split()

# Names that other tools use for these commands.
COMMAND_SYNONYMS = {
    **dict.fromkeys(("view", "show", "open", "serve", "report"), "browse"),
    **{"train": "pretrain", "encode": "tokenizer encode", "minhash": "dedup --method minhash"},
    **{"download": "fetch", "list": "recipes", "help": "--help", "validate": "verify"},
}
# Synonyms of options, accepted by commands that have no option of that name.
FLAG_SYNONYMS = {
    **dict.fromkeys(("--eval", "--verify", "--with", "--heldout", "--validation"), "--on"),
    **dict.fromkeys(("--vocab-size", "--vocab_size", "--keep-used"), "--vocab"),
    **dict.fromkeys(("--output", "--output-dir", "--output_dir"), "--out"),
    **dict.fromkeys(("--tasks", "--num-workers", "--num_workers"), "--workers"),
    "--format": "--export",
    "--run": "--model",
}


def join(commands: Iterable[Declared]) -> None:
    """Import the modules of these commands, which registers the commands with the app."""
    for module in sorted({each.module for each in commands}):
        import_module(module)


def join_for(arguments: list[str]) -> None:
    """Import the modules of the command whose name is the first argument. If no command has this
    name, import the modules of all commands."""
    commands = index_of("curate")["command"].values()
    named = [each for each in commands if each.facts["word"] in arguments[:1]]
    join(named or commands)


class FittedHelp:
    """Wraps the help of a command or group to the terminal without splitting words or examples."""

    def get_help(self, ctx: Any) -> str:
        formatter = ctx.formatter_class(width=10_000)
        self.format_help(ctx, formatter)  # type: ignore[attr-defined]
        lines = []
        for line in formatter.getvalue().rstrip("\n").split("\n"):
            is_prose = not SECOND.match(line) and not COMMAND.match(line)
            hang = len(line) - len(line.lstrip()) if is_prose else None
            lines += wrapped(line, min(width(), 100) - 2, hang)
        return "\n".join(lines)


class Root(FittedHelp, TyperGroup):
    """The top-level group, whose help lists the commands by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands for the help, by panel (section). A group of commands is one
        line. But if a group has the name of its panel, each command of the group is a line."""
        rank = {name: i for i, name in enumerate(ORDER)}
        shown: list[tuple[str, str, Any]] = []  # (panel, words, command)
        command: Any
        for name, command in self.commands.items():
            panel = command.rich_help_panel or PANELS[-1]
            inner = command.commands if panel.lower() == name else {}
            shown += [(panel, f"{name} {word}", each) for word, each in inner.items()]
            shown += [(panel, name, command)] * (not inner and not command.hidden)
        column = max(len(words) for _, words, _ in shown)
        shown.sort(key=lambda row: rank.get(row[1].rpartition(" ")[2], len(rank)))
        for panel in PANELS:
            rows = [(w.ljust(column), c.get_short_help_str(80)) for p, w, c in shown if p == panel]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command of the first word, or raise UsageError with the nearest name."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            join(declared("curate", "command").values())
            self.commands.update(getattr(typer.main.get_command(app), "commands", {}))
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise UsageError(f"No such command {args[0]!r}; {self._nearest(args[0])}")
        return super().resolve_command(ctx, args)

    def _nearest(self, word: str) -> str:
        from curate.steps.registry import filters
        from curate.steps.shipped import names

        shown = {name: name for name in self.commands} | COMMAND_SYNONYMS
        shown |= {name: f"filter {name}" for name in filters()}
        shown |= {name: f"run {name}" for name in names()}
        near = get_close_matches(word.lower(), shown, 1)
        return f"did you mean `llmcurate {shown[near[0]]}`?" if near else "see llmcurate --help"


UNDIVIDED = 12  # most options of a command that are listed without headings
# The headings of shared options.
SHARED = {
    "Output": "out export restart as_json quiet".split(),
    "Input": "limit share text_column date_column split config skip_unreadable".split(),
    "Run": "workers engine address slurm scratch dry_run allow_python trust_code help".split(),
}
NOTHING: tuple[Any, ...] = (None, "", [], {}, ())


class Command(FittedHelp, TyperCommand):
    """A command whose help shows values as `IN...` or `TEXT` with every version of Typer."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. First replace unknown flags by their synonyms in FLAG_SYNONYMS."""
        own = {flag for option in self.get_params(ctx) for flag in option.opts}
        words = []
        for word in args:
            flag = word.partition("=")[0]
            synonym = FLAG_SYNONYMS.get(flag, "") if flag not in own else ""
            words.append(word.replace(flag, synonym, 1) if synonym in own else word)
        rest: list[str] = super().parse_args(ctx, words)
        return rest

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        pieces = self.collect_usage_pieces(ctx)
        formatter.write_usage(ctx.command_path.rstrip(), " ".join(pieces))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        names = [_argument(p) if p.required else f"[{_argument(p)}]" for p in arguments]
        return [self.options_metavar or "", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options with help, limits and default. If there are many options, put
        them under headings."""
        shown = [p for p in self.get_params(ctx) if not getattr(p, "hidden", False)]
        options = [p for p in shown if p.param_type_name == "option"]
        lists = {"Arguments": [(_argument(p), _text(p)) for p in shown if p not in options]}
        for p in sorted(options, key=lambda p: {"Input": 1, "Run": 2}.get(_heading(p), 0)):
            heading = _heading(p) if len(options) > UNDIVIDED else "Options"
            lists.setdefault(heading, []).append((_option(p), _text(p)))
        for heading, rows in lists.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _heading(parameter: Any) -> str:
    named = next((title for title, names in SHARED.items() if parameter.name in names), "Options")
    return str(getattr(parameter, "rich_help_panel", None) or named)


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.nargs == 1 or name.endswith("...") else f"{name}..."


def _option(parameter: Any) -> str:
    flags = [", ".join(sorted(parameter.opts, key=len)), ", ".join(parameter.secondary_opts)]
    names = " / ".join(filter(None, flags))
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'TEXT'}"


def _text(parameter: Any) -> str:
    of_type = getattr(parameter, "type", None)
    sides = {"minimum": "min", "maximum": "max"}
    facts = {k: getattr(parameter, n, getattr(of_type, n, None)) for k, n in sides.items()}
    facts = {name: value for name, value in facts.items() if value is not None}
    default = parameter.default if getattr(parameter, "show_default", False) else None
    if parameter.param_type_name == "option" and parameter.is_flag and not default:
        default = None
    help_text = " ".join((parameter.help or "").split())
    bracket = shown_facts(limits_text(facts), default, parameter.required)
    return " ".join(filter(None, [help_text, bracket]))


def shown_facts(texts: list[str], default: Any, required: bool) -> str:
    """Return an option's limits and remarks (`texts`) and its default, in brackets for help."""
    texts = list(texts)
    if required:
        texts.append("required")
    elif default not in NOTHING and not callable(default):
        texts.append(f"default: {_shown(default)}")
    return f"[{'; '.join(texts)}]" if texts else ""


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, (list, tuple)):
        return ",".join(map(str, default))
    return f"{default:,}" if isinstance(default, int) else str(default)


class Commands(typer.Typer):
    def command(self, name: str | None = None, *, cls: Any = Command, **options: Any) -> Any:
        return super().command(name, cls=cls, **options)


app = Commands(
    name="llmcurate",
    cls=Root,
    help="Turn web archives into training data, and train tokenizers and language models.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
Inputs = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="IN...",
        help="Input files, folders or URLs; - is standard input. In a workspace the default is the"
        " newest corpus.",
    ),
]


def output(help: str, metavar: str = "PATH", made: bool = False) -> Any:
    """Return the Typer option -o. If `made`, the folder is created when options are parsed, so that
    an error is reported before any work."""

    def checked(out: Path | None) -> Path | None:
        if out is not None and ":" in str(out) and url_of(out) is None:
            out = out.absolute()  # Arrow takes a relative a:b for a URL
        if out is not None and made:
            make_folder(out)
        return out

    return typer.Option("-o", "--out", metavar=metavar, help=help, callback=checked)


Out = Annotated[
    Optional[Path],
    output(
        "Output folder or URL; - writes a corpus to standard output. In a workspace the default"
        " is a new numbered run."
    ),
]
NewFolder = Annotated[Path, output("Output folder.")]
Page = Annotated[Optional[Path], output("Folder for the figures and their page.", made=True)]
AnyModel = Annotated[
    Path, typer.Argument(help="Folder of a trained model of llmcurate or transformers.")
]
Workers = Annotated[
    int, typer.Option(metavar="INTEGER", help="Number of worker processes; 0: one per core.", min=0)
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="local|ray|slurm",
        help="Run on this machine, a Ray cluster or Slurm. All machines must see OUT.",
    ),
]
Address = Annotated[
    Optional[str],
    typer.Option(
        metavar="HOST:PORT",
        help="With --engine ray: address of a running cluster; by default one is started here. With"
        " --engine slurm: HOST or HOST:PORT at which nodes reach this machine.",
    ),
]
Slurm = Annotated[
    Optional[list[str]],
    typer.Option(
        metavar="KEY=VALUE",
        help="With --engine slurm: an option of sbatch, such as partition=cpu or mem=8G. The"
        " default is time=60 (minutes). cluster=local runs the jobs on this machine. [repeatable]",
    ),
]
Scratch = Annotated[
    Optional[Path],
    typer.Option(
        metavar="PATH",
        help="Working folder if OUT is a URL; with --engine slurm all machines must see it."
        " The default is in the user's cache folder.",
    ),
]
Restart = Annotated[bool, typer.Option("--restart", help="Start over; OUT is renamed to OUT.1.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and stop.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress.")]
Export = Annotated[
    Optional[str],
    typer.Option(
        metavar="jsonl|jsonl.gz|jsonl.zst", help="Also write the corpus as JSONL, to OUT/jsonl."
    ),
]
CorpusColumns = Annotated[
    Optional[str],
    typer.Option(
        metavar="NAME,NAME",
        help="Columns to write besides id and text; `attributes` has scores and edits. [default:"
        " all]",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Write corpus/ without `attributes`.")]
Sets = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set",
        metavar="STEP.KEY=VALUE",
        help="Change a setting. KEY=VALUE is enough if only one step has that key. [repeatable]",
        autocompletion=completion.settings,
    ),
]

AllowPython = Annotated[
    bool,
    typer.Option(
        "--allow-python",
        help="Run the Python functions that the recipe names. They run with your permissions, so"
        " trust their author.",
    ),
]


def _trust_code(value: bool) -> bool:
    if value:
        os.environ["LLMCURATE_TRUST_CODE"] = "1"
    return value


TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        callback=_trust_code,
        help="Run Python code from the model's folder (custom layers). It runs with your"
        " permissions, so trust its author.",
    ),
]


# Fields of `CommandOptions` that a command offers if it runs a recipe, if it reads and writes
# documents, if it does so on any engine, if it measures documents, and if it is an experiment.
RECIPE = ("out", "workers", "restart", "as_json", "dry_run", "quiet")
DOCUMENTS = (*RECIPE, "read", "columns", "plain", "export")
ENGINES = (*DOCUMENTS, "engine", "address", "slurm", "scratch")
MEASURES = ("out", "workers", "read", "as_json", "quiet")
EXPERIMENT = ("workers", "engine", "address", "read", "as_json", "quiet")


@dataclass(frozen=True)
class ReadOptions:
    """Settings of a recipe's section `read` that are given as options; None if not given."""

    limit: int | None = None
    share: float | None = None
    columns: dict[str, str] | None = None
    split: str | None = None
    config: str | None = None
    skip_unreadable: bool | None = None

    def given(self) -> dict[str, int | float | str | dict[str, str]]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class CommandOptions:
    """The options that commands on documents share. Each command declares which of them it offers.
    `read` holds the options for reading."""

    out: Out = None
    workers: Workers = 0
    engine: EngineName = "local"
    address: Address = None
    slurm: Slurm = None
    scratch: Scratch = None
    read: ReadOptions = ReadOptions()
    columns: CorpusColumns = None
    plain: Plain = False
    export: Export = None
    restart: Restart = False
    as_json: Json = False
    dry_run: DryRun = False
    quiet: Quiet = False
    allow_python: bool = False
    sample: Path | None = None  # of a forecast: an earlier run
    as_if: int | None = None  # of a forecast: the size of the input in bytes
    prices: tuple[str, ...] = ()  # of a forecast

    @property
    def sbatch(self) -> tuple[str, ...]:
        return tuple(self.slurm or ())

    def run_options(self, workers: int | None = None) -> Options:
        """Return the options of a run. If `workers` is given, it replaces --workers."""
        from curate.run.records import Options

        return Options(
            self.workers if workers is None else workers,
            self.quiet,
            self.engine,
            self.address,
            allow_python=self.allow_python,
            slurm=self.sbatch,
            restart=self.restart,
        )


def read_changes(options: ReadOptions) -> list[str]:
    """Return the settings of `read` that are given as options, in the form of --set."""
    return [f"read.{name}={json.dumps(value)}" for name, value in options.given().items()]


def reading(options: ReadOptions) -> ReadSettings:
    """Return the settings of `read` for a command that reads documents itself, without a run."""
    from curate.steps.recipe import build

    return build("read", []).reading(**vars(options)).read


def workspace(missing: str) -> Workspace:
    """Return the workspace, or raise UsageError, which asks for the argument `missing`."""
    from curate.run.workspace import FILE, find

    space = find()
    if space is None:
        raise UsageError(
            f"give {missing}, or work in a workspace (a folder with {FILE}: `llmcurate init`)"
        )
    return space


def corpus_of(inputs: list[str] | None) -> list[str]:
    """Return the inputs given to a command; in a workspace the default is the newest corpus."""
    return inputs or [str(newest("corpus", None, "IN"))]


def newest(kind: str, named: Path | None, missing: str) -> Path:
    """Return the folder `named`. If it is None, return the workspace's newest folder of the kind
    `kind`. Without a workspace, raise UsageError, which asks for the argument `missing`."""
    return named or workspace(missing).need(kind)


class DefaultGroup(FittedHelp, TyperGroup):
    """A group that is also a command: `group IN...` runs its hidden command named `default`, `group
    sub` runs `sub`. `group --help` shows the help of the default command, then the subcommands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        visible = [n for n, c in self.commands.items() if n != DEFAULT and not c.hidden]
        help_of_group = bool(visible) and args[:1] in (["--help"], ["-h"])
        completed = ctx.resilient_parsing and not args  # the shell completes the first word
        if not (help_of_group or completed) and (not args or args[0] not in self.commands):
            args = [DEFAULT, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return completions of the first word: subcommands, and options of the default command."""
        found = super().shell_complete(ctx, incomplete)
        default = self.commands[DEFAULT].make_context("", [], parent=ctx, resilient_parsing=True)
        return [*found, *default.command.shell_complete(default, incomplete)]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return (name, command, other words). The default command has the name "", so that usage
        lines read `llmcurate dedup`."""
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DEFAULT else name), command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        action = self.commands[DEFAULT]
        if hasattr(action, "offer"):
            action.offer([])
        inner = type(ctx)(action, parent=ctx.parent, info_name=ctx.info_name)
        action.format_usage(inner, formatter)
        action.format_help_text(inner, formatter)
        action.format_options(inner, formatter)
        self.format_commands(ctx, formatter)


def group(name: str, help: str, panel: str, default: bool = False) -> typer.Typer:
    """Add a group of commands to the app. With `default` the group is also a command itself."""
    kind = DefaultGroup if default else TyperGroup
    commands = Commands(cls=kind, rich_markup_mode=None, no_args_is_help=not default, help=help)
    app.add_typer(commands, name=name, rich_help_panel=panel)
    return commands
