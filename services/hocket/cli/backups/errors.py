"""Reasons why a backup cannot be taken or restored."""

from hocket.schemas.errors import ErrorClass, HocketError


class BackupFolderTaken(HocketError):
    """The folder {folder} is there and not empty. Name another one for the backup."""

    code = "backup_folder_taken"
    error_class = ErrorClass.INVALID


class BackupUnreadable(HocketError):
    """The backup {folder} cannot be restored: {reason}. Nothing was changed."""

    code = "backup_unreadable"
    error_class = ErrorClass.INVALID


class TargetNotEmpty(HocketError):
    """A backup is restored into empty servers, and {what}. Give it an empty database and NATS with empty
    storage."""

    code = "target_not_empty"
    error_class = ErrorClass.INVALID
