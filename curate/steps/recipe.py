"""Recipes: YAML checked key by key, with overrides, into a list of steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from curate.formats.read_settings import ReadSettings
from curate.steps.contracts import CorpusStep, Product, Settings, Step, fitting, setting_names
from curate.steps.registry import step_class
from curate.steps.shipped import text_of
from llmcurate.base.disk.files import check_regular, text_digest
from llmcurate.base.disk.units import counted
from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import problem

CUT = "cut"
MOST_STEPS = 1000  # each stage of them is a folder, each step a module that workers load
READ = -1  # where entries are numbered: the section `read`
LineOf = Callable[[str], str | None]
SettingNames = Callable[[], Iterable[str]]
TOP_KEYS = ("name", "description", "paper", "input", "read", "steps")
# Files that are no recipe by their ending, and words in configurations of other tools.
OTHERS = {".py": "a Python file", ".toml": "a TOML file", ".ipynb": "a notebook"}
TOOLS = {
    "datatrove": "DataTrove",
    "\nprocess:": "Data-Juicer",
    "nemo_curator": "NeMo Curator",
    "algorithm_name": "text-dedup",
    "\nstreams:": "Dolma",
    "\ndedupe:": "Dolma",
}


@dataclass(frozen=True, repr=False)
class Recipe:
    """Named steps in order; `cuts` holds the positions before which a stage ends. As a text it is
    the YAML of what was given; `resolved` has the defaults too."""

    name: str
    steps: tuple[Settings, ...]
    description: str = ""
    input: tuple[str, ...] = ()
    read: ReadSettings = field(default_factory=ReadSettings)
    cuts: frozenset[int] = frozenset()
    paper: str = ""

    def __post_init__(self) -> None:
        for product in self.products:
            product.reading(self.read)

    @property
    def document_steps(self) -> tuple[Step | CorpusStep, ...]:
        """The steps on documents, in order."""
        return tuple(s for s in self.steps if isinstance(s, (Step, CorpusStep)))

    @property
    def products(self) -> tuple[Product, ...]:
        """The products, in order."""
        return tuple(s for s in self.steps if isinstance(s, Product))

    @property
    def reads_input(self) -> bool:
        """Whether a step or product reads the run's input, and no product brings it a corpus."""
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
        """Whether a product names sources of its own, and all that reads a corpus reads that."""
        return not self.reads_input and any(p.makes == "corpus" for p in self.products)

    def resolved(self) -> dict[str, Any]:
        """All settings, defaults included, in the form that `parse` reads."""
        return self._dump(lambda step: {step.name: step.resolved()}, given_alone=False)

    def _dump(self, entry: Callable[[Settings], Any], given_alone: bool) -> dict[str, Any]:
        steps: list[Any] = []
        for i, step in enumerate(self.steps):
            if i in self.cuts:
                steps.append(CUT)
            steps.append(entry(step))
        out: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.paper:
            out["paper"] = self.paper
        if self.input:
            out["input"] = list(self.input)
        read = self.read.model_dump(mode="json", exclude_unset=given_alone)
        if self.read.fetch is not None:
            read["fetch"] = self.read.fetch
        return out | {"read": read, "steps": steps}

    def __str__(self) -> str:
        data = self._dump(_entry_given, given_alone=True)
        kept = {key: value for key, value in data.items() if value or key == "steps"}
        return yaml.safe_dump(
            kept, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
        )

    __repr__ = __str__

    def digest(self) -> str:
        """A hash of everything that decides the output."""
        parts = [s.identity() for s in self.steps]
        return text_digest(json.dumps([parts, self.read.identity(), sorted(self.cuts)]))

    def reading(self, **settings: Any) -> Recipe:
        """The recipe with other settings of `read`; those that are None stay as they are."""
        stated = {name: value for name, value in settings.items() if value is not None}
        if not stated:
            return self
        before = {n: getattr(self.read, n) for n in self.read.model_fields_set}
        if "columns" in stated:  # one more name, beside those of the recipe
            stated["columns"] = {**self.read.columns, **stated["columns"]}
        place = {name: f"--{name.replace('_', '-')} {value}" for name, value in stated.items()}
        read = _check(ReadSettings, {**before, **stated}, "read", place.get)
        return replace(self, read=read)


