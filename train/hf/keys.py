"""A config.json as a table of rows. A row writes a key of the file, and reads our settings from
this key. A later row replaces an earlier one of the same name, so a family can extend another
family's table."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, TypeAdapter, ValidationError

from llmcurate.base.errors import LlmcurateError, UsageError
from train.model.config import ModelConfig
from train.model.feed_forward_settings import ACTIVATIONS as OURS

REQUIRED = object()
_listed = lambda value: [value] if isinstance(value, int) else value  # noqa: E731
Whole = Annotated[int, Field(strict=True, gt=-(1 << 63), lt=1 << 63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_WHOLE, _WHOLES = TypeAdapter(Whole), TypeAdapter(Annotated[list[Whole], BeforeValidator(_listed)])
_NUMBER = TypeAdapter(Number)
_NUMBERS = TypeAdapter(list[Annotated[Number, Field(gt=0)]])
_FLAG, _OBJECT = TypeAdapter(StrictBool), TypeAdapter(dict[str, Any])
_WORD, _WORDS = TypeAdapter(StrictStr), TypeAdapter(list[StrictStr])


Choice = TypeVar("Choice", bound=str)


class Settings:
    """Look-ups of keys in a JSON object by type. They raise an ``LlmcurateError`` that names file
    and key. A key with the value null counts as absent."""

    def __init__(self, values: dict[str, Any], where: str, aliases: Mapping[str, str]) -> None:
        self._values, self.where, self._aliases = values, where, aliases

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def refusal(self, name: str, value: Any, why: str) -> LlmcurateError:
        shown = reprlib.repr(value)
        return UsageError(f"{self.where}: {name} is {shown}: {why}")

    def whole(self, name: str, default: Any = REQUIRED) -> Any:
        return self._checked(name, default, _WHOLE, "a whole number")

    def number(self, name: str, default: Any = REQUIRED) -> float:
        return float(self._checked(name, default, _NUMBER, "a number"))

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self._checked(name, REQUIRED, _NUMBERS, "a list of numbers over 0")
        return tuple(float(value) for value in values)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._checked(name, default, _FLAG, "true or false"))

    def word(self, name: str, default: Any = REQUIRED) -> str:
        return str(self._checked(name, default, _WORD, "a word"))

    def words(self, name: str, between: str | None = None) -> list[str] | None:
        """Return a key's list of words, None if the key is absent. With ``between``, the value may
        also be one string, which is split at this separator."""
        value = self._get(name, None)
        if between is not None and isinstance(value, str):
            return [word.strip() for word in value.split(between)]
        words: list[str] | None = self._checked(name, None, _WORDS, "a list of words")
        return words

    def wholes(self, name: str) -> list[int]:
        """Return the value of a key, whole numbers or a single one, as a list; empty if absent."""
        return list(self._checked(name, [], _WHOLES, "a list of whole numbers"))

    def one_of(self, name: str, choices: Mapping[str, Choice], default: Any = REQUIRED) -> Choice:
        value = self.word(name, default)
        if value not in choices:
            raise self.refusal(name, value, f"expected one of {', '.join(choices)}")
        return choices[value]

    def sub(self, name: str) -> Settings | None:
        """Return the settings in the object of a key; None if it is absent or empty."""
        value = self._checked(name, None, _OBJECT, "an object")
        return Settings(value, f"{self.where}: {name}", {}) if value else None

    def expect(self, name: str, expected: Any, default: Any) -> None:
        """Raise ``LlmcurateError`` if a key's value (``default`` if absent) is not ``expected``."""
        value = self._get(name, default)
        if value != expected:
            raise self.refusal(name, value, f"only {expected!r} is supported")

    def _checked(self, name: str, default: Any, kind: TypeAdapter[Any], expected: str) -> Any:
        value = self._get(name, default)
        try:
            return value if value is default else kind.validate_python(value)
        except ValidationError:
            raise self.refusal(name, value, f"expected {expected}") from None

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is None and name in self._aliases:
            value = self._values.get(self._aliases[name])
        if value is not None:
            return value
        if default is REQUIRED:
            raise UsageError(f"{self.where}: {name} is missing")
        return default


# Our names of feed-forwards, by transformers' names of activations.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
    "relu2": "relu2",
    "sigmoid": "sigmoid",
}
GATED = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
    "relu": "reglu",
    "sigmoid": "glu",
}


def activation(config: ModelConfig) -> str:
    name = OURS[config.feed_forward.activation][0]
    return {"gelu_tanh": "gelu_new"}.get(name, name)


@dataclass
class Reading:
    """A config.json that is being read. ``context`` is the context length requested by the user, if
    any. ``ours`` collects the settings of a ModelConfig by dotted name."""

    file: Settings
    context: int | None
    ours: dict[str, Any] = field(default_factory=dict)


Pairs = Iterable[tuple[str, Any]]


@dataclass(frozen=True)
class Row:
    """A row of the table of config.json keys. ``write`` makes keys of config.json from a model;
    ``read`` makes our settings from a config.json."""

    name: str
    write: Callable[[ModelConfig], Pairs] = lambda config: ()
    read: Callable[[Reading], Pairs] = lambda reading: ()


Default = Any  # a value, or a function of the Reading


def setting(
    kind: Callable[[Settings, str, Any], Any], theirs: str, ours: str, default: Default = REQUIRED
) -> Row:
    """Return a config.json row: a key with the same value as one of our settings."""
    value = attrgetter(ours)

    def read(reading: Reading) -> Pairs:
        usual = default(reading) if callable(default) else default
        yield ours, kind(reading.file, theirs, usual)

    return Row(theirs, lambda config: [(theirs, value(config))], read)


