"""The methods of `llmcurate dedup --method NAME`. A method is one step, or several steps in order.

`exact+minhash` runs one method after the other. The options of a method are the settings of its
steps. A step names its methods in its decorator."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from curate.steps.registry import add_declared, facts
from llmcurate.base.errors import UsageError

MethodSteps = list[tuple[str, dict[str, Any]]]


def methods() -> dict[str, MethodSteps]:
    """Return {method: its steps, with fixed settings}; methods of one step come first."""
    found: dict[str, MethodSteps] = {}
    for step, methods_of_step in facts("methods").items():
        for name, settings in methods_of_step.items():
            found.setdefault(name, []).append((step, settings))
    return dict(sorted(found.items(), key=lambda method: len(method[1])))


def steps_of(method: str) -> MethodSteps:
    """Return the steps of methods joined by `+`. Raises UsageError if a method is unknown."""
    steps: MethodSteps = []
    for name in map(str.strip, method.split("+")):
        if name not in methods():
            add_declared()
        known = methods()
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"no dedup method {name!r}; {hint}known: {', '.join(known)}")
        steps += [(step, dict(settings)) for step, settings in known[name]]
    return steps


def steps_with_options(method: str, options: dict[str, Any]) -> MethodSteps:
    """Return the steps of a method. Each of `options` (values by setting) is set on all steps that
    have the setting. Raises UsageError if no step has it."""
    steps = steps_of(method)
    for option, value in options.items():
        steps_with_option = [s for step, s in steps if has_option(step, s, option)]
        if not steps_with_option:
            owners = [
                n
                for n, method_steps in methods().items()
                if any(has_option(*step, option) for step in method_steps)
            ]
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(f"{flag} needs --method {' or '.join(owners)}")
        for settings in steps_with_option:
            settings[option] = value
    return steps


def has_option(step: str, fixed: Collection[str], option: str) -> bool:
    """Return True if the step has this setting and the method does not fix its value."""
    from curate.steps.registry import step_class  # late: help loads no pydantic

    return option not in fixed and option in step_class(step).model_fields
