"""Errors of indexing and search."""

from hocket.schemas.errors import ErrorClass, HocketError


class CollectionUnknown(HocketError):
    """There is no collection `{collection}`. Index a folder first:
    `hocket index add FOLDER --collection {collection}`."""

    code = "collection_unknown"
    error_class = ErrorClass.INVALID


class FolderUnusable(HocketError):
    """The folder `{folder}` cannot be indexed: {reason}."""

    code = "folder_unusable"
    error_class = ErrorClass.INVALID


class CollectionBusy(HocketError):
    """The collection `{collection}` has been indexed by another process for {waited_ms} ms. Try
    again when that has finished."""

    code = "collection_busy"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class DocumentUnreadable(HocketError):
    """The document `{source}` cannot be read: {reason}."""

    code = "document_unreadable"
    error_class = ErrorClass.INVALID


class EmbeddingInvalid(HocketError):
    """The embedding model `{model}` answered with {reason}. Check which model `{model}` points to."""

    code = "embedding_invalid"
    error_class = ErrorClass.INVALID


class EmbedderMissing(HocketError):
    """The collection `{collection}` has vectors of the model `{model}`, but indexing was requested
    with `{given}`. Use the same model, or drop the collection and index it again."""

    code = "embedder_missing"
    error_class = ErrorClass.INVALID
