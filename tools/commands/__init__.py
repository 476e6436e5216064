"""`fuse-opt`, `fuse-run`, `fuse-pack` and the demo.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, fuse_opt, frontends,
frontends/*, tools/source, tools/compiler.
"""
