"""The migration of another tool's configuration: its steps as steps of a recipe, with remarks.

Each tool has a module in this folder with two functions. `recognises(text, path, document)` returns
True for a configuration of the tool. `migrate(text, path, document)` returns a `Migration`. Both
receive the file's text, its path and its parsed YAML, JSON or TOML (`document`), which is None for
other files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from curate.lab.migrate.literal_calls import parsed
from curate.steps.recipe import Entry, make_step
from llmcurate.base.disk.files import check_regular
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import one_line

TOOLS = {
    "datatrove": "DataTrove",
    "dclm": "DCLM",
    "dolma": "Dolma",
    "data-juicer": "Data-Juicer",
    "nemo-curator": "NeMo Curator",
    "text-dedup": "text-dedup",
}
MOST_BYTES = 1 << 20  # of a configuration
_COMMENTS = 60  # the column at which comments of settings begin


@dataclass(frozen=True)
class Setting:
    """A setting of the recipe, with the place where the other tool's file sets it. A value that is
    a tuple of settings is written as a mapping, so that each of its entries has an origin."""

    name: str
    value: object  # to write as YAML, or a tuple of settings
    origin: str  # `line 12: Filter(min_doc_words)` or `default of DataTrove 0.10`

    @property
    def plain(self) -> object:
        """The value as a step takes it: a tuple of settings becomes a mapping, others stay."""
        if isinstance(self.value, tuple) and any(isinstance(v, Setting) for v in self.value):
            return {setting.name: setting.plain for setting in self.value}
        return self.value


@dataclass(frozen=True)
class MappedStep:
    """A step of the recipe that replaces one or more steps of the other tool."""

    step: str
    settings: tuple[Setting, ...]
    origin: str  # as in `line 10: GopherQualityFilter`
    stands_for: int = 1  # number of steps that it replaces


@dataclass(frozen=True)
class Remark:
    """A note to the user on a step or key in the other tool's file."""

    line: int  # in that file; 0 if not known
    theirs: str  # name of the step or key
    message: str  # one sentence
    unmapped: bool  # True if it is not in the recipe, False if it differs there
    needless: bool = False  # True if the recipe needs no such step

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        kind = "not mapped" if self.unmapped else "no step needed" if self.needless else "differs"
        return one_line(f"{place}{self.theirs}: {kind}: {self.message}")


@dataclass(frozen=True)
class Migration:
    """A recipe that does what another tool's configuration does."""

    tool: str  # name of the other tool
    input: Setting | None  # of the recipe
    steps: tuple[MappedStep, ...]
    remarks: tuple[Remark, ...]
    read: tuple[Setting, ...] = ()  # the recipe's section `read`

    @property
    def mapped(self) -> int:
        """The number of the other tool's steps that the recipe replaces or does not need."""
        return sum(s.stands_for for s in self.steps) + sum(r.needless for r in self.remarks)

    @property
    def total(self) -> int:
        """The number of steps in the other tool's configuration."""
        return self.mapped + sum(r.unmapped for r in self.remarks)

    def checked(self) -> Migration:
        """Return the migration without the steps and `read` settings whose values llmcurate
        refuses. A remark takes the place of each."""
        steps, remarks = [], list(self.remarks)
        for step in self.steps:
            values = {s.name: s.plain for s in step.settings}
            if refused := _refusal(make_step, step.step, values):
                remarks += [Remark(0, step.origin, refused, unmapped=True)] * step.stands_for
            else:
                steps.append(step)
        read = []
        for setting in self.read:
            entry = Entry("read", {setting.name: setting.plain})
            if refused := _refusal(entry.parsed):
                remarks.append(Remark(0, setting.origin, refused, unmapped=False))
            else:
                read.append(setting)
        remarks.sort(key=lambda remark: remark.line)
        return replace(self, steps=tuple(steps), read=tuple(read), remarks=tuple(remarks))

    def recipe(self, name: str) -> str:
        """Return the recipe as YAML, with a comment after each value that tells its origin."""
        lines = [f"# From a configuration of {self.tool}, by `llmcurate migrate`."]
        lines += _lines("", Setting("name", name, ""))
        if self.input:
            lines += _lines("", self.input)
        if self.read:
            lines.append("read:")
            lines += [line for setting in self.read for line in _lines("  ", setting)]
        lines.append("steps:")
        for step in self.steps:
            lines.append(f"  # {one_line(step.origin)}")
            lines.append(f"  - {step.step}{':' if step.settings else ''}")
            lines += [line for setting in step.settings for line in _lines("      ", setting)]
        if not self.steps:
            lines[-1] += " []"
        return "\n".join(lines) + "\n"


def _refusal(check: Any, *arguments: Any) -> str:
    try:
        check(*arguments)
    except UsageError as error:
        return str(error)
    return ""


def _lines(indent: str, setting: Setting) -> list[str]:
    """Return a setting as lines of YAML, with its origin as a comment."""
    origin = f"# {one_line(setting.origin)}" if setting.origin else ""
    if setting.plain is not setting.value and isinstance(setting.value, tuple):
        inner = [line for each in setting.value for line in _lines(indent + "  ", each)]
        return [f"{indent}{setting.name}:  {origin}".rstrip(), *inner]
    value = _flow(setting.value)
    if len(value.splitlines()) > 1:  # quotation marks escape line ends
        value = _flow(setting.value, default_style='"')
    return [f"{f'{indent}{setting.name}: {value}':<{_COMMENTS - 2}}  {origin}".rstrip()]


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True  # settings are written one by one, so names of values could clash


def _flow(value: object, **style: Any) -> str:
    style |= {"allow_unicode": True, "sort_keys": False, "width": 1 << 30}
    written: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, **style)
    return written.removesuffix("...\n").rstrip("\n")


def read_configuration(path: Path) -> tuple[str, object | None]:
    """Return (text of the file, parsed content); the content is None unless the file is YAML, JSON
    or TOML. Raise UsageError for a file that is not text, is too large or has damaged syntax."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"{path}: {reason}") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path}: a configuration may have at most {MOST_BYTES >> 20} MiB")
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return text, read_yaml(text, str(path))[0]
    try:
        if suffix in (".json", ".jsonc"):
            return text, json.loads(text)
        if suffix == ".toml":
            import tomllib

            return text, tomllib.loads(text)
    except ModuleNotFoundError:
        raise UsageError(f"{path}: reading TOML needs Python 3.11 or later") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: damaged {suffix[1:].upper()}: {error}") from None
    return text, None


def migrate(path: Path, tool: str | None = None) -> Migration:
    """Return the checked migration of a configuration. `tool` is a key of `TOOLS`, or None to
    recognise the tool. Raise UsageError if the file is not a configuration of any known tool."""
    if tool is not None and tool not in TOOLS:
        raise UsageError(f"--from {tool}: choose one of {', '.join(TOOLS)}")
    text, document = read_configuration(path)
    for name in TOOLS if tool is None else [tool]:
        module = _module(name)
        if tool is not None or module.recognises(text, path, document):
            done: Migration = module.migrate(text, path, document)
            return done.checked()
    if path.suffix == ".py":
        parsed(text, path)  # raises UsageError with the line of a mistake
    known = ", ".join(TOOLS.values())
    raise UsageError(f"{path}: a configuration of none of {known}; name the tool by --from")


def _module(tool: str) -> Any:
    return import_module(f"curate.lab.migrate.{tool.replace('-', '_')}")
