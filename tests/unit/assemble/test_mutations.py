"""The breakdown has no line that could go: without any one of its statements some truth comes out wrong."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from promptpath.collector import assemble as package
from promptpath.collector.assemble import breakdown

Row = dict[str, Any]
Make = Callable[..., Row]
Run = Callable[..., list[Row]]

_TREE = ast.parse(inspect.getsource(breakdown))


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.For, ast.If)):
            yield node.body


def _statements() -> list[int]:
    """Lines of all statements inside functions, docstrings aside."""
    return sorted(
        {
            statement.lineno
            for body in _bodies(_TREE)
            for statement in body
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        }
    )


def _without(line: int) -> types.ModuleType:
    tree = ast.parse(inspect.getsource(breakdown))
    for body in _bodies(tree):
        for index, statement in enumerate(body):
            if statement.lineno == line:
                body[index] = ast.copy_location(ast.Pass(), statement)
    module = types.ModuleType("mutant")
    module.__dict__["__name__"] = "promptpath.collector.assemble.breakdown"
    exec(compile(ast.fix_missing_locations(tree), f"breakdown without line {line}", "exec"), module.__dict__)
    return module


def _truths(make: Make, prompts: Run) -> list[list[Row]]:
    """Traces that between them need every statement."""
    retried = [
        make("a", "", 0, 1000, "client", service="app", first_token_ns=600),
        make("b", "a", 10, 110, "call", service="app", failed=True),
        make("c", "b", 20, 700, "server", service="engine", failed=True),
        make("e", "a", 150, 200, "call", service="app", failed=True),
        make("f", "a", 300, 900, "call", service="app", first_token_ns=250),
        make("g", "f", 320, 900, "server", service="engine", host="far", first_token_ns=200),
        make("h", "g", 330, 400, "prefill", service="engine", host="far"),
        make("i", "g", 400, 890, "decode", service="engine", host="far"),
        make("j", "g", 300, 890, "load", service="engine", host="far"),
        make("k", "f", 250, 260, "call", service="app"),
    ]
    silent = [
        make("a", "", 5, 1000, "gateway", service="gate", trace_id="2" * 32, streaming=False),
        make("b", "a", 10, 110, "call", service="gate", trace_id="2" * 32, failed=True),
        make("c", "a", 150, 900, "call", service="gate", trace_id="2" * 32),
        make("d", "c", 200, 1900, "server", service="engine", trace_id="2" * 32),
        make("e", "d", 200, 400, "decode", service="engine", trace_id="2" * 32),
    ]
    further_in = [
        make("a", "", 0, 50, "client", service="app", trace_id="3" * 32),
        make("b", "a", -10, 900, "gateway", service="gate", trace_id="3" * 32, first_token_ns=90),
        make("c", "b", 20, 70, "tokenize", service="gate", trace_id="3" * 32),
        make("d", "b", 30, 70, "queue", service="gate", trace_id="3" * 32),
    ]
    limited = [
        make("0", "", 0, 200, "call", service="edge", trace_id="5" * 32, inference=False, first_token_ns=40),
        make("a", "0", 0, 100, "client", service="app", trace_id="5" * 32, first_token_ns=60),
        make("b", "a", 10, 90, "gateway", service="gate", trace_id="5" * 32, first_token_ns=30),
        make("c", "b", 20, 80, "router", service="gate", trace_id="5" * 32),
        make("d", "c", 30, 80, "queue", service="gate", trace_id="5" * 32),
    ]
    overtaken = [
        make("a", "", 0, 900, "router", service="route", trace_id="6" * 32, streaming=False),
        make("b", "a", 10, 110, "call", service="route", trace_id="6" * 32, failed=True),
        make("c", "b", 20, 500, "server", service="engine", trace_id="6" * 32),
        make("d", "c", 30, 500, "queue", service="engine", trace_id="6" * 32),
        make("e", "a", 150, 890, "call", service="route", trace_id="6" * 32),
    ]
    unanswered = [
        make("a", "", 0, 100, "client", service="app", trace_id="7" * 32, first_token_ns=60),
        make("b", "a", 10, 90, "call", service="app", trace_id="7" * 32),
    ]
    guarded = [
        make("a", "", 0, 100, "gateway", service="gate", trace_id="8" * 32, first_token_ns=60),
        make("b", "a", 5, 30, "safety", service="gate", trace_id="8" * 32),
        make("c", "b", 6, 29, "call", service="gate", trace_id="8" * 32),
        make("d", "c", 7, 28, "server", service="judge", trace_id="8" * 32),
        make("e", "a", 31, 99, "call", service="gate", trace_id="8" * 32, first_token_ns=28),
        make("f", "e", 32, 98, "server", service="engine", trace_id="8" * 32, first_token_ns=26),
    ]
    contradicted = [
        make("a", "", 0, 0, "edge", service="edge", trace_id="9" * 32),
        make("b", "a", 0, 100, "client", service="app", trace_id="9" * 32, first_token_ns=100),
        make("c", "a", 0, 0, "client", service="edge", trace_id="9" * 32, first_token_ns=0),
    ]
    empty = [make("a", "", 7, 7, "client", trace_id="4" * 32)]
    together = [*retried, *silent, *further_in, *limited, *overtaken, *unanswered, *guarded, *contradicted, *empty]
    return [prompts(*retried), prompts(*together), prompts(*empty)]


@pytest.mark.parametrize("line", _statements())
def test_no_line_of_the_breakdown_can_go(make: Make, prompts: Run, monkeypatch: pytest.MonkeyPatch, line: int) -> None:
    right = _truths(make, prompts)
    monkeypatch.setattr(package, "breakdown", _without(line))
    try:
        wrong = _truths(make, prompts)
    except Exception:
        return
    assert wrong != right, f"line {line} of breakdown.py changes nothing"
