"""The subcommands of `worker`. Each parses options, makes one call and prints a report.

Each imports what it needs when it runs, so that help appears at once.
"""