def _entry_given(step: Settings) -> str | dict[str, Any]:
    """A step of a recipe as it is written by hand: without defaults."""
    settings = step.model_dump(mode="json", exclude_unset=True)
    return {step.name: settings} if settings else step.name


@dataclass(frozen=True)
class Change:
    """Another value for one setting. section: a step's label, or `read`; given: how the user wrote
    it, for messages."""

    section: str
    key: str
    value: Any
    given: str

    @classmethod
    def of(cls, text: str) -> Change:
        """From the `section.key=value` of a `--set`, or `key=value`, whose section `within` looks
        up; UsageError where it is none."""
        path, equals, raw = text.partition("=")
        section, _, key = path.strip().partition(".")
        option = f"--set {text}"
        if not equals or not section:
            raise UsageError(f"{option}: write section.key=value, as in c4.min_sentences=5")
        return cls(section, key, read_yaml(raw, option, lines=False)[0], option)

    def within(self, names: Mapping[str, SettingNames]) -> Change:
        """The change of the one setting that ends as it is written. names: the settings of each
        section. UsageError where none does, or several do."""
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
            raise UsageError(f"{self.given}: more than one setting is called so; write {places}")
        if self.key:
            hint = _nearest(self.section, sorted(names))
            raise UsageError(f"{self.given}: no section {self.section!r}; {hint}")
        last = sorted({name.rpartition(".")[2] for _, name in known})
        near = get_close_matches(path, [*last, *names], 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else "write section.key=value"
        raise UsageError(f"{self.given}: no setting {path!r}; {hint}")


class _Source:
    """A recipe's file, which finds the line of a key for messages."""

    def __init__(self, source: str, root: yaml.Node | None) -> None:
        self.source, self.root = source, root

    def at(self, *keys: Any) -> str:
        """`file:line` of the key at the end of a path of keys, or of the last one there is."""
        node, line = self.root, None
        for key in keys:
            child = None
            if isinstance(node, yaml.MappingNode):
                for k, v in node.value:
                    if k.value == str(key):
                        child, line = v, k.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and key in range(len(node.value)):
                child = node.value[key]
                line = child.start_mark.line + 1
            if child is None:
                break
            node = child
        return f"{self.source}:{line}" if line else self.source


def _nearest(key: str, keys: list[str]) -> str:
    near = get_close_matches(key, keys, 1, 0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(keys)}" if keys else "it takes no keys"


def _has_truth(value: Any) -> bool:
    """Whether a value is true or false, or holds it."""
    if isinstance(value, dict):
        return any(map(_has_truth, (*value, *value.values())))
    return any(map(_has_truth, value)) if isinstance(value, list) else isinstance(value, bool)


def _takes_truth(model: type[BaseModel], key: str) -> bool:
    """Whether true and false are among the values of a field."""
    kinds = [model.model_fields[key].annotation]
    for kind in kinds:
        kinds += get_args(kind)
    models = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
    return models or any(kind in kinds for kind in (bool, Any, object, True, False))


def _no_text(key: str, value: Any) -> str:
    shown = "a list or mapping" if isinstance(value, (list, dict)) else str(value).lower()
    return (
        f"{key}: {shown} is no value of it (YAML takes yes, no, on and off for true and false: put"
        " a text into quotes)"
    )


def _check(
    model: type[BaseModel],
    values: dict[str, Any],
    section: str,
    line_of: LineOf | None,
    folder: Path | None = None,
) -> Any:
    """The model from the values of a section; UsageError says the first mistake in one line.

    line_of: the `file:line` of a key, or the `--set` that it is from; None where it is of neither.
    folder: of the recipe's file.
    """
    for key, value in values.items():
        if key in model.model_fields and _has_truth(value) and not _takes_truth(model, key):
            where = (line_of(str(key)) if line_of else None) or f"step {section}"
            raise UsageError(f"{where}: {_no_text(f'{section}.{key}', value)}")
    try:
        return model.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        place = line_of(key) if line_of else None
        where = place or f"step {section}"
        if first["type"] == "extra_forbidden":
            hint = _nearest(key, list(model.model_fields))
            raise UsageError(f"{where}: unknown key {key!r} in {section}; {hint}") from None
        said = problem(error, lambda name: ".".join(filter(None, [section if place else "", name])))
        raise UsageError(f"{where}: {said}") from None
    except UnicodeEncodeError:  # half of a surrogate pair, where a pattern is to be matched
        where = (line_of("") if line_of else None) or f"step {section}"
        raise UsageError(f"{where}: a value of {section} is no Unicode text") from None


def make_step(
    name: str,
    settings: dict[str, Any],
    line_of: LineOf | None = None,
    folder: Path | None = None,
) -> Settings:
    """A step by name (`name` or `name@variant`) and settings; UsageError names the mistake. folder:
    of the recipe's file."""
    base, _, variant = name.partition("@")
    cls = step_class(base)
    values = dict(settings)
    if variant:
        if "variant" not in cls.model_fields:
            raise UsageError(f"step {base!r} has no variants")
        values["variant"] = variant
    cls = fitting(cls, values)
    step: Settings = _check(cls, values, base, line_of, folder)
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
    """A recipe from steps; the same step twice gets the label `name#2`."""
    seen: dict[str, int] = {}
    for i, step in enumerate(steps):
        seen[step.name] = seen.get(step.name, 0) + 1
        if seen[step.name] > 1:
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
                f"recipe {name}: {step.label} names sources of its own, so the steps before it have"
                " no use; leave `sources` out and it mixes what they keep"
            )
    return Recipe(name, tuple(steps), description, inputs, read or ReadSettings(), cuts)


