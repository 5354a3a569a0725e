"""Posts of subreddits, read through PRAW and written as a Parquet file that a run can score.

`collect.py` is the whole collection; `access.py` the credentials, `listings.py` one page at a time, `journal.py` the pages
that are there, `posts.py` the file. Needs the extra `reddit`, so nothing else imports this package.
"""
