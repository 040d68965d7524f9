"""What is wrong with a platform's data folder. (Apart from `platform_facts`, which commands import
although few of them meet an error.)"""

from hocket.schemas.errors import ErrorClass, HocketError


class DataFolderUnreadable(HocketError):
    """The data folder `{data_dir}` cannot be read: {reason}. Name another one with --data-dir or
    HOCKET_DATA_DIR, or run this as the user whose platform it is."""

    code = "data_folder_unreadable"
    error_class = ErrorClass.INVALID
