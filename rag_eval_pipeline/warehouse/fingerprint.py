"""Fingerprints of code: what a table was computed by, so that an edit is noticed and a docstring's is not.

The hash covers the syntax (docstrings stripped) of the given modules and of everything that they import from this
package, functions' own imports too. A package's `__init__` counts only where it is itself imported from: re-exports
must not tie a stage to every measure.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

ENGINE_VERSION = 1
"""Raised by hand when results change for a reason that no code or library version shows."""

PACKAGE = "rag_eval_pipeline"


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
        found[name] = _normalised(source)
        queue.extend(_imports(source, package))
    joined = "\n".join(f"{name}\n{text}" for name, text in sorted(found.items()))
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
    joined = "\n".join(f"{file.name}\n{_normalised(file)}" for file in files)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _normalised(path: Path) -> str:
    return _unparse(path, path.stat().st_mtime_ns)


@cache
def _unparse(path: Path, _mtime: int) -> str:
    tree = _tree(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _imports(path: Path, package: str) -> list[str]:
    return list(_imported(path, path.stat().st_mtime_ns, package))


@cache
def _imported(path: Path, _mtime: int, package: str) -> tuple[str, ...]:
    names: set[str] = set()
    for node in _runtime_nodes(_tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                ours = node.module.partition(".")[0] == package
                names.add(inner if ours and _source(inner) else node.module)
    return tuple(sorted(n for n in names if n.partition(".")[0] == package and _source(n)))


def _runtime_nodes(tree: ast.AST) -> Iterable[ast.AST]:
    """All nodes but those that only a type checker sees."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for branch in child.orelse:
                yield branch
                yield from _runtime_nodes(branch)
            continue
        yield child
        yield from _runtime_nodes(child)
