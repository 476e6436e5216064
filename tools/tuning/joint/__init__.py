"""Plans of whole programs that are tried: passes, options, decisions, implementations.

May import dialects, dialects/*, passes, passes/*, lowering, lowering/*, runtime, runtime/*, tools/source,
tools/compiler, tools/commands, tools/watching, tools/steering, tools/tuning/search.
"""
