"""``logger``, under the module path of msprobe 1.0 to 26: lines of a program in our log."""

from msprobe import _engine
from msprobe.pytorch.process import rank


class Logger:
    """The methods of the older tools' logger. Those ``_on_rank_0`` are silent on other ranks."""

    def debug(self, text):
        _engine.write_log("debug", str(text))

    def info(self, text):
        _engine.write_log("info", str(text))

    def warning(self, text):
        _engine.write_log("warning", str(text))

    def error(self, text):
        _engine.write_log("error", str(text))

    def info_on_rank_0(self, text):
        if not rank():
            self.info(text)

    def warning_on_rank_0(self, text):
        if not rank():
            self.warning(text)

    def error_on_rank_0(self, text):
        if not rank():
            self.error(text)


logger = Logger()
