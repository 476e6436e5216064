"""Writes all generated files of the tree: `python -m fuse_opt.tools.develop [--check]`."""

import sys

from fuse_opt.tools.develop.generated import generators, run

if __name__ == "__main__":
    sys.exit(run(generators(), "python -m fuse_opt.tools.develop"))
