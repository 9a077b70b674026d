"""How much a reader of the core has to hold in mind at once, counted in the syntax trees.

    .venv/bin/python bench/concepts.py            # a table; --list prints each place that a row counts

The counts are of `app/crewel` and `extensions`, without the pipeline. `bench/journeys.py` counts the returns of a journey.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from mypy.build import BuildResult, build
from mypy.find_sources import create_source_list
from mypy.nodes import (
    AssignmentStmt,
    Decorator,
    Expression,
    FuncDef,
    MemberExpr,
    MypyFile,
    NameExpr,
    Node,
    OverloadedFuncDef,
    TupleExpr,
    TypeInfo,
    Var,
)
from mypy.options import Options
from mypy.subtypes import is_subtype
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    NoneType,
    Overloaded,
    ProperType,
    TupleType,
    Type,
    TypeOfAny,
    TypeVarType,
    UnionType,
    get_proper_type,
)

from crewel.standard_output import closed_pipe_ends

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.house.mailbox_accesses import accesses  # noqa: E402 - the top of the repository is on the path only now
from tests.house.source import modules, shown, tree  # noqa: E402 - the top of the repository is on the path only now

MOST_COLLABORATORS = 6
EXTENSION_POINTS = {"on_store_lost", "on_drain", "on_close"}
"""Attributes with callables that applications add to."""
OPTIONAL_HALF = re.compile(
    r"\bdurable\)? is (?:not )?None\b|\bdurable := [^)]*\) is (?:not )?None|\bif (?:not )?\w+\.durable\b"
)
OTHER_NODES = re.compile(r"\b(?:is_shared|is_single|has_others|other_nodes|others_live)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Places = list[str]


def core() -> tuple[Path, ...]:
    """Return the modules that count: the package and the extensions, without the pipeline that it links to."""
    return tuple(file for file in modules() if file.relative_to(ROOT).parts[0] != "pipeline")


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield each class with its file."""
    for file in core():
        yield from ((file, node) for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef))


def parts_of_the_broker() -> Places:
    """Return the attributes of a broker, those of its base classes included."""
    found = {node.name: (file, node) for file, node in classes() if "broker" in file.parts}
    names: dict[str, str] = {}
    left = ["Broker"]
    while left:
        file, node = found[left.pop()]
        left += [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in found]
        for target in assigned(node):
            if isinstance(target.value, ast.Name) and target.value.id == "self":
                names.setdefault(target.attr, f"{shown(file)}:{target.lineno} {target.attr}")
    return sorted(names.values())


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes to which something below `node` assigns."""
    for each in ast.walk(node):
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        for target in targets:
            yield from (part for part in elements(target) if isinstance(part, ast.Attribute))


def elements(target: ast.expr) -> list[ast.expr]:
    """Return the single targets of an assignment to several."""
    return list(target.elts) if isinstance(target, ast.Tuple) else [target]


def callable_names() -> set[str]:
    """Return the names of types that are callables, such as `Listener = Callable[[], None]`."""
    names = {"Callable"}
    for file in core():
        for node in tree(file).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable["):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@cache
def checked(directory: Path) -> tuple[BuildResult, dict[str, Path]]:
    """Return what the type checker knows of the modules below a directory, and their files. It takes most of a minute for the
    whole product."""
    options = Options()
    options.export_types = options.preserve_asts = options.ignore_errors = options.ignore_missing_imports = True
    options.incremental = False
    options.mypy_path = [str(directory)]
    options.cache_dir = os.devnull
    sources = [each for each in create_source_list([str(directory)], options) if ".pipeline" not in each.module]
    return build(sources, options), {each.module: Path(each.path or "").resolve() for each in sources}


def place(file: Path) -> str:
    """Return a file's name from the top of the repository, if it is there."""
    return shown(file) if file.is_relative_to(ROOT) else file.name


def hooks(directory: Path = ROOT / "app") -> Places:
    """Return the attributes that hold a callable, and to which another object assigns. The type checker says what each one
    is."""
    built, files = checked(directory)
    return sorted(
        f"{place(file)}:{target.line} {text_of(target)}"
        for module, file in files.items()
        for target, value in targets(built.files[module])
        if target.name not in EXTENSION_POINTS and is_hook(target, value, built.types)
    )


