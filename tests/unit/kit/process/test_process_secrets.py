"""Secrets leave the environment of a process before its program begins, and lines of its log."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from pydantic import SecretStr

from hocket.gateway.core.config.providers import PROVIDERS
from hocket.kit.process import process_secrets
from hocket.kit.process.settings import Settings, variable_of
from hocket.schemas.checks.redaction import Redactor, without_url_passwords
from hocket.schemas.errors import InvalidInput

PROGRAM = """
import json, os, sys
from hocket.kit.process import process_secrets
process_secrets.start_without_secrets()
began = open("/proc/self/environ").read()
taken = process_secrets.taken()
print(json.dumps([began, taken, dict(os.environ), sys.argv[1:]]))
"""
SECRETS = {
    "DATABASE_URL": "postgresql://u:pw-4711@h/d",
    "NATS_URL": "nats://u:pw-4711@h",
    "KEY": "sk-4711",
}


def test_a_program_starts_anew_without_the_secrets_in_its_environment(tmp_path: Path) -> None:
    config = tmp_path / "hocket.yaml"
    config.write_text("models: {a: {backends: [{api_key: os.environ/KEY}]}}")
    environment = os.environ | SECRETS | {"HOCKET_CONFIG": str(config), "OTHER": "stays"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "one", "two words"],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    began, taken, environ, arguments = json.loads(done.stdout)
    assert taken == SECRETS
    assert "4711" not in began
    assert "4711" not in json.dumps(environ)
    assert process_secrets.PIPE not in environ
    assert environ["OTHER"] == "stays"
    assert arguments == ["one", "two words"]


def test_keys_that_litellms_form_leaves_to_the_environment_are_secrets_too(tmp_path: Path) -> None:
    config = tmp_path / "litellm.yaml"
    environment = {"HOCKET_CONFIG": str(config), "OPENAI_API_KEY": "sk-1", "TAVILY_API_KEY": "t"}
    config.write_text("models: {a: {backends: []}}")
    assert process_secrets.secret_names(environment) == set()
    config.write_text("model_list: [{model_name: a, litellm_params: {model: openai/gpt-4o}}]")
    assert process_secrets.secret_names(environment) == {"OPENAI_API_KEY"}


def test_the_variables_of_all_providers_are_known() -> None:
    read = {name for provider in PROVIDERS.values() for name in provider.key_variables}
    assert read == process_secrets.PROVIDER_KEYS


def test_every_secret_setting_is_kept_out_of_environments_and_may_come_from_a_file(
    tmp_path: Path,
) -> None:
    secret = {
        variable_of(name)
        for name, kind in get_type_hints(Settings).items()
        if name in Settings.model_fields and SecretStr in (kind, *get_args(kind))
    }
    assert len(secret) > 4
    assert secret <= process_secrets.secret_names(dict.fromkeys(secret, "x"))
    (tmp_path / "secret").write_text("from the file\n")
    environment = {name + process_secrets.FILE: str(tmp_path / "secret") for name in secret}
    process_secrets.read_files(environment)
    assert environment == dict.fromkeys(secret, "from the file")


def test_without_secrets_nothing_is_started_anew() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in SECRETS}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)[1] == {}


def test_more_than_a_pipe_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        r"`DATABASE_URL` is not valid: the secrets .* have 600\d\d bytes.* limit is 60000\. Shorten"
    )
    secrets = {"NATS_URL": "nats://a", "DATABASE_URL": "x" * 60_000}
    with pytest.raises(InvalidInput, match=said):
        process_secrets.handed_over(secrets)

    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=f"hocket: {said}"):
        process_secrets.start_without_secrets()


def test_the_configuration_may_be_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "h.yaml").write_text("key: os.environ/MODEL_KEY\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    environment = {"HOCKET_CONFIG": "~/h.yaml", "MODEL_KEY": "k"}
    assert process_secrets.secret_names(environment) == {"MODEL_KEY"}
    assert process_secrets.secret_names(environment | {"HOCKET_CONFIG": "~nobody-here/h"}) == set()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach postgresql://u:s3cret@h:5432/d?x=1", "cannot reach postgresql://u:***@h:5432/d?x=1"),
        ("nats://:tok%40en@h", "nats://:***@h"),
        ("two: a://u:p@h b://v:q@i", "two: a://u:***@h b://v:***@i"),
        ('{"url":"redis://u:p@h"}', '{"url":"redis://u:***@h"}'),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ("http://user@host/x", "http://user@host/x"),
        ("no url: a:b@c", "no url: a:b@c"),
        ("postgresql://u:p@ss@h/d", "postgresql://u:***@h/d"),
        ("nats://u:pw@h:1,v:qw@i:2", "nats://u:***@i:2"),
        ("nats://u:pw@h:1,nats://v:qw@i:2", "nats://u:***@h:1,nats://v:***@i:2"),
        ("a://h/d?x=1&password=s3cret&y=2", "a://h/d?x=1&password=***&y=2"),
        ("('a://h/d?password=s3cret', 5)", "('a://h/d?password=***', 5)"),
    ],
)  # fmt: skip
def test_passwords_of_urls_are_hidden(text: str, shown: str) -> None:
    assert without_url_passwords(text) == shown


def test_known_secrets_are_hidden_and_short_ones_are_none() -> None:
    redacted = Redactor(["sk-4711-abc", "sk-4711-abc-def", "x", ""])
    assert redacted("key sk-4711-abc-def and sk-4711-abc, x") == "key *** and ***, x"


@pytest.mark.parametrize("secret", ['quo"te\\4711', "pässwort-4711", "two\nlines-4711"])
def test_secrets_are_hidden_as_json_and_repr_write_them(secret: str) -> None:
    redacted = Redactor([secret])
    for written in (json.dumps, repr, partial(json.dumps, ensure_ascii=False)):
        line = redacted(written({"password": secret, "said": f"no {secret}!"}))
        assert "4711" not in line
        assert line.count("***") == 2
