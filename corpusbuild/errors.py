"""What can go wrong, by who can put it right. Every error is one line with its remedy, and survives a pickle round trip.

``exit_code`` follows sysexits: 65 will not heal by itself, 75 may heal when run again, 130 is a cancel.
"""

DATA, TEMPORARY, CANCELLED = 65, 75, 130


class CorpusError(Exception):
    """Base. ``args`` is exactly what ``__init__`` was given, so workers can send it home."""

    exit_code = DATA


class ConfigError(CorpusError):
    """The configuration is wrong; the person edits it. ``args`` are the problems, one line each."""

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.args)


class SourceError(CorpusError):
    """A source could not be had. ``retryable`` says whether running again can help."""

    def __init__(self, source_id: str, message: str, retryable: bool = False):
        super().__init__(source_id, message, retryable)
        self.source_id, self.message, self.retryable = source_id, message, retryable
        self.exit_code = TEMPORARY if retryable else DATA

    def __str__(self) -> str:
        return f"{self.source_id}: {self.message}"


class IntegrityError(CorpusError):
    """Bytes on disk or off the wire are not the bytes that were promised."""


class LockError(IntegrityError):
    """A build is whole, but it is not what its lock allows. It waits unpublished, and is not undone."""


class LicenseError(CorpusError):
    """Policy refuses. ``args`` are the problems, one line each."""

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.args)


class StageError(CorpusError):
    """A stage failed on one item; the message names the stage, the item and the cause."""

    def __init__(self, stage: str, item: str, cause: str):
        super().__init__(stage, item, cause)

    def __str__(self) -> str:
        stage, item, cause = self.args
        return f"{stage}: {item}: {cause}"


class WorkerLost(CorpusError):
    """A worker died under its work, most often for want of memory. Running again is safe."""

    exit_code = TEMPORARY


class DiskError(CorpusError):
    """The disk refused: full, read-only or failing. Put it right and run again; nothing good is lost."""

    exit_code = TEMPORARY


class Cancelled(CorpusError):
    """The person or the machine asked the run to stop."""

    exit_code = CANCELLED
