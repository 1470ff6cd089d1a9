"""Operators: steps of other tools as configured, and rules that turn them into our steps.

In the settings of a rule, `max.digits` names the entry `digits` of the mapping `max`. A filter of
another tool often has a single limit, so `merged` joins neighbouring filters into one step.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from curate.lab.migrate.literal_calls import Call, Expression
from curate.lab.migrate.migration import MappedStep, Migration, Remark, Setting
from llmcurate.base.disk.yaml_file import line_of
from llmcurate.base.errors import UsageError

NONE = math.inf  # the default of a limit that is off without a value
BOUNDLESS = 1e15  # larger limits are off, such as Data-Juicer's sys.maxsize
OFF = "not in the configuration"
MOST_OPEN = 8  # groups per step name that the next such step may join
# Filters whose order does not matter, with the values that switch off their rules.
FILTERS: dict[str, dict[str, object]] = {
    "ratios": {"profile": "none"},
    "gopher_quality": {
        "profile": "none",
        **{"min_words": 0, "min_word_length": 0, "min_alpha_words": 0, "min_stop_words": 0},
        **{"max_words": 10**9, "max_word_length": 1e9, "max_symbol_ratio": 1e9},
        **{"max_bullet_lines": 1, "max_ellipsis_lines": 1},
    },
    "gopher_repetition": {
        "profile": "none",
        **{"max_duplicate_lines": 1, "max_duplicate_paragraphs": 1},
        **{"max_duplicate_line_chars": 1e9, "max_duplicate_paragraph_chars": 1e9},
        **{"max_top_n_gram_chars": {}, "max_duplicate_n_gram_chars": {}},
    },
    "fineweb_quality": {
        "profile": "none",
        **{"min_end_marks": 0, "max_short_lines": 1},
        **{"max_duplicate_chars": 1e9, "max_newlines": 1e9},
    },
    "pii": {"emails": False, "phones": False, "ips": False},  # joined although it changes texts
}
# Steps that join the same step directly before them, with values that switch off rules.
NEIGHBOURS: dict[str, dict[str, object]] = {
    "refinedweb_lines": {
        "profile": "none",
        **{"max_uppercase": 1, "max_numeric": 1, "max_removed_words": 1e9},
        **{"anywhere": [], "line_ends": [], "line_starts": []},
    },
    "c4": {
        "profile": "none",
        **{"require_end_mark": False, "min_words_per_line": 0, "min_sentences": 0},
        **{"max_word_chars": 10**9, "max_page_chars": 10**9},
        **{"lorem_ipsum_phrases": [], "javascript_phrases": [], "policy_phrases": []},
    },
    "dedup_passages": {"min_sentences": 0},
    **{"url_filter": {}, "language": {}, "quality": {}},
}
# Other steps that change no text, so filters before and after them may be joined.
JUDGES = {"column_filter", "document_length", "language", "listed_words", "periodic_repetition"}
JUDGES |= {"perplexity", "quality", "url_filter"}
# The limits of Gopher's paper, table A1, which are defaults of several tools.
REPETITION: dict[str, Any] = {
    **{"max_duplicate_lines": 0.3, "max_duplicate_paragraphs": 0.3},
    **{"max_duplicate_line_chars": 0.2, "max_duplicate_paragraph_chars": 0.2},
    "max_top_n_gram_chars": {2: 0.2, 3: 0.18, 4: 0.16},
    "max_duplicate_n_gram_chars": {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1},
}
Mapped = Iterator[MappedStep | Remark | Setting]  # a Setting belongs to the section `read`


class Theirs(NamedTuple):
    """A setting of another tool, from which the value of our setting is computed."""

    key: str
    default: Any = None  # their value if not configured; None, NONE: omit ours
    change: Callable[[Any], Any] = lambda value: value  # their value -> ours


@dataclass(frozen=True)
class Rule:
    """A rule that turns an operator, a step of another tool, into our step."""

    step: str  # name of our step, or `read` for that section of a recipe
    settings: Mapping[str, object] = field(default_factory=dict)  # ours -> value or `Theirs`
    differs: str = ""  # what our step does otherwise
    more: bool = False  # True if the operator is already counted with another step
    off: tuple[object, ...] = ()  # values of the other tool that switch off a limit

    def keys(self) -> tuple[str, ...]:
        """Return the names of the operator's settings that the rule uses."""
        return tuple(v.key for v in self.settings.values() if isinstance(v, Theirs))

    def off_values(self) -> Mapping[str, object]:
        """Return {setting of llmcurate's step: value that switches the setting off}."""
        return {**FILTERS, **NEIGHBOURS}.get(self.step, {})


def rule(step: str, differs: str = "", /, off: tuple[object, ...] = (), **settings: Any) -> Rule:
    """Return a rule that turns another tool's operator into `step`. The arguments are fields of the
    class Rule; further keyword arguments are the settings of `step`."""
    return Rule(step, settings, differs, off=off)


