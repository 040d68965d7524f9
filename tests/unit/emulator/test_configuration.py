"""What an emulator cannot be started with, told by field or option and with the cure."""

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.cli.commands.platform import emulate
from hocket.emulator.configuration import EmulatorConfig, parse
from hocket.emulator.core.faults import FaultRates
from hocket.schemas.errors import InvalidInput


def test_engines_beyond_the_last_port_are_refused_with_the_cure() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse({"engines": [{"port": 65_535, "replicas": 3}]})
    assert str(caught.value) == (
        "`engines.0` is not valid: 3 engines from port 65535 on need ports beyond 65535. Use a port of "
        "at most 65533, or fewer replicas."
    )
    assert parse({"engines": [{"port": 65_533, "replicas": 3}]}).engines[0].ports()[-1] == 65_535


def test_rates_of_faults_are_at_most_all_requests() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse({"engines": [{"faults": {"error_rate": 0.7, "hang_rate": 0.7}}]})
    assert str(caught.value) == (
        "`engines.0.faults` is not valid: the rates of faults are 1.4 together, which is more than all "
        "requests. Lower them to at most 1 together."
    )
    assert FaultRates(error_rate=0.7, hang_rate=0.2, delay_rate=0.1).hang_rate == 0.2


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        ("--port 65535 --replicas 3", "`--port` is not valid: 3 engines from port 65535"),
        ("--error-rate 0.7 --hang-rate 0.7", "`--error-rate` is not valid: the rates of faults"),
        ("--block-tokens 0", "`--block-tokens` is not valid: it is out of bounds"),
        ("--speed 0", "`--speed` is not valid: it is out of bounds"),
    ],
)
def test_a_wrong_option_is_named_as_it_is_written(
    words: str, begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(_config: EmulatorConfig) -> None: ...

    monkeypatch.setattr(emulate, "_serve", serve)
    found = CliRunner().invoke(cli, ["emulate", *words.split()])
    assert isinstance(found.exception, InvalidInput)
    assert str(found.exception).startswith(begin)
    assert "Also wrong" not in str(found.exception)