def compose(
    name: str,
    chosen: Iterable[tuple[str, dict[str, Any]]],
    sets: tuple[str | Change, ...] = (),
    reading: Mapping[str, Any] = MappingProxyType({}),
) -> Recipe:
    """A recipe of the chosen steps, as commands of one or a few steps are. reading: settings of
    `read`."""
    values = [(i, step, dict(settings)) for i, (step, settings) in enumerate(chosen)]
    read = dict(reading)
    for _, step, _ in values:
        if step != CUT:
            step_class(step.partition("@")[0])
    overridden = _override(values, read, sets)
    steps, cuts = _steps(values, overridden)
    place = partial(_place, overridden[READ], None)
    return build(name, steps, read=_check(ReadSettings, read, "read", place), cuts=cuts)


def parse(
    text: str,
    source: str,
    overrides: tuple[str | Change, ...] = (),
    folder: Path | None = None,
) -> Recipe:
    """A recipe from YAML text. overrides: `step.key=value` or `read.key=value`. folder: where files
    beside the recipe are."""
    kind = OTHERS.get(Path(source).suffix.lower(), "")
    data, root = (None, None) if kind else read_yaml(text, source)
    file = _Source(source, root)
    tool = next((f" of {tool}" for word, tool in TOOLS.items() if word in f"\n{text.lower()}"), "")
    if kind or (tool and "steps" not in (data or ())):
        raise UsageError(
            f"{source} is {kind or 'a file'}{tool}, not a recipe: that is YAML with a list of"
            " `steps`, which `llmcurate recipes fineweb` shows an example of"
        )
    if not isinstance(data, dict):
        raise UsageError(f"{source}: a recipe is a mapping with the key `steps`")
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
            f"{source}: {counted(len(entries), 'step')}; a recipe has {MOST_STEPS:,} at most"
        )
    values = _entries(entries, file)
    read_values, inputs = data.get("read") or {}, data.get("input") or []
    if not isinstance(read_values, dict):
        raise UsageError(f"{file.at('read')}: `read` is a mapping of settings")
    inputs = (inputs,) if isinstance(inputs, str) else inputs
    if not isinstance(inputs, (list, tuple)) or not all(isinstance(i, str) for i in inputs):
        raise UsageError(f"{file.at('input')}: `input` is a path or a list of paths")
    read_values = dict(read_values)
    overridden = _override(values, read_values, overrides)
    steps, cuts = _steps(values, overridden, file, folder)
    place = partial(_place, overridden[READ], partial(file.at, "read"))
    read = _check(ReadSettings, read_values, "read", place)
    recipe = build(
        str(data.get("name") or Path(source).stem),
        steps,
        read=read,
        cuts=cuts,
        description=str(data.get("description") or ""),
        inputs=tuple(inputs),
    )
    return replace(recipe, paper=str(data.get("paper") or ""))