Rules = Rule | tuple[Rule, ...]


def several(rules: Rules) -> tuple[Rule, ...]:
    return (rules,) if isinstance(rules, Rule) else rules


@dataclass(frozen=True)
class Operator:
    """A step of another tool, as a configuration has it."""

    name: str
    line: int
    values: Mapping[str, Any]  # its settings
    path: Path  # of the configuration
    tool: str  # name and version, whose defaults apply
    lines: Mapping[str, int] = field(default_factory=dict)  # of settings, if known

    @classmethod
    def of_call(cls, call: Call, order: Iterable[str], path: Path, tool: str) -> Operator:
        """Return the operator that a call makes. `order` has the names of positional parameters;
        further arguments become settings `argument N`. A nested call of a `...Config` is replaced
        by its keyword arguments."""
        names, values = iter(order), dict[str, Any]()
        for i, value in enumerate(call.arguments, 1):
            values[next(names, f"argument {i}")] = value
            if isinstance(value, Expression) and isinstance(value.node, ast.Starred):
                values |= dict.fromkeys(names, value)
        values |= call.keywords
        lines = dict.fromkeys(values, call.line)
        for key, config in list(values.items()):
            if isinstance(config, Call) and config.name.endswith("Config"):
                del values[key]
                values |= config.keywords
                lines |= dict.fromkeys(config.keywords, config.line)
        return cls(call.name, call.line, values, path, tool, lines)

    def value(self, theirs: Theirs) -> Any:
        """Return the value of llmcurate's setting, computed from `theirs`, a setting of this
        operator in the other tool. Raise UsageError if the operator gives this setting a value of
        the wrong type; the right type is that of the setting's default."""
        value = self.values.get(theirs.key)
        if value is None or not is_constant(value):
            value = theirs.default
        if isinstance(theirs.default, (int, float)) and isinstance(value, str):
            with suppress(ValueError):  # YAML 1.1 reads 2e5 as a text
                value = float(value)
        kinds = {bool: bool, int: (int, float), float: (int, float), str: str}
        kind: Any = kinds.get(type(theirs.default), object)
        odd = kind == (int, float) and (isinstance(value, bool) or value != value)  # NaN
        if odd or not isinstance(value, kind):
            names = {bool: "true or false", str: "a text"}
            raise UsageError(
                f"{at(self.path, self.lines.get(theirs.key, self.line))}: {self.name}.{theirs.key}"
                f" must be {names.get(type(theirs.default), 'a number')}, not {value!r:.60}"
            )
        return None if value is None else theirs.change(value)

    def mapped(self, rules: Rules) -> Mapped:
        """Yield the steps into which these rules turn the operator, and remarks on what differs."""
        for rule in several(rules):
            settings = [self._setting(rule, *each) for each in rule.settings.items()]
            given = tuple(s for s in settings if s.value is not None and not _boundless(s.value))
            if {"bands", "rows"} <= {s.name for s in given}:  # these decide if both are given
                given = tuple(s for s in given if s.name not in ("threshold", "permutations"))
            for ours, theirs in rule.settings.items():
                if isinstance(theirs, Theirs) and not is_constant(self.values.get(theirs.key)):
                    yield self.differs(f"{theirs.key} is not constant: set {rule.step}.{ours}")
            counts = int(not rule.more and rule.step != "read")
            yield MappedStep(rule.step, given, self._origin(self.line, self.name), counts)
            if rule.differs:
                yield (self.needless if rule.step == "read" else self.differs)(rule.differs)

    def tried(self, results: Mapped) -> Mapped:
        """Yield the results, or only one remark if a setting has a value of a wrong type."""
        try:
            yield from [*results]
        except (AttributeError, TypeError, ValueError, UsageError) as error:
            place = at(self.path, self.line)
            yield self.unmapped(str(error).removeprefix(f"{place}: "))

    def differs(self, message: str) -> Remark:
        return Remark(self.line, self.name, message, unmapped=False)

    def unmapped(self, message: str = "no step here has its rule") -> Remark:
        return Remark(self.line, self.name, message, unmapped=True)

    def needless(self, message: str) -> Remark:
        return Remark(self.line, self.name, message, unmapped=False, needless=True)

    def _setting(self, rule: Rule, ours: str, value: object) -> Setting:
        if not isinstance(value, Theirs):
            return Setting(ours, value, f"{self.name} of {self.tool}")
        name = f"{self.name}{'.' if value.key.isidentifier() else ' '}{value.key}"
        given = self.values.get(value.key)
        origin = self._origin(self.lines.get(value.key, self.line), name)
        if value.key in self.values and given in rule.off:
            return Setting(ours, rule.off_values().get(ours), origin)
        if given is None:
            origin = f"{name}: default of {self.tool}"
        elif not is_constant(given):
            origin += f": set by the script; here the default of {self.tool}"
        return Setting(ours, self.value(value), origin)

    @staticmethod
    def _origin(line: int, name: str) -> str:
        return f"line {line}: {name}" if line else name