def protocols(directory: Path = ROOT / "app") -> list[tuple[str, list[str], list[str]]]:
    """Return the protocols: place and name of each, the classes of the product that implement it, and the classes and functions
    that use a member of it."""
    built, files = checked(directory)
    defined = [
        (file, symbol.node)
        for module, file in files.items()
        for symbol in built.files[module].names.values()
        if isinstance(symbol.node, TypeInfo) and symbol.node.module_name == module
    ]
    used = users(built, files)
    found = []
    for file, protocol in defined:
        if protocol.is_protocol:
            made = [each.name for _, each in defined if not each.is_protocol and fits(each, protocol)]
            by = used.get(protocol.fullname, set()) - {protocol.fullname}
            found.append((f"{place(file)}:{protocol.line} {protocol.name}", made, sorted(by)))
    return sorted(found)


def thin_protocols(directory: Path = ROOT / "app") -> Places:
    """Return the protocols that one class of the product implements and one class or function uses: it could name the class."""
    return [
        f"{name} of {made[0]} for {by[0]}" for name, made, by in protocols(directory) if len(made) == 1 and len(by) == 1
    ]


def fits(info: TypeInfo, protocol: TypeInfo) -> bool:
    """Return whether a class implements a protocol. Of one that passes on what it lacks, or has an unknown base, only its word
    counts."""
    if info.fallback_to_any or info.get("__getattr__") is not None:
        return info.has_base(protocol.fullname)
    return is_subtype(any_instance(info), any_instance(protocol))


def any_instance(info: TypeInfo) -> Instance:
    """Return an instance of a class, whatever its parameters."""
    return Instance(info, [AnyType(TypeOfAny.special_form)] * len(info.type_vars))


