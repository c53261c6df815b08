"""Find a user's own class by import path, with an error that says what to mend."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

IMPORT_PATH = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


class PluginError(ValueError):
    """An import path in corpus.yaml leads nowhere."""


def is_import_path(name: str) -> bool:
    """`package.module:Class` rather than a built-in name."""
    return bool(IMPORT_PATH.match(name))


def load(path: str) -> Any:
    """The attribute at `package.module:Class`.

    Raises:
        PluginError: the module cannot be imported, or has no such attribute.
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
    if not hasattr(module, attribute):
        raise PluginError(f"module {module_name!r} has no {attribute!r}; it defines {sorted(vars(module))[:10]}")
    return getattr(module, attribute)