def is_constant(value: object) -> bool:
    inner = [*value.values()] if isinstance(value, dict) else value
    if isinstance(inner, (tuple, list)):
        return all(map(is_constant, inner))
    return not isinstance(value, (Expression, Call))


def _boundless(value: object) -> bool:
    return isinstance(value, (int, float)) and abs(value) >= BOUNDLESS


def at(path: Path, line: int) -> str:
    return f"{path}:{line}" if line else str(path)


def migration(
    tool: str,
    results: Iterable[MappedStep | Remark | Setting],
    source: Setting | None = None,
    text: Setting | None = None,
) -> Migration:
    """Return the migration made of `results`: steps, remarks and settings of the section `read`.
    `source` is the recipe's input, unless a setting `input` is among the results, and `text` is the
    name of the column with texts."""
    results = list(results)
    steps = [result for result in results if isinstance(result, MappedStep)]
    settings = {result.name: result for result in results if isinstance(result, Setting)}
    settings |= {s.name: s for s in _one([s for s in steps if s.step == "read"]).settings}
    source = settings.pop("input", source)
    if text and text.value not in ("text", None):
        settings["columns"] = replace(text, name="columns", value={"text": text.value})
    return Migration(
        tool,
        source if source and source.value else None,
        merged(step for step in steps if step.step != "read"),
        tuple(result for result in results if isinstance(result, Remark)),
        tuple(settings.values()),
    )


def merged(steps: Iterable[MappedStep]) -> tuple[MappedStep, ...]:
    """Return the steps after joining steps of the same name whose settings agree. Steps named in
    FILTERS are joined if no step between them changes texts, steps named in NEIGHBOURS if they are
    adjacent. Settings that are lists are joined too."""
    groups: list[list[MappedStep]] = []
    # {step name: [(group that a further step may join, its settings)]}
    latest: dict[str, list[tuple[list[MappedStep], dict[str, object]]]] = {}
    for step in steps:
        name, given = step.step, {setting.name: setting.value for setting in step.settings}
        if name in NEIGHBOURS and groups and groups[-1][0].step != name:
            latest.pop(name, None)
        for group, settings in latest.get(name, ()):
            if all(_agree(settings.get(key, value), value) for key, value in given.items()):
                group.append(step)
                settings |= given
                break
        else:
            groups.append([step])
            if name not in FILTERS and name not in JUDGES:
                latest.clear()
            if name in FILTERS:
                latest[name] = [*latest.get(name, ()), (groups[-1], given)][-MOST_OPEN:]
            elif name in NEIGHBOURS:
                latest[name] = [(groups[-1], given)]
    return tuple(map(_one, groups))


def _agree(before: object, value: object) -> bool:
    return before == value or (isinstance(before, list) and isinstance(value, list))


def _one(group: list[MappedStep]) -> MappedStep:
    settings: dict[str, Setting] = {}
    entries: dict[str, dict[str, Setting]] = {}
    for setting in (s for step in group for s in step.settings):
        name, _, entry = setting.name.partition(".")
        before = settings.get(name)
        if entry:
            entries.setdefault(name, {})[entry] = replace(setting, name=entry)
            setting = Setting(name, tuple(entries[name].values()), "")
        elif before and isinstance(before.value, list) and isinstance(setting.value, list):
            more = [value for value in setting.value if value not in before.value]
            origin = f"{before.origin}; {setting.origin}" if more else before.origin
            setting = Setting(name, [*before.value, *more], origin)
        settings[name] = setting
    step = group[0].step if group else "read"
    for name, value in Rule(step).off_values().items():
        settings.setdefault(name, Setting(name, value, OFF))
    origin = "; ".join(dict.fromkeys(each.origin for each in group))
    return MappedStep(step, tuple(settings.values()), origin, sum(s.stands_for for s in group))


def node_line(root: yaml.Node | None, *keys: str | int) -> int:
    """Return the line of the value at the path `keys` in a YAML tree. If the path ends early,
    return the line of its last existing key."""
    return line_of(root, *keys) or 0


def need(value: Any, kind: type, path: Path, line: int, what: str) -> Any:
    """Return the value after checking that it is of the type `kind`; None becomes an empty list or
    mapping. Raise UsageError for another type."""
    if value is None and kind is not str:
        return kind()
    if not isinstance(value, kind):
        names = {"dict": "a mapping", "list": "a list", "str": "a text"}
        raise UsageError(f"{at(path, line)}: {what} must be {names[kind.__name__]}")
    return value
