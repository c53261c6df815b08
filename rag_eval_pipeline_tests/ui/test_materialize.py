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
from rag_eval_pipeline_tests.ui.conftest import watched
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
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("ui")
    write_corpus(home / "corpora", pipeline=QUICK)
    environment = os.environ | {"RAG_EVAL_DATA": str(home), "DAGSTER_HOME": str(home / "dagster_home")}
    command = Path(sys.executable).with_name("rag-eval")
    subprocess.run([command, "register", "small@v1"], env=environment, check=True)
    with serve(home) as running:
        yield running


@pytest.fixture(scope="module")
def page(server, browser):
    with watched(browser) as opened:
        yield opened


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


NODES = """{ assetNodes { assetKey { path } groupName description kinds owners { __typename ... on TeamAssetOwner { team } }
  tags { key value } isPartitioned } }"""
COLUMNS = """query($key: [String!]!) { assetNodeOrError(assetKey: {path: $key}) { ... on AssetNode { metadataEntries { label
  ... on TableSchemaMetadataEntry { schema { columns { name type description } } } } } } }"""
FRESHNESS = """query($key: [String!]!) { assetNodeOrError(assetKey: {path: $key}) { ... on AssetNode { internalFreshnessPolicy { __typename } } } }"""
LINEAGE = """query($key: [String!]!) { assetOrError(assetKey: {path: $key}) { ... on Asset { assetMaterializations(limit: 1) {
  metadataEntries { label ... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } } } } } } }"""
TICKS = """query($name: String!) { sensorOrError(sensorSelector: {sensorName: $name, repositoryLocationName: "rag_eval_pipeline",
  repositoryName: "__repository__"}) { ... on Sensor { sensorState { status ticks(limit: 20) { status skipReason runIds } } } } }"""
NEXT = f"{{ schedulesOrError(repositorySelector: {REPOSITORY}) {{ ... on Schedules {{ results {{ name cronSchedule futureTicks(limit: 2) {{ results {{ timestamp }} }} }} }} }} }}"


def metadata(server, asset):
    """Label -> entry of an asset's newest materialization."""
    (made,) = server.ask(MATERIALIZED, key=[asset])["assetOrError"]["assetMaterializations"]
    return {entry["label"]: entry for entry in made["metadataEntries"]}


def test_every_asset_says_whose_it_is_what_it_is_and_what_its_columns_mean(server):
    nodes = server.ask(NODES)["assetNodes"]
    assert len(nodes) > 40
    for node in nodes:
        name = node["assetKey"]["path"][-1]
        assert node["owners"], name
        assert node["kinds"], name
        assert node["description"], name
        assert node["isPartitioned"], name
        assert {"room"} <= {tag["key"] for tag in node["tags"]}, name
    for table in ("masked", "retrieval_quality", "loss_waterfall"):
        entries = server.ask(COLUMNS, key=[table])["assetNodeOrError"]["metadataEntries"]
        (columns,) = [entry["schema"]["columns"] for entry in entries if entry.get("schema")]
        assert columns
        assert all(column["description"] and column["type"] for column in columns), table
    for asset in ("evaluation", "report", "duckdb_database", "release_gate"):
        assert server.ask(FRESHNESS, key=[asset])["assetNodeOrError"]["internalFreshnessPolicy"], asset


def test_a_text_can_be_followed_column_by_column_to_its_document(server, clicked):
    column, table, way = "text", "masked", []
    for _ in range(10):
        (made,) = server.ask(LINEAGE, key=[table])["assetOrError"]["assetMaterializations"]
        (found,) = [entry["lineage"] for entry in made["metadataEntries"] if entry.get("lineage")]
        deps = [dep for entry in found if entry["columnName"] == column for dep in entry["columnDeps"]]
        if not deps:
            break
        way.append(table := deps[0]["assetKey"]["path"][-1])
        column = deps[0]["columnName"]
    assert way == ["cleaned", "parsed"]


@pytest.mark.parametrize("asset", ["chunks", "retrieval_quality", "loss_waterfall", "release_gate"])
def test_a_page_answers_is_it_good_compared_to_what_and_what_next(server, clicked, asset):
    found = metadata(server, asset)
    numbers = [e for e in found.values() if e["__typename"] in {"FloatMetadataEntry", "IntMetadataEntry"}]
    assert numbers, "figures that plot over versions"
    pages = {label: entry.get("mdStr") or "" for label, entry in found.items()}
    assert any(page.startswith("| ") for page in pages.values()), "a table"
    if asset != "release_gate":
        assert any("data:image/svg" in page for page in pages.values()), "a picture"
        assert f"current_{asset}" in pages["sql"]
    if asset.endswith("_quality"):
        assert "change" in pages["measures"].split("\n")[0]
        assert "baseline" in found
        assert "```sql" in pages["what_to_do"]


def test_the_picture_and_the_table_are_drawn_on_the_page(server, page, clicked):
    page.goto(f"{server.url}/assets/loss_waterfall?partition=small%40v1")
    page.get_by_text("losses", exact=True).first.wait_for()
    page.get_by_text("[Show Markdown]").first.click()
    picture = page.locator("img[src^='data:image/svg']").first
    picture.wait_for(state="attached")
    assert picture.evaluate("image => image.naturalWidth") > 300


def test_a_checks_page_has_its_limit_and_what_was_found(server, page, clicked):
    page.goto(f"{server.url}/assets/loss_waterfall?view=checks&checkDetail=books")
    page.get_by_text("allowed_residual").first.wait_for()
    page.get_by_text("worst_residual").first.wait_for()


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
    ticks = server.ask(TICKS, name="corpus_changes")["sensorOrError"]["sensorState"]["ticks"]
    assert any(run["runId"] in tick["runIds"] for tick in ticks if tick["status"] == "SUCCESS")
    assert not [tick for tick in ticks if tick["status"] == "FAILURE"]


def test_what_is_off_says_so_in_its_ticks_and_the_schedule_knows_its_next_night(server, clicked):
    for name, said in (
        ("corpus_mirror", "off: automation.yaml names no mirror.sources"),
        ("notifications", "off: automation.yaml names no channel"),
    ):
        end = time.monotonic() + 200
        while time.monotonic() < end:
            state = server.ask(TICKS, name=name)["sensorOrError"]["sensorState"]
            if state["ticks"]:
                break
            time.sleep(3)
        assert state["status"] == "RUNNING"
        assert said in state["ticks"][0]["skipReason"]
    (nightly,) = server.ask(NEXT)["schedulesOrError"]["results"]
    assert nightly["cronSchedule"] == "0 2 * * *"
    assert len(nightly["futureTicks"]["results"]) == 2


def test_the_pages_log_no_error_and_ask_nobody_else(server, page, clicked):
    assert [url for url in page.requests if url.startswith("http") and not url.startswith(server.url)] == []
    assert [fault for fault in page.faults if "favicon" not in fault] == []