whole = partial(setting, Settings.whole)
number = partial(setting, Settings.number)
flag = partial(setting, Settings.flag)


def cap(theirs: str, ours: str) -> Row:
    """Return a row of the table of config.json keys: the key ``theirs`` holds the same limit as our
    setting ``ours``. A number is the limit; null, 0 or a missing key means no limit."""
    return constant_key(
        theirs, attrgetter(ours), lambda read: [(ours, read.file.number(theirs, 0.0) or None)]
    )


def length(theirs: str, default: Default = REQUIRED) -> Row:
    """Return a row of the table of config.json keys: the context length. A length that the user
    requests is read in place of the file's."""
    return Row(
        theirs,
        lambda config: [(theirs, config.context)],
        lambda reading: [("context", reading.context or reading.file.whole(theirs, default))],
    )


def learned(theirs: str, default: int, *, offset: int = 0, counted: bool = False) -> Row:
    """Return a row of the table of config.json keys: the key ``theirs`` has the number of learned
    positions. The first ``offset`` vectors of the model's table of positions belong to no position.
    If ``counted`` is True, the key's number includes them. ``default``: for an absent key."""
    extra = offset if counted else 0

    def read(reading: Reading) -> Pairs:
        count = reading.file.whole(theirs, default)
        if reading.context is not None:
            raise reading.file.refusal(theirs, count, "learned positions fix the context")
        yield "context", count - extra
        yield "position.kind", "learned"
        if offset:
            yield "position.offset", offset

    return Row(theirs, lambda config: [(theirs, config.context + extra)], read)


def heads(theirs: str, hidden: str) -> Row:
    """Return a config.json row: the number of heads. It must divide the value of ``hidden``."""

    def read(reading: Reading) -> Pairs:
        size, count = reading.ours["hidden"], reading.file.whole(theirs)
        if count < 1 or size % count:
            raise reading.file.refusal(theirs, count, f"it must divide {hidden} ({size})")
        yield from (("attention.heads", count), ("attention.kv_heads", count))
        yield "attention.head_dim", size // count

    return Row(theirs, lambda config: [(theirs, config.attention.heads)], read)


def activated(theirs: str, names: Mapping[str, str], default: str) -> Row:
    """Return a row of the table of config.json keys, for the feed-forward's activation. ``theirs``:
    the key. ``names``: {value of the key: our name}. ``default``: the value of an absent key."""
    return constant_key(
        theirs,
        activation,
        lambda read: [("feed_forward.activation", read.file.one_of(theirs, names, default))],
    )


def either(theirs: str, ours: str, yes: str, no: str, default: bool) -> Row:
    """Return a config.json row: a flag. If it is set, our setting is ``yes``, else ``no``."""
    value = attrgetter(ours)
    return constant_key(
        theirs,
        lambda config: value(config) == yes,
        lambda read: [(ours, yes if read.file.flag(theirs, default) else no)],
    )


def tied(default: bool) -> Row:
    """Return a row of the table of config.json keys: whether the head is tied to the embedding. The
    row only reads the key, ``default`` if missing. Another function writes it for all families."""
    name = "tie_word_embeddings"
    return Row(name, read=lambda read: [("head.tied", read.file.flag(name, default))])


def constant_key(
    theirs: str, value: Any, read: Callable[[Reading], Pairs] = lambda reading: ()
) -> Row:
    """Return a row of the table of config.json keys that writes ``value``, a constant or a function
    of the model, as the key ``theirs``. ``read`` makes our settings from config.json, by default
    none."""
    return Row(theirs, lambda config: [(theirs, value(config) if callable(value) else value)], read)


def implied(*settings: tuple[str, Any]) -> Row:
    """Return a row of the table of config.json keys that needs no key. All models of the family
    have the same values of the ``settings``, pairs (our setting, value)."""
    return Row(", ".join(name for name, _ in settings), read=lambda reading: settings)


def expected(write: bool = False, missing: Mapping[str, Any] | None = None, **values: Any) -> Row:
    """Return a row of the table of config.json keys that checks ``values``: {key: the only
    supported value}. A file with another value is refused. A key that the file lacks has the value
    given in ``missing``, or else the supported value. ``write``: True to write the keys, too."""

    def read(reading: Reading) -> Pairs:
        for theirs, value in values.items():
            reading.file.expect(theirs, value, (missing or {}).get(theirs, value))
        return ()

    return Row(", ".join(values), lambda config: values.items() if write else (), read)


def same(theirs: str, ours: str, *, write: bool = True) -> Row:
    """Return a row of the table of config.json keys that checks the key ``theirs``. Its value must
    be that of our setting ``ours``, which an earlier row has read from another key. A file with a
    different value is refused. ``write``: True to write the key, too."""
    value = attrgetter(ours)

    def read(reading: Reading) -> Pairs:
        reading.file.expect(theirs, reading.ours[ours], reading.ours[ours])
        return ()

    return Row(theirs, lambda config: [(theirs, value(config))] if write else (), read)


BIASED = implied(("attention.bias", "all"), ("feed_forward.bias", True))


def biased(theirs: str, default: bool) -> Row:
    """Return a row of the table of config.json keys: a flag for the biases of all linear layers."""
    return Row(
        theirs,
        lambda config: [(theirs, config.feed_forward.bias)],
        lambda read: BIASED.read(read) if read.file.flag(theirs, default) else (),
    )


def repeated(marks: str) -> str:
    """Return the shortest string whose repetition, cut to the same length, gives ``marks``."""
    lengths = range(1, len(marks) + 1)
    return next(marks[:n] for n in lengths if marks == (marks[:n] * len(marks))[: len(marks)])
