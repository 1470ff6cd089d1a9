"""The help of a command: its usage, and one form for arguments and options."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from curate.steps.schema import limits

NOTHING: tuple[Any, ...] = (None, "", [], {}, ())


class Command(TyperCommand):
    """A command whose help names values as `IN...` and `TEXT`, whatever Typer is installed."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """The usage line; the command of a group by itself has no word of its own."""
        pieces = self.collect_usage_pieces(ctx)
        formatter.write_usage(ctx.command_path.rstrip(), " ".join(pieces))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS]` and the arguments, those that may be missing in brackets."""
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        names = [_argument(p) if p.required else f"[{_argument(p)}]" for p in arguments]
        return [self.options_metavar or "", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Two lists: arguments and options, each with its help, limits and default."""
        shown = [p for p in self.get_params(ctx) if not getattr(p, "hidden", False)]
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            name = _argument if kind == "argument" else _option
            rows = [(name(p), _text(p)) for p in shown if p.param_type_name == kind]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.nargs == 1 or name.endswith("...") else f"{name}..."


def _option(parameter: Any) -> str:
    flags = [", ".join(sorted(parameter.opts, key=len)), ", ".join(parameter.secondary_opts)]
    names = " / ".join(filter(None, flags))
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'TEXT'}"


def _text(parameter: Any) -> str:
    """The help of a parameter, with its limits and default in brackets."""
    of_type = getattr(parameter, "type", None)
    sides = {"minimum": "min", "maximum": "max"}
    facts = {k: getattr(parameter, n, getattr(of_type, n, None)) for k, n in sides.items()}
    facts = {name: value for name, value in facts.items() if value is not None}
    default = parameter.default if getattr(parameter, "show_default", False) else None
    if parameter.param_type_name == "option" and parameter.is_flag and not default:
        default = None
    help_text = " ".join((parameter.help or "").split())
    bracket = shown_facts(facts, default, required=parameter.required)
    return " ".join(filter(None, [help_text, bracket]))


def shown_facts(
    facts: dict[str, Any],
    default: Any,
    before: list[str] | None = None,
    behind: list[str] | None = None,
    required: bool = False,
) -> str:
    """Limits and default of a value, in brackets; before and behind: what else is said of it."""
    texts = [*(before or ()), *limits(facts), *(behind or ())]
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
