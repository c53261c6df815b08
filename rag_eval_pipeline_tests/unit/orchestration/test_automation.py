"""automation.yaml: defaults without it, every fault by field, and no secret in the file or in a message."""

import re

import pytest
import yaml

from rag_eval_pipeline.orchestration.automation import Automation, AutomationError, load, variable
from rag_eval_pipeline_tests.integration.house import ROOT, home_of


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "automation.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(text), "utf-8")
        return home_of(tmp_path)

    return write


def test_without_a_file_or_with_an_empty_one_nothing_is_mirrored_and_nobody_told(tmp_path, written):
    assert load(home_of(tmp_path)) == Automation() == load(written(""))
    settings = load(written("# nothing yet\n"))
    assert settings.mirror.sources == ()
    assert settings.notify.channels == ()


EMAIL = {"host": "mail.example.org", "sender": "a@example.org", "to": ["b@example.org"]}
FAULTS = {
    "sensor.qiet": {"sensor": {"qiet": 3}},
    "sensor.every": {"sensor": {"every": "often"}},
    "sensor.budget": {"sensor": {"budget": 59}},
    "mirror.sources.0.url": {"mirror": {"sources": [{"url": "bucket"}]}},
    "mirror.sources.0.options": {"mirror": {"sources": [{"url": "s3://b", "options": {"client": {"aws_secret_access_key": "hunter2"}}}]}},
    "notify.events.0": {"notify": {"events": ["run_won"]}},
    "notify.webhook.url_env": {"notify": {"webhook": {"url_env": "https://hooks.example/hunter2"}}},
    "notify.webhook.url": {"notify": {"webhook": {"url_env": "X", "url": "https://hooks.example/hunter2"}}},
    "notify.email.to.0": {"notify": {"email": {**EMAIL, "to": [3]}}},
    "notify.email.to": {"notify": {"email": {**EMAIL, "to": ["b@example.org\r\nBcc: c@example.org"]}}},
    "notify.email": {"notify": {"email": {**EMAIL, "user_env": "A", "password_env": "B", "security": "none"}}},
}  # fmt: skip


@pytest.mark.parametrize("field", FAULTS)
def test_a_fault_is_told_by_its_field_and_never_by_what_stands_there(written, field):
    with pytest.raises(AutomationError) as refused:
        load(written(FAULTS[field]))
    assert f"automation.yaml: {field}: found " in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("sensor: [\n", "automation.yaml:2 is no YAML"), ("- 1\n", "found list"), ("a: \xff", "sections|a")],
)
def test_what_is_no_settings_file_is_a_sentence(written, text, said):
    with pytest.raises(AutomationError) as refused:
        load(written(text))
    assert any(part in str(refused.value) for part in said.split("|"))


def test_a_user_and_password_in_a_url_are_refused(written):
    with pytest.raises(AutomationError, match="without user and password"):
        load(written({"mirror": {"sources": [{"url": "sftp://me:hunter2@host/corpora"}]}}))


def test_options_take_secrets_from_the_environment(written, monkeypatch):
    options = {"endpoint_url": "http://x", "secret": {"env": "A_SECRET"}, "client": {"list": [{"env": "A_SECRET"}, 3]}}
    (source,) = load(written({"mirror": {"sources": [{"url": "s3://b/c/", "options": options}]}})).mirror.sources
    assert source.url == "s3://b/c"
    with pytest.raises(AutomationError, match=r"A_SECRET, which automation\.yaml names, is not set"):
        source.resolved()
    monkeypatch.setenv("A_SECRET", "hunter2")
    assert source.resolved() == {"endpoint_url": "http://x", "secret": "hunter2", "client": {"list": ["hunter2", 3]}}
    assert variable("A_SECRET") == "hunter2"


def test_the_docs_show_every_key_with_its_default_or_an_example(written):
    text = (ROOT / "docs" / "automation.md").read_text("utf-8")
    (body,) = re.findall(r"^```yaml automation\.yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = load(written(body))
    assert shown.notify.channels == ("webhook", "email")
    assert (shown.sensor, shown.mirror.model_copy(update={"sources": ()})) == (Automation().sensor, Automation().mirror)

    def keys(section):
        for name in type(section).model_fields:
            yield name
            value = getattr(section, name)
            for inner in value if isinstance(value, tuple) else (value,):
                if hasattr(type(inner), "model_fields"):
                    yield from keys(inner)

    for name in keys(shown):
        assert re.search(rf"\b{name}:", body), name
