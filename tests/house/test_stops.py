"""Where "go to definition" stops on the path of a stored publish: at attributes with a function, which any part may set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.source import dotted, modules, tree

PATH = {
    "http_fast",
    "fast_lane",
    "endpoint",
    "inbound",
    "publishing",
    "publish_handler",
    "broadcaster",
    "write_queue",
    "log_appender",
    "subscriber_cache",
    "deliverer",
    "handler_steps",
}
"""Modules of the transports and the broker."""
STOPS = {
    "_Request.step": "made in the same file: a step, or that of a group of publishes",
    "_Request.done": "the same, for the answer",
    "Promise._function": "what waits for the answer: a handler, or a coroutine",
    "FastLane.make_connection": "not for a publish: for requests that aiohttp answers",
    "WriteQueue._on_forgotten": "not for a publish: for steps that are asked again",
}
"""The list may only shrink."""


def callables(file: ast.Module) -> Iterator[str]:
    """Yield the attributes of classes that hold a callable: those declared so, and those that get such a parameter."""
    for owner in (node for node in ast.walk(file) if isinstance(node, ast.ClassDef)):
        for node in owner.body:
            if isinstance(node, ast.AnnAssign) and is_callable(node.annotation):
                yield f"{owner.name}.{ast.unparse(node.target)}"
        for method in (node for node in owner.body if isinstance(node, ast.FunctionDef)):
            given = [*method.args.args, *method.args.kwonlyargs]
            names = {each.arg for each in given if each.annotation is not None and is_callable(each.annotation)}
            for target, value, annotation in assignments(method):
                is_given = isinstance(value, ast.Name) and value.id in names
                if isinstance(target, ast.Attribute) and (is_given or (annotation and is_callable(annotation))):
                    yield f"{owner.name}.{target.attr}"


def assignments(method: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr | None, ast.expr | None]]:
    """Yield what is assigned in the method: target, value and annotation."""
    for node in ast.walk(method):
        if isinstance(node, ast.AnnAssign):
            yield node.target, node.value, node.annotation
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from ((each, value, None) for each, value in zip(target.elts, node.value.elts, strict=True))
                else:
                    yield target, node.value, None


def is_callable(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation)
    return text.startswith("Callable[") or text in aliases()


@cache
def serving() -> tuple[Path, ...]:
    """Return the modules of the transports and the broker."""
    return tuple(file for file in modules() if dotted(file).startswith(("crewel.broker", "crewel.transports")))


@cache
def aliases() -> frozenset[str]:
    """Return the names of types that are callables, such as `Listener = Callable[[], None]`."""
    return frozenset(
        ast.unparse(target)
        for file in serving()
        for node in tree(file).body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable[")
        for target in node.targets
    )


def test_functions_that_other_parts_set_are_few_on_the_path_of_a_stored_publish() -> None:
    files = [file for file in serving() if file.stem in PATH]
    assert len(files) == len(PATH)
    assert {name for file in files for name in callables(tree(file))} == STOPS.keys()


@pytest.mark.parametrize(
    "body", ["f: Callable[[], None]", "def __init__(self, f: Callable[[], None]) -> None:\n  self.f, self.g = f, 1"]
)
def test_an_attribute_that_holds_a_function_is_found(body: str) -> None:
    assert [*callables(ast.parse(f"class A:\n {body}"))] == ["A.f"]