def _entries(entries: list[Any], file: _Source) -> list[tuple[int, str, dict[str, Any]]]:
    values: list[tuple[int, str, Any]] = []
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            values.append((i, entry, {}))
        elif isinstance(entry, dict) and len(entry) == 1:
            ((name, settings),) = entry.items()
            values.append((i, str(name), {} if settings is None else settings))
        else:
            raise UsageError(f"{file.at('steps', i)}: a step is `name` or `name: {{key: value}}`")
        name, settings = values[-1][1:]
        alone = None
        if name != CUT:
            try:
                alone = step_class(name.partition("@")[0]).plain_setting
            except UsageError as error:
                raise UsageError(f"{file.at('steps', i)}: {error}") from None
        if alone and not isinstance(settings, dict):
            settings = {alone: settings}
        if not isinstance(settings, dict):
            raise UsageError(f"{file.at('steps', i)}: the settings of {name} are no mapping")
        values[-1] = (i, name, dict(settings))
    return values


def _steps(
    values: list[tuple[int, str, dict[str, Any]]],
    overridden: dict[int, dict[str, str]],
    file: _Source | None = None,
    folder: Path | None = None,
) -> tuple[list[Settings], frozenset[int]]:
    """(the steps of the entries, the positions before which a stage ends)."""
    steps: list[Settings] = []
    cuts: set[int] = set()
    for index, name, settings in values:
        if name == CUT:
            cuts.add(len(steps))
            continue
        in_file = partial(file.at, "steps", index, name) if file else None
        line_of = partial(_place, overridden[index], in_file)
        steps.append(make_step(name, settings, line_of, folder))
    return steps, frozenset(cuts)


def _override(
    values: list[tuple[int, str, dict[str, Any]]],
    read: dict[str, Any],
    overrides: tuple[str | Change, ...],
) -> dict[int, dict[str, str]]:
    """Puts the changes into the settings; sections are step labels and `read`. Returns by the
    entry's number, or READ, which keys of it are from which change."""
    labels: dict[str, tuple[int, dict[str, Any]]] = {"read": (READ, read)}
    names: dict[str, SettingNames] = {"read": lambda: ReadSettings.model_fields}
    overridden: dict[int, dict[str, str]] = {READ: {}, **{i: {} for i, _, _ in values}}
    count: dict[str, int] = {}
    for i, name, settings in values:
        base = name.partition("@")[0]
        if base == CUT:
            continue
        count[base] = count.get(base, 0) + 1
        label = base if count[base] == 1 else f"{base}#{count[base]}"
        labels[label] = i, settings
        names[label] = partial(setting_names, step_class(base))
    for item in overrides:
        change = (Change.of(item) if isinstance(item, str) else item).within(names)
        entry, settings = labels[change.section]
        model = ReadSettings if entry == READ else step_class(change.section.partition("#")[0])
        key, _, inner = change.key.partition(".")
        kind, before = model.model_fields.get(key), settings.get(key) or {}
        if kind and inner and get_origin(kind.annotation) is dict and isinstance(before, dict):
            settings[key] = {**before, inner: change.value}
        else:
            key = change.key
            settings[key] = change.value
        overridden[entry][key] = change.given
    return overridden


def _place(overridden: dict[str, str], in_file: LineOf | None, key: str) -> str | None:
    """Where a key is from, for messages: its `--set`, or its line. What is wrong with several keys
    together is of those changes where there are any."""
    sets = overridden.get(key) or (not key and " ".join(overridden.values()))
    return sets or (in_file(key) if in_file else None)


def load(name: str | Path, overrides: tuple[str | Change, ...] = ()) -> Recipe:
    """A recipe by path, or a shipped one by name."""
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
