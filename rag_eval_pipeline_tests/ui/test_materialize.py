"""A version is materialized by the UI's own buttons, in one process; what its pages show; the sensor finds the next version."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rag_eval_pipeline_tests.small import QUICK, write_corpus
from rag_eval_pipeline_tests.ui.server import serve

pytestmark = [pytest.mark.full, pytest.mark.integration]

REPOSITORY = '{repositoryLocationName: "rag_eval_pipeline", repositoryName: "__repository__"}'
SENSORS = f"{{ sensorsOrError(repositorySelector: {REPOSITORY}) {{ ... on Sensors {{ results {{ name sensorState {{ id status }} }} }} }} }}"
SCHEDULES = f"{{ schedulesOrError(repositorySelector: {REPOSITORY}) {{ ... on Schedules {{ results {{ name scheduleState {{ status }} }} }} }} }}"
STOP = "mutation($id: String!) { stopSensor(id: $id) { __typename } }"
START = (
    'mutation { startSensor(sensorSelector: {sensorName: "corpus_changes", repositoryLocationName: "rag_eval_pipeline", '
    'repositoryName: "__repository__"}) { __typename } }'
)
RUNS = "{ runsOrError(limit: 20) { ... on Runs { results { runId status tags { key value } } } } }"
LOGS = """query($id: ID!) { logsForRun(runId: $id, limit: 1000) { ... on EventConnection { events {
  __typename ... on MessageEvent { message eventType } } } } }"""
MATERIALIZED = """query($key: [String!]!) { assetOrError(assetKey: {path: $key}) { ... on Asset { assetMaterializations(limit: 1) {
  metadataEntries { __typename label ... on MarkdownMetadataEntry { mdStr } } } } } }"""
CHECKS = """query($key: [String!]!) { assetNodeOrError(assetKey: {path: $key}) { ... on AssetNode { groupName description
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } } }"""


@pytest.fixture(scope="module")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("RAG_EVAL_REQUIRE_DATA") == "1":
            pytest.fail("chromium is required (RAG_EVAL_REQUIRE_DATA=1) and absent")
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("ui")
    write_corpus(home / "corpora", pipeline=QUICK)
    environment = os.environ | {"RAG_EVAL_DATA": str(home), "DAGSTER_HOME": str(home / "dagster_home")}
    command = Path(sys.executable).with_name("rag-eval")
    subprocess.run([command, "register", "small@v1"], env=environment, check=True)
    with serve(home) as running:
        yield running


@pytest.fixture(scope="module")
def page(server, chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(60_000)
        page.faults, page.outside = [], []
        page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                page.outside.append(request.url)
                if request.url.startswith("http") and not request.url.startswith(server.url)
                else None
            ),
        )
        yield page
        browser.close()


def sensor(server, name):
    (found,) = [s for s in server.ask(SENSORS)["sensorsOrError"]["results"] if s["name"] == name]
    return found["sensorState"]


def wait_for_run(server, wanted, seconds=300):
    """The first run that `wanted` accepts, once it has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for run in server.ask(RUNS)["runsOrError"]["results"]:
            tags = {tag["key"]: tag["value"] for tag in run["tags"]}
            if wanted(tags) and run["status"] in {"SUCCESS", "FAILURE", "CANCELED"}:
                return run | {"tags": tags}
        time.sleep(2)
    raise AssertionError(f"no such run after {seconds} s:\n{server.log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def clicked(server, page):
    """The run of small@v1 that the buttons of the lineage page started; the sensor is off meanwhile."""
    server.ask(STOP, id=sensor(server, "corpus_changes")["id"])
    page.goto(f"{server.url}/asset-groups")
    page.get_by_role("button", name="Materialize all").click()
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("button", name=re.compile("^Launch")).click()
    return wait_for_run(server, lambda tags: tags.get("dagster/partition") == "small@v1")


def test_the_buttons_materialize_a_version_in_one_process(server, clicked):
    assert clicked["status"] == "SUCCESS"
    assert "dagster/sensor_name" not in clicked["tags"]
    events = server.ask(LOGS, id=clicked["runId"])["logsForRun"]["events"]
    messages = [event.get("message") or "" for event in events]
    assert any(re.search(r"Executing steps in process \(pid", message) for message in messages), messages[:10]
    assert not any("subprocess" in message for message in messages)


def test_lineage_groups_stand_in_pipeline_order(server, page, clicked):
    page.goto(f"{server.url}/asset-groups")
    page.get_by_text("6_release").first.wait_for()
    places = [page.locator(f"text={name}").last.bounding_box()["x"] for name in ("1_ingest", "3_index", "6_release")]
    assert places == sorted(places)


@pytest.mark.parametrize("asset", ["loss_waterfall", "retrieval_quality", "evaluation"])
def test_an_assets_page_has_its_description_group_and_checks(server, page, clicked, asset):
    node = server.ask(CHECKS, key=[asset])["assetNodeOrError"]
    assert node["description"]
    assert re.match(r"\d_", node["groupName"])
    page.goto(f"{server.url}/assets/{asset}")
    page.get_by_text(node["description"].split("\n")[0][:40]).first.wait_for()
    ran = [check["executionForLatestMaterialization"] for check in node["assetChecksOrError"].get("checks", [])]
    assert all(run["status"] == "SUCCEEDED" for run in ran if run)
    assert ran or asset == "evaluation"


def test_the_waterfall_comes_with_a_picture_a_table_and_numbers(server, clicked):
    (made,) = server.ask(MATERIALIZED, key=["loss_waterfall"])["assetOrError"]["assetMaterializations"]
    kinds = {entry["__typename"] for entry in made["metadataEntries"]}
    assert {"TextMetadataEntry", "MarkdownMetadataEntry", "FloatMetadataEntry"} <= kinds, kinds
    pages = [entry.get("mdStr") or "" for entry in made["metadataEntries"]]
    assert any("data:image/" in page for page in pages)
    assert any("| stage" in page for page in pages)


def test_the_sensor_runs_the_next_version_and_the_schedule_is_on(server, clicked):
    (nightly,) = server.ask(SCHEDULES)["schedulesOrError"]["results"]
    assert nightly["scheduleState"]["status"] == "RUNNING"
    server.ask(START)
    folder = server.home / "corpora" / "small"
    shutil.copytree(folder / "v1", folder / "v2")
    (folder / "v2" / "_READY").touch()
    run = wait_for_run(server, lambda tags: tags.get("dagster/partition") == "small@v2", 400)
    assert run["status"] == "SUCCESS"
    assert run["tags"]["dagster/sensor_name"] == "corpus_changes"


def test_the_pages_log_no_error_and_ask_nobody_else(page, clicked):
    assert page.outside == []
    assert [fault for fault in page.faults if "favicon" not in fault] == []
