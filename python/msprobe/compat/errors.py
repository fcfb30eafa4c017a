"""The exceptions that callers of the older tools catch."""

from msprobe import UsageError


class CompareException(UsageError):
    """Raised with the number that the older tools had for each reason.

    Example::

        try:
            compare(paths, "./output")
        except CompareException as error:
            print(error.code, error)
    """

    INVALID_PATH_ERROR = 1
    OPEN_FILE_ERROR = 2
    CLOSE_FILE_ERROR = 3
    READ_FILE_ERROR = 4
    WRITE_FILE_ERROR = 5
    INVALID_FILE_ERROR = 6
    PERMISSION_ERROR = 7
    INDEX_OUT_OF_BOUNDS_ERROR = 8
    NO_DUMP_FILE_ERROR = 9
    INVALID_DATA_ERROR = 10
    INVALID_PARAM_ERROR = 11
    INVALID_DUMP_RATIO = 12
    INVALID_DUMP_FILE = 13
    UNKNOWN_ERROR = 14
    INVALID_DUMP_MODE = 15
    PARSE_FILE_ERROR = 16
    INVALID_COMPARE_MODE = 17
    OVER_SIZE_FILE_ERROR = 18
    INVALID_SUMMARY_MODE = 19

    def __init__(self, code, message=""):
        super().__init__(message or f"code {code}")
        self.code = code


class DumpException(CompareException):
    """Raised by ptdbg_ascend 2.0 and later when a dump is set up; the numbers are the same."""


class RegistrationError(CompareException, AssertionError, RuntimeError, ValueError):
    """Wrong arguments of a set-up call. It is of all the types that the versions raised."""

    def __init__(self, message, code=CompareException.INVALID_PARAM_ERROR):
        super().__init__(code, message)
