"""Options generated from settings: a command offers the settings of the steps that it runs.

Names, types, limits, defaults and descriptions come from the schema of recipes, so a setting is
declared only once, as a field of its step, and help can be printed without loading a step. If the
steps depend on the arguments (`dedup --method NAME`), only the options of these steps are offered.
The settings of a command that runs no step are a class in command_settings.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli import completion
from curate.cli.options import DOCUMENTS, Command, CommandOptions, ReadOptions, shown_facts
from curate.steps.registry import limits_text, summary_of
from llmcurate.base.disk.units import as_whole
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import say

if TYPE_CHECKING:
    from curate.api.command_settings import CommandSettings
    from curate.run.records import Outcome

Steps = list[tuple[str, dict[str, Any]]]  # (name, settings that the command itself sets)
TYPES = {"integer": int, "number": float, "boolean": bool, "string": str}
METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT", list[str]: "TEXT"}
FLAGS = {"special_tokens": "--special", "vocab_size": "--vocab"}  # others: the setting's name
# Completion of the values of a setting.
WORDS = {(step, "model"): completion.presets for step in ("pretrain", "Compare", "MixSearch")}
WORDS["QualityTrain", "preset"] = completion.quality_presets
COLUMNS = "by column text_column date_column label_column loss_mask words".split()
# The options that help lists after the settings of a command.
LAST = (
    "sets workers engine address slurm scratch limit share text_column date_column split"
    " config export skip_unreadable restart as_json dry_run quiet".split()
)
# Settings of `read` offered as options: by a command that reads documents, by one that reads all of
# its input, and by one that reads several texts.
READS = ("limit", "share", "text_column", "date_column", "split", "config", "skip_unreadable")
READS_ALL, READS_TEXTS = READS[2:], ("text_column", "split", "config")


def fields_of(name: str) -> dict[str, dict[str, Any]]:
    """Return {setting: its schema} of a step, or of a class in `settings_classes()`."""
    from curate.steps.registry import OPTIONS, class_schema, definition_of, shipped_definition

    if name[0].isupper():
        shipped = shipped_definition(name, name, OPTIONS)
        schema = shipped or class_schema(settings_classes()[name])
    else:
        schema = definition_of(name.partition("@")[0])
    return dict(schema["properties"])


def settings_classes() -> dict[str, type[CommandSettings]]:
    """Return {name: class} of the settings of commands that run no step."""
    from curate.api import model_settings  # noqa: F401 (registers its classes)
    from curate.api.command_settings import CommandSettings

    return {kind.__name__: kind for kind in CommandSettings.__subclasses__()}


def setting_options(
    steps: Steps, flags: dict[str, str], command_names: set[str]
) -> dict[str, inspect.Parameter]:
    """Return {setting: command parameter} for the settings of some steps. Mappings are left out;
    they can be set with --set. `flags` maps a setting to its option if the names differ.
    `command_names` are settings for which the command already has parameters."""
    parameters: dict[str, inspect.Parameter] = {}
    for step, fixed in steps:
        for name, field in fields_of(step).items():
            if name not in fixed and name not in command_names and name not in parameters:
                kind = _type(field)
                if kind is not None:
                    parameters[name] = _parameter(step, name, field, kind, flags.get(name))
    return parameters


def _type(field: dict[str, Any]) -> Any:
    kinds = [field, *field.get("anyOf", ())]
    types = [k.get("type", "string" if "const" in k or "enum" in k else "") for k in kinds]
    if any(k.get("format") == "path" for k in kinds):  # a list that may also be given as a file
        return str
    if any(k.get("items", {}).get("type") == "string" for k in kinds):
        return list[str]
    if "string" in types:
        return str
    return next((TYPES[name] for name in types if name in TYPES), None)


def _whole_number(text: str) -> int:
    if isinstance(number := as_whole(text), int):
        return number
    raise typer.BadParameter("give a whole number, such as 100000, 100k or 1e5")


def _parameter(
    step: str, name: str, field: dict[str, Any], kind: Any, flag: str | None
) -> inspect.Parameter:
    flag = flag or FLAGS.get(name, f"--{name.replace('_', '-')}")
    plain = kind is bool and step[0].isupper() and field.get("default") is False
    if kind is bool and not plain:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    kinds = (field, *field.get("anyOf", ()))
    path = any(k.get("format") == "path" for k in kinds)
    words: Any = completion.columns if name in COLUMNS else WORDS.get((step, name))
    facts = ""
    if not plain:  # choices, limits and default, in brackets
        whole = {name: value for part in kinds for name, value in part.items()}
        choices = [f"one of {', '.join(map(str, whole['enum']))}"] if "enum" in whole else []
        words = words or completion.among(whole.get("enum", ()))
        repeatable = ["repeatable"] if kind == list[str] else []
        texts = [*choices, *limits_text(whole), *repeatable]
        facts = shown_facts(texts, field.get("default"), "default" not in field)
    option = typer.Option(
        flag,
        help=" ".join(filter(None, [field.get("description"), facts])),
        metavar=field.get("metavar") or ("PATH" if path else METAVARS.get(kind)),
        parser=_whole_number if kind is int else None,
        autocompletion=words,
        show_default=False,
        rich_help_panel=field.get("section"),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[kind], option],
    )


class SettingsCommand(Command):
    """A command whose options are the settings of steps. The words after the command decide which
    steps. `function` is the function that runs the command. The other attributes are the parameters
    of the decorator `command`."""

    function: Callable[..., Any]
    steps: Callable[[list[str]], Steps]
    owners: Callable[[str], str]
    shared: Sequence[str]
    flags: dict[str, str]
    choices: tuple[str, ...]
    reads: tuple[str, ...]

    def offer(self, arguments: list[str]) -> None:
        asked = type(self).steps(arguments)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command()(_spelled_out(self.function, asked, self.flags, self.shared, self.reads))
        command = typer.main.get_command(single)
        self.params, self.callback = command.params, command.callback

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        if self.choices:
            with formatter.section("Steps"):
                formatter.write_dl([(name, summary_of(name)) for name in self.choices])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self.offer(args)
        try:
            rest: list[str] = super().parse_args(ctx, args)
            return rest
        except Exception as error:
            flag = getattr(error, "option_name", "")
            owners = type(self).owners(flag.removeprefix("--").replace("-", "_")) if flag else ""
            if type(error).__name__ != "NoSuchOption" or not owners:
                raise

            raise UsageError(f"{flag} needs {owners}") from None


def command(
    app: typer.Typer,
    steps: str | Callable[[list[str]], Steps] | None = None,
    name: str | None = None,
    *,
    panel: str | None = None,
    hidden: bool = False,
    shared: Sequence[str] = DOCUMENTS,
    owners: Callable[[str], str] = lambda setting: "",
    flags: dict[str, str] | None = None,
    choices: Sequence[str] = (),
    reads: Sequence[str] = READS,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a command of the app. The function gets the settings as `**settings`.

    `steps` names the step or settings class whose settings become options. It may be a function
    that returns the steps for the command-line arguments; None means no settings. `panel` is the
    command's section in `llmcurate --help`. If the function has a parameter `options`, the fields
    of `CommandOptions` that `shared` names become options. If it has a parameter `read`, the input
    settings that `reads` names become options. `owners(setting)` returns the arguments that would
    make this setting an option, such as `--method url`, for the message about an unknown option.
    `flags` maps a setting to its option if the names differ. `choices` are names of steps that the
    help lists."""
    fixed: Steps = [(steps, {})] if isinstance(steps, str) else []
    chosen = steps if callable(steps) else lambda arguments: fixed

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        members = {
            "function": staticmethod(function),
            "steps": staticmethod(chosen),
            "owners": staticmethod(owners),
            "shared": tuple(shared),
            "flags": flags or {},
            "choices": tuple(choices),
            "reads": tuple(reads),
        }
        kind = type("SettingsCommand", (SettingsCommand,), members)

        @wraps(function, updated=(), assigned=("__module__", "__name__", "__doc__"))
        def named() -> None: ...

        # `offer` makes the parameters: help that lists the commands need not wait for them.
        named.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        app.command(name, cls=kind, hidden=hidden, rich_help_panel=panel)(named)
        return function

    return register


