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
