"""Find a user's own class by import path, with an error that says what to mend."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

IMPORT_PATH = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


class PluginError(ValueError):
    """An import path in corpus.yaml leads nowhere."""


def is_import_path(name: str) -> bool:
    """`package.module:Class` rather than a built-in name."""
    return bool(IMPORT_PATH.match(name))


def is_findable(path: str) -> bool:
    """Whether the module of an import path is installed or on the path; it is not imported (its packages are)."""
    try:
        return find_spec(path.partition(":")[0]) is not None
    except (Exception, SystemExit):  # whatever a package above it does: `load` tells it
        return False


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
