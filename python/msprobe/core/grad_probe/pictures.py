"""The plots of msprobe 1.0 to 8: ``similarities_picture/<parameter>_similarities.png``.

python -m msprobe.core.grad_probe.pictures similarities.csv ...

``msprobe grad_compare --png`` runs it. It prints one line: how many pictures it drew, or what is
wrong, a tab, and what to type.
"""

import csv
import os
import sys

_MOST_BYTES = 200  # of the name of a file, of the 255 that file systems take


def _file_name(parameter):
    """A name without a folder in it, whatever the table says."""
    text = "".join("_" if c in "/\\\0" or ord(c) < 32 else c for c in parameter)
    return text.encode()[:_MOST_BYTES].decode(errors="ignore") + "_similarities.png"


def _draw(table):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder = os.path.join(os.path.dirname(table), "similarities_picture")
    os.makedirs(folder, exist_ok=True)
    figure = Figure()
    canvas = FigureCanvasAgg(figure)
    count = 0
    with open(table, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        steps = [int(step) for step in next(rows)[1:]]
        for parameter, *cells in rows:
            figure.clear()
            axes = figure.add_subplot()
            # A cell that was not compared is empty: a gap in the line.
            shares = [float(cell) if cell else float("nan") for cell in cells]
            axes.plot(steps, shares, marker="." if len(steps) == 1 else None)
            axes.set(xlabel="steps", ylabel="similarities")
            axes.set_title(f"{parameter}_similarities", parse_math=False)
            canvas.print_png(os.path.join(folder, _file_name(parameter)))
            count += 1
    return count


def main(tables):
    try:
        return str(sum(map(_draw, tables)))
    except ImportError as error:
        return f"--png: {error}\tpip install 'mindstudio-probe[pictures]'"
    except OSError as error:
        return f"--png: {error.filename}: {error.strerror}\tfree some space, or use --html"


if __name__ == "__main__":
    print(main(sys.argv[1:]))
