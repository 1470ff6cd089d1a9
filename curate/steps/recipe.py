"""Recipes: YAML and its overrides are checked key by key and become a list of steps."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from curate.formats.read_settings import ReadSettings
from curate.steps.contracts import CorpusStep, Product, Settings, Step, fitting, setting_names
from curate.steps.registry import step_class
from curate.steps.shipped import text_of
from llmcurate.base.disk.files import check_regular, text_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.disk.yaml_file import line_of, read_yaml
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

CUT = "cut"
MOST_STEPS = 1000  # each stage has a folder, each step a module that workers load
LineOf = Callable[[str], str | None]
SettingNames = Callable[[], Iterable[str]]
TOP_KEYS = ("name", "description", "paper", "input", "read", "columns", "steps")
# Suffixes of files that are not recipes, and words in configurations of other tools.
OTHERS = {".py": "a Python file", ".toml": "a TOML file", ".ipynb": "a notebook"}
TOOLS = {
    "datatrove": "DataTrove",
    "\nprocess:": "Data-Juicer",
    "nemo_curator": "NeMo Curator",
    "algorithm_name": "text-dedup",
    "\nstreams:": "Dolma",
    "\ndedupe:": "Dolma",
    "- func:": "DCLM",
}


@dataclass(frozen=True, repr=False)
class Recipe:
    """A list of steps with a name, and the settings for reading the input. `str` gives the YAML
    with only the settings that were given; `resolved` includes the defaults."""

    name: str
    steps: tuple[Settings, ...]
    description: str = ""
    input: tuple[str, ...] = ()
    read: ReadSettings = field(default_factory=ReadSettings)
    cuts: frozenset[int] = frozenset()  # positions of steps that begin a new stage
    paper: str = ""
    columns: tuple[str, ...] = ()  # of corpus/, besides id and text; empty: all

    def __post_init__(self) -> None:
        for product in self.products:
            product.reading(self.read)

    @property
    def document_steps(self) -> tuple[Step | CorpusStep, ...]:
        return tuple(s for s in self.steps if isinstance(s, (Step, CorpusStep)))

    @property
    def products(self) -> tuple[Product, ...]:
        return tuple(s for s in self.steps if isinstance(s, Product))

    @property
    def reads_input(self) -> bool:
        """True if a step or product reads the run's input rather than a corpus that a product
        builds."""
        if self.document_steps:
            return True
        for product in self.products:
            if product.reads_corpus:
                return True
            if product.makes == "corpus":
                return False
        return False

    @property
    def brings_corpus(self) -> bool:
        """True if a step builds the corpus from other sources and no step reads the run's input."""
        return not self.reads_input and any(p.makes == "corpus" for p in self.products)

    def without_missing_files(self, quiet: bool = False) -> Recipe:
        return replace(self, steps=tuple(s.without_missing_files(quiet) for s in self.steps))

    def resolved(self, given_alone: bool = False) -> dict[str, Any]:
        """Return all settings, defaults included unless `given_alone`, in the form that `parse`
        reads."""
        steps: list[Any] = []
        for i, step in enumerate(self.steps):
            if i in self.cuts:
                steps.append(CUT)
            settings = (
                step.model_dump(mode="json", exclude_unset=True) if given_alone else step.resolved()
            )
            steps.append({step.name: settings} if settings or not given_alone else step.name)
        head = {"name": self.name, "description": self.description, "paper": self.paper}
        if not self.paper:
            del head["paper"]
        inputs = {"input": list(self.input)} if self.input else {}
        read = self.read.model_dump(mode="json", exclude_unset=given_alone)
        if self.read.fetch is not None:
            read["fetch"] = self.read.fetch
        columns = {"columns": list(self.columns)} if self.columns else {}
        return {**head, **inputs, "read": read, **columns, "steps": steps}

    def __str__(self) -> str:
        data = self.resolved(given_alone=True)
        kept = {key: value for key, value in data.items() if value or key == "steps"}
        return yaml.safe_dump(
            kept, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
        )

    __repr__ = __str__

    def digest(self) -> str:
        """Return a hash of everything that decides the output."""
        parts = [s.identity().values for s in self.steps]
        return text_digest(
            json.dumps([parts, self.read.identity(), sorted(self.cuts), *self.columns])
        )

    def reading(self, **settings: Any) -> Recipe:
        """Return the recipe with new settings of `read`. None leaves a setting unchanged."""
        stated = {name: value for name, value in settings.items() if value is not None}
        if not stated:
            return self
        before = {n: getattr(self.read, n) for n in self.read.model_fields_set}
        if "columns" in stated:  # added to those of the recipe
            stated["columns"] = {**self.read.columns, **stated["columns"]}
        given = {name: f"--{name.replace('_', '-')} {value}" for name, value in stated.items()}
        return replace(self, read=Entry("read", {**before, **stated}, given=given).parsed())


