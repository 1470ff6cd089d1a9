"""YAML of strangers: one line for each mistake, at once, whatever its size and depth."""

from __future__ import annotations

import pytest

from llmcurate.base.disk.yaml_file import read_yaml
from llmcurate.base.errors import UsageError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: 2\na: 3\n",
            r"x:3: the key 'a' appears twice, first in line 1: remove one of them",
        ),
        ("a: {b: 1, b: 1}", "x:1: the key 'b' appears twice"),
        ("yes: 1\ntrue: 2\n", "x:2: the key 'true' appears twice"),
        (f"a: 1\nb: {'9' * 5000}", r"x:2: 9{20}\.\.\. is too long for a number or a date"),
        ("a: 2021-99-99", "x:1: 2021-99-99: month must be in 1..12"),
        ("a: " + "[" * 5000 + "]" * 5000, "x:1: nested more than 40 levels deep"),
        ("a: " + "[" * 900_000, "x:1: nested more than 40 levels deep"),
        ("".join(f"{' ' * n}a:\n" for n in range(200)), "x:41: nested more than 40 levels deep"),
        ("a: &a [*a]", "x:1: an alias inside the value that it names"),
        (
            "a0: &a0 [x, x]\n"
            + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "x: it has more than 300,000 keys, values and entries",
        ),
        ("- x\n" * 900_000, "x: it has more than 300,000 keys, values and entries"),
        ("# " + "x" * (5 << 20), "x: it has more than 4 MiB of YAML"),
        ("a: [1", r"x:\d: not YAML: "),
        ("a: *b", "x:1: not YAML: found undefined alias"),
        ("? [a]\n: 1", "x:1: not YAML: found unhashable key"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text, message):
    with pytest.raises(UsageError, match=f"^{message}") as error:
        read_yaml(text, "x")
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_what_is_well_formed_is_read_as_by_pyyaml():
    text = "a: [1, 2.5, yes, 2020-01-02, 'yes', null]\nb: &b {c: d}\ne: {<<: *b, f: g}\nh: *b\n"
    value, root = read_yaml(text, "x")
    import yaml

    assert value == yaml.safe_load(text) and root.value[1][0].start_mark.line == 1
    assert read_yaml("", "x") == (None, None)
