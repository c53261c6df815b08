"""Fingerprints of code: what a table was computed by, so that an edit is noticed and a docstring's is not.

The hash covers the syntax (docstrings stripped) of the given modules and of everything that they import from this
package, functions' own imports too. A package's `__init__` counts only where it is itself imported from: re-exports
must not tie a stage to every measure.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path

ENGINE_VERSION = 1
"""Raised by hand when results change for a reason that no code or library version shows."""

PACKAGE = "rag_eval_pipeline"
FORM = 1
"""Raised by hand when this module reads the same file another way: what was kept is then read anew."""


def code_fingerprint(modules: Iterable[str], package: str = PACKAGE) -> str:
    """Hash of the modules and of all that they import from `package`."""
    found: dict[str, str] = {}
    queue = sorted(modules)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        source = _source(name)
        if source is None:
            raise ValueError(f"module {name} has no source file; a fingerprint cannot be made of it")
        found[name] = _code(source)
        queue.extend(_imports(source, package))
    joined = "\n".join(f"{name}\n{code}" for name, code in sorted(found.items()))
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def plugin_fingerprint(path: str) -> str:
    """Hash of a user's `package.module:Class`: its module, or every module of its top package where it has one."""
    module = path.partition(":")[0]
    top = find_spec(module.partition(".")[0])
    folders = list(top.submodule_search_locations or ()) if top else []
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]
    if not files:
        files = [source] if (source := _source(module)) else []
    if not files:
        raise ValueError(f"{path}: its source was not found, so a change of it could not be noticed")
    joined = "\n".join(f"{file.name}\n{_code(file)}" for file in files)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed versions; `absent` where a distribution is not installed."""
    return {name: _version(name) for name in sorted(names)}


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _source(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _code(path: Path) -> str:
    return _read(path)[0]


def _imports(path: Path, package: str) -> list[str]:
    return list(_ours(_read(path)[1], package))


@cache
def _read(path: Path) -> tuple[str, tuple[tuple[str, str | None], ...]]:
    """Hash of a file's code without docstrings, and what it imports at run time: (module, name or None).

    Read once a process: an edit does not change the code that is already loaded, so it must not change its fingerprint.
    Parsing the package takes seconds, so what was read is kept beside the file's bytecode, under the hash of its bytes.
    """
    source = path.read_bytes()
    stamp = hashlib.sha256(source).hexdigest()
    beside = Path(cache_from_source(str(path))).with_suffix(".fingerprint")
    with suppress(OSError, ValueError, KeyError, TypeError):  # absent, or cut by a full disk: read anew
        kept = json.loads(beside.read_text("utf-8"))
        if kept["source"] == [FORM, stamp]:
            return kept["code"], tuple((module, name) for module, name in kept["imports"])
    code, imports = _analysed(source)
    if not sys.dont_write_bytecode:
        _keep(beside, {"source": [FORM, stamp], "code": code, "imports": imports})
    return code, imports


def _keep(path: Path, content: dict) -> None:
    """Whole or not at all; a package that may not be written to is read anew by each process."""
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        temporary.write_text(json.dumps(content), "utf-8")
        temporary.replace(path)


def _analysed(source: bytes) -> tuple[str, tuple[tuple[str, str | None], ...]]:
    tree = ast.parse(source)
    imports: list[tuple[str, str | None]] = []
    for node in _runtime_statements(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports += [(node.module, alias.name) for alias in node.names]
    for node in _statements(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode("utf-8", "surrogatepass")).hexdigest(), tuple(imports)


def _ours(imports: Iterable[tuple[str, str | None]], package: str) -> Iterable[str]:
    names: set[str] = set()
    for module, name in imports:
        if module.partition(".")[0] != package:
            continue
        inner = f"{module}.{name}" if name else module
        names.add(inner if _source(inner) else module)
    return sorted(n for n in names if _source(n))


def _statements(node: ast.AST) -> Iterable[ast.AST]:
    """The node and every statement in it: expressions hold neither imports nor docstrings."""
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        yield current
        stack += [child for child in ast.iter_child_nodes(current) if isinstance(child, _HOLDERS)]


_HOLDERS = (ast.stmt, ast.excepthandler, ast.match_case)


def _runtime_statements(tree: ast.Module) -> Iterable[ast.AST]:
    """All statements but those that only a type checker sees."""
    stack: list[ast.AST] = [tree]
    while stack:
        current = stack.pop()
        yield current
        hidden = isinstance(current, ast.If) and "TYPE_CHECKING" in ast.unparse(current.test)
        children = current.orelse if hidden else ast.iter_child_nodes(current)  # type: ignore[attr-defined]
        stack += [child for child in children if isinstance(child, _HOLDERS)]