@dataclass(frozen=True)
class Change:
    """A new value of one setting."""

    section: str  # a step's label, or `read`
    key: str
    value: Any
    given: str  # the option that the user wrote

    @classmethod
    def of(cls, text: str) -> Change:
        """Parse `section.key=value` or `key=value` of a `--set`. Raise UsageError for other
        forms."""
        path, equals, raw = text.partition("=")
        section, _, key = path.strip().partition(".")
        option = f"--set {text}"
        if not equals or not section:
            raise UsageError(f"{option}: write section.key=value, as in c4.min_sentences=5")
        is_file = raw.lstrip().startswith("@")  # YAML reserves `@`
        value = raw.strip() if is_file else read_yaml(raw, option, lines=False)[0]
        return cls(section, key, value, option)

    def within(self, names: Mapping[str, SettingNames]) -> Change:
        """Return the change with the full name of its setting. The name that the user wrote may be
        only the end of a dotted name. names: the settings of each section. Raise UsageError if no
        setting matches, or several."""
        if self.section in names and self.key:
            return self
        path = f"{self.section}.{self.key}".rstrip(".")
        known = [(section, name) for section, of in names.items() for name in of()]
        fit = [(s, n) for s, n in known if f".{n}".endswith(f".{path}")]
        fit = fit or [(s, path) for s, n in known if path.startswith(f"{n}.")]
        if len(fit) == 1:
            return replace(self, section=fit[0][0], key=fit[0][1])
        if fit:
            places = " or ".join(f"{section}.{name}" for section, name in fit)
            raise UsageError(f"{self.given}: more than one setting has this name; write {places}")
        if self.key:
            hint = _nearest(self.section, sorted(names))
            raise UsageError(f"{self.given}: no section {self.section!r}; {hint}")
        if path in names:
            raise UsageError(f"{self.given}: write {path}.KEY=value, for one setting of the step")
        last = sorted({name.rpartition(".")[2] for _, name in known})
        near = get_close_matches(path, [*last, *names], 1)
        hint = f"did you mean {near[0]!r}?" if near else "write section.key=value"
        raise UsageError(f"{self.given}: no setting {path!r}; {hint}")


class _Source:
    """A recipe's file and its YAML nodes, to find the line of a key for messages."""

    def __init__(self, source: str, root: yaml.Node | None) -> None:
        self.source, self.root = source, root

    def at(self, *keys: Any) -> str:
        """Return `file:line` of a path of keys, or of the longest part of it that exists."""
        line = line_of(self.root, *keys)
        return f"{self.source}:{line}" if line else self.source


def _nearest(key: str, keys: list[str]) -> str:
    near = get_close_matches(key, keys, 1, 0.6 if len(key) > 3 else 0.5)  # c5 is near to c4
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(keys)}" if keys else "it takes no keys"


def _has_truth(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_truth, (*value, *value.values())))
    return any(map(_has_truth, value)) if isinstance(value, list) else isinstance(value, bool)


def _takes_truth(model: type[BaseModel], key: str) -> bool:
    kinds = [model.model_fields[key].annotation]
    for kind in kinds:
        kinds += get_args(kind)
    models = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
    return models or any(kind in kinds for kind in (bool, Any, object, True, False))


def _no_text(key: str, value: Any) -> str:
    shown = "a list or mapping" if isinstance(value, (list, dict)) else str(value).lower()
    return (
        f"{key}: {shown} is not a valid value (YAML reads yes, no, on and off as true and false:"
        " put text into quotes)"
    )


