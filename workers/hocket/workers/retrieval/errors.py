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


class FolderNotIndexed(HocketError):
    """The collection `{collection}` has no documents of the folder `{folder}`. The folders that it has
    documents of: {folders}."""

    code = "folder_not_indexed"
    error_class = ErrorClass.INVALID


class CollectionBusy(HocketError):
    """The collection `{collection}` has been indexed by another process for {waited_ms} ms. Try
    again when that has finished."""

    code = "collection_busy"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class CollectionDeleted(HocketError):
    """The collection `{collection}` was deleted while it was indexed. If it is still wanted, run the
    same command again."""

    code = "collection_deleted"
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
    with `{given}`. Use the same model, or delete the collection (`hocket index delete {collection}`) and
    index it again."""

    code = "embedder_missing"
    error_class = ErrorClass.INVALID


class SearchTimeout(HocketError):
    """The search did not finish within {timeout_ms} ms, after it had waited {waited_ms} ms for a
    connection to the index. Ask for fewer queries or with fewer words, or give the node more time: a
    search may take {max_ms} ms once it has a connection."""

    code = "search_timeout"
    error_class = ErrorClass.TIMEOUT
    retryable = True


class IndexBusy(HocketError):
    """The search waited {waited_ms} ms for a connection to the index and got none: other searches held
    them. A worker has {of_all} for searches; those of tenant `{tenant}` may hold {of_tenant} of them.
    Give the node more time, search less at once, or start more workers."""

    code = "index_busy"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True
