"""`fuse-tune`: what passes would guess, measured on this machine and kept as text.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/compiler, tools/commands, tools/watching, tools/steering, tools/tuning/*.
"""