def _spelled_out(
    function: Callable[..., Any],
    steps: Steps,
    flags: dict[str, str],
    shared: Sequence[str],
    reads: Sequence[str],
) -> Callable[..., Any]:
    signature = inspect.signature(function, eval_str=True)
    every = inspect.signature(CommandOptions, eval_str=True)
    reading = read_options(reads)

    def with_reading(parameters: Any) -> list[inspect.Parameter]:
        return [q for p in parameters for q in (reading.values() if p.name == "read" else [p])]

    named = with_reading(p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD)
    asked = [p for p in every.parameters.values() if p.name in shared]
    common = {p.name: p for p in with_reading(asked)}
    takes_options = any(p.name == "options" for p in named)
    taken = {p.name for p in named} | (set(common) if takes_options else set())
    offered = setting_options(steps, flags, taken)

    @wraps(function)
    def command(**values: Any) -> Any:
        settings = {n: _value(steps, n, values.pop(n)) for n in offered}
        settings = {n: value for n, value in settings.items() if value is not None}
        given = {n: values.pop(n) for n in reading if n in values}
        given = {n: value for n, value in given.items() if value is not None}
        columns = {n: given.pop(f"{n}_column") for n in ("text", "date") if f"{n}_column" in given}
        read = {"read": ReadOptions(**given, columns=columns or None)}
        if takes_options:
            own = {n: values.pop(n) for n in common if n in values}
            own |= read if "read" in shared else {}
            settings["options"] = CommandOptions(**own)
        if "read" in signature.parameters:
            settings |= read
        return function(**values, **settings)

    spelled = {p.name: p for p in named if p.name != "options"}
    tail = [spelled.pop(name) for name in LAST if name in spelled]
    names = [n for n, p in spelled.items() if _is_argument(p)]
    arguments: dict[str, inspect.Parameter] = {n: spelled.pop(n) for n in names}
    if takes_options:
        arguments |= {n: common[n] for n in ("out",) if n in common}
        tail += [p for p in common.values() if p.name != "out"]
    parameters = [*arguments.values(), *spelled.values(), *offered.values(), *tail]
    keyword = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = signature.replace(parameters=keyword)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in keyword}
    return command


