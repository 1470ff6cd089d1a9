"""A command group with a default action: a first word that is no subcommand is an input."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

DEFAULT = "default"


class DefaultGroup(TyperGroup):
    """`group IN...` runs the hidden command named `default`; `group sub` runs `sub`.

    `group --help` shows the default's help, and the subcommands behind it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        visible = [n for n, c in self.commands.items() if n != DEFAULT and not c.hidden]
        help_of_group = bool(visible) and args[:1] in (["--help"], ["-h"])
        if not help_of_group and (not args or args[0] not in self.commands):
            args = [DEFAULT, *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        # Usage lines read `llmcurate dedup`, as the user typed it.
        return ("" if name == DEFAULT else name), command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        action = self.commands[DEFAULT]
        inner = type(ctx)(action, parent=ctx.parent, info_name=ctx.info_name)
        action.format_usage(inner, formatter)
        action.format_help_text(inner, formatter)
        action.format_options(inner, formatter)
        self.format_commands(ctx, formatter)
