"""The subcommands of `producer`. Each parses options, makes one call and prints a report.

A command imports its libraries only when it runs, so `--help` answers at once.
"""
