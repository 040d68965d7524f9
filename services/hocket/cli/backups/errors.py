"""Reasons why a backup cannot be taken or restored."""

from hocket.schemas.errors import ErrorClass, HocketError


class BackupFolderTaken(HocketError):
    """The folder {folder} already exists and is not empty. Choose another one for the backup."""

    code = "backup_folder_taken"
    error_class = ErrorClass.INVALID


class BackupFolderUnusable(HocketError):
    """The folder {folder} cannot be written: {reason}. Choose another one for the backup."""

    code = "backup_folder_unusable"
    error_class = ErrorClass.INVALID


class TablesUnknown(HocketError):
    """A backup could not be restored, because this release knows no table {tables}. Move what is not
    Hocket's to another schema (`ALTER TABLE ... SET SCHEMA public`), or drop it, and take the backup
    again."""

    code = "backup_tables_unknown"
    error_class = ErrorClass.INVALID


class PartitionsLeft(HocketError):
    """A backup could not be restored with {tables}, which an earlier release detached and did not drop,
    and which has other columns than the tables of this one. The next pass of the ledger drops it (there
    is one every 10 minutes): try again then."""

    code = "backup_partitions_left"
    error_class = ErrorClass.UNAVAILABLE


class BackupUnreadable(HocketError):
    """The backup {folder} cannot be restored: {reason}. Nothing was changed."""

    code = "backup_unreadable"
    error_class = ErrorClass.INVALID


class BackupIncomplete(HocketError):
    """The backup {folder} was restored, but rows are missing from {tables}. Do not use this database:
    drop it, and restore the backup again, or an earlier one."""

    code = "backup_incomplete"
    error_class = ErrorClass.PERMANENT


class TargetNotEmpty(HocketError):
    """A backup can only be restored into empty servers, but {what}. Use an empty database and a NATS
    server with empty storage."""

    code = "target_not_empty"
    error_class = ErrorClass.INVALID
