"""`python -m train`: what it prints is obeyed by no terminal."""

from __future__ import annotations

import sys

from train.__main__ import _print_line


def test_control_characters_of_names_are_printed_as_codes(capsys):
    _print_line("shards a\x1b[2J\nb\x9b\u202e", sys.stderr)
    assert capsys.readouterr().err == "shards a\\u001b[2J\\u000ab\\u009b\\u202e\n"
