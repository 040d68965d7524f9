"""The servers behind a platform: its data folder is its own, also where both servers are the user's."""

from pathlib import Path

import pytest

from hocket.cli.local.backing_servers import BackingServers
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.errors import DataFolderInUse


def servers_of_the_user(folder: Path) -> BackingServers:
    return BackingServers(
        folder,
        nats_url="nats://127.0.0.1:1",
        database_url="postgresql://127.0.0.1:1/hocket",
        nats_port=0,
        replicas=None,
    )


async def test_a_second_platform_in_the_folder_is_refused_until_the_first_has_stopped(
    tmp_path: Path,
) -> None:
    """It would remove the first one's files of health, and write into its journals."""
    first, second = servers_of_the_user(tmp_path / "d"), servers_of_the_user(tmp_path / "d")
    await first.start()
    with pytest.raises(DataFolderInUse):
        await second.start()
    await second.stop()
    with pytest.raises(DataFolderInUse):
        await second.start()

    await first.stop()

    await second.start()
    await second.stop()


async def test_whoever_gives_a_platform_its_servers_may_run_them_in_its_folder(
    tmp_path: Path,
) -> None:
    async with EmbeddedServers(tmp_path / "d", nats=False, postgres=False):
        platform = servers_of_the_user(tmp_path / "d")
        await platform.start()
        await platform.stop()