@dataclass
class Entry:
    """A step of a recipe, or its section `read`, with the settings as the user wrote them."""

    name: str
    settings: dict[str, Any]
    in_file: LineOf | None = None  # returns the `file:line` of a key
    given: dict[str, str] = field(default_factory=dict)  # key -> the `--set` that changed it

    @property
    def section(self) -> str:
        return self.name.partition("@")[0]

    @property
    def kind(self) -> type[Any]:
        """The class of the settings: the step's class, or ReadSettings for the section `read`.
        Raise UsageError for an unknown step."""
        return ReadSettings if self.section == "read" else step_class(self.section)

    def change(self, change: Change) -> None:
        key, _, inner = change.key.partition(".")
        kind = self.kind.model_fields.get(key)
        before = self.settings.get(key, kind.get_default() if kind else None) or {}
        if kind and inner and get_origin(kind.annotation) is dict and isinstance(before, dict):
            self.settings[key] = {str(k): v for k, v in before.items()} | {inner: change.value}
        else:
            key = change.key
            self.settings[key] = change.value
        self.given[key] = change.given

    def parsed(self, folder: Path | None = None) -> Any:
        """Return the checked settings: a step, or ReadSettings for the recipe's section `read`.
        Raise UsageError for the first mistake. folder: the folder of the recipe."""
        kind, variant = self.kind, self.name.partition("@")[2]
        if variant:
            if "variant" not in kind.model_fields:
                raise UsageError(f"step {self.section!r} has no variants")
            self.settings["variant"] = variant
        kind = fitting(kind, self.settings)
        for key, value in self.settings.items():
            if key in kind.model_fields and _has_truth(value) and not _takes_truth(kind, key):
                where, name = self._where(str(key)), f"{self.section}.{key}"
                raise UsageError(f"{where}: {_no_text(name, value)}")
        try:
            return kind.model_validate(self.settings, context={"folder": folder})
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "extra_forbidden":
                hint = _nearest(key, list(kind.model_fields))
                where = self._where(key)
                raise UsageError(
                    f"{where}: unknown key {key!r} in {self.section}; {hint}"
                ) from None
            above = [self.section] if self._place(key) else []
            message = problem(error, lambda name: ".".join(filter(None, [*above, name])))
            raise UsageError(f"{self._where(key)}: {message}") from None
        except UnicodeEncodeError:  # half of a surrogate pair in a pattern
            raise UsageError(
                f"{self._where('')}: a value of {self.section} is not valid Unicode"
            ) from None

    def _where(self, key: str) -> str:
        return self._place(key) or f"step {self.section}"

    def _place(self, key: str) -> str | None:
        """Return where a key is set: the `--set` that changed it, or else the `file:line`. For the
        key "", return all `--set` changes."""
        sets = self.given.get(key) or (not key and " ".join(self.given.values()))
        return sets or (self.in_file(key) if self.in_file else None)


def make_step(name: str, settings: Mapping[str, Any]) -> Settings:
    """Return a step by name (or `name@variant`) and settings. Raise UsageError for a mistake."""
    step: Settings = Entry(name, dict(settings)).parsed()
    return step


def build(
    name: str,
    steps: list[Settings],
    *,
    read: ReadSettings | None = None,
    cuts: frozenset[int] = frozenset(),
    description: str = "",
    inputs: tuple[str, ...] = (),
) -> Recipe:
    """Return a recipe of steps. Raise UsageError for a wrong order of steps and products."""
    seen: dict[str, int] = {}
    for i, step in enumerate(steps):
        seen[step.name] = seen.get(step.name, 0) + 1
        if seen[step.name] > 1:  # its second use is called `name#2`
            step.named(f"{step.name}#{seen[step.name]}")
        before = steps[i - 1] if i else None
        if isinstance(before, Product) and not isinstance(step, Product):
            raise UsageError(
                f"recipe {name}: {step.label} works on documents and must come before the product"
                f" {before.label}"
            )
        brings = isinstance(step, Product) and step.makes == "corpus" and not step.reads_corpus
        if brings and any(isinstance(s, (Step, CorpusStep)) for s in steps[:i]):
            raise UsageError(
                f"recipe {name}: {step.label} names its own sources and ignores the steps before"
                " it; leave `sources` out to mix the documents that they keep"
            )
    return Recipe(name, tuple(steps), description, inputs, read or ReadSettings(), cuts)


def compose(
    name: str,
    chosen: Iterable[tuple[str, Mapping[str, Any]]],
    sets: tuple[str | Change, ...] = (),
    **reading: Any,
) -> Recipe:
    """Return a recipe of steps given by name and settings. reading: settings of `read`."""
    entries = [Entry(step, dict(settings)) for step, settings in chosen]
    read = Entry("read", reading)
    for entry in entries:
        if entry.name != CUT:
            step_class(entry.section)
    _override([read, *entries], sets)
    steps, cuts = _steps(entries)
    return build(name, steps, read=read.parsed(), cuts=cuts)