def run_steps(
    title: str,
    steps: Steps,
    inputs: list[str] | None,
    options: CommandOptions,
    sets: Sequence[str] | None = None,
) -> Outcome:
    """Print each step's forecast (what its settings will do), then run a recipe of the steps."""
    from curate.cli.execution import execute
    from curate.steps.recipe import compose

    recipe = compose(title, steps, tuple(sets or ()))
    for step in recipe.document_steps:
        for line in step.forecast():
            say(line, options.quiet)
    return execute(recipe, inputs or [], options, title)


def read_options(names: Sequence[str]) -> dict[str, inspect.Parameter]:
    """Return {name: command parameter} for the options in `names`, which say how the input is read.
    They are settings of a recipe's section `read`, or `text_column` and `date_column`."""
    fields = fields_of("read")
    for column in ("text", "date"):
        help_text = f"Column of the input with the {column} of a document."
        named = {"type": "string", "description": help_text, "default": column}
        fields = {**fields, f"{column}_column": named}
    # `Read` in upper case marks options of a command: its switches have no --no- form.
    return {n: _parameter("Read", n, fields[n], _type(fields[n]), None) for n in names}


def _is_argument(parameter: inspect.Parameter) -> bool:
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return any(type(item).__name__ == "ArgumentInfo" for item in metadata)


def _value(steps: Steps, setting: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    fields = [fields_of(name).get(setting, {}) for name, _ in steps]
    text = any(k.get("type") == "string" for f in fields for k in f.get("anyOf", ()))
    if len(value) == 1 and text:
        return value[0]  # `en,de`: several values in one text
    return tuple(value) or None
