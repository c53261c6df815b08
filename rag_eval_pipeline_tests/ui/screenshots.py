"""Pictures of the UI and of a report for docs/img: `python -m rag_eval_pipeline_tests.ui.screenshots HOME KEY [FOLDER]`.

HOME is a data folder in which KEY is evaluated by Dagster (`rag-eval run KEY`). Looked at by a person before they are kept.
"""

import shutil
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.report import report_path
from rag_eval_pipeline_tests.integration.house import ROOT, home_of
from rag_eval_pipeline_tests.ui.conftest import watched
from rag_eval_pipeline_tests.ui.server import serve

LARGEST = 200_000
SETTLE = 10_000
"""Milliseconds for a page to draw."""


def keep(page, path):
    """As PNG, with fewer colours where that is needed to stay below the limit."""
    from PIL import Image

    page.screenshot(path=str(path))
    for colours in (256, 128, 64, 32):
        if path.stat().st_size < LARGEST:
            break
        with Image.open(path) as image:
            image.convert("RGB").quantize(colours).save(path, optimize=True)
    print(f"{path} {path.stat().st_size // 1000} kB")


def main(root, key, folder):
    """Write them all."""
    home = home_of(Path(root).absolute())
    folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serve(home.root) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        part = quote(key, safe="")
        with watched(browser, viewport={"width": 1600, "height": 900}) as page:
            for name, (address, height) in {
                "asset_graph": ("asset-groups", 900),
                "asset_page": (f"assets/retrieval_quality?partition={part}", 900),
                "checks": ("assets/loss_waterfall?view=checks", 900),
                "automation": ("automation", 500),
            }.items():
                page.set_viewport_size({"width": 1600, "height": height})
                page.goto(f"{server.url}/{address}")
                page.wait_for_timeout(SETTLE)
                keep(page, folder / f"{name}.png")
        with watched(browser, viewport={"width": 1300, "height": 1060}) as page:
            page.goto(report_path(home, key, Evaluation.latest(home, key).manifest.evaluation_id).as_uri())
            keep(page, folder / "report.png")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else ROOT / "docs" / "img")
