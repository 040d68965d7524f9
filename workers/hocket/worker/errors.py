"""Errors that are raised before a worker starts."""

from hocket.schemas.errors import ErrorClass, HocketError


class NodeTypeInvalid(HocketError):
    """The node type `{type}` cannot be announced: {reason}. {cure}"""

    code = "node_type_invalid"
    error_class = ErrorClass.INVALID


class WorkerNameInvalid(HocketError):
    """`{name}` cannot be the name of a worker. Use at most 63 ASCII letters, digits, `_` or `-`,
    starting with a letter or digit, or give no name."""

    code = "worker_name_invalid"
    error_class = ErrorClass.INVALID


class WorkerNotFound(HocketError):
    """`{named}` is not a worker: {reason}. Name it as `module:worker`, where `worker = Worker()`."""

    code = "worker_not_found"
    error_class = ErrorClass.INVALID


class BlobsNotFound(HocketError):
    """There is no folder `{folder}` for large values. Name the platform's folder for blobs."""

    code = "blobs_not_found"
    error_class = ErrorClass.INVALID
