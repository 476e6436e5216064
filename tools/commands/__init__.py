"""`fuse-opt`, `fuse-run`, `fuse-pack`, the demo, and what the commands of xDSL find of ours.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, fuse_opt, frontends,
frontends/*, tools/source, tools/compiler, tools/watching, tools/steering, tools/targets/html.
"""
