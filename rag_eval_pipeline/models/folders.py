"""What a model's folder holds, as one checksum. The encoder, which looks at fewer files, has its own in `encoder`."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=8)
def folder_checksum(folder: str) -> str:
    """Over names and content of all files below a folder."""
    total = hashlib.sha256()
    for file in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        total.update(file.relative_to(folder).as_posix().encode())
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:16]
