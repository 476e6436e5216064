"""The `Program` record and float formats: all that a runtime reads.

May import no other package of ours.
"""

from fuse_opt.lowering.program.record import *  # noqa: F403 - the record is made of all of them