def parse(
    text: str,
    source: str,
    overrides: tuple[str | Change, ...] = (),
    folder: Path | None = None,
) -> Recipe:
    """Return the recipe in a YAML text. source: the text's name in messages; overrides: changes
    such as `step.key=value` or `read.key=value`; folder: the folder of relative paths."""
    kind = OTHERS.get(Path(source).suffix.lower(), "")
    data, root = (None, None) if kind else read_yaml(text, source)
    file = _Source(source, root)
    tool = next((tool for word, tool in TOOLS.items() if word in f"\n{text.lower()}"), "")
    if tool and "steps" not in (data or ()):
        command = shlex.join(["llmcurate", "migrate", source, "-o", "recipe.yaml"])
        raise UsageError(f"{source} is a configuration of {tool}, not a recipe: run `{command}`")
    if kind:
        raise UsageError(
            f"{source} is {kind}, not a recipe: a recipe is YAML with a list of `steps`; for an"
            " example run `llmcurate recipes fineweb`"
        )
    if not isinstance(data, dict):
        raise UsageError(f"{source}: a recipe must be a mapping with the key `steps`")
    for key in data:
        if key not in TOP_KEYS:
            where, hint = file.at(key), _nearest(str(key), list(TOP_KEYS))
            raise UsageError(f"{where}: unknown key {str(key)!r}; {hint}")
    for key in ("name", "description", "paper"):
        if isinstance(data.get(key), (bool, list, dict)):
            raise UsageError(f"{file.at(key)}: {_no_text(key, data[key])}")
    entries = data.get("steps")
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{source}: `steps` must be a list of at least one step")
    if len(entries) > MOST_STEPS:
        raise UsageError(
            f"{source}: {counted(len(entries), 'step')}; a recipe may have at most {MOST_STEPS:,}"
        )
    written = _entries(entries, file)
    read_values, inputs = data.get("read") or {}, data.get("input") or []
    if not isinstance(read_values, dict):
        raise UsageError(f"{file.at('read')}: `read` must be a mapping of settings")
    inputs = (inputs,) if isinstance(inputs, str) else inputs
    if not isinstance(inputs, (list, tuple)) or not all(isinstance(i, str) for i in inputs):
        raise UsageError(f"{file.at('input')}: `input` must be a path or a list of paths")
    read = Entry("read", dict(read_values), partial(file.at, "read"))
    _override([read, *written], overrides)
    steps, cuts = _steps(written, folder)
    recipe = build(
        str(data.get("name") or Path(source).stem),
        steps,
        read=read.parsed(),
        cuts=cuts,
        description=str(data.get("description") or ""),
        inputs=tuple(inputs),
    )
    columns = data.get("columns") or []
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"{file.at('columns')}: `columns` must be a list of column names")
    return replace(recipe, paper=str(data.get("paper") or ""), columns=tuple(columns))


def _entries(written: list[Any], file: _Source) -> list[Entry]:
    entries = []
    for i, entry in enumerate(written):
        settings: Any = None
        if isinstance(entry, str):
            name = entry
        elif isinstance(entry, dict) and len(entry) == 1:
            ((key, settings),) = entry.items()
            name = str(key)
        else:
            raise UsageError(f"{file.at('steps', i)}: a step is `name` or `name: {{key: value}}`")
        alone = None
        if name != CUT:
            try:
                alone = step_class(name.partition("@")[0]).plain_setting
            except UsageError as error:
                raise UsageError(f"{file.at('steps', i)}: {error}") from None
        settings = {} if settings is None else settings
        if alone and not isinstance(settings, dict):
            settings = {alone: settings}
        if not isinstance(settings, dict):
            raise UsageError(f"{file.at('steps', i)}: the settings of {name} must be a mapping")
        entries.append(Entry(name, dict(settings), partial(file.at, "steps", i, name)))
    return entries


def _steps(
    entries: list[Entry], folder: Path | None = None
) -> tuple[list[Settings], frozenset[int]]:
    steps: list[Settings] = []
    cuts: set[int] = set()
    for entry in entries:
        if entry.name == CUT:
            cuts.add(len(steps))
        else:
            steps.append(entry.parsed(folder))
    return steps, frozenset(cuts)


def _override(entries: list[Entry], overrides: tuple[str | Change, ...]) -> None:
    sections: dict[str, Entry] = {}
    count: Counter[str] = Counter()
    for entry in entries:
        if entry.name != CUT:
            count[entry.section] += 1
            number = count[entry.section]
            sections[entry.section if number == 1 else f"{entry.section}#{number}"] = entry
    names = {label: partial(setting_names, entry.kind) for label, entry in sections.items()}
    for item in overrides:
        change = (Change.of(item) if isinstance(item, str) else item).within(names)
        sections[change.section].change(change)


def load(name: str | Path, overrides: tuple[str | Change, ...] = ()) -> Recipe:
    """Return the recipe at a path, or a shipped one by name."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or (path.exists() and not path.is_dir()):
        try:
            check_regular(path)
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"recipe {name}: {reason}") from None
        return parse(text, str(name), overrides, path.parent)
    name = str(name)
    return replace(parse(text_of(name), f"{name}.yaml", overrides), name=name)