def users(built: BuildResult, files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which classes and functions at the top of modules use a member of each class, the ones it derives from included,
    by full names."""
    found: dict[str, set[str]] = {}
    for module, file in files.items():
        tops = [each for each in tree(file).body if isinstance(each, ast.ClassDef | Function)]
        for node in nodes(built.files[module]):
            if not isinstance(node, MemberExpr):
                continue
            top = next((each.name for each in tops if each.lineno <= node.line <= (each.end_lineno or 0)), "")
            for owner in alternatives(built.types.get(node.expr, AnyType(TypeOfAny.unannotated))):
                home = owner.type.get_containing_type_info(node.name) if isinstance(owner, Instance) else None
                for each in (home, owner.type) if isinstance(owner, Instance) and home is not None else ():
                    found.setdefault(each.fullname, set()).add(f"{module}.{top}")
    return found


def nodes(node: object) -> Iterator[Node]:
    """Yield the statements and expressions of the type checker below a node, with itself."""
    if isinstance(node, list | tuple):
        for each in node:
            yield from nodes(each)
    elif isinstance(node, OverloadedFuncDef):
        yield from nodes(node.items)
    elif isinstance(node, Node) and not isinstance(node, TypeInfo | Var):
        yield node
        names = ("defs",) if isinstance(node, MypyFile) else getattr(node, "__match_args__", ())
        yield from nodes([getattr(node, name, None) for name in names if name not in REFERENCES])


REFERENCES = {"name", "node", "var", "type", "info"}
"""Parts of a node that say what it refers to: they are not below it."""


def targets(module: MypyFile) -> Iterator[tuple[MemberExpr, Expression]]:
    """Yield the attributes to which a module assigns, and what they get."""
    for node in nodes(module):
        if isinstance(node, AssignmentStmt):
            for target in node.lvalues:
                parts = target.items if isinstance(target, TupleExpr) else [target]
                yield from ((part, node.rvalue) for part in parts if isinstance(part, MemberExpr))


def is_hook(target: MemberExpr, value: Expression, types: Mapping[Expression, Type]) -> bool:
    """Return whether an attribute is another object's, and holds callables. Where its type is not known, that of the value
    counts."""
    if isinstance(target.expr, NameExpr) and target.expr.name == "self":
        return False
    declared = [
        attribute(each, target.name) for each in alternatives(types.get(target.expr, AnyType(TypeOfAny.unannotated)))
    ]
    if None not in declared:
        return any(is_callable(each) for each in declared if each is not None)
    given = types.get(value)
    return given is None or is_callable(given) or any(isinstance(each, AnyType) for each in alternatives(given))


def text_of(expression: Expression) -> str:
    """Return a chain of names as it is written."""
    if isinstance(expression, MemberExpr):
        return f"{text_of(expression.expr)}.{expression.name}"
    return expression.name if isinstance(expression, NameExpr) else "…"


def alternatives(given: Type) -> list[ProperType]:
    """Return the types that a value may have."""
    proper = get_proper_type(given)
    if isinstance(proper, TypeVarType):
        return alternatives(proper.upper_bound)
    return [each for item in proper.items for each in alternatives(item)] if isinstance(proper, UnionType) else [proper]


def attribute(owner: ProperType, name: str) -> Type | None:
    """Return the declared type of an attribute; None if it is not known."""
    if isinstance(owner, NoneType):
        return owner
    symbol = owner.type.get(name) if isinstance(owner, Instance) else None
    if symbol is None or symbol.node is None:
        return None
    node = symbol.node.items[0] if isinstance(symbol.node, OverloadedFuncDef) else symbol.node
    if isinstance(node, Decorator):
        getter = node.var.type
        return getter.ret_type if node.var.is_property and isinstance(getter, CallableType) else getter
    return node.type if isinstance(node, Var | FuncDef) else None


def is_callable(given: Type) -> bool:
    """Return whether values of this type are functions, or contain some."""
    for each in alternatives(given):
        if isinstance(each, CallableType | Overloaded):
            return True
        if isinstance(each, TupleType) and any(map(is_callable, each.items)):
            return True
        if isinstance(each, Instance):
            is_function = each.type.is_protocol and "__call__" in each.type.names
            if is_function or each.type.fullname == "functools.partial" or any(map(is_function_type, each.args)):
                return True
    return False


def is_function_type(given: Type) -> bool:
    """Return whether an element of a container is a function."""
    return any(isinstance(each, CallableType | Overloaded) for each in alternatives(given))


def wide_constructors() -> Places:
    """Return the constructors with more collaborators than a reader can hold in mind; plain values do not count."""
    return [
        f"{shown(file)}:{node.lineno} {node.name} {count}"
        for file, node in classes()
        if node.name in acting()
        if (count := sum(map(is_collaborator, taken(node)))) > MOST_COLLABORATORS
    ]


def taken(node: ast.ClassDef) -> list[str]:
    """Return the types of what the constructor of a class takes."""
    for each in node.body:
        if isinstance(each, Function) and each.name == "__init__":
            return [shown_type(each.annotation) for each in [*each.args.args[1:], *each.args.kwonlyargs]]
    if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return []
    fields = (each for each in node.body if isinstance(each, ast.AnnAssign))
    return [shown_type(each.annotation) for each in fields if each.value is None]


def shown_type(annotation: ast.expr | None) -> str:
    return "" if annotation is None else ast.unparse(annotation).strip("'\"")


def is_collaborator(type_of: str) -> bool:
    """Return whether a type is a part of the product, or a callable that stands for one: no value, and no container."""
    return any(name in acting() for name in re.findall(r"\w+", type_of.partition("[")[0]))


@cache
def acting() -> set[str]:
    """Return the names of the classes that do something: enumerations, records and options are values."""
    values = re.compile(r"frozen=True|\b\w*Enum\b|TypedDict|NamedTuple|Exception|Error\b|NewType")
    return callable_names() | {
        node.name
        for _, node in classes()
        if not values.search(" ".join(map(ast.unparse, [*node.bases, *node.decorator_list])))
    }


def lines_with(pattern: re.Pattern[str]) -> Places:
    """Return the lines that the pattern matches, as often as it does."""
    return [
        f"{shown(file)}:{number} {line.strip()}"
        for file in core()
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        for _ in pattern.finditer(line)
    ]


def lines_of_python() -> int:
    """Return the lines of Python in `app/crewel`."""
    return sum(len(file.read_text("utf-8").splitlines()) for file in core() if file.relative_to(ROOT).parts[0] == "app")


COUNTED: dict[str, Callable[[], Places]] = {
    "parts that Broker names": parts_of_the_broker,
    "callables assigned after construction": hooks,
    "protocols with one implementation and one user": thin_protocols,
    f"constructors with more than {MOST_COLLABORATORS} collaborators": wide_constructors,
    "tests for an optional stored half": lambda: lines_with(OPTIONAL_HALF),
    "places that ask whether there are other nodes": lambda: lines_with(OTHER_NODES),
    "looks into a mailbox from outside": lambda: list(map(str, accesses())),
}


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--list", action="store_true", help="print each place that a row counts")
    listed = arguments.parse_args().list
    for name, count in COUNTED.items():
        places = count()
        print(f"{len(places):>7,}  {name}")
        if listed:
            print(*(f"         {place}" for place in places), sep="\n")
    print(f"{lines_of_python():>7,}  lines of Python in app/crewel")


if __name__ == "__main__":
    with closed_pipe_ends():
        main()
