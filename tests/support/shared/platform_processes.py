"""Let the platforms of tests fork their processes."""

import signal
from collections.abc import Mapping
from typing import Any

import pytest

from hocket.cli.local.processes import PlatformProcess
from hocket.kit.process import process_secrets
from support.shared.processes import can_be_forked, template


def fork_platform_processes(patch: pytest.MonkeyPatch) -> None:
    """Make `PlatformProcess` start its process through the template where that is possible."""
    usual = PlatformProcess._launch

    async def launch(
        process: PlatformProcess, env: Mapping[str, str], output: int, secrets: int
    ) -> Any:
        _, _, module, *arguments = process._command
        if not can_be_forked(module, env):
            return await usual(process, env, output, secrets)
        return await template().start(
            module,
            arguments,
            env,
            output=output,
            errors=output,
            secrets=secrets,
            secrets_named=process_secrets.PIPE,
            death_signal=signal.SIGTERM,
        )

    patch.setattr(PlatformProcess, "_launch", launch)
