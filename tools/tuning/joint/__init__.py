"""Plans of whole programs that are tried: passes, options, decisions, implementations."""
