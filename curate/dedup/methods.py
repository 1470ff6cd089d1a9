"""The methods of `llmcurate dedup --method NAME`: each is one step, or a few in order.

`exact+minhash` runs one method after the other. A method's options are the fields of its steps, so
a new step brings its options with it. Which methods it is a step of, a dedup says in its decorator.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from curate.steps.registry import facts, take_up
from llmcurate.base.errors import UsageError

MethodSteps = list[tuple[str, dict[str, Any]]]


def methods() -> dict[str, MethodSteps]:
    """The steps of each method, with the settings that make them this method. Methods
    of one step come first."""
    found: dict[str, MethodSteps] = {}
    for step, theirs in facts("methods").items():
        for name, settings in theirs.items():
            found.setdefault(name, []).append((step, settings))
    return dict(sorted(found.items(), key=lambda method: len(method[1])))


def _method(name: str) -> MethodSteps:
    if name not in methods():
        take_up()
    known = methods()
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"no dedup method {name!r}; {hint}known: {', '.join(known)}")
    return known[name]


def steps_of(method: str) -> MethodSteps:
    """The steps of a method, or of several joined by `+`; UsageError lists the known ones."""
    return [(step, dict(s)) for name in method.split("+") for step, s in _method(name.strip())]


def steps_with_options(method: str, options: dict[str, Any]) -> MethodSteps:
    """The steps of a method with the options given; UsageError where none of them has one.

    options: by field; each goes to all of the method's steps that have it.
    """
    steps = steps_of(method)
    for option, value in options.items():
        takers = [s for step, s in steps if takes(step, s, option)]
        if not takers:
            owners = [
                n
                for n, method_steps in methods().items()
                if any(takes(*step, option) for step in method_steps)
            ]
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(f"{flag} needs --method {' or '.join(owners)}")
        for settings in takers:
            settings[option] = value
    return steps


def takes(step: str, fixed: Collection[str], option: str) -> bool:
    """Whether the step of a method leaves the option to the user."""
    from curate.steps.registry import step_class  # late: help loads no pydantic

    return option not in fixed and option in step_class(step).model_fields
