"""What is said of a server that cannot be used: one line with what is wrong, and what to do about it."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import NoReturn

from bus.errors import ReplyError, ServerError, ServerUnfit, ServerUnreachable
from bus.target import Target

__all__ = ["GRANT", "SILENCE", "refused", "tls_hint", "unfit", "unreachable", "with_remedy"]

SILENCE = 5.0  # seconds for connecting, and again for all answers together
_OTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
GRANT = "give it the rights with ACL SETUSER"


def unfit(target: Target, problem: str, remedy: str) -> NoReturn:
    """Raise ServerUnfit."""
    raise ServerUnfit(f"{target.redacted}: {problem} ({remedy})")


def with_remedy(target: Target, error: ReplyError) -> ServerError:
    """An error reply, told with what to do about it; one that is not known is returned as it came."""
    text = str(error)
    problems = {
        "NOAUTH": ("it wants a password", "write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"),
        "WRONGPASS": ("wrong user or password", "look up what the server expects; encode special characters"),
        "NOPERM": (f"this user has too few rights: {text}", GRANT),
        "DENIED": ("it is in protected mode, for its own machine only", "set a password on it"),
        "READONLY": ("it is read-only", "give the URL of the primary"),
        "MASTERDOWN": ("it is a replica that lost its primary", "give the URL of the primary"),
        "OOM": ("its memory is full", "raise maxmemory, or remove data"),
        "MISCONF": ("it refuses writes: its snapshots cannot be written to disk", "see its log; make room"),
        "NOREPLICAS": ("it refuses writes: too few replicas are connected", "see min-replicas-to-write"),
    }
    if error.code not in problems:
        return error
    problem, remedy = problems[error.code]
    return ServerUnfit(f"{target.redacted}: {problem} ({remedy})")


def refused(target: Target, error: ReplyError) -> NoReturn:
    """Raise ServerUnfit for an error reply."""
    text = str(error)
    if "called without any password configured" in text:
        unfit(target, "it has no password, and one was given", "leave the password out of the URL")
    if "DB index" in text:
        unfit(target, f"it has no database {target.db}", "leave the number out of the URL")
    if (told := with_remedy(target, error)) is not error:
        raise told
    unfit(target, f"it answered {text!r}", "is it a Redis or a Valkey?")


def tls_hint(target: Target) -> str:
    """What may be wrong when a server hangs up or says nothing: with TLS and without, either side may."""
    if target.host is None:
        return ""
    return " (is TLS spoken there? redis:// is without)" if target.tls else " (if it wants TLS, write rediss://)"


def unreachable(target: Target, error: BaseException, hint: str = "") -> NoReturn:
    """Raise ServerUnreachable. `hint`: what may be wrong where the server said nothing at all."""
    cause = error if isinstance(error, TimeoutError) else error.__cause__ or error
    silent = isinstance(cause, ServerUnreachable | TimeoutError)
    raise ServerUnreachable(f"{target.redacted}: {_why(cause)}{hint if silent else ''}") from error


def _why(error: BaseException) -> str:
    """The reason in words, of an error of the system."""
    text = str(error)
    match error:
        case TimeoutError():
            return f"no answer within {SILENCE:.0f} s"
        case FileNotFoundError():
            return "there is no such socket"
        case PermissionError():
            return "you may not use this socket"
        case socket.gaierror():
            return "the name of the host is not known"
        case ssl.SSLCertVerificationError():
            named = error.verify_code in _OTHER_NAME
            remedy = "name the server as its certificate does" if named else "add ?ssl_ca_certs=FILE"
            return f"its certificate is not trusted, {error.verify_message.rstrip('.')} ({remedy})"
        case ssl.SSLError():
            return "TLS is not spoken there (redis:// is the plain form)"
        case OSError() if error.errno == errno.ECONNREFUSED or f"Errno {errno.ECONNREFUSED}" in text:
            # of a name with several addresses, the errors are in the text only
            return "connection refused: no server listens there"
        case _:
            return text
