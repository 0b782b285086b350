"""Calls of a user's functions, whose exceptions become one sentence that says where they come from."""

import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.storage.retry import StoreUnavailable

PACKAGE = Path(__file__).parents[1]  # frames in it are not the user's
Result = TypeVar("Result")
MAX_MESSAGE_CHARACTERS = 300  # torch lists all of its backends in one line


def call_user_code(
    description: str,
    function: Callable[[], Result],
    *,
    may_refuse: bool = False,
    passing: tuple[type[Exception], ...] = (),
    code: str = "workload-invalid",
) -> Result:
    """Return the result of a user's function; turn any exception into an EquipoiseError with a one-line message.

    With `may_refuse` a ValueError is the function's own sentence, and shown as it is. Errors of the kinds in `passing`
    are raised as they are.
    """
    try:
        return function()
    except EquipoiseError as error:
        raise EquipoiseError(error.code, join_lines(error.problem), join_lines(error.remedy)) from error
    except StoreUnavailable:  # no mistake of the function
        raise
    except passing:
        raise
    except (Exception, SystemExit) as error:
        if may_refuse and isinstance(error, ValueError) and (message := join_lines(str(error))):
            raise EquipoiseError(code, message) from error
        message = textwrap.shorten(first_error_line(error, "no message"), MAX_MESSAGE_CHARACTERS, placeholder=" ...")
        found = f"{description} raised {type(error).__name__}: {message}{describe_location(error)}"
        raise EquipoiseError(code, found) from error


def describe_location(error: BaseException) -> str:
    """Return the innermost line of the user's own code behind an error, in brackets, or else that of a package."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(PACKAGE)]
    own = [frame for frame in others if "site-packages" not in Path(frame.filename).parts]
    frame = next(iter(own[-1:] or others[-1:]), None)
    return "" if frame is None else f" ({frame.filename}, line {frame.lineno})"


def join_lines(text: str) -> str:
    """Return a text as one line, with single spaces."""
    return " ".join(text.split())
