"""What is fixed for the life of an installation, and must be the same in each of its processes."""

import asyncpg

from hocket.schemas.errors import ErrorClass, HocketError


class PartitionsDiffer(HocketError):
    """This installation's runs are sharded into {kept} partitions, but this process was given {given}.
    The number cannot change: set HOCKET_PARTITIONS={kept}, or start with an empty database and
    broker."""

    code = "partitions_differ"
    error_class = ErrorClass.INVALID


async def agree_on_partitions(pool: asyncpg.Pool, partitions: int) -> None:
    """Store the number of partitions at the first start; at later ones, raise PartitionsDiffer if it is
    another."""
    await pool.execute(_KEEP, partitions)
    kept = await pool.fetchval(_KEPT)
    if kept != partitions:
        raise PartitionsDiffer(kept=kept, given=partitions)


_KEEP = "INSERT INTO hocket.installation (partitions) VALUES ($1) ON CONFLICT DO NOTHING"
_KEPT = "SELECT partitions FROM hocket.installation"
