import sys

from msprobe.compat.hooks_compare import main

sys.exit(main(sys.argv[1:]))
