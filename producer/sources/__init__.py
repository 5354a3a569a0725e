"""Where the rows come from: a crawl, or files in folders, buckets and on the Hub."""
