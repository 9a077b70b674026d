"""Which module of the product imports which."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.source import dotted, modules, tree


def imported(file: Path) -> Iterator[str]:
    """Yield the full names that a module imports, `from crewel import x` as crewel.x."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def dependencies() -> dict[str, set[str]]:
    """Return what each module of the product imports of it, imports for types included."""
    files = {dotted(file): file for file in modules()}
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        names = {each if each in files else each.rpartition(".")[0] for each in imported(file)}
        found[name] = {each for each in names if each in files and each != name}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others (Kosaraju's algorithm)."""
    order: list[str] = []
    seen: set[str] = set()
    for start, names in graph.items():
        stack = [(start, iter(names))] if start not in seen else []
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                order.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(graph[following])))
    importers: dict[str, set[str]] = {name: set() for name in graph}
    for name, names in graph.items():
        for each in names:
            importers[each].add(name)
    found: list[set[str]] = []
    taken: set[str] = set()
    for name in reversed(order):
        circle, left = set(), [name]
        while left:
            each = left.pop()
            if each not in taken:
                taken.add(each)
                circle.add(each)
                left += importers[each]
        found.append(circle)
    return [circle for circle in found if len(circle) > 1]
