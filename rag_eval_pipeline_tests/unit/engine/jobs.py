"""Functions that test workers run: well-behaved ones and every kind of bad one."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

from rag_eval_pipeline.engine.worker import part_done

PREPARED = []


def prepare(config):
    """Counts how often a worker prepared itself; fails where the config asks for it."""
    if config == "unpreparable":
        raise ValueError("the model is missing")
    PREPARED.append(config)


def square(item, config):
    return {"y": item["x"] ** 2, "pid": os.getpid()}


def _recurse(depth):
    return _recurse(depth + 1) + 1


def _ballast(megabytes):
    block = bytearray(megabytes << 20)
    for at in range(0, len(block), 4096):
        block[at] = 1
    return block


HELD = []


def behave(item, config):
    """Do what `item["do"]` says."""
    match item["do"]:
        case "fine":
            return {"x": item.get("x"), "prepared": len(PREPARED)}
        case "raise":
            raise ValueError("the document says: secret-4711")
        case "recurse":
            return {"n": _recurse(0)}
        case "recurse_without_bound":
            sys.setrecursionlimit(1 << 30)
            return {"n": _recurse(0)}
        case "exit":
            os._exit(7)
        case "system_exit":
            sys.exit("secret-4711")
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "spin":
            while True:
                pass
        case "spin_in_c":  # holds the interpreter's lock
            return {"n": 9 ** (9**9) % 2}
        case "allocate_10_gb":
            return {"n": len(bytearray(10 << 30))}
        case "grow":
            while True:
                HELD.append(_ballast(16))
        case "child_grows":
            subprocess.run([sys.executable, "-c", "b=[]\nwhile True: b.append(b'x' * (16 << 20))"], check=True)
            return {}
        case "hold":
            HELD.append(_ballast(item["mb"]))
            return {"held": len(HELD)}
        case "sleep":
            time.sleep(item["seconds"])
            return {"x": item.get("x")}
        case "parts":
            for _ in range(item["parts"]):
                time.sleep(item["seconds"])
                part_done()
            return {"x": item.get("x")}
        case "fork":
            os.fork()
            return {"x": item.get("x")}
        case "print":
            print("secret-4711", flush=True)
            print("secret-4711", file=sys.stderr, flush=True)
            return {"x": item.get("x")}
        case "large":
            return {"data": b"x" * item["size"]}
        case "unpicklable":
            return {"f": lambda: None}
        case "mark":
            with Path(item["path"]).open("a") as file:
                file.write(f"{os.getpid()}\n")
            while True:
                time.sleep(1)
    raise AssertionError(item)
