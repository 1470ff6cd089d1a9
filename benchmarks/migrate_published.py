"""The share of steps in other tools' published configurations that `llmcurate migrate` maps.

    python benchmarks/migrate_published.py datatrove=CHECKOUT/examples dclm=CHECKOUT/baselines ...

Each argument is a tool and a folder of a checkout of its repository. Printed are, for each file
with steps, the steps that are mapped and all of them, then the totals, and what is not mapped.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ENDINGS = (".py", ".yaml", ".yml", ".json", ".toml")


def main() -> None:
    from curate.lab.migrate.migration import migrate
    from llmcurate.base.errors import UsageError

    total: Counter[str] = Counter()
    for argument in sys.argv[1:]:
        tool, _, folder = argument.partition("=")
        of_tool: Counter[str] = Counter()
        absent: Counter[str] = Counter()
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix not in ENDINGS:
                continue
            try:
                done = migrate(path, tool)
            except UsageError:  # not a configuration
                continue
            if done.total:
                print(f"{tool:<14}{path.relative_to(folder)!s:<60}{done.mapped:>4} of {done.total}")
            of_tool.update(mapped=done.mapped, total=done.total)
            absent.update(remark.theirs for remark in done.remarks if remark.unmapped)
        share = of_tool["mapped"] / max(of_tool["total"], 1)
        print(f"{tool:<14}{of_tool['mapped']} of {of_tool['total']} steps ({share:.1%})")
        print(f"{'':<14}not mapped: {', '.join(f'{n} {name}' for name, n in absent.items())}")
        total += of_tool
    print(f"{total['mapped']} of {total['total']} ({total['mapped'] / max(total['total'], 1):.1%})")


if __name__ == "__main__":
    main()
