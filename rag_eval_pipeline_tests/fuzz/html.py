"""`python -m rag_eval_pipeline_tests.fuzz.html [SECONDS] [CORPUS] [LENGTH]`: atheris on the path from html to tables and their scores.

What makes it fail is written to the folder CORPUS (a temporary one by default) as crash-<hash>. Inputs to LENGTH bytes: at 2,048
some hundred a second, at 32,768, tables of some thousand nodes, about one.
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["rag_eval_pipeline.stages.parsing", "rag_eval_pipeline.measures", "rag_eval_pipeline.text"]
):
    from rag_eval_pipeline.measures import tables
    from rag_eval_pipeline_tests.fuzz.invariants import check_page, check_tables

WORDS = (
    "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>", "<th>", "</th>", "<thead>", "<tbody>", "<tfoot>", "<caption>",
    " colspan='2'", " rowspan='0'", " colspan=99999999999999999999", "<li>", "<ul>", "<h1>", "<pre>", "<br>", "<nav>", "<svg>",
    "<template>", "<!--", "-->", "<![CDATA[", "<?xml version='1.0'?>", "<script>", "&amp;", "&#0;", "&#xD800;", "&nbsp;",
    " style='display:none'", " hidden", "<meta charset=utf-16>", "<meta charset='x'>", "<base>", "<frameset>", "<col>",
)  # fmt: skip
SEEDS = (
    "<table><thead><tr><th>a<th colspan=2>b</thead><tbody><tr><td rowspan=x>1<td>2</table>",
    "<html><body><nav>menu</nav><main><h1>T</h1><ul><li>x<ul><li>y</ul></ul><table><caption>c</caption><tr><td>1<td>2</table>",
    "<table><tr><td><table><tr><td>in</table>out<b>x<i>y</i>z</b></table>\0<table></table>",
    f"<table>{('<tr>' + '<td>cell' * 8) * 150}</table><table>{('<tr>' + '<th>head<td>1' * 4) * 150}</table>",
    f"<table><tr>{'<b><i></i>' * 200}</table><table>{'<tr><td><ul><li>' * 60}x</table>",
)


def plain_kernel() -> None:
    """The compiled recurrence without instrumentation, which numba cannot type: from a second copy of its module."""
    spec = importlib.util.spec_from_file_location(tables.__name__, tables.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    tables._kernel = copy._kernel


def main() -> None:
    """Fuzz for a time; atheris ends the process."""
    plain_kernel()
    asked = argparse.ArgumentParser(prog="python -m rag_eval_pipeline_tests.fuzz.html", description=__doc__)
    asked.add_argument("seconds", type=int, nargs="?", default=600)
    asked.add_argument("corpus", type=Path, nargs="?")
    asked.add_argument("length", type=int, nargs="?", default=2_048)
    given = asked.parse_args()
    folder = given.corpus or Path(tempfile.mkdtemp(prefix="fuzz-html-"))
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seed for seed in SEEDS if len(seed) < given.length):
        (folder / f"seed-{number}").write_bytes(b"\x00" + seed.encode())
    words = folder.parent / f"{folder.name}.dict"
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in WORDS)
    words.write_text("".join(f'"{word}"\n' for word in escaped), "utf-8")
    page = Path(tempfile.mkdtemp(prefix="fuzz-page-")) / "page.html"

    def one(data: bytes) -> None:
        check_page(data[1:], page)
        first, _, second = data[1:].partition(b"</table>")
        check_tables(first.decode("utf-8", "surrogateescape"), second.decode("utf-8", "replace"))

    print(f"corpus and what fails: {folder}", flush=True)
    options = (
        f"-max_total_time={given.seconds}",
        f"-max_len={given.length}",
        "-timeout=60",
        "-rss_limit_mb=4096",
        f"-dict={words}",
        "-len_control=10",
    )
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(folder)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
