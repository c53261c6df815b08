"""Find a user's own class by import path, with an error that says what to mend.

Before a run its source is read, never executed: what a path can't be is told then, all else when it is loaded.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import decode_source, find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Any


class PluginError(ValueError):
    """An import path in corpus.yaml leads nowhere."""


def is_import_path(name: str) -> bool:
    """`package.module:Class` rather than a built-in name."""
    module, _, attribute = name.partition(":")
    return all(part.isidentifier() and not iskeyword(part) for part in (*module.split("."), attribute))


def why_no_component(path: str, methods: Sequence[str] = ()) -> str | None:
    """Why an import path can't be a class with one of these methods, as a clause; None where it may be one.

    The module is read, not imported (the packages above it are). What a source doesn't tell passes: bases, decorators, a name
    that is imported or assigned.
    """
    module, _, name = path.partition(":")
    try:
        spec = find_spec(module)
    except (Exception, SystemExit):  # whatever a package above it does: `load` tells it
        spec = None
    if spec is None:
        return "whose module is not found"
    if module.partition(".")[0] in sys.stdlib_module_names:
        return "a part of Python itself"
    if not (spec.origin or "").endswith(".py"):
        return "whose module has no source, so a change of it could not be noticed"
    try:
        body = ast.parse(decode_source(Path(str(spec.origin)).read_bytes())).body
    except (SyntaxError, ValueError, OSError):
        return "whose source is no Python"
    makers = list(_makers(body, name))
    if not makers and not any(_is_open(node) for node in _statements(body)):
        return f"but its module has no `{name}`"
    reasons = [_why_not(maker, methods) for maker in makers]
    return reasons[0] if reasons and all(reasons) else None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a scope, also those below `if`, `try`, `with` and loops."""
    for node in body:
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [getattr(node, field, []) for field in ("body", "orelse", "finalbody")]
            handlers = [handler.body for handler in getattr(node, "handlers", [])]
            for below in (*inner, *handlers):
                yield from _statements(below)


def _makers(body: Sequence[ast.stmt], name: str) -> Iterator[ast.stmt]:
    """Statements that give a name of a scope its value."""
    for node in _statements(body):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found = node.name == name
            case ast.Import() | ast.ImportFrom():
                found = any((alias.asname or alias.name.partition(".")[0]) == name for alias in node.names)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found = any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t))
            case _:
                found = False
        if found:
            yield node


def _is_open(node: ast.stmt) -> bool:
    """Whether a statement may define names that it doesn't say: `import *`, a module's `__getattr__`, `globals()`."""
    if isinstance(node, ast.FunctionDef):
        return node.name == "__getattr__"
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    return any(isinstance(n, ast.Name) and n.id in ("globals", "exec", "setattr") for n in ast.walk(node))


def _why_not(maker: ast.stmt, methods: Sequence[str]) -> str | None:
    if isinstance(maker, ast.FunctionDef | ast.AsyncFunctionDef):
        return "a function, no class" if not maker.decorator_list else None
    if not isinstance(maker, ast.ClassDef) or maker.bases or maker.keywords or maker.decorator_list:
        return None
    known = (*methods, "__new__", "__getattr__")
    if not methods or any(True for name in known for _ in _makers(maker.body, name)):
        return None
    return f"a class without a method `{methods[0]}`"


def load(path: str) -> Any:
    """The attribute at `package.module:Class`.

    Raises:
        PluginError: the module cannot be imported, raises while it is, or has no such attribute.
    """
    if not is_import_path(path):
        raise PluginError(f"{path!r} is no import path; write package.module:Class")
    module_name, _, attribute = path.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise PluginError(
            f"cannot import {module_name!r} for {path!r}: {error}; is it installed in this environment or on PYTHONPATH?"
        ) from error
    except (Exception, SystemExit) as error:  # a user's module may do anything while it is imported
        raise PluginError(
            f"{module_name!r} of {path!r} raised {type(error).__name__} while it was imported ({error}); "
            f"try: python -c 'import {module_name}'"
        ) from error
    if not hasattr(module, attribute):
        raise PluginError(f"module {module_name!r} has no {attribute!r}; it defines {sorted(vars(module))[:10]}")
    return getattr(module, attribute)
